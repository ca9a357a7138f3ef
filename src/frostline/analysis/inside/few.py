"""Comparisons of one model and task at several numbers of training rows per class, as one record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from frostline.analysis.comparisons import Comparison
from frostline.records.serial import Record


@dataclass(frozen=True, kw_only=True)
class FewComparison(Record):
    """The comparison at one number of rows per class."""

    per_class: int
    """training rows of each class"""
    comparison: Comparison
    """the strategies; all train on the same rows, and each seed draws its own"""


@dataclass(frozen=True, kw_only=True)
class FewExamples(Record):
    """Strategies against the number of training rows per class."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    metric: str
    """name of the metric that gives the score"""
    sizes: tuple[FewComparison, ...]
    """one comparison per number of rows, ascending"""

    @property
    def n_crashed(self) -> int:
        """Number of runs that raised an error or died."""
        return sum(one.comparison.runs.crashed for one in self.sizes)

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies in the order of the request."""
        return tuple(dict.fromkeys(point.name for one in self.sizes for point in one.comparison.strategies))


def build_few(comparisons: Iterable[Comparison]) -> FewExamples:
    """The record of comparisons that know their number of rows per class."""
    sized = [FewComparison(per_class=one.per_class, comparison=one) for one in comparisons if one.per_class is not None]
    first = sized[0].comparison
    return FewExamples(
        model=first.model,
        task=first.task,
        metric=first.metric,
        sizes=tuple(sorted(sized, key=lambda one: one.per_class)),
    )
