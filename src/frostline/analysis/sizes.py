"""Curves of one model and task at several numbers of training rows, as one record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from frostline.analysis.curve_records import Curve
from frostline.records.serial import Record

Equal = Literal["epochs", "steps"]


@dataclass(frozen=True, kw_only=True)
class SizedCurve(Record):
    """The curve at one training size."""

    train_size: int
    """number of training rows"""
    curve: Curve
    """the curve, training scores included"""


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

    @property
    def n_crashed(self) -> int:
        """Number of runs that raised an error or died."""
        return sum(sized.curve.runs.crashed for sized in self.train_sizes)


def build_sizes(curves: Iterable[tuple[int, Curve]], equal: Equal | None) -> Sizes:
    """The record of curves, each given with its number of training rows, smallest first."""
    sized = [SizedCurve(train_size=n_train, curve=curve) for n_train, curve in curves]
    first = sized[0].curve
    return Sizes(model=first.model, task=first.task, metric=first.metric, equal=equal, train_sizes=tuple(sized))
