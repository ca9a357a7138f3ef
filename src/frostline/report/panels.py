"""Curves → the charts of a report: one a question, with a panel for each curve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from frostline.analysis import Chapter, Curve, Interval, Series, View, series
from frostline.report import sentences, text
from frostline.report.charts import ACCENT, FONT, GREY, INK, PALE, Row

if TYPE_CHECKING:
    import altair as alt

    Drawing = alt.LayerChart | alt.FacetChart

N_COLUMNS = 4
MOST_PANELS = 12
"""Curves up to which each has a panel, with its intervals and runs; more of them share one a model, a line each."""
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8b6914", "#6a3d9a", "#7f7f7f"]
"""Told apart by colour-blind people too (after Okabe and Ito)."""
VIEW_WORDS: dict[View, str] = {
    "score": "score",
    "difference": "difference from full",
    "ratio": "ratio to full",
    "ratio_above_chance": "ratio above chance",
    "train_score": "training score",
}
_FORMATS: dict[View, str] = {
    "score": ".3~f",
    "difference": "+.3~f",
    "ratio": ".0%",
    "ratio_above_chance": ".0%",
    "train_score": ".3~f",
}
_STYLE: dict[str, Any] = {
    "font": FONT,
    "background": "white",
    "view": {"stroke": None},
    "header": {"labelColor": INK, "labelFontSize": 12, "labelFontWeight": 600, "labelAnchor": "start"}
    | {"labelPadding": 6},
    "axis": {"labelColor": GREY, "titleColor": GREY, "titleFontWeight": "normal", "labelFontSize": 11}
    | {"titleFontSize": 11, "gridColor": PALE, "domainColor": GREY, "tickColor": GREY},
}


def view_chart(curves: Sequence[Curve], view: View) -> Drawing | None:
    """The curves in a view; None where it means nothing for any of them."""
    seen = {panel: shown for panel, curve in _panels(curves) if (shown := _shown(curve, view))}
    if not seen:
        return None
    if len(seen) > MOST_PANELS:
        return _shared_chart(curves, view)
    rows = [row for panel, shown in seen.items() for row in _view_rows(panel, shown)]
    x, y = _depth_x(rows), _view_y(curves, view)
    layers = [*(line.encode(y=y) for line in _lines()), *(mark.encode(x=x, y=y) for mark in _marks(len(seen)))]
    return _faceted(rows, layers)


def _shared_chart(curves: Sequence[Curve], view: View) -> Drawing:
    """Many curves, as in the paper's figure: a panel a model, a line a task."""
    import altair as alt

    short = {name: _short([getattr(curve, name) for curve in curves], 40) for name in ("task", "model")}
    seen = [(curve, shown) for curve in curves if (shown := _shown(curve, view))]
    rows = [
        row
        for curve, shown in seen
        for row in _line_rows(short["model"][curve.model], short["task"][curve.task], shown)
    ]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    colour = alt.Color("task:N", sort=tasks, scale=alt.Scale(domain=tasks, range=COLOURS), legend=_legend("task"))
    marks = (_layer("mean", "line", strokeWidth=1.8), _layer("mean", "circle", is_said=True, size=36, opacity=1))
    layers = [mark.encode(x=_depth_x(rows), y=_view_y(curves, view), color=colour) for mark in marks]
    return _faceted(rows, layers, (520, 260), n_columns=2)


def _line_rows(panel: str, task: str, shown: Series) -> Iterator[Row]:
    for mark in shown.marks:
        if mark.value is not None:
            said = f"{task}, {mark.n_frozen} frozen: {_said(shown.view, mark.value, mark.interval)}"
            yield _row(panel, "mean", x=mark.n_frozen, y=mark.value, said=said, task=task)


def line_search_chart(curves: Sequence[Curve]) -> Drawing | None:
    """Scores against the rates that were tried; None where none were."""
    import altair as alt

    rows = [row for panel, curve in _panels(curves) for row in _rate_rows(panel, curve)]
    if not rows:
        return None
    rates = sorted({row["x"] for row in rows})
    x = alt.X("x:Q", scale=alt.Scale(type="log", nice=False, padding=14), axis=_axis("learning rate", "~e", rates))
    marks = [mark.encode(x=x, y=_y(_metrics(curves), ".3~f")) for mark in _marks(len(curves))]
    return _faceted(rows, marks)


def cost_chart(curves: Sequence[Curve]) -> Drawing | None:
    """Scores against the seconds of one run, a dot a depth; None where no time was measured."""
    import altair as alt

    rows = [row for panel, curve in _panels(curves) for row in _cost_rows(panel, curve)]
    if not rows:
        return None
    x = alt.X("x:Q", scale=alt.Scale(type="log", nice=False, padding=14), axis=_axis("seconds of one run", "~g"))
    words = _layer("name", "text", color=INK, fontSize=11, align="left", dx=8).encode(text="label:N")
    layers = [mark.encode(x=x, y=_y(_metrics(curves), ".3~f")) for mark in (*_marks(len(curves)), words)]
    return _faceted(rows, layers)


