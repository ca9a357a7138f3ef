"""Curve → a picture: seeds, means with intervals, the full model, the score to reach, the operating point."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from frostline.analysis import Curve, Interval, Point, value_of
from frostline.analysis.views import Series, series
from frostline.records.depth import FULL
from frostline.report import numbers
from frostline.report.wording import axis_words, curve_words
from frostline.storage import atomic

if TYPE_CHECKING:
    import altair as alt

ACCENT = "#0b6e99"
INK = "#22272e"
GREY = "#6b7280"
PALE = "#e6e8eb"
FONT = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
WIDTH, HEIGHT = 520, 300

_LABEL_PITCH = 14
"""least distance between two labels, in pixels"""
_TITLE_WIDTH, _SUBTITLE_WIDTH = 66, 90
_LOG_ROOM = 1.5
"""how far a logarithmic axis goes beyond its values"""

STYLE: dict[str, Any] = {
    "font": FONT,
    "background": "white",
    "view": {"stroke": None},
    "title": {"anchor": "start", "frame": "group", "fontSize": 15, "fontWeight": 600, "color": INK, "offset": 14}
    | {"subtitleFontSize": 11.5, "subtitleColor": GREY, "subtitlePadding": 6, "subtitleLineHeight": 16},
    "axis": {"labelColor": GREY, "titleColor": INK, "titleFontWeight": "normal"}
    | {"labelFontSize": 11, "titleFontSize": 12},
}

Row = dict[str, Any]
Drawing = dict[str, Any]
"""a chart as Vega-Lite's JSON"""


class _Line(NamedTuple):
    """A horizontal line with a name."""

    at: float
    label: str
    dash: tuple[int, int]


def curve_chart(curve: Curve) -> Drawing:
    """The curve as a chart whose title is the answer."""
    layers = [*_reference_layers(curve), *_curve_layers(curve), *_operating_layers(curve)]
    title = {
        "text": wrapped_title(curve_words.short_answer(curve)),
        "subtitle": [*textwrap.wrap(curve_words.curve_title(curve), _SUBTITLE_WIDTH), _legend(curve)],
    }
    return overlaid(layers, (WIDTH, HEIGHT)) | {"title": title, "config": STYLE, "padding": 12}


def overlaid(layers: Sequence[alt.Chart], size: tuple[int, int]) -> Drawing:
    """Layers above each other. altair's own class for that takes half of the time of a page to copy them."""
    import altair as alt

    datasets: dict[str, Any] = {}
    inside = {"top_level": False, "data": {}, "datasets": datasets}  # no rows of their own unless they have some
    drawn = [each.to_dict(validate=False, context=inside) for each in layers]
    own = {"datasets": datasets} if datasets else {}
    return {"$schema": alt.SCHEMA_URL, "layer": drawn, "width": size[0], "height": size[1], **own}


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Inside this context, altair does not compare charts with its schema, which takes most of the time of a page.

    The tests draw pages with the comparison too.
    """
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        yield


def wrapped_title(said: str) -> list[str]:
    """The lines of a title that fit above a chart."""
    return textwrap.wrap(said, _TITLE_WIDTH)


def svg(curve: Curve) -> str:
    """The chart as SVG, drawn offline; the same curve gives the same text."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(curve_chart(curve)))


def write_svg(curve: Curve, path: Path | str) -> Path:
    """The path, with the chart written to it as SVG."""
    return atomic.write(Path(path), svg(curve))


def _legend(curve: Curve) -> str:
    points = (curve.full, *curve.points)
    n_seeds = max(len(point.seeds) for point in points)
    said = f"{numbers.counted(n_seeds, 'seed')}{' (dots)' if n_seeds > 1 else ''}"
    if all(point.ci is None for point in points):
        return f"{said}, mean, no interval below 3 seeds"
    band = "" if curve.full.ci is None else " and of the full model (band)"
    each = "depth" if curve.axis is None else "value"
    return f"{said}, mean, 95% interval over seeds at each {each} (bars){band}"


