"""Curves of one model and task at several numbers of training rows, as one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from frostline.analysis.chapters import Chapter
from frostline.analysis.records import Curve
from frostline.records.serial import Record


@dataclass(frozen=True, kw_only=True)
class SizedCurve(Record):
    """The curve at one size."""

    train_size: int
    """training rows"""
    curve: Curve
    """scores against frozen layers, training scores included"""


@dataclass(frozen=True, kw_only=True)
class Grid(Record):
    """Training rows against frozen layers."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    metric: str
    """what a score is"""
    equal: Literal["epochs", "steps"]
    """what is the same at every size"""
    train_sizes: tuple[SizedCurve, ...]
    """one a size, ascending"""

    @property
    def n_crashed(self) -> int:
        """Runs that raised or died."""
        return sum(sized.curve.runs.crashed for sized in self.train_sizes)


def build_grid(chapters: Sequence[Chapter], equal: Literal["epochs", "steps"]) -> Grid:
    """The grid of the curves at each size, the smallest first."""
    first = chapters[0].curve
    sized = [
        SizedCurve(train_size=chapter.provenance.n_train, curve=chapter.curve)
        for chapter in chapters
        if chapter.provenance is not None
    ]
    return Grid(model=first.model, task=first.task, metric=first.metric, equal=equal, train_sizes=tuple(sized))