def learning_chart(chapters: Sequence[Chapter]) -> Drawing | None:
    """Mean dev scores after each epoch; None where the runs are not at hand or have one epoch."""
    import altair as alt

    curves = [chapter.curve for chapter in chapters]
    named = zip(chapters, _panels(curves), strict=True)
    rows = [row for chapter, (panel, _) in named for row in _learning_rows(panel, chapter)]
    if not rows:
        return None
    depths, epochs = (list(dict.fromkeys(row[name] for row in rows)) for name in ("depth", "x"))
    scheme = alt.SchemeParams(name="viridis", extent=[0.2, 0.85])
    colour = alt.Color("depth:O", sort=depths, scale=alt.Scale(domain=depths, scheme=scheme), legend=_legend("frozen"))
    lines, dots = _layer("mean", "line", strokeWidth=2), _layer("mean", "circle", is_said=True, size=44, opacity=1)
    x = alt.X("x:Q", scale=alt.Scale(zero=False, nice=False, padding=14), axis=_axis("epoch", "d", epochs))
    layers = [layer.encode(x=x, y=_y(_metrics(curves), ".3~f"), color=colour) for layer in (lines, dots)]
    return _faceted(rows, layers)


def _shown(curve: Curve, view: View) -> Series | None:
    """The curve in a view, if it has a depth to draw there."""
    shown = series(curve, view)
    return shown if shown is not None and any(mark.value is not None for mark in shown.marks) else None


def _view_rows(panel: str, shown: Series) -> Iterator[Row]:
    full, (low, high) = shown.full, shown.extent
    if full.interval is not None:
        yield _row(panel, "band", y=max(low, full.interval[0]), y2=min(high, full.interval[1]))
    for kind, at in {"full": full.value, "bar": shown.bar, "chance": shown.chance}.items():
        if at is not None:
            yield _row(panel, kind, y=at)
    for mark in shown.marks:
        yield _row(panel, "path", x=mark.n_frozen, y=mark.value)
        if mark.value is None:
            continue
        said = f"{mark.n_frozen} frozen: {_said(shown.view, mark.value, mark.interval)}"
        yield from _marked(panel, mark.n_frozen, mark.value, _cut(mark.interval, low, high), said)
        if len(mark.by_seed) > 1:
            for seed, value in mark.by_seed:
                said = f"{mark.n_frozen} frozen, seed {seed}: {_said(shown.view, value, None)}"
                yield _row(panel, "seed", x=mark.n_frozen, y=value, said=said)
        if shown.asked is not None and shown.asked.n_frozen == mark.n_frozen:
            yield _row(panel, "ring", x=mark.n_frozen, y=mark.value)


def _rate_rows(panel: str, curve: Curve) -> Iterator[Row]:
    for tried in curve.line_search:
        if tried.score is not None:
            said = f"rate {text.learning_rate(tried.learning_rate)}: {text.score(tried.score)}"
            yield from _marked(panel, tried.learning_rate, tried.score, None, said)
            if tried.learning_rate == curve.learning_rate:
                yield _row(panel, "ring", x=tried.learning_rate, y=tried.score)


def _cost_rows(panel: str, curve: Curve) -> Iterator[Row]:
    for point in (curve.full, *curve.points):
        if point.mean is not None and point.seconds:
            name = sentences.depth(point.n_frozen)
            said = f"{_frozen(point.n_frozen)}: {text.score(point.mean)} in {text.duration(point.seconds)}"
            yield from _marked(panel, point.seconds, point.mean, point.ci, said)
            yield _row(panel, "name", x=point.seconds, y=point.mean, label=name)


def _learning_rows(panel: str, chapter: Chapter) -> Iterator[Row]:
    for n_frozen, points in chapter.learning:
        if len(points) == 1:
            continue
        for epoch, score in points:
            said = f"{_frozen(n_frozen)}, epoch {epoch}: {text.score(score)}"
            row = _row(panel, "mean", x=epoch, y=score, said=said)
            yield row | {"depth": sentences.depth(n_frozen)}


def _marked(panel: str, x: float | None, y: float, interval: Interval | None, said: str) -> Iterator[Row]:
    """A mean and its interval."""
    yield _row(panel, "mean", x=x, y=y, said=said)
    if interval is not None:
        yield _row(panel, "interval", x=x, y=interval[0], y2=interval[1])


def _row(panel: str, kind: str, **values: Any) -> Row:
    return {"panel": panel, "kind": kind, **values}


def _panels(curves: Sequence[Curve]) -> list[tuple[str, Curve]]:
    """Each curve with the head of its panel."""
    tasks, models = _short([curve.task for curve in curves], 28), _short([curve.model for curve in curves], 28)
    return [(f"{tasks[curve.task]} · {models[curve.model]}", curve) for curve in curves]


