"""Curves of one model and task at several numbers of training rows, or several learning rates, as one record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from frostline import stats
from frostline.analysis.curve_records import Curve, Interval
from frostline.records.depth import FULL
from frostline.records.serial import Record, added_later

Equal = Literal["epochs", "steps"]


@dataclass(frozen=True, kw_only=True)
class SizedCurve(Record):
    """The curve at one training size."""

    train_size: int
    """number of training rows"""
    curve: Curve
    """the curve, training scores included"""


@dataclass(frozen=True, kw_only=True)
class Interaction(Record):
    """How the difference of a depth from the full model changes with the number of training rows."""

    n_frozen: int
    """the depth"""
    per_doubling: float
    """change of the difference (depth minus full) for twice as many rows"""
    ci: Interval | None
    """its interval over seeds (Student's t); those of all depths hold at once with 95% confidence"""


@dataclass(frozen=True, kw_only=True)
class Sizes(Record):
    """Training rows against frozen layers."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    metric: str
    """name of the metric that gives the score"""
    equal: Equal | None
    """what is the same at every size, epochs or steps; None: not known"""
    train_sizes: tuple[SizedCurve, ...]
    """one curve per size, ascending"""
    interactions: tuple[Interaction, ...] = added_later(())
    """whether what a depth loses depends on the number of rows; empty below three seeds or two sizes"""

    @property
    def n_crashed(self) -> int:
        """Number of runs that raised an error or died."""
        return sum(sized.curve.runs.crashed for sized in self.train_sizes)


@dataclass(frozen=True, kw_only=True)
class RatedCurve(Record):
    """The curve at one learning rate."""

    learning_rate: float
    """the rate of the full model and of every depth"""
    curve: Curve
    """the curve"""


@dataclass(frozen=True, kw_only=True)
class Rates(Record):
    """Learning rates against frozen layers."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    metric: str
    """name of the metric that gives the score"""
    rates: tuple[RatedCurve, ...]
    """one curve per rate, ascending"""

    @property
    def n_crashed(self) -> int:
        """Number of runs that raised an error or died."""
        return sum(one.curve.runs.crashed for one in self.rates)


def interactions(sized: Sequence[SizedCurve]) -> tuple[Interaction, ...]:
    """The test of size × depth: for each depth the slope of its difference from the full model, seed by seed."""
    if len(sized) < 2:
        return ()
    doublings = np.log2([one.train_size for one in sized])
    weights = (doublings - doublings.mean()) / float(((doublings - doublings.mean()) ** 2).sum())
    found = []
    depths = [point.n_frozen for point in sized[0].curve.points if point.n_frozen is not FULL]
    for depth in depths:
        by_size = [_differences(one.curve, depth) for one in sized]
        seeds = sorted(set.intersection(*(set(one) for one in by_size)))
        slopes = [float(weights @ [one[seed] for one in by_size]) for seed in seeds]
        if len(slopes) >= stats.MIN_SEEDS:
            interval = stats.t_interval(slopes, confidence=1 - 0.05 / len(depths))
            found.append(Interaction(n_frozen=depth, per_doubling=stats.mean(slopes), ci=interval))
    return tuple(found)


def _differences(curve: Curve, depth: int) -> dict[int, float]:
    """Depth minus full, by seed."""
    full = dict(zip(curve.full.seeds, curve.full.scores, strict=True))
    own = next((point for point in curve.points if point.n_frozen == depth), None)
    scores = {} if own is None else dict(zip(own.seeds, own.scores, strict=True))
    return {seed: score - full[seed] for seed, score in scores.items() if seed in full}


def build_sizes(curves: Iterable[tuple[int, Curve]], equal: Equal | None) -> Sizes:
    """The record of curves, each given with its number of training rows, smallest first."""
    sized = [SizedCurve(train_size=n_train, curve=curve) for n_train, curve in curves]
    first = sized[0].curve
    return Sizes(
        model=first.model,
        task=first.task,
        metric=first.metric,
        equal=equal,
        train_sizes=tuple(sized),
        interactions=interactions(sized),
    )
