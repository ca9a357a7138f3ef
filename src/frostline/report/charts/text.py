"""A curve as lines of characters: one row per depth with its mean and interval, and the score to reach."""

from __future__ import annotations

from collections.abc import Callable

from frostline.analysis import Curve, Point, value_of
from frostline.analysis.views import series
from frostline.report import numbers
from frostline.report.wording import axis_words, curve_words

MEAN, SEED, LINE = "●", "○", "┊"
_LABEL_WIDTH = 6
"""at least; values of other axes may be longer"""
_VALUE_WIDTH = 7
_GAP = "  "


def chart_lines(curve: Curve, width: int) -> list[str]:
    """The chart with its heading first, at most `width` columns wide; empty without scores or without room."""
    points = [point for point in (curve.full, *curve.points) if point.mean is not None]
    labels = [axis_words.value(value_of(point)) for point in points]
    label_width = max([_LABEL_WIDTH, *map(len, labels)])
    n_columns = width - label_width - _VALUE_WIDTH - 2 * len(_GAP)
    if not points or n_columns < 20:
        return []
    seen = series(curve, "score")
    assert seen is not None, "scores are always there"
    asked, line = seen.asked, seen.bar
    low, high = seen.extent

    def column(value: float) -> int:
        return round((value - low) / (high - low) * (n_columns - 1)) if high > low else n_columns // 2

    rows = [_row(point, n_columns, column, line) for point in points]
    named = [f"{label.rjust(label_width)}{_GAP}{drawn}" for label, drawn in zip(labels, rows, strict=True)]
    lines = [_heading(curve), *named]
    margin = " " * label_width + _GAP
    if line is not None and asked is not None:
        said = f"{numbers.keep_share(asked.keep)} of {curve_words.SCALE_WORDS[asked.scale]}: {numbers.score(line)}"
        lines.append(margin + _centred(said, column(line), n_columns))
    left = f"chance {numbers.score(low)}" if low == curve.chance else numbers.score(low)
    lines.append(margin + left + numbers.score(high).rjust(n_columns - len(left)))
    return lines


def _heading(curve: Curve) -> str:
    has_open = any(point.ci is None and point.scores for point in (curve.full, *curve.points))
    seeds = f", seeds {SEED} if too few for one" if has_open else ""
    named = axis_words.words_of(curve).title
    return f"{named[:1].upper()}{named[1:]} and {numbers.one_line(curve.metric, 20)}: mean {MEAN}, 95% interval{seeds}"


def _row(point: Point, n_columns: int, column: Callable[[float], int], line: float | None) -> str:
    cells = [" "] * n_columns
    if line is not None:
        cells[column(line)] = LINE
    if point.ci is not None:
        _draw_interval(cells, column(point.ci[0]), column(point.ci[1]))
    else:
        for score in point.scores:
            cells[column(score)] = SEED
    assert point.mean is not None
    cells[column(point.mean)] = MEAN
    return f"{''.join(cells)}{_GAP}{numbers.score(point.mean).rjust(_VALUE_WIDTH)}"


def _draw_interval(cells: list[str], first: int, last: int) -> None:
    """Draw an interval; an end outside the axis is left open."""
    for at in range(max(first, 0), min(last, len(cells) - 1) + 1):
        cells[at] = "├" if at == first else "┤" if at == last else "─"


def _centred(said: str, at: int, n_columns: int) -> str:
    start = max(0, min(at - len(said) // 2, n_columns - len(said)))
    return (" " * start + said)[:n_columns].rstrip()