def _short(names: Sequence[str], at_most: int) -> dict[str, str]:
    """Names cut to fit, by the whole name; two that look the same then are numbered."""
    cut = {name: text.one_line(name, at_most) for name in names}
    alike: dict[str, list[str]] = {}
    for name, short in cut.items():
        alike.setdefault(short, []).append(name)
    return {n: s if len(alike[s]) == 1 else f"{s} ({alike[s].index(n) + 1})" for n, s in cut.items()}


def _frozen(n_frozen: int | None) -> str:
    return "full model" if n_frozen is None else f"{n_frozen} frozen"


def _said(view: View, value: float, interval: Interval | None) -> str:
    """A value of a view with its interval, in words."""
    said = sentences.view_value(view, value)
    return said if interval is None else f"{said} {sentences.view_interval(view, interval)}"


def _cut(interval: Interval | None, low: float, high: float) -> Interval | None:
    """The part of an interval that lies on the axis."""
    return None if interval is None else (max(low, min(interval[0], high)), min(high, max(interval[1], low)))


def _metrics(curves: Iterable[Curve]) -> str:
    """What the scores are."""
    names = list(dict.fromkeys(text.one_line(curve.metric, 40) for curve in curves))
    return names[0] if len(names) == 1 else "score"


def _axis(title: str, form: str, values: Sequence[float] | None = None) -> alt.Axis:
    import altair as alt

    ticks: dict[str, Any] = {} if values is None else {"values": list(values)}
    return alt.Axis(title=title, format=form, grid=False, titlePadding=6, labelPadding=4, **ticks)


def _y(title: str, form: str) -> alt.Y:
    import altair as alt

    ticks = alt.Axis(title=title, format=form, domain=False, ticks=False, tickCount=5, labelPadding=6, titlePadding=8)
    return alt.Y("y:Q", scale=alt.Scale(zero=False, padding=8), axis=ticks)


def _depth_x(rows: Sequence[Row]) -> alt.X:
    import altair as alt

    depths = sorted({row["x"] for row in rows if "x" in row})
    return alt.X("x:Q", scale=alt.Scale(zero=False, nice=False, padding=16), axis=_axis("frozen layers", "d", depths))


def _view_y(curves: Sequence[Curve], view: View) -> alt.Y:
    return _y(VIEW_WORDS[view] if view != "score" else _metrics(curves), _FORMATS[view])


def _legend(title: str) -> alt.Legend:
    import altair as alt

    return alt.Legend(title=title, orient="bottom", titleColor=GREY, labelColor=GREY, symbolType="circle")


def _layer(kind: str, mark: str, *, is_said: bool = False, **style: Any) -> alt.Chart:
    """The rows of one kind, as one kind of mark; one that is said tells its value when it is pointed at."""
    import altair as alt

    given: dict[str, Any] = {"type": mark, "aria": is_said, **style}
    chart = alt.Chart(mark=alt.MarkDef(**given)).transform_filter(f"datum.kind == '{kind}'")
    return chart.encode(description="said:N") if is_said else chart


def _lines() -> list[alt.Chart]:
    """The full model with its interval, the bar and chance, across the panel."""
    return [
        _layer("band", "rect", color=GREY, opacity=0.14).encode(y2="y2:Q"),
        _layer("chance", "rule", color=GREY, strokeDash=[1, 3]),
        _layer("bar", "rule", color=GREY, strokeDash=[5, 4]),
        _layer("full", "rule", color=GREY, strokeWidth=1.4),
    ]


def _marks(n_panels: int) -> list[alt.Chart]:
    """Means, their intervals, the runs, and a ring around the one that was chosen."""
    size = 56 if n_panels == 1 else 36
    return [
        _layer("path", "line", color=ACCENT, strokeWidth=1.5, opacity=0.55),
        _layer("interval", "rule", color=ACCENT, strokeWidth=2).encode(y2="y2:Q"),
        _layer("seed", "circle", is_said=True, color=ACCENT, size=18, opacity=0.4, xOffset=-8),
        _layer("mean", "circle", is_said=True, color=ACCENT, size=size, opacity=1),
        _layer("ring", "point", color=ACCENT, size=4 * size, strokeWidth=2, filled=False, opacity=1),
    ]


def _faceted(
    rows: Sequence[Row], layers: Sequence[alt.Chart], size: tuple[int, int] = (250, 150), *, n_columns: int = N_COLUMNS
) -> Drawing:
    """The layers once for each panel, each with scales of its own; one panel needs no head."""
    import altair as alt

    panels = list(dict.fromkeys(row["panel"] for row in rows))
    width, height = (640, 320) if len(panels) == 1 else size
    layered = alt.layer(*layers, data=alt.InlineData(values=list(rows))).properties(width=width, height=height)
    facet = alt.Facet("panel:N", title=None, sort=panels)
    chart: Drawing = layered if len(panels) == 1 else layered.facet(facet, columns=n_columns)
    chart = chart.resolve_scale(x="independent", y="independent") if len(panels) > 1 else chart
    chart.config, chart.padding = alt.Config.from_dict(_STYLE), 4
    return chart
