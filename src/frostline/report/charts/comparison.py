"""A comparison → its charts: quality against a cost, the learning rates that were tried, the score of each layer."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frostline import stats
from frostline.analysis import Comparison, Interval, StrategyPoint
from frostline.report import numbers
from frostline.report.charts import curve as charts
from frostline.report.charts.curve import ACCENT, GREY, INK, Row
from frostline.report.charts.labels import Box, Label, Scene, place
from frostline.report.charts.marks import (
    axis,
    cut,
    depth_x,
    extent,
    faceted,
    layer,
    lines,
    marked,
    marks,
    rate_x,
    row,
    short,
    styled,
    y_axis,
)
from frostline.report.charts.panels import probe_said
from frostline.report.wording import comparison_words
from frostline.report.wording.comparison_words import CostKind

if TYPE_CHECKING:
    import altair as alt

    from frostline.report.charts.curve import Drawing

WIDTH, HEIGHT = 680, 380
COST_WORDS: dict[CostKind, str] = {
    "seconds": "seconds",
    "parameters": "trained parameters",
    "memory": "peak memory",
}
_AXES: dict[CostKind, tuple[str, str]] = {
    "seconds": ("seconds of one run", "~g"),
    "parameters": ("trained parameters (four bytes each to store)", "~s"),
    "memory": ("peak memory of one run, bytes", "~s"),
}
_MOST_TICKS = 9
_TITLE_WIDTH, _SUBTITLE_WIDTH = 78, 100


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Positions on a chart of costs, in pixels."""

    x: tuple[float, float]
    """the axis of costs: lowest and highest"""
    y: tuple[float, float]
    """the axis of scores: lowest and highest"""

    def at(self, cost: float, score: float) -> tuple[float, float]:
        """The pixel of a strategy; y grows downwards."""
        low, high = (math.log(end) for end in self.x)
        return (
            WIDTH * (math.log(cost) - low) / (high - low),
            HEIGHT * (self.y[1] - score) / (self.y[1] - self.y[0]),
        )

    def value(self, x: float, y: float) -> tuple[float, float]:
        """The cost and the score at a pixel."""
        low, high = (math.log(end) for end in self.x)
        return math.exp(low + (high - low) * x / WIDTH), self.y[1] - (self.y[1] - self.y[0]) * y / HEIGHT


def cost_chart(comparison: Comparison, kind: CostKind) -> Drawing | None:
    """Scores against a cost, one named dot per strategy, and the front; None if that cost was not measured."""
    import altair as alt

    shown = _measured(comparison, kind)
    if not shown:
        return None
    frame = _frame(shown)
    title, form = _AXES[kind]
    x = alt.X(
        "x:Q",
        scale=alt.Scale(type="log", domain=list(frame.x), nice=False),
        axis=axis(title, form, _ticks(frame.x)),
    )
    y = y_axis(numbers.one_line(comparison.metric, 40), domain=frame.y)
    rows = list(_cost_rows(comparison, kind, shown, frame))
    layers = [layer("bar", "rule", color=GREY, strokeDash=[5, 4]).encode(y=y)]
    layers += [mark.encode(x=x, y=y) for mark in _cost_marks()]
    return styled(layers, rows, (WIDTH, HEIGHT))


def titled_chart(comparison: Comparison) -> Drawing:
    """The chart of costs that can stand alone: its title is the answer; empty if no run finished."""
    chart = cost_chart(comparison, "seconds") or cost_chart(comparison, "parameters") or _empty_chart()
    title = {
        "text": textwrap.wrap(comparison_words.short_answer(comparison), _TITLE_WIDTH),
        "subtitle": [*textwrap.wrap(comparison_words.title(comparison), _SUBTITLE_WIDTH), LEGEND],
    }
    return chart | {"title": title, "config": charts.STYLE, "padding": 12}


def _empty_chart() -> Drawing:
    import altair as alt

    return styled([alt.Chart().mark_text(text="no run finished", color=GREY)], [{}], (WIDTH, HEIGHT))


LEGEND = "Dots: means, with 95% intervals over seeds; line and coloured dots: the front, which no strategy beats"


