"""Five views of a curve: scores, training scores, differences from the full model, and two kinds of shares of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from frostline import stats
from frostline.analysis.axis.operating_records import OperatingPoint
from frostline.analysis.axis.places import value_of
from frostline.analysis.curve_records import Curve, Interval, Point
from frostline.analysis.points import unless_equal
from frostline.records.depth import Depth

View = Literal["score", "difference", "ratio", "ratio_above_chance", "train_score"]
VIEWS: tuple[View, ...] = ("score", "difference", "ratio", "ratio_above_chance", "train_score")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One point of a curve in a view."""

    at: Depth
    """layers frozen, the value on another axis, or FULL"""
    value: float | None
    """the mean in this view; None if every run crashed"""
    interval: Interval | None
    """95% interval; None if there is none"""
    by_seed: tuple[tuple[int, float], ...]
    """(seed, value) of each run"""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A curve in a view."""

    view: View
    full: Mark
    marks: tuple[Mark, ...]
    """one mark per depth, ascending"""
    chance: float | None
    """chance in this view; None if undefined"""
    bar: float | None
    """the value that the first operating point has to reach; None if undefined"""
    asked: OperatingPoint | None
    """the first operating point"""

    @property
    def extent(self) -> tuple[float, float]:
        """Lowest and highest value to draw: every value, chance, the bar, and the intervals.

        An interval from three seeds can be many times wider than everything else. So intervals extend the range by at
        most half of the span of the other values on each side.
        """
        marks = (self.full, *self.marks)
        given = [value for mark in marks for value in (mark.value, *(value for _, value in mark.by_seed))]
        values = [value for value in (*given, self.chance, self.bar) if value is not None] or [0.0, 1.0]
        low, high = min(values), max(values)
        room = (high - low) / 2
        ends = [end for mark in marks if mark.interval is not None for end in mark.interval]
        return max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)


def series(curve: Curve, view: View) -> Series | None:
    """The curve in a view; None if undefined: the full model has no score, or none above the base."""
    asked = curve.operating_points[0] if curve.operating_points else None
    if view == "train_score":
        marks = [_training_mark(point) for point in (curve.full, *curve.points)]
        return Series(view=view, full=marks[0], marks=tuple(marks[1:]), chance=None, bar=None, asked=None)
    seen = _seen_as(curve, view)
    if seen is None:
        return None
    bar = score_to_reach(curve, asked)
    return Series(
        view=view,
        full=_mark(curve, curve.full, view, seen),
        marks=tuple(_mark(curve, point, view, seen) for point in curve.points),
        chance=seen(curve.chance),
        bar=None if bar is None else seen(bar),
        asked=asked,
    )


def score_to_reach(curve: Curve, asked: OperatingPoint | None) -> float | None:
    """The score that an operating point has to reach; None if the scale is undefined."""
    full = curve.full.mean
    if asked is None or full is None or asked.trained_layers is None:
        return None
    return stats.bar_of(asked.keep, full, 0.0 if asked.scale == "ratio" else curve.chance)


def _seen_as(curve: Curve, view: View) -> Callable[[float], float] | None:
    """The function that turns a score into a value of the view."""
    if view == "score":
        return lambda score: score
    full = curve.full.mean
    if full is None:
        return None
    if view == "difference":
        return lambda score: score - full
    base = 0.0 if view == "ratio" else curve.chance
    return (lambda score: (score - base) / (full - base)) if stats.is_above(full, base) else None


def _mark(curve: Curve, point: Point, view: View, seen: Callable[[float], float]) -> Mark:
    return Mark(
        at=value_of(point),
        value=_value(point, view),
        interval=_interval(curve, point, view, seen),
        by_seed=tuple((seed, seen(score)) for seed, score in zip(point.seeds, point.scores, strict=True)),
    )


def _value(point: Point, view: View) -> float | None:
    if view == "difference":
        return point.difference
    return point.mean if view == "score" else point.ratio if view == "ratio" else point.ratio_above_chance


def _interval(curve: Curve, point: Point, view: View, seen: Callable[[float], float]) -> Interval | None:
    """The interval in a view; for the full model, the interval of its score, because it is compared with itself."""
    if view == "score" or point is curve.full:
        return None if point.ci is None else tuple(seen(end) for end in point.ci)
    if view == "difference":
        return point.difference_ci
    return point.ratio_ci if view == "ratio" else _above_chance_interval(curve, point)


def _above_chance_interval(curve: Curve, point: Point) -> Interval | None:
    if point.ratio_above_chance_ci is not None or point.seeds != curve.full.seeds:
        return point.ratio_above_chance_ci
    own, others = (np.array(scores) - curve.chance for scores in (point.scores, curve.full.scores))  # of release 0.1
    return stats.ratio_interval(own, others) if len(others) and stats.is_above(stats.mean(others), 0.0) else None


def _training_mark(point: Point) -> Mark:
    scores: Sequence[float] = point.train_scores
    return Mark(
        at=value_of(point),
        value=stats.mean(scores) if scores else None,
        interval=unless_equal(scores, stats.t_interval(scores)),
        by_seed=tuple(zip(point.seeds, scores, strict=True)),
    )
