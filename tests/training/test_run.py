"""One run: what goes into its result, what it refuses, and what it leaves as it found it."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import r2_score, root_mean_squared_error
from transformers import BertConfig, BertModel

from frostline import tasks
from frostline.errors import DataError
from frostline.model.load import load_tokenizer
from frostline.model.stack import Stack
from frostline.records.results import EpochRecord, RunResult
from frostline.records.specs import Role, RunSpec
from frostline.studies.planning.estimate import timed
from frostline.testing.models import Family, make_model, make_spec, make_task, make_tokenizer
from frostline.training import forward as forward_module
from frostline.training import loop as loop_module
from frostline.training.inside.without_steps import TRAIN_SAMPLE
from frostline.training.run import Runner
from losses import losses_of
from tiny import BASIC, TEETH

N_ROWS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models, by family, and toy tasks."""
    folder = tmp_path_factory.mktemp("run")
    for family in BASIC:
        make_model(folder / family, family, initializer_range=0.3)
    make_task(folder / "plain.csv", n_rows=N_ROWS)
    make_task(folder / "pairs.csv", n_rows=N_ROWS, is_pair=True)
    make_task(folder / "values.csv", n_rows=N_ROWS, kind="regression")
    return folder


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _plain_answers(spec: RunSpec, stack: Stack, texts: list[str], pairs: list[str] | None) -> NDArray[np.float64]:
    """What the trained model says of each text alone, by the library's own calls."""
    tokenizer = load_tokenizer(spec.model)
    answers = []
    for row, text in enumerate(texts):
        pair = None if pairs is None else pairs[row]
        if pair is not None and spec.pair_joiner is not None:
            text, pair = text + spec.pair_joiner + pair, None
        inputs = tokenizer(text, pair, truncation=True, max_length=spec.max_length, return_tensors="pt")
        with torch.no_grad():
            answers.append(stack.model.eval()(**inputs).logits[0].double().numpy())
    return np.stack(answers)


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("strategy", ["full", "freeze:1"])
@pytest.mark.parametrize("family", BASIC)
def test_every_field_of_a_result(family: Family, strategy: str, layout: str, folder: Path) -> None:
    spec = make_spec(
        folder / family, folder / "plain.csv", strategy=strategy, layout=layout, is_cached=strategy != "full"
    )
    seen: list[EpochRecord] = []
    result, stack = Runner().train(spec, seen.append)
    data = tasks.load(spec.task)

    assert result.spec == spec
    assert result.key == spec.key
    assert result.epochs == tuple(seen)
    assert [epoch.epoch for epoch in result.epochs] == [1, 2]
    assert {epoch.n_steps for epoch in result.epochs} == {math.ceil(len(data.train) / spec.batch_size)}
    assert all(math.isfinite(loss) and loss > 0 for loss in losses_of(result))
    assert spec.learning_rate > result.epochs[0].learning_rate > result.epochs[1].learning_rate == 0.0
    assert (result.n_train, result.n_dev, result.n_layers) == (len(data.train), len(data.dev), 2)
    assert result.label_names == ("bad", "good")
    assert tuple(result.metrics) == data.task.metrics
    assert result.metrics == result.epochs[-1].metrics
    assert result.score == result.metrics["accuracy"]
    assert result.chance == max(np.mean(data.dev.labels), 1 - np.mean(data.dev.labels))
    assert result.warnings == data.warnings

    predictions = result.predictions
    outputs = predictions.outputs.array()
    assert np.array_equal(predictions.rows.array(), data.dev.ids)
    assert np.array_equal(predictions.labels.array(), data.dev.labels)
    assert outputs.shape == (len(data.dev), 2)
    assert outputs.dtype == np.float32
    assert result.score == np.mean(outputs.argmax(1) == data.dev.labels)
    assert np.abs(outputs - _plain_answers(spec, stack, data.dev.texts, None)).max() < 1e-4
    on_train = _plain_answers(spec, stack, data.train.texts, None).argmax(1) == data.train.labels
    assert result.train_score == np.mean(on_train)
    _check_cost(result, stack)


@pytest.mark.parametrize("role", ["line_search", "tuning"])
def test_a_run_that_chooses_a_rate_is_not_scored_on_training_rows(role: Role, folder: Path) -> None:
    spec = make_spec(folder / "bert", folder / "plain.csv").replace(role=role)
    result = Runner().run(spec)
    assert result.train_score is None
    assert RunResult.from_json(result.to_json()) == result


def _check_cost(result: RunResult, stack: Stack) -> None:
    cost, (phase,) = result.cost, result.plan.phases
    sizes = {name: parameter.numel() for name, parameter in stack.model.named_parameters()}
    assert cost.total_parameters == sum(sizes.values())
    assert cost.trained_parameters == sum(sizes[name] for name in phase.trained)
    assert cost.seconds > sum(epoch.seconds for epoch in result.epochs) > 0
    assert (cost.prefix_seconds > 0) == (cost.cache_bytes > 0) == result.spec.is_cached
    assert cost.cache_bytes % (4 * 8) == 0
    if sys.platform == "linux":
        assert cost.peak_bytes is not None
        assert cost.peak_bytes > 0
    assert {"python", "torch", "transformers", "numpy", "frostline"} <= result.environment.versions.keys()
    assert result.environment.hardware["device"] == "cpu"
    assert result.environment.command == ()


