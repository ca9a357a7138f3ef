"""The building blocks of charts: rows, layers, axes, panels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from frostline.analysis import Interval
from frostline.records.depth import Depth
from frostline.report import numbers
from frostline.report.charts.curve import ACCENT, FONT, GREY, INK, PALE, Drawing, Row, overlaid

if TYPE_CHECKING:
    import altair as alt

N_COLUMNS = 4
SECOND = "#b4530a"
"""colour of what is drawn beside the curve"""
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8b6914", "#6a3d9a", "#7f7f7f"]
"""Colour-blind people can tell these apart too (after Okabe and Ito)."""
SCORE_FORMAT = ".3~f"
STYLE: dict[str, Any] = {
    "font": FONT,
    "background": "white",
    "view": {"stroke": None},
    "header": {"labelColor": INK, "labelFontSize": 12, "labelFontWeight": 600, "labelAnchor": "start"}
    | {"labelPadding": 6},
    "axis": {"labelColor": GREY, "titleColor": GREY, "titleFontWeight": "normal", "labelFontSize": 11}
    | {"titleFontSize": 11, "gridColor": PALE, "domainColor": GREY, "tickColor": GREY},
}


def row(panel: str, kind: str, **values: Any) -> Row:
    """One thing to draw, of one kind."""
    return {"panel": panel, "kind": kind, **values}


def marked(panel: str, x: float | str | Depth | None, y: float, interval: Interval | None, said: str) -> Iterator[Row]:
    """A mean and its interval."""
    yield row(panel, "mean", x=x, y=y, said=said)
    if interval is not None:
        yield row(panel, "interval", x=x, y=interval[0], y2=interval[1])


def cut(interval: Interval | None, low: float, high: float) -> Interval | None:
    """The part of an interval on the axis."""
    return None if interval is None else (max(low, min(interval[0], high)), min(high, max(interval[1], low)))


def extent(values: Iterable[float], intervals: Iterable[Interval | None]) -> tuple[float, float]:
    """Lowest and highest value to draw; intervals extend it by at most half of the span on each side."""
    given = list(values) or [0.0, 1.0]
    low, high = min(given), max(given)
    room = (high - low) / 2
    ends = [end for interval in intervals if interval is not None for end in interval]
    return max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)


def short(names: Sequence[str], at_most: int) -> dict[str, str]:
    """Names cut to fit, by the full name; two that look the same after that are numbered."""
    fitting = {name: numbers.one_line(name, at_most) for name in names}
    alike: dict[str, list[str]] = {}
    for name, brief in fitting.items():
        alike.setdefault(brief, []).append(name)
    return {n: s if len(alike[s]) == 1 else f"{s} ({alike[s].index(n) + 1})" for n, s in fitting.items()}


def axis(title: str, form: str, values: Sequence[float] | None = None) -> alt.Axis:
    """A horizontal axis, with ticks at these values."""
    import altair as alt

    ticks: dict[str, Any] = {} if values is None else {"values": list(values)}
    return alt.Axis(title=title, format=form, grid=False, titlePadding=6, labelPadding=4, **ticks)


def y_axis(title: str, form: str = SCORE_FORMAT, domain: tuple[float, float] | None = None) -> alt.Y:
    """The vertical axis; without a domain, it fits the data."""
    import altair as alt

    ticks = alt.Axis(title=title, format=form, domain=False, ticks=False, tickCount=5, labelPadding=6, titlePadding=8)
    fitting = alt.Scale(zero=False, padding=8)
    scale = fitting if domain is None else alt.Scale(domain=list(domain), nice=False)
    return alt.Y("y:Q", scale=scale, axis=ticks)


def depth_x(rows: Sequence[Row], title: str = "frozen layers", scale: Mapping[str, str] | None = None) -> alt.X:
    """The axis of depths or values, a tick at each."""
    import altair as alt

    depths = sorted({each["x"] for each in rows if "x" in each})
    kind: dict[str, Any] = {"zero": False, **(scale or {})}
    if kind.get("type") == "log":
        kind.pop("zero")
    return alt.X("x:Q", scale=alt.Scale(nice=False, padding=16, **kind), axis=axis(title, "d", depths))


def rate_x(rows: Sequence[Row]) -> alt.X:
    """The axis of learning rates, a tick at each."""
    import altair as alt

    rates = sorted({each["x"] for each in rows})
    scale = alt.Scale(type="log", nice=False, padding=14)
    return alt.X("x:Q", scale=scale, axis=axis("learning rate", "~e", rates))


def legend(title: str) -> alt.Legend:
    """A legend below the chart."""
    import altair as alt

    return alt.Legend(title=title, orient="bottom", titleColor=GREY, labelColor=GREY, symbolType="circle")


def layer(kind: str, mark: str, *, is_said: bool = False, **style: Any) -> alt.Chart:
    """The rows of one kind, as one kind of mark; with `is_said` a mark shows its value under the pointer."""
    import altair as alt

    given: dict[str, Any] = {"type": mark, "aria": is_said, **style}
    chart = alt.Chart(mark=alt.MarkDef(**given)).transform_filter(f"datum.kind == '{kind}'")
    return chart.encode(description=alt.Description("said:N")) if is_said else chart


def lines() -> list[alt.Chart]:
    """The full model with its interval, the bar and chance, across the panel."""
    import altair as alt

    return [
        layer("band", "rect", color=GREY, opacity=0.14).encode(y2=alt.Y2("y2:Q")),
        layer("chance", "rule", color=GREY, strokeDash=[1, 3]),
        layer("bar", "rule", color=GREY, strokeDash=[5, 4]),
        layer("full", "rule", color=GREY, strokeWidth=1.4),
    ]


def marks(n_panels: int) -> list[alt.Chart]:
    """Means, their intervals, the runs, and a ring around the one that was chosen."""
    import altair as alt

    size = 56 if n_panels == 1 else 36
    return [
        layer("path", "line", color=ACCENT, strokeWidth=1.5, opacity=0.55),
        layer("interval", "rule", color=ACCENT, strokeWidth=2).encode(y2=alt.Y2("y2:Q")),
        layer("seed", "circle", is_said=True, color=ACCENT, size=18, opacity=0.4, xOffset=-8),
        layer("mean", "circle", is_said=True, color=ACCENT, size=size, opacity=1),
        layer("ring", "point", color=ACCENT, size=4 * size, strokeWidth=2, filled=False, opacity=1),
    ]


def faceted(
    rows: Sequence[Row], layers: Sequence[alt.Chart], size: tuple[int, int] = (250, 150), *, n_columns: int = N_COLUMNS
) -> Drawing:
    """The layers once for each panel, each with its own scales; a single panel has no title."""
    import altair as alt

    panels = list(dict.fromkeys(each["panel"] for each in rows))
    if len(panels) == 1:
        return styled(layers, rows, (520, 290))
    chart = styled(layers, rows, size)
    spec = {name: chart.pop(name) for name in ("layer", "width", "height")}
    facet = alt.Facet("panel:N", title=None, sort=panels).to_dict(validate=False, context={"data": None})
    scales = {"scale": {"x": "independent", "y": "independent"}}
    return chart | {"spec": spec, "facet": facet, "columns": n_columns, "resolve": scales}


def styled(layers: Sequence[alt.Chart], rows: Sequence[Row], size: tuple[int, int]) -> Drawing:
    """Layers over the same rows, with our fonts and colours."""
    return overlaid(layers, size) | {"data": {"values": list(rows)}, "config": STYLE, "padding": 4}


def panels_of(chart: Drawing) -> list[tuple[str, dict[str, Any]]]:
    """The Vega-Lite specs of the panels of a chart, with their titles; a chart without panels is one panel."""
    if "facet" not in chart:
        return [("", chart)]
    rows = chart["data"]["values"]
    heading = {"anchor": "start", "fontSize": 12, "fontWeight": 600, "color": INK}
    common = chart["spec"] | {name: chart[name] for name in ("$schema", "config", "padding")}
    return [
        (
            title,
            common
            | {"data": {"values": [each for each in rows if each["panel"] == title]}}
            | {"title": {"text": title, **heading}},
        )
        for title in dict.fromkeys(each["panel"] for each in rows)
    ]