def _shown(curve: Curve) -> list[Point]:
    return [point for point in curve.points if point.mean is not None]


def _depths(curve: Curve) -> list[int]:
    """The depths or values, ascending."""
    given = sorted(at for point in curve.points if (at := value_of(point)) is not FULL)
    return given or [0, curve.n_layers]


def _x_domain(curve: Curve) -> tuple[float, float]:
    depths = _depths(curve)
    if axis_words.words_of(curve).is_log:
        return min(depths) / _LOG_ROOM, max(depths) * _LOG_ROOM
    room = max(0.35, 0.035 * (max(depths) - min(depths)))
    return min(depths) - room, max(depths) + room


def _x(curve: Curve) -> alt.X:
    import altair as alt

    total = None if curve.axis is None else curve.axis.total
    own: dict[str, Any] = {"title": f"{axis_words.words_of(curve).title}{'' if total is None else f' of {total}'}"}
    if curve.axis is None:
        own = {
            "labelLineHeight": 15,
            # The second line spares the reader a subtraction.
            "labelExpr": f"[format(datum.value, 'd'), '(' + format({curve.n_layers} - datum.value, 'd') + ')']",
            "title": f"frozen layers of {curve.n_layers} (trained layers)",
        }
    ticks = alt.Axis(
        values=_depths(curve),
        format="d" if curve.axis is None else ",d",
        grid=False,
        domainColor=GREY,
        tickColor=GREY,
        titlePadding=8,
        labelPadding=5,
        **own,
    )
    kind = x_scale(_depths(curve), is_log=axis_words.words_of(curve).is_log)
    return alt.X("x:Q", scale=alt.Scale(domain=_x_domain(curve), nice=False, **kind), axis=ticks)


def x_scale(values: Sequence[float], *, is_log: bool) -> dict[str, Any]:
    """The kind of a scale: logarithmic where values are spread over powers of ten, linear near 0 if 0 is one."""
    return {} if not is_log else {"type": "symlog" if min(values, default=0) <= 0 else "log"}


def _scores(curve: Curve) -> Series:
    seen = series(curve, "score")
    assert seen is not None, "scores are always there"
    return seen


def _y_domain(curve: Curve) -> tuple[float, float]:
    low, high = _scores(curve).extent
    margin = 0.04 * (high - low) or 0.05
    return low - margin, high + margin


def _within(curve: Curve, ends: Interval) -> tuple[float, float]:
    """The part of an interval on the axis. Vega's own clipping gives its paths new numbers in every chart."""
    low, high = _y_domain(curve)
    return max(low, min(ends[0], high)), min(high, max(ends[1], low))


def _y(curve: Curve) -> alt.Y:
    import altair as alt

    ticks = alt.Axis(
        grid=True,
        gridColor=PALE,
        domain=False,
        ticks=False,
        tickCount=6,
        labelPadding=6,
        titlePadding=10,
        title=numbers.one_line(curve.metric, 40),
    )
    return alt.Y("y:Q", scale=alt.Scale(domain=_y_domain(curve), nice=False), axis=ticks)


def _base(curve: Curve, rows: Sequence[Row]) -> alt.Chart:
    import altair as alt

    return alt.Chart(alt.InlineData(values=list(rows))).encode(x=_x(curve), y=_y(curve))


