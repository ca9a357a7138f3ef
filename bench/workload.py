"""What the speed bench trains, at which depths, and how it calls things; imports no library that computes."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

MODEL = "all-MiniLM-L6-v2"
N_LAYERS = 6
TASK = "sst2"
BATCH = 16
DEPTHS = (3, 4, 5, 6)
FULL = "full"
KINDS = (FULL, *(f"freeze:{depth}" for depth in DEPTHS))
"""The kinds of run of a curve."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The runs of one curve."""

    n_train: int
    epochs: int
    rates: tuple[float, ...]
    n_seeds: int

    @property
    def n_steps(self) -> int:
        """Steps of one run."""
        return self.epochs * math.ceil(self.n_train / BATCH)

    def n_runs(self, kind: str) -> int:
        """Runs of one kind; the line search is of the full model."""
        return self.n_seeds + (len(self.rates) if kind == FULL and len(self.rates) > 1 else 0)

    @property
    def text(self) -> str:
        """In words."""
        n_runs = sum(self.n_runs(kind) for kind in KINDS)
        return f"{n_runs} runs of {self.n_train:,} rows, {self.epochs} epoch{'s' * (self.epochs > 1)}"

    @property
    def flags(self) -> list[str]:
        """As `frostline curve` takes it."""
        return [
            "--max-train", str(self.n_train), "--epochs", str(self.epochs), "--seeds", str(self.n_seeds),
            "--lrs", ",".join(map(str, self.rates)), "--frozen", ",".join(map(str, DEPTHS)),
            "--batch-size", str(BATCH),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large each part of the bench is."""

    whole: Workload
    small: Workload
    scored: Workload
    """trained for the scores, with one rate"""
    max_dev: int | None
    """dev rows; None: all"""
    memory_rows: tuple[int, ...]
    """training rows whose memory is measured"""
    memory_steps: int
    """steps after which the memory of a run is reached"""
    growth_rows: tuple[int, ...]
    lengths: tuple[int, ...]
    """limits of tokens a row"""
    length_rows: int
    """pairs that the limits are tried on"""
    stretch_seconds: float
    """shortest stretch that steps of ours are timed over"""


REAL = Sizes(
    whole=Workload(n_train=4000, epochs=3, rates=(1e-5, 2e-5, 3e-5, 4e-5, 5e-5), n_seeds=5),
    small=Workload(n_train=1600, epochs=1, rates=(3e-5, 5e-5), n_seeds=2),
    scored=Workload(n_train=1600, epochs=1, rates=(5e-5,), n_seeds=5),
    max_dev=None,
    memory_rows=(1000, 4000, 16000, 67349),
    memory_steps=60,
    growth_rows=(1000, 2000, 4000),
    lengths=(16, 32, 64, 128),
    length_rows=480,
    stretch_seconds=3.0,
)

TINY = Sizes(
    whole=Workload(n_train=96, epochs=2, rates=(3e-5, 5e-5), n_seeds=2),
    small=Workload(n_train=64, epochs=1, rates=(3e-5, 5e-5), n_seeds=1),
    scored=Workload(n_train=64, epochs=1, rates=(5e-5,), n_seeds=3),
    max_dev=64,
    memory_rows=(64, 128),
    memory_steps=3,
    growth_rows=(64, 128),
    lengths=(16, 32),
    length_rows=48,
    stretch_seconds=0.3,
)
"""Whether it works; its figures mean nothing."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asked for."""

    data: str
    """GLUE folder"""
    sizes: Sizes
    n_steps: int
    """timed steps of each kind of run and repetition"""
    repetitions: int

    @property
    def source(self) -> list[str]:
        """Where the rows are, as `frostline` takes it."""
        dev = [] if self.sizes.max_dev is None else ["--max-dev", str(self.sizes.max_dev)]
        return ["--data", self.data, *dev]


def say(line: str) -> None:
    """A line on standard error: how far it is."""
    print(line, file=sys.stderr, flush=True)
