"""Few-example comparisons → their chart: score against training rows per class, a line for each strategy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from frostline.analysis import StrategyPoint
from frostline.analysis.inside.few import FewExamples
from frostline.report import numbers
from frostline.report.charts.curve import GREY, Row
from frostline.report.charts.marks import COLOURS, axis, cut, extent, layer, legend, row, short, styled, y_axis

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

_WIDTH, _HEIGHT = 620, 340
_APART = 0.035
"""how far the strategies of one size stand apart, as a share of that size: their intervals would cover each other"""


def few_chart(few: FewExamples) -> Drawing | None:
    """Mean scores with intervals, one line per strategy; None if no run finished."""
    import altair as alt

    rows = list(_rows(few))
    if not any(each["kind"] == "mean" for each in rows):
        return None
    names = list(short(few.strategies, 28).values())
    sizes = [one.per_class for one in few.sizes]
    scale = alt.Scale(type="log", nice=False, padding=24)
    x = alt.X("x:Q", scale=scale, axis=axis("training rows per class", "d", sizes))
    y = y_axis(numbers.one_line(few.metric, 40))
    colour = alt.Color("name:N", sort=names, scale=alt.Scale(domain=names, range=COLOURS), legend=legend("strategy"))
    drawn = [
        layer("mean", "line", strokeWidth=1.5, opacity=0.6),
        layer("interval", "rule", strokeWidth=2).encode(y2=alt.Y2("y2:Q")),
        layer("mean", "circle", is_said=True, size=52, opacity=1),
    ]
    layers = [layer("chance", "rule", color=GREY, strokeDash=[1, 3]).encode(y=y)]
    layers += [mark.encode(x=x, y=y, color=colour) for mark in drawn]
    return styled(layers, rows, (_WIDTH, _HEIGHT))


def _rows(few: FewExamples) -> Iterator[Row]:
    names = short(few.strategies, 28)
    points = [(one.per_class, point) for one in few.sizes for point in one.comparison.strategies]
    known = [(size, point, point.mean) for size, point in points if point.mean is not None]
    low, high = extent([mean for *_, mean in known], [point.ci for _, point, _ in known])
    yield row("", "chance", y=few.sizes[0].comparison.chance)
    for size, point, mean in known:
        place = few.strategies.index(point.name) - (len(few.strategies) - 1) / 2
        at = {"x": size * (1 + _APART * place), "name": names[point.name]}
        yield row("", "mean", y=mean, said=_said(names[point.name], size, point), **at)
        if (ends := cut(point.ci, low, high)) is not None:
            yield row("", "interval", y=ends[0], y2=ends[1], **at)


def _said(name: str, size: int, point: StrategyPoint) -> str:
    interval = "" if point.ci is None else f" {numbers.score_interval(point.ci)}"
    return f"{name}, {size} per class: {numbers.score(point.mean)}{interval}"
