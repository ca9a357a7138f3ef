"""What came of a run: finished, paused or crashed."""

from __future__ import annotations

from dataclasses import dataclass

from frostline.records.plans import Plan
from frostline.records.serial import Record, StoredArray, added_later, json_name
from frostline.records.specs import Pooling, RunSpec


@dataclass(frozen=True, kw_only=True)
class EpochRecord(Record):
    """What one epoch gave."""

    epoch: int
    """counted from 1"""
    train_loss: float
    """mean loss over the epoch's rows, dropout on, full precision"""
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
    """What one run took."""

    seconds: float
    """training and evaluating, the prefix apart"""
    prefix_seconds: float
    """computing what the frozen layers put out, in this run"""
    peak_bytes: int | None
    """peak private memory above the level before the model was loaded; None where the system does not tell"""
    cache_bytes: int
    """size of the prefix states this run read"""
    trained_parameters: int
    """parameters that trained"""
    total_parameters: int
    """parameters of the model with its head"""


@dataclass(frozen=True, kw_only=True)
class Predictions(Record):
    """What the trained model said of every dev row."""

    rows: StoredArray
    """row numbers in the source file (rows,)"""
    labels: StoredArray
    """what was right (rows,): class numbers or values"""
    outputs: StoredArray
    """the model's raw outputs (rows, classes), or (rows, 1) for regression"""


@dataclass(frozen=True, kw_only=True)
class Circumstances(Record):
    """Where and with what something was run."""

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
    """A linear fit to what one layer puts out."""

    depth: int
    """layers below (0: the embeddings)"""
    pooling: Pooling
    """what was taken of a row's tokens; chosen on held-out rows"""
    strength: float
    """of the L2 penalty (C of the logistic, alpha of the ridge regression); chosen on held-out rows"""
    held_out_score: float
    """score on rows held out of train, by which layer, pooling and strength are chosen"""
    score: float
    """score on dev, fitted to all of train"""


@dataclass(frozen=True, kw_only=True)
class RunResult(Record):
    """A finished run, with everything later work needs."""

    spec: RunSpec
    """what was asked"""
    plan: Plan
    """what was trained"""
    epochs: tuple[EpochRecord, ...]
    """one record an epoch"""
    score: float
    """the task's first metric on dev at the end of the last epoch"""
    metrics: dict[str, float]
    """all metrics of the task on dev at the end of the last epoch"""
    chance: float
    """best score of a constant prediction on dev"""
    train_score: float
    """the same metric on a fixed sample of at most 1,000 training rows, at the end"""
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
    """what it took"""
    warnings: tuple[str, ...] = json_name("notices")
    """what users should know about the data"""
    circumstances: Circumstances
    """versions, hardware, command line, time"""
    probes: tuple[Probe, ...] = added_later(())
    """of a fit to features, the best of every layer"""

    @property
    def key(self) -> str:
        """What the run is found by."""
        return self.spec.key


@dataclass(frozen=True, kw_only=True)
class Crash(Record):
    """A run that raised, or whose process died."""

    spec: RunSpec
    """what was asked"""
    error: str
    """one line: the exception, or how the process ended"""
    traceback: str
    """where it was raised; empty when the process died"""
    circumstances: Circumstances
    """versions, hardware, command line, time"""

    @property
    def key(self) -> str:
        """What the run is found by."""
        return self.spec.key


@dataclass(frozen=True, kw_only=True)
class Leg(Record):
    """A part of a run: from where it was paused, or from its start, to another place or to its end."""

    checkpoint: str
    """file that it goes on from, and is paused in"""
    until: int | None = None
    """pause after so many steps, counted from the first; None: go on to the end"""


@dataclass(frozen=True, kw_only=True)
class Paused(Record):
    """What a run had come to when it was paused."""

    spec: RunSpec
    """what was asked"""
    n_steps: int
    """steps done"""
    metrics: dict[str, float]
    """all metrics of the task on a sample of dev at that moment"""
    score: float
    """the task's first metric"""
    noise: float
    """standard deviation of that score over other samples"""
    loss: float
    """mean loss on the sample: cross-entropy, or the squared error of a regression"""
    seconds: float
    """training and evaluating so far"""

    @property
    def key(self) -> str:
        """What the run is found by."""
        return self.spec.key
