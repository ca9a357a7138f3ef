"""Pruning curves: the score against the attention heads that were pruned, one line per order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from frostline.analysis.inside.heads import HeadsRecord, PruningPoint
from frostline.report import numbers
from frostline.report.charts.curve import GREY, Row
from frostline.report.charts.marks import COLOURS, axis, cut, extent, faceted, layer, legend, row, y_axis
from frostline.report.wording.heads_words import ORDER_WORDS

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing


def pruning_chart(record: HeadsRecord) -> Drawing | None:
    """The score after each step, with intervals; None before anything was pruned."""
    import altair as alt

    rows = list(_rows(record))
    if not rows:
        return None
    names = [ORDER_WORDS[curve.order] for curve in record.pruning]
    scale = alt.Scale(domain=names, range=COLOURS[: len(names)])
    colour = alt.Color("order:N", sort=names, scale=scale, legend=legend("pruned"))
    ticks = sorted({0, *(point.n_pruned for curve in record.pruning for point in curve.points)})
    shape = alt.Scale(zero=False, nice=False, padding=14)
    x = alt.X("x:Q", scale=shape, axis=axis("pruned attention heads", "d", ticks))
    y = y_axis(numbers.one_line(record.metric, 40))
    across = [
        layer("chance", "rule", color=GREY, strokeDash=[1, 3]),
        layer("bar", "rule", color=GREY, strokeDash=[5, 4]),
    ]
    marks = [
        layer("interval", "rule", strokeWidth=1.5, opacity=0.6).encode(y2=alt.Y2("y2:Q")),
        layer("mean", "line", strokeWidth=1.8),
        layer("mean", "circle", is_said=True, size=40, opacity=1),
    ]
    return faceted(rows, [*(one.encode(y=y) for one in across), *(one.encode(x=x, y=y, color=colour) for one in marks)])


def _rows(record: HeadsRecord) -> Iterator[Row]:
    points = [point for curve in record.pruning for point in curve.points]
    if not points:
        return
    low, high = extent([record.score, *(point.score for point in points)], [_interval(record, one) for one in points])
    yield row("", "chance", y=record.chance)
    yield row("", "bar", y=record.keep * record.score)
    for curve in record.pruning:
        name = ORDER_WORDS[curve.order]
        yield row("", "mean", x=0, y=record.score, order=name, said=f"unpruned: {numbers.score(record.score)}")
        for point in curve.points:
            interval = cut(_interval(record, point), low, high)
            said = f"{point.n_pruned} pruned {name}: {numbers.score(point.score)}"
            yield row("", "mean", x=point.n_pruned, y=point.score, order=name, said=said)
            if interval is not None:
                yield row("", "interval", x=point.n_pruned, y=interval[0], y2=interval[1], order=name)


def _interval(record: HeadsRecord, point: PruningPoint) -> tuple[float, float] | None:
    """The interval of the difference from the unpruned model, around the score."""
    if point.difference_ci_dev is None:
        return None
    low, high = point.difference_ci_dev
    return record.score + low, record.score + high
