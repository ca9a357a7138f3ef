"""Fits to features: scikit-learn's on states of a plain forward pass, from one pass over the rows."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel, AutoTokenizer

from frostline import tasks
from frostline.kinds import CLASSIFICATION
from frostline.model.added.readers import POOLINGS
from frostline.model.load import describe, load_model
from frostline.records.specs import RunSpec
from frostline.storage.prefix_cache import Origin
from frostline.tasks import Rows
from frostline.testing.models import make_model, make_spec, make_task
from frostline.training.fit import LinearFit, fit_linear
from frostline.training.pooled import pooled_states
from frostline.training.prefix import Prefixes
from frostline.training.run import Runner
from tiny import Case

ORIGIN = Origin(
    model="tiny", model_fingerprint="m", task="toy", split="train", layout="padded", device="cpu", dtype="fp32"
)


def _plain_states(folder: str, rows: Rows) -> NDArray[np.float64]:
    """(rows, depths, poolings, width) of a bare model, row by row, by transformers alone."""
    model, tokenizer = AutoModel.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)
    model.eval()
    found = []
    with torch.no_grad():
        for text in rows.texts:
            inputs = tokenizer(text, return_tensors="pt")
            states = torch.stack(model(**inputs, output_hidden_states=True).hidden_states)[:, 0].double()
            found.append(torch.stack([states.mean(1), states[:, 0], states[:, -1]], dim=1).numpy())
    return np.stack(found)


def _check_against_sklearn(spec: RunSpec, model: str) -> None:
    result = Runner(max_cache_bytes=0).run(spec)
    data = tasks.load(spec.task)
    train, dev = _plain_states(model, data.train), _plain_states(model, data.dev)
    assert len(result.probes) == result.n_layers + 1
    ours, apart = result.predictions.outputs.array(), []
    for probe in result.probes:
        at = (slice(None), probe.depth, POOLINGS.index(probe.pooling))
        logistic = make_pipeline(StandardScaler(), LogisticRegression(C=probe.strength, max_iter=1000))
        logistic.fit(train[at], data.train.labels)
        theirs = np.column_stack([-logistic.decision_function(dev[at]), logistic.decision_function(dev[at])]) / 2
        assert data.kind.score("accuracy", data.dev.labels, theirs.astype(np.float32)) == pytest.approx(probe.score)
        apart.append(float(np.abs(ours - theirs).max() / np.abs(theirs).max()))
    assert min(apart) < 1e-3, "the chosen layer's outputs are scikit-learn's"
    assert max(apart) > 1e-1, "twin: another layer's are not"


def test_it_is_scikit_learns_on_plain_states(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "bert", n_layers=3)
    spec = make_spec(model, make_task(tmp_path / "task.csv", n_rows=120), strategy="features:logreg", learning_rate=0.0)
    _check_against_sklearn(spec, str(model))


@pytest.mark.thorough
@pytest.mark.real
def test_on_real_weights_too() -> None:
    name = str(tasks.demo_model_folder())
    task = tasks.resolve(tasks.parse("rotten-tomatoes", max_train=120, max_dev=50))
    spec = RunSpec(
        model=name, model_fingerprint=describe(name).fingerprint, task=task, strategy="features:logreg",
        data_fingerprint=tasks.load(task).fingerprint, learning_rate=0.0, epochs=1, max_length=128, seed=0,
        is_cached=True,
    )  # fmt: skip
    _check_against_sklearn(spec, name)


def test_pooled_states_are_those_of_the_plain_model() -> None:
    case = Case("bert")
    encoded, stack = case.encoded(12), case.stack(n_layers=3)
    found = pooled_states(Prefixes(0), encoded, ORIGIN, lambda: stack)
    for row in range(len(encoded)):
        tokens = encoded.tokens[encoded.offsets[row] : encoded.offsets[row + 1]]
        with torch.no_grad():
            output = stack.model(input_ids=torch.from_numpy(tokens)[None], output_hidden_states=True)
        for depth, state in enumerate(output.hidden_states):
            alone = torch.stack([state[0].mean(0), state[0, 0], state[0, -1]]).numpy()
            assert np.abs(found[row, depth] - alone).max() < 1e-4
    assert np.abs(np.roll(found, 1, axis=0) - found).max() > 1e-2, "twin: rows differ"


def test_all_layers_take_one_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `features` computes of the model: every row once through every layer, and not again for another seed."""
    model = make_model(tmp_path / "model", "bert", n_layers=3)
    spec = make_spec(model, make_task(tmp_path / "task.csv", n_rows=120), strategy="features:logreg", learning_rate=0.0)
    rows = {0: 0, 1: 0, 2: 0}
    load = load_model

    def count(number: int, _layer: torch.nn.Module, given: tuple[torch.Tensor, ...], _output: object) -> None:
        rows[number] += len(given[0])

    def counting(*arguments: object, **settings: object) -> object:
        made = load(*arguments, **settings)  # type: ignore[arg-type]
        for number, layer in enumerate(made.bert.encoder.layer):
            layer.register_forward_hook(functools.partial(count, number))
        return made

    monkeypatch.setattr("frostline.training.prepare.load_model", counting)
    runner = Runner(max_cache_bytes=0)
    runner.run(spec.replace(is_cached=True))
    n_rows = len(tasks.load(spec.task).train) + len(tasks.load(spec.task).dev)
    assert all(n_rows <= seen <= 1.2 * n_rows for seen in rows.values()), rows
    before = dict(rows)
    runner.run(spec.replace(is_cached=True, seed=1))
    assert all(rows[number] - before[number] <= 0.2 * n_rows for number in rows), rows


