"""What is asked, planned, measured and kept, as frozen records.

A record holds plain data only; what computes with it stands in the modules below.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

from frostline.keys import RESULTS_VERSION, key_of
from frostline.serial import Record, StoredArray, added_later, key_fields, not_in_key

Kind = Literal["classification", "regression"]
Role = Literal["replicate", "line_search", "tuning"]
Scale = Literal["ratio", "ratio_above_chance"]
Protocol = Literal["paper", "tuned"]

CacheDtype = Literal["fp32", "fp16", "bf16"]
Layout = Literal["padded", "packed", "varlen"]
Fit = Literal["gradient", "closed_form"]
Pooling = Literal["mean", "first", "last"]

SCALES: tuple[Scale, ...] = ("ratio", "ratio_above_chance")


@dataclass(frozen=True, kw_only=True)
class TaskSpec(Record):
    """Which labelled text, and what part of it. Fields left None are settled by `tasks.resolve`."""

    name: str
    """a known task (`cola`, `sst2`, …, `rotten-tomatoes`), or the stem of the user's file"""
    source: str | None = not_in_key()
    """the user's own file or folder, or a Hub data set: `owner/name`, `owner/name:config`"""
    data: str | None = not_in_key()
    """folder that holds the GLUE tasks, one folder each; without it they are read from the Hub"""
    dev: str | None = not_in_key()
    """file with the dev rows, or the split of that name; else the data's own, else cut from the training rows"""
    text: str | None = None
    """column with the text"""
    text_pair: str | None = None
    """column with the second text of a pair"""
    label: str | None = None
    """column with the label"""
    kind: Kind | None = None
    """classification or regression"""
    metric: str | None = None
    """what the score is; the task's own by default"""
    dev_share: float = 0.1
    """share of the training rows cut off as dev where there are no dev rows"""
    max_train: int | None = None
    """train on a seeded, stratified sample of this many rows"""
    max_dev: int | None = None
    """score on a seeded, stratified sample of this many dev rows"""


@dataclass(frozen=True, kw_only=True)
class RunSpec(Record):
    """One training run, fully settled: the same spec gives the same numbers on the same machine."""

    model: str = not_in_key()
    """Hub name or folder of the pretrained model"""
    model_fingerprint: str
    """key of the pretrained weights, configuration and tokenizer"""
    task: TaskSpec
    """the data"""
    data_fingerprint: str
    """key of the source files"""
    strategy: str
    """what is trained: `full`, `freeze:N`, `lora:R`, …"""
    learning_rate: float
    """peak learning rate; 0 where nothing descends"""
    epochs: int
    """passes over the training rows"""
    batch_size: int = 16
    """rows a step"""
    max_length: int = 128
    """tokens a row at most; longer texts are cut"""
    seed: int
    """replicate; the head's initialisation and the data order each have a seed derived from it"""
    role: Role = "replicate"
    """a run of a line search draws its seeds apart from every replicate and never enters a mean; so does one for
    tuning, which is scored on rows held out of train"""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW with bias correction, or plain SGD"""
    weight_decay: float = 0.0
    """weight decay of the trained parameters"""
    warmup_share: float = 0.1
    """share of the steps over which the rate rises; then it falls linearly to 0"""
    clip_norm: float = 1.0
    """largest gradient norm"""
    is_cached: bool
    """what the frozen layers put out is computed once and kept"""
    cache_dtype: CacheDtype = "fp32"
    """how it is kept"""
    frozen_dropout: bool = False
    """leave dropout on in frozen layers, as plain `requires_grad=False` does"""
    layout: Layout = "padded"
    """packed: the rows of a batch go through the layers as one row, without padding; varlen: through attention too"""
    pair_joiner: str | None = None
    """what stands between the texts of a pair where the tokenizer puts nothing between them"""
    threads: int = 1
    """threads of one run"""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    """where it trains"""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: autocast on CUDA; the weights stay fp32"""

    @functools.cached_property
    def key(self) -> str:
        """What this run's result is found by."""
        return key_of({"results_version": RESULTS_VERSION, "spec": key_fields(self)})


@dataclass(frozen=True, kw_only=True)
class Phase(Record):
    """A stretch of training with one set of trained parameters."""

    epochs: int | None
    """how many epochs it lasts; None: an even share of the run's"""
    cached_layers: int | None
    """the state after this many layers (0: after the embeddings) never changes in this phase; None: nothing holds"""
    trained: tuple[str, ...]
    """names of the parameters that train, in the model's order"""


@dataclass(frozen=True, kw_only=True)
class Plan(Record):
    """What a strategy decided for one model, before any weight is touched."""

    n_frozen: int | None
    """layers frozen from the bottom, embeddings included; None where nothing or no depth is frozen"""
    edits: tuple[str, ...] = ()
    """names of the weights that are re-initialised before training"""
    added: tuple[str, ...] = ()
    """names of the modules that are put in"""
    phases: tuple[Phase, ...]
    """stretches of training, in order"""
    fit: Fit = "gradient"
    """trained by the loop, or fitted in one go"""

    @classmethod
    def one_phase(
        cls,
        *,
        trained: tuple[str, ...],
        n_frozen: int | None = None,
        cached_layers: int | None = None,
        edits: tuple[str, ...] = (),
        added: tuple[str, ...] = (),
        fit: Fit = "gradient",
    ) -> Plan:
        """A plan that trains one set of parameters from the first step to the last."""
        phase = Phase(epochs=None, cached_layers=cached_layers, trained=trained)
        return cls(n_frozen=n_frozen, edits=edits, added=added, phases=(phase,), fit=fit)

    def phase_at(self, epoch: int, n_epochs: int) -> Phase:
        """The phase of an epoch, counted from 1: the last of them is in the last phase."""
        return self.phases[math.ceil(epoch * len(self.phases) / n_epochs) - 1]

    def trained(self, n_epochs: int) -> frozenset[str]:
        """Names of the parameters that train in any of a run's epochs."""
        phases = {self.phase_at(epoch, n_epochs) for epoch in range(1, n_epochs + 1)}
        return frozenset(name for phase in phases for name in phase.trained)


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
    notices: tuple[str, ...]
    """what a careful person should know about the data"""
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


@dataclass(frozen=True, kw_only=True)
class DepthCount(Record):
    """What is trained at one depth."""

    n_frozen: int
    """layers frozen from the bottom, embeddings included"""
    trained_parameters: int
    """parameters that train"""
    share: float
    """of all parameters of the model with its head"""


@dataclass(frozen=True, kw_only=True)
class Census(Record):
    """The parameters of a model, by component."""

    model: str
    """the pretrained model"""
    n_layers: int
    """its layers"""
    embeddings: int
    """embeddings and what every layer reads"""
    layer: int
    """one layer"""
    layers: int
    """all layers"""
    pooler: int
    """what the pretrained model has above its layers: pooler or final norm"""
    total: int
    """the pretrained model with its pooler, as the paper counts"""
    head: int
    """the new task head, for two classes"""
    full: int
    """what full fine-tuning trains: the model with its task head"""
    depths: tuple[DepthCount, ...]
    """what each depth trains"""
