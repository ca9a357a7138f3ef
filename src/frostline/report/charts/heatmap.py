"""Curves of one model and task that differ in one thing → a heat map: that thing against depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from frostline.analysis import Curve, series
from frostline.records.depth import FULL, Depth
from frostline.report import numbers
from frostline.report.charts.curve import ACCENT, INK, Row
from frostline.report.charts.marks import axis, layer, row, styled
from frostline.report.tables import Table
from frostline.report.wording import axis_words

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

HeatView = Literal["score", "train_score"]
HEAT_VIEWS: tuple[HeatView, ...] = ("score", "train_score")
VIEW_TITLES: dict[HeatView, str] = {"score": "score", "train_score": "training score"}
_WIDTH, _ROW = 480, 40
SHADES = (0.06, 0.5)
"""opacity of the lowest and the highest score; text is readable on both, on light and dark pages"""


@dataclass(frozen=True)
class Grid:
    """Curves by the thing in which they differ."""

    by: str
    """what that is: training rows, learning rate"""
    metric: str
    curves: Sequence[tuple[str, Curve]]
    """with their value in words"""


def heat_chart(grid: Grid, view: HeatView) -> Drawing | None:
    """Mean scores; the stronger the colour, the higher the score. None if there is no score."""
    import altair as alt

    rows = list(_cells(grid, view))
    scores = [cell["score"] for cell in rows if cell["kind"] == "cell"]
    if not scores:
        return None
    depths, names = [axis_words.value(depth) for depth in _depths(grid)], [name for name, _ in grid.curves]
    across = axis("frozen layers", "")
    across.labelAngle, across.domain, across.ticks = 0, False, False
    x = alt.X("x:O", sort=depths, scale=alt.Scale(domain=depths, paddingInner=0.04), axis=across)
    down = alt.Axis(title=grid.by, domain=False, ticks=False, labelPadding=6, titlePadding=8)
    y = alt.Y("y:O", sort=names[::-1], scale=alt.Scale(domain=names[::-1], paddingInner=0.06), axis=down)
    shade = alt.FillOpacity(
        "score:Q", scale=alt.Scale(domain=[min(scores), max(scores)], range=list(SHADES), zero=False), legend=None
    )
    layers = [
        layer("cell", "rect", is_said=True, fill=ACCENT, cornerRadius=3).encode(x=x, y=y, fillOpacity=shade),
        layer("word", "text", color=INK, fontSize=12).encode(x=x, y=y, text=alt.Text("label:N")),
    ]
    return styled(layers, rows, (_WIDTH, _ROW * len(names)))


def heat_table(grid: Grid, view: HeatView) -> Table:
    """Mean scores, one row per curve, one column per depth."""
    rows = tuple(
        (name, *(numbers.score(values.get(depth)) for depth in _depths(grid)))
        for name, values in ((name, _values(curve, view)) for name, curve in grid.curves)
    )
    heads = (grid.by, *(_head(depth) for depth in _depths(grid)))
    title = f"Mean {numbers.one_line(grid.metric, 40)} by {grid.by} and frozen layers"
    return Table(title=title, headers=heads, rows=rows)


def _depths(grid: Grid) -> list[Depth]:
    """Every depth of the curves, the full model first."""
    points = [point for _, curve in grid.curves for point in curve.points]
    return [FULL, *sorted({point.n_frozen for point in points if point.n_frozen is not FULL})]


def _values(curve: Curve, view: HeatView) -> dict[Depth, float | None]:
    """The mean of the full model and of each depth."""
    shown = series(curve, view)
    assert shown is not None, "scores are always there"
    return {mark.at: mark.value for mark in (shown.full, *shown.marks)}


def _cells(grid: Grid, view: HeatView) -> Iterator[Row]:
    for name, curve in grid.curves:
        values = _values(curve, view)
        for depth in _depths(grid):
            value, place = values.get(depth), {"x": axis_words.value(depth), "y": name}
            if value is not None:
                what = "full model" if depth is FULL else f"{depth} frozen"
                said = f"{grid.by} {name}, {what}: {numbers.score(value)}"
                yield row("", "cell", score=value, said=said, **place)
            yield row("", "word", label=numbers.score(value), **place)


def _head(depth: Depth) -> str:
    return "full" if depth is FULL else f"{depth} frozen"