def test_they_are_kept_on_disk_for_other_processes(tmp_path: Path) -> None:
    from frostline.storage.prefix_cache import Cache

    case = Case("bert")
    encoded, stack = case.encoded(12), case.stack(n_layers=2)
    first = Prefixes(2**24, Cache(tmp_path))
    computed = np.array(pooled_states(first, encoded, ORIGIN, lambda: stack))
    again = Prefixes(2**24, Cache(tmp_path))
    assert np.array_equal(pooled_states(again, encoded, ORIGIN, lambda: stack), computed)
    assert first.seconds > 0
    assert again.seconds == 0, "they were found"
    (damaged,) = (tmp_path / "prefix").glob("*/*/states.npy")
    damaged.write_bytes(damaged.read_bytes()[:-4] + b"oops")
    mended = Prefixes(2**24, Cache(tmp_path))
    assert np.array_equal(pooled_states(mended, encoded, ORIGIN, lambda: stack), computed)
    assert "computed again" in mended.notes[0]
    full = Prefixes(16, Cache(tmp_path / "full"))
    assert np.array_equal(pooled_states(full, encoded, ORIGIN, lambda: stack), computed)
    assert "no room" in full.notes[0]


def test_ridge_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(3, 2, (50, 4)), rng.normal(size=50)
    ours = fit_linear(features, labels, "ridge", 10.0, 1)
    theirs = make_pipeline(StandardScaler(), Ridge(alpha=10.0)).fit(features, labels).predict(features)
    assert np.abs(ours.outputs(features)[:, 0] - theirs).max() < 1e-5


def test_several_classes_and_one_that_is_not_there() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 3], 20)
    features = rng.normal(size=(60, 5)) + labels[:, None]
    model = fit_linear(features, labels, "logreg", 1.0, 4)
    theirs = make_pipeline(StandardScaler(), LogisticRegression(C=1.0)).fit(features, labels)
    answers = model.outputs(features)
    assert answers.shape == (60, 4)
    assert np.array_equal(answers.argmax(1), theirs.predict(features))
    assert 2 not in answers.argmax(1)
    assert np.isfinite(answers).all()


def test_one_class_alone_is_what_it_answers() -> None:
    model = fit_linear(np.zeros((5, 3)), np.ones(5, dtype=np.int64), "logreg", 1.0, 3)
    assert set(model.outputs(np.ones((4, 3))).argmax(1)) == {1}


def test_layer_pooling_and_strength_are_chosen_on_held_out_rows() -> None:
    """Of noise everywhere but in one place, that place is chosen, and dev is not looked at."""
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    train = rng.normal(size=(200, 3, 3, 6)).astype(np.float32)
    train[:, 1, 2, 0] += 6 * labels
    dev = rng.normal(size=(40, 3, 3, 6)).astype(np.float32)
    fit = LinearFit(
        kind=CLASSIFICATION, metric="accuracy", n_outputs=2, train=train, train_labels=labels, dev=dev,
        dev_labels=np.arange(40) % 2, seed=0, threads=1,
    )  # fmt: skip
    fitted = fit.run()
    assert (fitted.chosen.depth, fitted.chosen.pooling) == (1, "last")
    assert fitted.chosen.strength in CLASSIFICATION.fit_strengths
    assert fitted.chosen.held_out_score > 0.95
    assert fitted.chosen.score < 0.8, "dev is noise"
    assert [probe.depth for probe in fitted.probes] == [0, 1, 2]
    assert np.array_equal(fit.run().model.weight, fitted.model.weight)


def test_a_given_layer_and_pooling_are_fitted(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "bert", n_layers=2)
    task = make_task(tmp_path / "task.csv", n_rows=60)
    data = None
    for depth, pooling in ((1, "mean"), (2, "first")):
        spec = make_spec(model, task, strategy=f"features:logreg@{depth}.{pooling}", learning_rate=0.0)
        result = Runner(max_cache_bytes=0).run(spec)
        (probe,) = result.probes
        assert (probe.depth, probe.pooling, probe.score) == (depth, pooling, result.score)
        data = data or tasks.load(spec.task)
        at = POOLINGS.index(probe.pooling)
        train, dev = (_plain_states(str(model), rows)[:, :, at] for rows in (data.train, data.dev))
        apart = []
        for layer in range(3):
            by_hand = fit_linear(train[:, layer], data.train.labels, "logreg", probe.strength, 2)
            apart.append(np.abs(by_hand.outputs(dev[:, layer]) - result.predictions.outputs.array()).max())
        assert apart[depth] < 1e-5
        assert min(np.delete(apart, depth)) > 10 * apart[depth] + 1e-4, "twin: the fit to another layer is another"


def test_the_seed_draws_the_held_out_rows() -> None:
    labels = np.arange(200) % 2
    drawn = [tasks.hold_out(labels, CLASSIFICATION, seed)[1] for seed in (0, 1)]
    assert not np.array_equal(drawn[0], drawn[1])
    assert np.array_equal(drawn[0], tasks.hold_out(labels, CLASSIFICATION)[1])


def test_regression_runs_too(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "bert", n_layers=2)
    task = make_task(tmp_path / "task.csv", n_rows=400, kind="regression")
    spec = make_spec(model, task, kind="regression", strategy="features:ridge", learning_rate=0.0)
    result = Runner(max_cache_bytes=0).run(spec)
    assert result.predictions.outputs.array().shape[1] == 1
    assert result.plan.fit == "closed_form"
    assert [probe.depth for probe in result.probes] == [0, 1, 2]
    assert result.score in [probe.score for probe in result.probes]
    assert result.train_score is not None
    assert result.train_score > 0.1, "it fits something"
