"""Trackers: the real tensorboard and mlflow, on files; wandb by what it is called with."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from commands import Toy, frostline
from frostline.errors import MissingExtraError, UsageError
from frostline.execution.events import Listener
from frostline.execution.trackers import Mlflow, TensorBoard, Trackers, Wandb, final_values, run_name
from frostline.records.depth import FULL
from frostline.records.results import RunResult
from synthetic import make_result


@pytest.fixture
def results() -> list[RunResult]:
    return [make_result(FULL, 0, 0.8), make_result(2, 1, 0.7)]


def test_tensorboard_reads_what_was_logged(results: list[RunResult], tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tracker = TensorBoard(tmp_path)
    for result in results:
        tracker.finished(result)
    folders = sorted(path.name for path in (tmp_path / "tensorboard").iterdir())
    assert folders == ["freeze:2_rate-2e-05_seed-1", "full_rate-2e-05_seed-0"]
    for name, result in zip(folders, reversed(results), strict=True):
        read = accumulator.EventAccumulator(str(tmp_path / "tensorboard" / name)).Reload()
        scalars = {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
        assert scalars["score"] == [(1, pytest.approx(result.score))]
        assert scalars["dev/accuracy"] == [(1, pytest.approx(result.score))]
        assert scalars["train/loss"] == [(1, pytest.approx(result.epochs[0].train_loss))]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_reads_what_was_logged(
    results: list[RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for result in results:
        Mlflow(tmp_path).finished(result)  # a second call finds the experiment
    client = tracking.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name(f"frostline {tmp_path.name}")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.run_name for run in runs} == {run_name(result.spec) for result in results}
    for run in runs:
        result = next(result for result in results if run_name(result.spec) == run.info.run_name)
        assert run.data.metrics["score"] == pytest.approx(result.score)
        assert run.data.params["strategy"] == result.spec.strategy
        assert run.info.status == "FINISHED"
        assert sys.argv[0] not in str(run.to_dictionary()), "the command line of this process is not sent"


def test_wandb_is_told_group_name_and_values(
    results: list[RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, Any]] = []
    run = types.SimpleNamespace(
        log=lambda values, step: calls.append(("log", (step, values))), finish=lambda: calls.append(("finish", None))
    )

    def init(**given: Any) -> Any:
        calls.append(("init", given))
        return run

    fake = types.ModuleType("wandb")
    fake.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    Wandb(tmp_path).finished(results[1])
    assert [name for name, _ in calls] == ["init", "log", "finish"]
    assert calls[0][1]["group"] == tmp_path.name
    assert calls[0][1]["name"] == "freeze:2, rate 2e-05, seed 1"
    assert calls[0][1]["settings"] == {"x_disable_meta": True}, "wandb would send the command line of this process"
    step, values = calls[1][1]
    assert step == 1
    assert final_values(results[1]).items() <= values.items()


def test_a_tracker_that_is_not_installed_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'frostline\[wandb\]'"):
        Trackers(["wandb"], tmp_path, print)
    with pytest.raises(UsageError, match=r"unknown tracker 'tensorbord'; known: tensorboard, mlflow, wandb\. Did you"):
        Trackers(["tensorbord"], tmp_path, print)


def test_a_tracker_that_fails_is_left_out_and_the_others_go_on(
    results: list[RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Listener):
        def __init__(self) -> None:
            self.n_logged = 0

        def finished(self, _: RunResult) -> None:
            self.n_logged += 1
            if out_of_reach is self:
                raise ConnectionError("no\nserver")

    good, out_of_reach = Counting(), Counting()
    makers = {"mlflow": lambda _: out_of_reach, "tensorboard": lambda _: good}
    monkeypatch.setattr("frostline.execution.trackers.TRACKERS", makers)
    said: list[str] = []
    trackers = Trackers(["mlflow", "tensorboard"], tmp_path, said.append)
    for result in results:
        trackers.finished(result)
    assert said == ["mlflow gets no further runs: no server"]
    assert (good.n_logged, out_of_reach.n_logged) == (2, 1)


def test_a_curve_tells_of_each_run_it_does_and_of_none_it_finds(toy: Toy, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    settings = ("--seeds", "1", "--lr", "1e-3", "--epochs", "1", "--frozen", "3", "--track", "tensorboard")
    command = ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *settings)
    assert frostline(*command, out=tmp_path / "out").code == 0
    logged = sorted(path.name for path in (tmp_path / "out" / "tensorboard").iterdir())
    assert logged == ["freeze:3_rate-0.001_seed-0", "full_rate-0.001_seed-0"]
    files = sorted((tmp_path / "out" / "tensorboard").rglob("*tfevents*"))
    assert frostline(*command, out=tmp_path / "out").code == 0
    assert sorted((tmp_path / "out" / "tensorboard").rglob("*tfevents*")) == files
