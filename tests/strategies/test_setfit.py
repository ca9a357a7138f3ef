"""`setfit` is the library's: the same answers as the library by hand, the same bits per seed; what it refuses."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from frostline import tasks
from frostline.errors import FrostlineError, MissingExtraError, UsageError
from frostline.model.inside import setfit as ours
from frostline.model.load import describe
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.specs import RunSpec
from frostline.strategies import SetFit, parse
from frostline.studies.compare import CompareRequest, CompareStudy
from frostline.studies.planning.axis import spec_at
from frostline.studies.planning.protocols import Programme
from frostline.studies.requests.resolve import Resolver
from frostline.studies.study import Results
from frostline.testing.models import make_model, make_spec, make_stack, make_task
from frostline.training.inside import contrastive
from frostline.training.prepare import seed_for
from frostline.training.run import Runner


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RunSpec:
    """A short run of a tiny model."""
    folder = tmp_path_factory.mktemp("setfit")
    model, task = make_model(folder / "bert", n_layers=2), make_task(folder / "task.csv", n_rows=40)
    return make_spec(model, task, strategy="setfit:1", layout="packed", learning_rate=0.0)


def _by_hand(spec: RunSpec, seed: int, folder: Path) -> Any:
    """The probabilities that the library's own model gives to dev, trained as its documentation shows."""
    with ours._silenced():
        from datasets import Dataset
        from setfit import SetFitModel, Trainer, TrainingArguments

        data = tasks.load(spec.task)
        model = SetFitModel.from_pretrained(spec.model, device="cpu")
        model.model_body.max_seq_length = spec.max_length
        rows = Dataset.from_dict({"text": data.train.texts, "label": data.train.labels.tolist()})
        settings = TrainingArguments(
            output_dir=str(folder), num_iterations=1, seed=seed, report_to="none", save_strategy="no",
            show_progress_bar=False,
        )  # fmt: skip
        trainer = Trainer(model=model, args=settings, train_dataset=rows)
        ours._remove_printers(trainer)
        trainer.train()
        return model.predict_proba(data.dev.texts, as_numpy=True, show_progress_bar=False)


