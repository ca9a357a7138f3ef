"""The outcome of a run: finished, paused or crashed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from frostline.records.arrays import StoredArray
from frostline.records.plans import Plan
from frostline.records.serial import Record, added_later, if_set, json_name, not_stored
from frostline.records.specs import Pooling, RunSpec


@dataclass(frozen=True, kw_only=True)
class EpochRecord(Record):
    """The numbers of one epoch."""

    epoch: int
    """counted from 1"""
    train_loss: float | None
    """mean loss over the epoch's rows, dropout on, full precision; None if training diverged in it"""
    metrics: dict[str, float]
    """all metrics of the task on dev at the end of the epoch"""
    learning_rate: float
    """rate at the end of the epoch"""
    n_steps: int
    """steps taken in it"""
    seconds: float
    """training and evaluating"""


@dataclass(frozen=True, kw_only=True)
class Cost(Record):
    """Time, memory and parameters of one run."""

    seconds: float
    """training and evaluating, without computing the prefix"""
    prefix_seconds: float
    """computing prefix states in this run"""
    peak_bytes: int | None
    """peak private memory above the level before the model was loaded; None where the system does not report it"""
    cache_bytes: int
    """size of the prefix states this run read"""
    trained_parameters: int
    """parameters that trained"""
    total_parameters: int
    """parameters of the model with its head"""


@dataclass(frozen=True, kw_only=True)
class Predictions(Record):
    """The trained model's outputs for every dev row."""

    rows: StoredArray
    """row numbers in the source file (rows,)"""
    labels: StoredArray
    """the true labels (rows,): class numbers or values"""
    outputs: StoredArray
    """the model's raw outputs (rows, classes), or (rows, 1) for regression"""

    @property
    def arrays(self) -> tuple[StoredArray, ...]:
        """All arrays, in the order of the fields."""
        return self.rows, self.labels, self.outputs


@dataclass(frozen=True, kw_only=True)
class Environment(Record):
    """Where a run happened: software versions, hardware, command line and time."""

    versions: dict[str, str]
    """versions of Python and the libraries that compute"""
    hardware: dict[str, str]
    """processor, cores, memory, device"""
    command: tuple[str, ...]
    """the command line"""
    at: str
    """when it ended, UTC"""


@dataclass(frozen=True, kw_only=True)
class Probe(Record):
    """A linear model fitted to the outputs of one layer."""

    depth: int
    """layers below (0: the embeddings)"""
    pooling: Pooling
    """how a row's tokens are pooled; chosen on held-out rows"""
    strength: float
    """of the L2 penalty (C of the logistic, alpha of the ridge regression); chosen on held-out rows"""
    held_out_score: float
    """score on rows held out of train, by which layer, pooling and strength are chosen"""
    score: float
    """score on dev, fitted to all of train"""


@dataclass(frozen=True, kw_only=True)
class Measured(Record):
    """What one measure found in the model of a run."""

    measure: str
    """its name as in the spec"""
    arrays: dict[str, StoredArray]
    """its numbers, by the names that the measure gives them"""
    seconds: float
    """time it took; not part of the run's own"""


@dataclass(frozen=True, kw_only=True)
class RunResult(Record):
    """A finished run, with everything later work needs."""

    spec: RunSpec
    """the run that was asked for"""
    plan: Plan
    """the plan that was trained"""
    epochs: tuple[EpochRecord, ...]
    """one record per epoch"""
    score: float
    """the task's first metric on dev at the end of the last epoch"""
    metrics: dict[str, float]
    """all metrics of the task on dev at the end of the last epoch"""
    chance: float
    """best score without reading a text, on dev; `analysis` computes it again from the labels"""
    train_score: float | None
    """the same metric on a fixed sample of at most 1,000 training rows, at the end; None in a run that chooses a
    learning rate, where nothing needs it"""
    predictions: Predictions
    """dev predictions at the end"""
    label_names: tuple[str, ...]
    """names of the classes in the order of their numbers; empty for regression"""
    n_train: int
    """training rows"""
    n_dev: int
    """dev rows"""
    n_layers: int
    """layers of the model"""
    cost: Cost
    """time, memory and parameters"""
    warnings: tuple[str, ...] = json_name("notices")
    """what the user should know about the data"""
    environment: Environment = json_name("circumstances")
    """versions, hardware, command line, time"""
    diverged: bool = added_later(False)
    """loss or outputs became infinite or not a number: the outputs are those of the best constant, the loss is null"""
    label_scale: tuple[float, ...] | None = added_later(None)
    """mean and spread of the training labels, if the model learned standardised ones; stored outputs are on the
    labels' own scale"""
    probes: tuple[Probe, ...] = added_later(())
    """for a closed-form fit to features, the best probe of every layer"""
    measured: tuple[Measured, ...] = if_set(())
    """what the spec's measures found, in their order; none if the run diverged"""

    @property
    def key(self) -> str:
        """The key under which the store finds the run."""
        return self.spec.key

    @property
    def arrays(self) -> tuple[StoredArray, ...]:
        """All arrays: those of its predictions, then those of its measures, in their order."""
        return *self.predictions.arrays, *(array for found in self.measured for array in found.arrays.values())

    def measurement(self, measure: str) -> dict[str, NDArray[Any]] | None:
        """What a measure found, by its name in the spec; None if it is not there."""
        found = [one for one in self.measured if one.measure == measure]
        return {name: array.array() for name, array in found[0].arrays.items()} if found else None

    def with_arrays(self, change: Callable[[StoredArray], StoredArray]) -> RunResult:
        """The run with each of its arrays changed, in their order."""
        rows, labels, outputs = (change(array) for array in self.predictions.arrays)
        measured = tuple(
            one.replace(arrays={name: change(array) for name, array in one.arrays.items()}) for one in self.measured
        )
        return self.replace(predictions=Predictions(rows=rows, labels=labels, outputs=outputs), measured=measured)

    def without_arrays(self) -> RunResult:
        """The run with references in the place of its arrays."""
        return self.with_arrays(lambda array: array.reference)


@dataclass(frozen=True, kw_only=True)
class Crash(Record):
    """A run that raised, or whose process died."""

    spec: RunSpec
    """the run that was asked for"""
    error: str
    """one line: the exception, or how the process ended"""
    traceback: str
    """where it was raised; what the process printed last, if it died"""
    died: bool = if_set(False)
    """its process died, which may have had nothing to do with the run"""
    environment: Environment = json_name("circumstances")
    """versions, hardware, command line, time"""

    @property
    def key(self) -> str:
        """The key under which the store finds the run."""
        return self.spec.key


@dataclass(frozen=True, kw_only=True)
class PausedRun(Record):
    """A run that stopped on purpose after some steps and can go on."""

    spec: RunSpec
    """the run that was asked for"""
    n_steps: int
    """steps done"""
    metrics: dict[str, float]
    """all metrics of the task on a sample of dev at that moment"""
    score: float
    """the task's first metric"""
    noise: float
    """standard deviation of that score over other samples of dev"""
    loss: float
    """mean loss on the sample: cross-entropy, or the squared error of a regression"""
    seconds: float
    """training and evaluating so far"""
    checkpoint: bytes | memoryview | None = not_stored(None)
    """what it goes on from; the store writes it to a file of its own"""

    @property
    def key(self) -> str:
        """The key under which the store finds the run."""
        return self.spec.key
