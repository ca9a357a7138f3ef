"""What identifies a run: its data and every setting that can move a number."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from frostline.records.keys import RESULTS_VERSION, key_of
from frostline.records.serial import Record, added_later, hint, if_set, key_fields, not_in_key

Role = Literal["replicate", "line_search", "tuning"]
Scale = Literal["ratio", "ratio_above_chance"]
Protocol = Literal["paper", "tuned"]
CacheDtype = Literal["fp32", "fp16", "bf16"]
BundleDtype = Literal["fp32", "fp16", "bf16"]
Layout = Literal["padded", "packed", "varlen", "mixed"]
Fit = Literal["gradient", "closed_form", "contrastive", "none"]
Pooling = Literal["mean", "first", "last"]

SCALES: tuple[Scale, ...] = ("ratio", "ratio_above_chance")


@dataclass(frozen=True, kw_only=True)
class TaskSpec(Record):
    """Which labelled text, and what part of it. Fields left None are filled in by `tasks.resolve`."""

    name: str
    """a known task (`cola`, `sst2`, …, `rotten-tomatoes`), or the stem of the user's file"""
    source: str | None = not_in_key()
    """the user's own file or folder, or a Hub data set: `owner/name`, `owner/name:config`"""
    data: str | None = not_in_key()
    """folder with the GLUE tasks, one sub-folder each; without it GLUE is read from the Hub"""
    dev: str | None = not_in_key()
    """file with the dev rows, or the name of a split"""
    text: str | None = None
    """column with the text"""
    text_pair: str | None = None
    """column with the second text of a pair"""
    label: str | None = None
    """column with the label"""
    kind: str | None = None
    """classification, regression, or the import path of another kind: package.module:NAME"""
    metric: str | None = None
    """the metric that is the score"""
    dev_share: float = 0.1
    """share of the training rows that become dev rows where there are none"""
    max_train: int | None = None
    """train on a seeded, stratified sample of this many rows"""
    max_dev: int | None = None
    """score on a seeded, stratified sample of this many dev rows"""


@dataclass(frozen=True, kw_only=True)
class RunSpec(Record):
    """One training run with nothing left open: the same spec gives the same numbers on the same machine."""

    model: str = not_in_key()
    """Hub name or folder of the pretrained model"""
    model_revision: str | None = hint(None)
    """commit of a model from the Hub, found when the request was resolved; a branch can move"""
    model_fingerprint: str
    """key of the pretrained weights, configuration and tokenizer"""
    task: TaskSpec
    """the data"""
    data_fingerprint: str
    """key of the source files"""
    strategy: str
    """what is trained: `full`, `freeze:N`, `lora:R`, …"""
    learning_rate: float
    """peak learning rate; 0 for a closed-form fit"""
    epochs: int
    """passes over the training rows"""
    batch_size: int = 16
    """rows per step"""
    micro_batch_size: int | None = if_set(None)
    """rows that are computed together in a step; None: all of them"""
    micro_batch_because: str | None = hint(None, is_quiet=True)
    """why not all rows of a batch are computed together, if the user did not ask for that"""
    max_length: int = 128
    """longest row in tokens; longer texts are cut"""
    seed: int
    """replicate; the head's initialisation and the data order each have a seed derived from it"""
    role: Role = "replicate"
    """only replicates enter a mean. Runs that choose a learning rate (`line_search`, `tuning`) have seeds of their own;
    `tuning` runs are scored on rows held out of train"""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW with bias correction, or plain SGD"""
    weight_decay: float = 0.0
    """weight decay of the trained parameters"""
    warmup_share: float = 0.1
    """share of the steps over which the learning rate rises; after that it falls linearly to 0"""
    clip_norm: float = 1.0
    """largest gradient norm"""
    is_cached: bool
    """frozen-layer outputs are computed once and cached"""
    cache_dtype: CacheDtype = "fp32"
    """number format of the cache"""
    frozen_dropout: bool = False
    """leave dropout on in frozen layers, as plain `requires_grad=False` does"""
    layout: Layout = "padded"
    """packed: the layers see the rows of a batch as one long row, without padding; varlen: so does attention; mixed:
    only attention is padded, in a model whose attention is its own"""
    padded_because: str | None = hint(None, is_quiet=True)
    """why batches are padded, if the model gives other states without padding"""
    pair_joiner: str | None = None
    """put between the texts of a pair where the tokenizer has no separator"""
    threads: int = 1
    """threads per run"""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    """where it trains"""
    master_seed: int = added_later(0)
    """enters every seed that is derived from `seed`"""
    max_steps: int | None = added_later(None)
    """train exactly this many steps, in as many epochs as they take; None: whole epochs"""
    subset_seed: int | None = added_later(None)
    """draws the training rows, `max_train` of them; a smaller subset is part of a larger one. None: a fixed sample"""
    is_balanced: bool = if_set(False)
    """the training rows that `subset_seed` draws are equally many of each class"""
    passes: int = if_set(1)
    """passes over the training rows between two scores on dev: together they are one epoch"""
    subset_of: int | None = hint(None)
    """size of the largest subset with this seed: states are cached for all its rows"""
    fit_seed: int | None = added_later(None)
    """of a closed-form fit: seed of the rows that it holds out to choose layer and strength; None: the run's own"""
    standardised: bool = added_later(False)
    """number labels are standardised for training; predictions are on the labels' own scale"""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: autocast on CUDA; the weights stay fp32"""
    measures: tuple[str, ...] = if_set(())
    """what is measured on the model once it is trained and scored: `importance:rows=1000`, `change`, …"""

    def with_seed(self, seed: int) -> RunSpec:
        """The same run with another seed, and with the training rows that the seed draws, if it draws some."""
        return self.replace(seed=seed, subset_seed=None if self.subset_seed is None else seed)

    @functools.cached_property
    def key(self) -> str:
        """The key under which the store finds this run."""
        return key_of({"results_version": RESULTS_VERSION, "spec": key_fields(self)})