def rates_chart(comparison: Comparison) -> Drawing | None:
    """Scores against the learning rates that were tried, one panel per strategy; None if none were."""
    tried = [one for one in comparison.line_search if one.score is not None]
    names = short(list(dict.fromkeys(one.name for one in tried)), 28)
    used = {point.name: point.learning_rate for point in comparison.strategies}
    rows: list[Row] = []
    for one in tried:
        assert one.score is not None
        said = f"{names[one.name]}, rate {numbers.learning_rate(one.learning_rate)}: {numbers.score(one.score)}"
        rows.append(row(names[one.name], "path", x=one.learning_rate, y=one.score))
        rows += marked(names[one.name], one.learning_rate, one.score, None, said)
        if used.get(one.name) == one.learning_rate:
            rows.append(row(names[one.name], "ring", x=one.learning_rate, y=one.score))
    if not rows:
        return None
    # Readers compare the panels, so all have the same scale.
    y = y_axis(numbers.one_line(comparison.metric, 40), domain=_roomy(*extent([each["y"] for each in rows], [])))
    return faceted(rows, [mark.encode(x=rate_x(rows), y=y) for mark in marks(len(names))])


def probe_chart(comparison: Comparison) -> Drawing | None:
    """The score of a linear probe on each layer; None if there is none."""
    probes = comparison.probes
    if not probes:
        return None
    low, high = extent([probe.mean for probe in probes], [probe.ci for probe in probes])
    rows = list(_reference_rows(comparison))
    for probe in probes:
        rows.append(row("", "path", x=probe.depth, y=probe.mean))
        rows += marked("", probe.depth, probe.mean, cut(probe.ci, low, high), probe_said(probe))
    x, y = depth_x(rows, "layers below (0: the embeddings)"), y_axis(numbers.one_line(comparison.metric, 40))
    return faceted(rows, [*(line.encode(y=y) for line in lines()), *(mark.encode(x=x, y=y) for mark in marks(1))])


def _reference_rows(comparison: Comparison) -> Iterator[Row]:
    """The score of the full model, and chance."""
    full = comparison.strategy("full")
    if full is not None and full.mean is not None:
        yield row("", "full", y=full.mean)
    yield row("", "chance", y=comparison.chance)


def _measured(comparison: Comparison, kind: CostKind) -> list[tuple[StrategyPoint, float, float]]:
    """(strategy, cost, mean score) of those that have both."""
    found = []
    for point in comparison.strategies:
        cost = comparison_words.cost_of(point, kind)
        if point.mean is not None and cost:
            found.append((point, float(cost), point.mean))
    return found


def _frame(shown: Sequence[tuple[StrategyPoint, float, float]]) -> _Frame:
    costs = [cost for _, cost, _ in shown]
    span = max(math.log(max(costs) / min(costs)), math.log(2))
    # Names stand to the right of their dots, and the expensive end is often crowded: leave room there.
    left, right = math.exp(0.07 * span), math.exp(0.17 * span)
    scores = extent([mean for *_, mean in shown], [point.ci for point, *_ in shown])
    return _Frame(x=(min(costs) / left, max(costs) * right), y=_roomy(*scores))


def _roomy(low: float, high: float) -> tuple[float, float]:
    margin = 0.06 * (high - low) or 0.05
    return low - margin, high + margin


def _ticks(ends: tuple[float, float]) -> list[float] | None:
    """1, 2, 5, 10, … within the axis, or only powers of ten if these are too many; None: the chart decides."""
    powers = range(math.floor(math.log10(ends[0])), math.ceil(math.log10(ends[1])) + 1)
    for steps in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps if ends[0] <= step * 10.0**power <= ends[1]]
        if 2 <= len(ticks) <= _MOST_TICKS:
            return ticks
    return None


def _cost_rows(
    comparison: Comparison,
    kind: CostKind,
    shown: Sequence[tuple[StrategyPoint, float, float]],
    frame: _Frame,
) -> Iterator[Row]:
    front = {point.name for point in comparison_words.front(comparison, kind)}
    path = sorted((cost, mean) for point, cost, mean in shown if point.name in front)
    yield from _bar_rows(comparison, frame)
    yield from (row("", "path", x=cost, y=mean) for cost, mean in path)
    intervals = [cut(point.ci, *frame.y) for point, *_ in shown]
    names = short([comparison_words.name(point) for point, *_ in shown], 24)
    labels = place([names[comparison_words.name(point)] for point, *_ in shown], _scene(shown, intervals, path, frame))
    for (point, cost, mean), ends, label in zip(shown, intervals, labels, strict=True):
        on = "" if point.name in front else "off "
        name = names[comparison_words.name(point)]
        yield row("", f"{on}mean", x=cost, y=mean, said=_said(point, kind, name))
        if ends is not None:
            yield row("", f"{on}interval", x=cost, y=ends[0], y2=ends[1])
        yield from _label_rows(name, (cost, mean), label, frame)