def test_the_answers_are_the_librarys(spec: RunSpec, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outputs = Runner(max_cache_bytes=0).run(spec).predictions.outputs.array().astype(np.float64)
    assert capfd.readouterr() == ("", ""), "not even when the library is imported"
    shares = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    theirs = _by_hand(spec, seed_for(spec, "contrast"), tmp_path)
    assert np.abs(shares - theirs).max() < 1e-4
    other = _by_hand(spec, seed_for(spec.replace(seed=1), "contrast"), tmp_path)
    assert np.abs(shares - other).max() > 1e-6, "twin: another seed draws other pairs and orders"


def test_the_same_seed_gives_the_same_bits_and_nothing_else_changes(
    spec: RunSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    random.seed(3)
    torch.manual_seed(3)
    state = (random.getstate(), torch.get_rng_state(), str(np.random.get_state()))  # noqa: NPY002
    runner = Runner(max_cache_bytes=0)
    one, same, other = (runner.run(spec.replace(seed=seed)) for seed in (0, 0, 1))
    assert one.predictions == same.predictions
    assert one.predictions != other.predictions
    assert state[0] == random.getstate()
    assert torch.equal(state[1], torch.get_rng_state())
    assert state[2] == str(np.random.get_state())  # noqa: NPY002
    assert one.epochs[0].n_steps > 0
    assert one.cost.seconds > 0
    assert one.train_score is not None
    assert 0 <= one.train_score <= 1
    assert capfd.readouterr() == ("", ""), "the library says nothing on the screen"


def test_a_model_that_was_not_taken_over_whole_is_found(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_take_over", lambda *_: None)
    monkeypatch.setattr(contrastive, "_NEAR", 1e-9)
    with pytest.raises(FrostlineError, match="answers otherwise than setfit's"):
        Runner(max_cache_bytes=0).run(spec)


def test_pooling_comes_from_the_sentence_transformers_files(spec: RunSpec, tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    folder.mkdir()
    for path in Path(spec.model).iterdir():
        (folder / path.name).symlink_to(path)
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        {"idx": i, "name": str(i), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for i, (place, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for place in ("1_Pooling", "2_Normalize"):
        (folder / place).mkdir()
    pooling = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    own = spec.replace(model=str(folder), model_fingerprint=describe(str(folder)).fingerprint)
    _, stack = Runner(max_cache_bytes=0).train(own)
    assert isinstance(stack.reader, ours.EmbeddingReader)
    assert stack.reader.chosen.tolist() == [1, 1], "the first token, of length 1"
    _, plain = Runner(max_cache_bytes=0).train(spec)
    assert isinstance(plain.reader, ours.EmbeddingReader)
    assert plain.reader.chosen.tolist() == [0, 0], "twin: without such files, the mean"


def test_no_rate_is_searched_for_it(spec: RunSpec) -> None:
    request = StudyRequest(model=spec.model, task=spec.task)
    base = spec.replace(learning_rate=1e-3)
    resolved = ResolvedRequest(request=request, base=base, n_layers=2, depths=(0,), is_cached=True)
    programme = Programme(resolved, {name: parse(name) for name in ("full", "setfit")})
    assert list(programme.searches) == ["full"]
    assert spec_at(resolved, SetFit()).learning_rate == 0.0
    assert programme.rates(Results()) == {"setfit": 0.0}


@pytest.mark.parametrize(("n_rows", "n_classes", "n_pairs"), [(16, 2, 144), (32, 2, 544), (30, 3, 600)])
def test_the_number_of_pairs_is_known_before(n_rows: int, n_classes: int, n_pairs: int) -> None:
    assert SetFit().n_pairs(n_rows, n_classes) == n_pairs
    assert SetFit(20).n_pairs(n_rows, n_classes) == 40 * n_rows
    with ours._silenced():
        from setfit.sampler import ContrastiveDataset

        labels = [row % n_classes for row in range(n_rows)]
        drawn = ContrastiveDataset([f"text {row}" for row in range(n_rows)], labels, None)
    assert len(list(drawn)) == n_pairs


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "setfit", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'frostline\[setfit\]'"):
        parse("setfit").plan(make_stack("bert"))


@pytest.mark.parametrize(
    ("kind", "is_pair", "words"),
    [
        ("regression", False, "strategy 'setfit' is for classification; the task is regression"),
        ("classification", True, "strategy 'setfit' is for single texts; the rows of task are pairs"),
    ],
)
def test_what_it_cannot_train_on_is_refused_in_one_line(
    kind: str, is_pair: bool, words: str, spec: RunSpec, tmp_path: Path
) -> None:
    task = tasks.parse(str(make_task(tmp_path / "task.csv", kind=kind, is_pair=is_pair)), kind=kind)
    request = CompareRequest(request=StudyRequest(model=spec.model, task=task), strategies=("setfit",))
    with pytest.raises(UsageError, match=words) as raised:
        CompareStudy().resolve(request, Resolver(tmp_path / "out", max_cache_bytes=0))
    assert "\n" not in str(raised.value)


@pytest.mark.thorough
@pytest.mark.real
def test_eight_examples_per_class_are_enough_to_beat_chance() -> None:
    task = tasks.resolve(tasks.parse("rotten-tomatoes", max_train=16, max_dev=200))
    spec = RunSpec(
        model="all-MiniLM-L6-v2", model_fingerprint=describe("all-MiniLM-L6-v2").fingerprint, task=task,
        strategy="setfit", data_fingerprint=tasks.load(task).fingerprint, seed=0, is_cached=False, layout="packed",
        subset_seed=0, is_balanced=True, learning_rate=0.0, epochs=1,
    )  # fmt: skip
    result = Runner(max_cache_bytes=0).run(spec)
    assert result.n_train == 16
    assert result.score > result.chance + 0.03