def test_a_larger_model_needs_more_memory(tmp_path: Path) -> None:
    make_tokenizer("bert").save_pretrained(tmp_path / "large")
    config = BertConfig(vocab_size=20, hidden_size=512, num_hidden_layers=2, num_attention_heads=8)
    BertModel(config).save_pretrained(tmp_path / "large")
    make_model(tmp_path / "tiny")
    task = make_task(tmp_path / "task.csv", n_rows=20)
    runner = Runner()
    large, small = (runner.run(make_spec(tmp_path / name, task, epochs=1, max_length=16)) for name in ("large", "tiny"))
    if large.cost.peak_bytes is None or small.cost.peak_bytes is None:
        pytest.skip("this system does not tell")
    # Weights, gradients and two moments, four bytes each.
    assert large.cost.peak_bytes > 4 * 4 * large.cost.total_parameters
    assert small.cost.peak_bytes < large.cost.peak_bytes / 4


@pytest.mark.parametrize("strategy", ["full", "freeze:2"])
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_result_comes_back_from_json_as_it_was(strategy: str, kind: str, folder: Path) -> None:
    task = folder / ("plain.csv" if kind == "classification" else "values.csv")
    result = Runner().run(make_spec(folder / "bert", task, kind=kind, strategy=strategy, is_cached=strategy != "full"))
    text = json.dumps(result.to_json(), allow_nan=False)
    again = RunResult.from_json(json.loads(text))
    assert again == result
    assert json.dumps(again.to_json(), allow_nan=False) == text
    assert again.key == result.key


def test_a_regression_task(folder: Path) -> None:
    spec = make_spec(folder / "bert", folder / "values.csv", kind="regression")
    result, stack = Runner().train(spec)
    data = tasks.load(spec.task)
    outputs = result.predictions.outputs.array()
    assert outputs.shape == (len(data.dev), 1)
    assert result.label_names == ()
    assert stack.model.config.num_labels == 1
    assert result.chance == 0.0
    assert result.predictions.labels.array().dtype == np.float64
    assert result.metrics == {
        "pearson": pytest.approx(pearsonr(outputs[:, 0], data.dev.labels)[0]),
        "spearman": pytest.approx(spearmanr(outputs[:, 0], data.dev.labels)[0]),
        "r2": pytest.approx(r2_score(data.dev.labels, outputs[:, 0])),
        "rmse": pytest.approx(root_mean_squared_error(data.dev.labels, outputs[:, 0])),
    }
    assert result.score == result.metrics["pearson"]
    assert np.abs(outputs - _plain_answers(spec, stack, data.dev.texts, None)).max() < 1e-4


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("family", BASIC)
def test_a_task_of_pairs(family: Family, layout: str, folder: Path) -> None:
    spec = make_spec(folder / family, folder / "pairs.csv", layout=layout, strategy="freeze:1", is_cached=True)
    assert (spec.pair_joiner == "\n") == (family == "gpt2")
    result, stack = Runner().train(spec)
    dev = tasks.load(spec.task).dev
    assert dev.pairs is not None
    outputs = result.predictions.outputs.array()
    assert np.abs(outputs - _plain_answers(spec, stack, dev.texts, dev.pairs)).max() < 1e-4
    assert np.abs(outputs - _plain_answers(spec, stack, dev.texts, dev.pairs[::-1])).max() > TEETH


