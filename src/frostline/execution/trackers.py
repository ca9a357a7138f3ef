"""Finished runs → experiment trackers, by name: tensorboard, mlflow, wandb. Each is an extra; none is on by default.

A sweep is a group, and each run of it is one tracked run, named by strategy, rate and seed. A run is logged whole when
it is finished; runs found in the store are not logged again. The store stays the truth: a tracker that fails is
reported once and left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import final

from frostline.errors import MissingExtraError, check_choice, one_line
from frostline.execution.events import Listener
from frostline.records.results import EpochRecord, RunResult
from frostline.records.specs import RunSpec


def run_name(spec: RunSpec) -> str:
    """The name of a run in a tracker: `freeze:4, rate 5e-05, seed 2`."""
    role = "" if spec.role == "replicate" else f"{spec.role.replace('_', ' ')}, "
    return f"{role}{spec.strategy}, rate {spec.learning_rate:g}, seed {spec.seed}"


def epoch_values(record: EpochRecord) -> dict[str, float]:
    """The values logged for an epoch."""
    dev = {f"dev/{name}": value for name, value in record.metrics.items()}
    loss = {} if record.train_loss is None else {"train/loss": record.train_loss}
    return {**loss, "train/rate": record.learning_rate, **dev}


def final_values(result: RunResult) -> dict[str, float]:
    """The values logged for a finished run."""
    cost = result.cost
    memory = {} if cost.peak_bytes is None else {"cost/peak_bytes": float(cost.peak_bytes)}
    on_train = {} if result.train_score is None else {"train_score": result.train_score}
    return {
        "score": result.score,
        **on_train,
        "cost/seconds": cost.seconds,
        "cost/trained_parameters": float(cost.trained_parameters),
        **memory,
    }


def settings(spec: RunSpec) -> dict[str, str | int | float]:
    """The settings of a run, those it shares with its sweep included."""
    names = ("model", "strategy", "learning_rate", "seed", "role", "epochs", "batch_size", "max_length")
    return {"task": spec.task.name, **{name: getattr(spec, name) for name in names}}


@final
class TensorBoard(Listener):
    """Event files below `<out>/tensorboard`, one folder per run."""

    def __init__(self, out: Path) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise MissingExtraError("tensorboard", "tensorboard") from error
        self._folder = out / "tensorboard"
        self._event, self._summary, self._writer = Event, Summary, EventFileWriter

    def finished(self, result: RunResult) -> None:
        """Logs the epochs and the result."""
        writer = self._writer(str(self._folder / run_name(result.spec).replace(", ", "_").replace(" ", "-")))
        try:
            for step, values in _steps(result):
                points = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
                writer.add_event(self._event(step=step, wall_time=_ended(result), summary=self._summary(value=points)))
        finally:
            writer.close()


@final
class Mlflow(Listener):
    """An experiment named after the output folder: at $MLFLOW_TRACKING_URI, else in files below `<out>/mlruns`."""

    def __init__(self, out: Path) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise MissingExtraError("mlflow", "mlflow") from error
        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            # mlflow 3 expects a database unless this variable allows files.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            place = (out.absolute() / "mlruns").as_uri()
        self._client = MlflowClient(tracking_uri=place)
        name = f"frostline {out.name}"
        known = self._client.get_experiment_by_name(name)
        self._experiment = self._client.create_experiment(name) if known is None else known.experiment_id

    def finished(self, result: RunResult) -> None:
        """Logs the settings, the epochs and the result."""
        run_id = self._client.create_run(self._experiment, run_name=run_name(result.spec)).info.run_id
        for name, value in settings(result.spec).items():
            self._client.log_param(run_id, name, value)
        for step, values in _steps(result):
            for name, value in values.items():
                self._client.log_metric(run_id, name, value, step=step)
        self._client.set_terminated(run_id)


@final
class Wandb(Listener):
    """The project `frostline`, grouped by output folder; offline if $WANDB_MODE says so."""

    def __init__(self, out: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise MissingExtraError("wandb", "wandb") from error
        self._wandb, self._out = wandb, out

    def finished(self, result: RunResult) -> None:
        """Logs the settings, the epochs and the result."""
        run = self._wandb.init(
            project="frostline",
            group=self._out.name,
            name=run_name(result.spec),
            config=settings(result.spec),
            dir=str(self._out),
            reinit=True,
            # Or wandb would send the command line of this process, which may hold passwords.
            settings={"x_disable_meta": True},
        )
        for step, values in _steps(result):
            run.log(values, step=step)
        run.finish()


TRACKERS: Mapping[str, Callable[[Path], Listener]] = {"tensorboard": TensorBoard, "mlflow": Mlflow, "wandb": Wandb}


@final
class Trackers(Listener):
    """Several trackers by name; one that fails is left out from then on."""

    def __init__(self, names: Sequence[str], out: Path, say: Callable[[str], None]) -> None:
        makers = {name: TRACKERS[check_choice("tracker", name, TRACKERS)] for name in names}
        self._trackers = {name: make(out) for name, make in makers.items()}
        self._say = say

    def finished(self, result: RunResult) -> None:
        """Logs a run in every tracker."""
        for name, tracker in list(self._trackers.items()):
            try:
                tracker.finished(result)
            except Exception as error:  # noqa: BLE001 - a server that is down must not end a sweep
                del self._trackers[name]
                self._say(f"{name} gets no further runs: {one_line(error)}")


def _steps(result: RunResult) -> Iterator[tuple[int, dict[str, float]]]:
    """The values logged after each epoch; the last epoch includes the result."""
    for record in result.epochs:
        final = final_values(result) if record is result.epochs[-1] else {}
        yield record.epoch, epoch_values(record) | final


def _ended(result: RunResult) -> float:
    return datetime.fromisoformat(result.environment.at).timestamp()