def _bar_rows(comparison: Comparison, frame: _Frame) -> Iterator[Row]:
    """The share of the full score that the answer names, if it lies on the chart."""
    full = comparison.strategy("full")
    if full is not None and full.mean is not None and full.ratio is not None:
        bar = stats.bar_of(comparison_words.KEEP, full.mean)
        if frame.y[0] <= bar <= frame.y[1]:
            yield row("", "bar", y=bar)


def _label_rows(name: str, dot: tuple[float, float], label: Label, frame: _Frame) -> Iterator[Row]:
    """A name, and the line to its dot if it is far away."""
    at = {"x": dot[0], "y": dot[1]}
    yield row("", "name", label=name, dx=label.dx, dy=label.dy, align=label.align, **at)
    if label.is_far:
        x, y = frame.at(*dot)
        cost, score = frame.value(x + 0.92 * label.dx, y + 0.92 * label.dy)
        yield row("", "leader", x2=cost, y2=score, **at)


def _scene(
    shown: Sequence[tuple[StrategyPoint, float, float]],
    intervals: Sequence[Interval | None],
    path: Sequence[tuple[float, float]],
    frame: _Frame,
) -> Scene:
    """The dots, bars and lines that names must not cover."""
    dots = [frame.at(cost, mean) for _, cost, mean in shown]
    bars = []
    for (_, cost, _), ends in zip(shown, intervals, strict=True):
        if ends is not None:
            (x, bottom), (_, top) = frame.at(cost, ends[0]), frame.at(cost, ends[1])
            bars.append(Box(x - 2, top, x + 2, bottom))
    return Scene(size=(WIDTH, HEIGHT), dots=dots, bars=bars, line=_stairs([frame.at(*corner) for corner in path]))


def _stairs(corners: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The front as it is drawn: along, then up."""
    steps = list(corners[:1])
    for x, y in corners[1:]:
        steps += [(x, steps[-1][1]), (x, y)]
    return steps


def _said(point: StrategyPoint, kind: CostKind, name: str) -> str:
    """The text of a dot when the pointer is on it."""
    costs = {
        "seconds": f"in {numbers.duration(point.seconds)}",
        "parameters": f"with {numbers.count(point.trained_parameters)} parameters, {numbers.size(point.stored_bytes)}",
        "memory": f"in {numbers.size(point.peak_bytes)}",
    }
    interval = "" if point.ci is None else f" {numbers.score_interval(point.ci)}"
    return f"{name}: {numbers.score(point.mean)}{interval} {costs[kind]}"


def _cost_marks() -> list[alt.Chart]:
    """The front, the strategies on it and off it, and their names."""
    import altair as alt

    shifted: dict[str, Any] = {key: {"expr": f"datum.{key}"} for key in ("align", "dx", "dy")}
    words = layer("name", "text", color=INK, fontSize=11, baseline="middle", **shifted)
    return [
        layer("path", "line", color=ACCENT, strokeWidth=1.5, opacity=0.55, interpolate="step-after"),
        layer("leader", "rule", color=GREY, strokeWidth=0.8, opacity=0.7).encode(x2=alt.X2("x2:Q"), y2=alt.Y2("y2:Q")),
        layer("off interval", "rule", color=GREY, strokeWidth=1.5, opacity=0.6).encode(y2=alt.Y2("y2:Q")),
        layer("interval", "rule", color=ACCENT, strokeWidth=2).encode(y2=alt.Y2("y2:Q")),
        layer("off mean", "circle", is_said=True, color=GREY, size=56, opacity=1),
        layer("mean", "circle", is_said=True, color=ACCENT, size=64, opacity=1),
        words.encode(text=alt.Text("label:N")),
    ]