def test_the_training_score_is_of_a_fixed_sample(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(tmp_path / "long.csv", n_rows=1200)
    asked: list[NDArray[np.int64]] = []

    def predict(forward: Any, split: Any) -> Any:
        asked.append(split.positions)
        return forward_module.predict(forward, split)

    monkeypatch.setattr(loop_module, "predict", predict)
    runner, spec = Runner(), make_spec(folder / "bert", task, epochs=1, batch_size=256, strategy="freeze:2")
    for change in ({}, {"seed": 3}, {"strategy": "full"}):
        result = runner.run(spec.replace(**change))
    assert result.n_train == 1080
    assert TRAIN_SAMPLE == 1000
    asked = [positions for positions in asked if len(positions) == TRAIN_SAMPLE]
    assert [len(np.unique(positions)) for positions in asked] == [1000] * 3
    assert all(np.array_equal(positions, asked[0]) for positions in asked)
    assert asked[0].max() >= 1000, "a sample, not the first rows"


def test_cut_texts_are_told(folder: Path) -> None:
    spec = make_spec(folder / "bert", folder / "plain.csv", max_length=6)
    result = Runner().run(spec)
    data, tokenizer = tasks.load(spec.task), load_tokenizer(spec.model)
    n_train, n_dev = (
        sum(len(tokenizer(text)["input_ids"]) > 6 for text in rows.texts) for rows in (data.train, data.dev)
    )
    assert result.warnings[len(data.warnings) :] == (
        f"{n_train} of 54 training texts were cut at 6 tokens",
        f"{n_dev} of 6 dev texts were cut at 6 tokens",
    )
    assert min(n_train, n_dev) > 0


def test_a_changed_data_file_is_refused(folder: Path, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task.csv")
    spec = make_spec(folder / "bert", task, epochs=1)
    Runner().run(spec)
    with task.open("a", newline="") as stream:
        csv.writer(stream).writerow(["a fine plot", "good"])
    with pytest.raises(DataError, match="the data files changed since this run was planned"):
        Runner().run(spec)


@pytest.mark.parametrize("what", ["weights", "configuration", "tokenizer"])
def test_a_changed_model_is_refused(what: str, folder: Path, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    spec = make_spec(model, folder / "plain.csv", epochs=1)
    make_model(model)
    Runner().run(spec)  # the same again: nothing changed
    if what == "weights":
        make_model(model, seed=1)
    elif what == "configuration":
        file = model / "config.json"
        file.write_text(file.read_text().replace('"hidden_act": "gelu"', '"hidden_act": "relu"'))
        assert "relu" in file.read_text()
    else:
        file = model / "tokenizer.json"
        file.write_text(file.read_text().replace('"good"', '"goood"'))
        assert "goood" in file.read_text()
    with pytest.raises(DataError, match="changed since this run was planned"):
        Runner().run(spec)


def test_a_new_head_or_label_is_no_change_of_the_model(folder: Path) -> None:
    plain = make_spec(folder / "bert", folder / "plain.csv")
    values = make_spec(folder / "bert", folder / "values.csv", kind="regression")
    assert plain.model_fingerprint == values.model_fingerprint
    assert plain.data_fingerprint != values.data_fingerprint


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_has_the_threads_it_asks_for(threads: int, folder: Path) -> None:
    seen: list[int] = []
    spec = make_spec(folder / "bert", folder / "plain.csv", epochs=1, batch_size=64, threads=threads)
    torch.set_num_threads(3 - threads)
    Runner().run(spec, lambda _: seen.append(torch.get_num_threads()))
    assert seen == [threads]


@pytest.mark.parametrize("strategy", ["full", "freeze:1"])
def test_the_global_generators_are_as_they_were(strategy: str, folder: Path) -> None:
    spec = make_spec(folder / "bert", folder / "plain.csv", strategy=strategy, is_cached=strategy != "full")
    torch.manual_seed(5)
    before, numpy_before = torch.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
    runner = Runner()
    runner.run(spec)
    assert torch.equal(torch.get_rng_state(), before)
    with runner.descending(spec) as (_, descent):
        descent.step(next(descent.batches(1)))
    assert torch.equal(torch.get_rng_state(), before)

    def stop(_: EpochRecord) -> None:
        torch.rand(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(spec, stop)
    assert torch.equal(torch.get_rng_state(), before)
    assert repr(np.random.get_state()) == numpy_before  # noqa: NPY002


def test_a_run_does_not_depend_on_the_global_generator(folder: Path) -> None:
    spec = make_spec(folder / "bert", folder / "plain.csv", epochs=1)
    results = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        results.append(Runner().run(spec))
    assert results[0].predictions == results[1].predictions


def test_dropout_in_frozen_layers_is_another_protocol(folder: Path) -> None:
    spec = make_spec(folder / "bert", folder / "plain.csv", strategy="freeze:2")
    without, with_dropout = (Runner().run(spec.replace(frozen_dropout=one)) for one in (False, True))
    assert abs(losses_of(without)[-1] - losses_of(with_dropout)[-1]) > 1e-3
    assert without.key != with_dropout.key


def test_one_runner_serves_any_mixture_of_specs(folder: Path) -> None:
    runner = Runner()
    plain = make_spec(folder / "bert", folder / "plain.csv", epochs=1)
    specs = [
        plain,
        plain.replace(strategy="freeze:2", is_cached=True),
        make_spec(folder / "gpt2", folder / "values.csv", kind="regression", strategy="freeze:1", is_cached=True),
        plain.replace(strategy="freeze:1", is_cached=True, max_length=6),
        plain.replace(strategy="freeze:1", is_cached=True, layout="packed"),
    ]
    together = [runner.run(spec).predictions for spec in specs]
    assert together == [Runner().run(spec).predictions for spec in specs]


def test_the_pace_is_of_this_machine(folder: Path) -> None:
    pace = timed(Runner(), make_spec(folder / "bert", folder / "plain.csv"))
    assert 0 < pace.step_seconds < 5
    assert 0 < pace.row_seconds < 5
    assert 0 < pace.load_seconds < 20


def test_a_moment_of_a_token_long_unseen_costs_and_moves_nothing(folder: Path) -> None:
    tiny = torch.tensor(1e-38) / 4
    assert float(tiny) > 0.0, "no test is left with tiny numbers taken for 0"
    spec = make_spec(folder / "bert", folder / "plain.csv", epochs=1)
    seen: list[float] = []
    Runner().run(spec, lambda _: seen.append(float(torch.tensor(1e-38) / 4)))
    assert seen == [0.0]
    assert float(torch.tensor(1e-38) / 4) == float(tiny)
