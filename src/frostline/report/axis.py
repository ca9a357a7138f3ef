"""Where things lie on the score axis of a chart: its ends, and the line that keeps a share of the full score."""

from __future__ import annotations

from frostline.analysis import Curve, OperatingPoint
from frostline.stats import bar_of


def keep_line(curve: Curve, asked: OperatingPoint | None) -> float | None:
    """The score an operating point has to reach; None where the scale means nothing."""
    full = curve.full.mean
    if asked is None or full is None or asked.trained_layers is None:
        return None
    return bar_of(asked.keep, full, 0.0 if asked.scale == "ratio" else curve.chance)


def extent(curve: Curve, asked: OperatingPoint | None) -> tuple[float, float]:
    """Lowest and highest score to draw: every score, chance, the line to reach, and the intervals.

    An interval from three seeds can be many times wider than everything else: what sticks out by more than half
    of the span of the rest is left outside.
    """
    points = (curve.full, *curve.points)
    line = keep_line(curve, asked)
    marks = [curve.chance, *(score for point in points for score in point.scores)]
    marks += [value for value in (line, *(point.mean for point in points)) if value is not None]
    low, high = min(marks), max(marks)
    room = (high - low) / 2
    ends = [end for point in points if point.ci is not None for end in point.ci]
    return max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
