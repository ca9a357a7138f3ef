"""A run that is measured: the same run otherwise, its arrays stored, sent and checked with it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from frostline.errors import FrostlineError, UsageError
from frostline.execution.transport import answer_from_message, outcome_message, receive, send
from frostline.measures import Arrays, Measure, Subject, parse, registry
from frostline.model.stack import FrozenMovedError
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.storage.check import check_folder
from frostline.storage.runs import FolderIdentity, Store
from frostline.testing.models import make_model, make_spec, make_task
from frostline.training.run import Runner


@dataclass(frozen=True)
class Outputs(Measure):
    """The model's outputs for dev, through what measures are given; `moves` and `breaks` do what they must not."""

    what: str = ""

    forms = "outputs"
    example = "outputs"

    @classmethod
    def read(cls, argument: str) -> Measure:
        return cls(argument)

    @property
    def name(self) -> str:
        return "outputs"

    def of(self, subject: Subject) -> Arrays:
        if self.what == "moves":
            with torch.no_grad():
                next(subject.stack.model.parameters()).mul_(1.5)
        with torch.no_grad():
            found = {int(at): row for batch in subject.dev.batches() for at, row in
                     zip(batch.places, subject.logits(batch).numpy(), strict=True)}  # fmt: skip
        outputs = np.stack([found[at] for at in range(len(subject.dev))])
        score = subject.score(subject.dev.labels, outputs)
        return {"outputs": outputs, "score": np.array([np.nan if self.what == "breaks" else score])}


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    monkeypatch.setitem(registry._KNOWN, "outputs", Outputs)
    model = make_model(tmp_path / "model", n_layers=2, initializer_range=0.25)
    return make_spec(model, make_task(tmp_path / "task.csv"), layout="packed")


def measured(spec: RunSpec, *measures: str) -> RunResult:
    return Runner(max_cache_bytes=0).run(spec.replace(measures=measures))


@pytest.mark.parametrize("strategy", ["full", "freeze:1", "features:logreg@2.mean"])
def test_a_measured_run_is_the_same_run(spec: RunSpec, strategy: str) -> None:
    spec = spec.replace(strategy=strategy, learning_rate=0.0 if "features" in strategy else spec.learning_rate)
    plain, found = measured(spec), measured(spec, "outputs", "change")
    assert plain.measured == ()
    assert found.predictions == plain.predictions
    assert found.key != plain.key
    outputs = found.measurement("outputs")
    assert outputs is not None
    np.testing.assert_allclose(outputs["outputs"], plain.predictions.outputs.array(), atol=1e-4)
    assert float(outputs["score"][0]) == plain.score
    assert found.measurement("change") is not None
    assert found.measurement("change:rows=5") is None


def test_standardised_labels_come_back_on_their_own_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._KNOWN, "outputs", Outputs)
    model, task = make_model(tmp_path / "model"), make_task(tmp_path / "task.csv", kind="regression")
    spec = make_spec(model, task, kind="regression", standardised=True, measures=("outputs",))
    result = Runner(max_cache_bytes=0).run(spec)
    found = result.measurement("outputs")
    assert found is not None
    assert float(found["score"][0]) == pytest.approx(result.score, abs=1e-5)
    assert np.abs(found["outputs"] - result.predictions.outputs.array()).max() > 1e-3, "the scale is another one"


def test_without_measures_nothing_is_written_or_hashed(spec: RunSpec) -> None:
    assert "measures" not in spec.to_json()
    assert spec.replace(measures=()).key == spec.key != spec.replace(measures=("change",)).key
    assert "measured" not in measured(spec).to_json()
    again = RunSpec.from_json(spec.replace(measures=("change",)).to_json())
    assert again.measures == ("change",)


def test_arrays_survive_the_store_the_wire_and_the_check(spec: RunSpec, tmp_path: Path) -> None:
    result = measured(spec, "change")
    stream = io.BytesIO()
    send(stream, *outcome_message(result))
    stream.seek(0)
    message = receive(stream)
    assert message is not None
    assert answer_from_message(*message) == result
    identity = FolderIdentity(
        model=spec.model,
        model_fingerprint=spec.model_fingerprint,
        task=spec.task.name,
        data_fingerprint=spec.data_fingerprint,
    )
    store = Store.open(tmp_path / "out", identity)
    store.put(result)
    kept = Store(tmp_path / "out").get(result.key)
    assert kept == result
    found, wanted = (one.measurement("change") for one in (kept, result))
    assert found is not None
    assert wanted is not None
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)
    assert not check_folder(tmp_path / "out").findings
    (tmp_path / "out" / "arrays" / f"{result.measured[0].arrays['cka'].digest}.npy").unlink()
    assert Store(tmp_path / "out").get(result.key) is None, "a run without its arrays is not there"


@pytest.mark.parametrize(("what", "error"), [("moves", FrozenMovedError), ("breaks", FrostlineError)])
def test_a_measure_that_moves_a_weight_or_is_not_finite_is_refused(
    spec: RunSpec, what: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match="not stored"):
        measured(spec, f"outputs:{what}")


@pytest.mark.parametrize(
    ("text", "words"),
    [("chnage", "Did you mean 'change'"), ("change:rows=0", "takes rows=1000"), ("scout:cols=3", "not 'cols=3'")],
)
def test_unknown_measures_and_arguments_are_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_names_are_read_back(spec: RunSpec) -> None:
    del spec
    for name in ("change", "change:rows=20", "scout", "scout:rows=7"):
        assert parse(name).name == name


def test_a_diverged_run_is_not_measured(spec: RunSpec) -> None:
    result = measured(spec.replace(learning_rate=1e30, optimizer="sgd", clip_norm=1e9), "change")
    assert result.diverged
    assert result.measured == ()