def _reference_layers(curve: Curve) -> list[alt.Chart]:
    """The full model with its interval, the score to reach, and chance, across the whole width."""
    import altair as alt

    left, right = _x_domain(curve)
    lines = _reference_lines(curve)
    layers = []
    if curve.full.mean is not None and curve.full.ci is not None:
        low, high = _within(curve, curve.full.ci)
        band = _base(curve, [{"x": left, "x2": right, "y": low, "y2": high}])
        layers.append(band.mark_rect(color=GREY, opacity=0.14, aria=False).encode(x2=alt.X2("x2:Q"), y2=alt.Y2("y2:Q")))
    for line in lines:
        base = _base(curve, [{"x": left, "x2": right, "y": line.at}])
        rule = base.mark_rule(color=GREY, strokeWidth=1.2, strokeDash=list(line.dash), aria=False)
        layers.append(rule.encode(x2=alt.X2("x2:Q")))
    low, high = _y_domain(curve)
    heights = apart([line.at for line in lines], _LABEL_PITCH / HEIGHT * (high - low))
    labels = [{"x": right, "y": y, "label": line.label} for line, y in zip(lines, heights, strict=True)]
    words = _base(curve, labels).mark_text(color=GREY, fontSize=11, align="left", baseline="middle", dx=7)
    return [*layers, words.encode(text=alt.Text("label:N"))]


def _reference_lines(curve: Curve) -> list[_Line]:
    asked, reach = _scores(curve).asked, _scores(curve).bar
    lines = [_Line(at=curve.chance, label=f"chance {numbers.score(curve.chance)}", dash=(1, 3))]
    if reach is not None and asked is not None:
        above = "" if asked.scale == "ratio" else " above chance"
        label = f"{numbers.keep_share(asked.keep)} of full{above} {numbers.score(reach)}"
        lines.append(_Line(at=reach, label=label, dash=(5, 4)))
    if curve.full.mean is not None:
        lines.append(_Line(at=curve.full.mean, label=f"full {numbers.score(curve.full.mean)}", dash=(1, 0)))
    return sorted(lines, key=lambda line: line.at)


def apart(heights: Sequence[float], pitch: float) -> list[float]:
    """Ascending heights moved so that neighbours are almost `pitch` apart and labels do not collide."""
    moved = list(heights)
    for _ in range(20):  # each pass halves the missing distance
        for at in range(len(moved) - 1):
            lack = pitch - (moved[at + 1] - moved[at])
            if lack > 0:
                moved[at] -= lack / 2
                moved[at + 1] += lack / 2
    return moved


def _curve_layers(curve: Curve) -> list[alt.Chart]:
    """The scores of the seeds, the means and their intervals."""
    import altair as alt

    shown = _shown(curve)
    seeds = [{"x": value_of(point), "y": score} for point in shown if len(point.scores) > 1 for score in point.scores]
    means = [{"x": value_of(point), "y": point.mean} for point in shown]
    ends = [(point, _within(curve, point.ci)) for point in shown if point.ci is not None]
    bars = [{"x": value_of(point), "y": low, "y2": high} for point, (low, high) in ends]
    path = [{"x": value_of(point), "y": point.mean} for point in curve.points]  # None breaks the line
    layers = [_base(curve, path).mark_line(color=ACCENT, strokeWidth=1.5, opacity=0.55)] if len(means) > 1 else []
    if bars:
        layers.append(_base(curve, bars).mark_rule(color=ACCENT, strokeWidth=2).encode(y2=alt.Y2("y2:Q")))
    if seeds:
        layers.append(_base(curve, seeds).mark_circle(color=ACCENT, size=20, opacity=0.4, xOffset=-9))
    if means:
        layers.append(_base(curve, means).mark_circle(color=ACCENT, size=64, opacity=1))
    return layers


def _operating_layers(curve: Curve) -> list[alt.Chart]:
    """A ring around the operating point, and what it keeps."""
    import altair as alt

    asked = curve_words.headline(curve)
    point = None if asked is None else curve_words.point_at(curve, value_of(asked))
    if asked is None or point is None or point.mean is None:
        return []
    label = numbers.share(curve_words.kept(point, asked.scale))
    base = _base(curve, [{"x": value_of(point), "y": point.mean, "label": label}])
    ring = base.mark_point(color=ACCENT, size=230, strokeWidth=2, filled=False, opacity=1)
    words = base.mark_text(color=INK, fontSize=12, fontWeight=600, align="left", dx=12, dy=-11)
    return [ring, words.encode(text=alt.Text("label:N"))]
