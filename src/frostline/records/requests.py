"""What is asked for, as asked and as settled: a curve, a comparison.

Plain data, like `records`; what settles it stands far below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from frostline.records.serial import Record
from frostline.records.specs import CacheDtype, Protocol, RunSpec, Scale, TaskSpec


@dataclass(frozen=True, kw_only=True)
class CurveSpec(Record):
    """A curve as asked for. Fields left None are settled before the first run and kept on resume."""

    model: str
    """a Hub name, a folder, or all-MiniLM-L6-v2 of the `demo` extra"""
    task: TaskSpec
    """the data"""
    frozen: tuple[int, ...] | None = None
    """depths to train at, e.g. `0,6-12`; by default from half of the layers to all"""
    keep: tuple[float, ...] = (0.9,)
    """shares of the full score to find the operating point for"""
    scale: Scale = "ratio"
    """scale of the operating point shown first"""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """how many replicates, or which"""
    learning_rates: tuple[float, ...] = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
    """rates of the line search; a single one is used without a search"""
    epochs: int | None = None
    """passes over the training rows; by default 3 (RoBERTa: 10)"""
    batch_size: int = 16
    """rows a step"""
    max_length: int = 128
    """tokens a row at most; longer texts are cut"""
    protocol: Protocol = "paper"
    """`paper`: the full model's best rate at every depth, chosen on dev; `tuned`: a rate for each depth, chosen on rows
    held out of train"""
    frozen_dropout: bool = False
    """leave dropout on in frozen layers, as plain `requires_grad=False` does; nothing is cached then"""
    cache: bool = True
    """compute what the frozen layers put out once and keep it"""
    cache_dtype: CacheDtype = "fp32"
    """how it is kept: fp16 and bf16 take half the space and move scores a little"""
    varlen: bool = False
    """on CUDA, leave out padding in all layers and in attention too; untested: no GPU has seen it yet"""
    threads: int = 1
    """threads of one run; part of what makes its numbers"""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """where to train"""


@dataclass(frozen=True, kw_only=True)
class ResolvedCurve(Record):
    """A curve's request with everything settled: what a resumed call goes by."""

    asked: CurveSpec
    """the request as asked"""
    base: RunSpec
    """the run all others differ from only in strategy, rate, seed, role and whether they are cached"""
    n_layers: int
    """layers of the model"""
    depths: tuple[int, ...]
    """depths to train at, ascending"""
    is_cached: bool
    """whether prefix states are kept"""


@dataclass(frozen=True, kw_only=True)
class ResolvedComparison(Record):
    """A comparison's request with everything settled."""

    strategies: tuple[str, ...]
    """what is compared, as the user wrote it"""
    settled: ResolvedCurve
    """all else, as for a curve"""
