"""Curves → the charts of a report: one per question, with a panel for each curve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from frostline.analysis import Curve, Gain, Interval, ProbePoint, Series, View, axis_name, series, value_of
from frostline.records.depth import FULL, AxisName, Depth, depth_words, value_words
from frostline.report import numbers
from frostline.report.charts.curve import INK, Row, x_scale
from frostline.report.charts.marks import (
    COLOURS,
    SCORE_FORMAT,
    SECOND,
    axis,
    cut,
    depth_x,
    extent,
    faceted,
    layer,
    legend,
    lines,
    marked,
    marks,
    rate_x,
    row,
    short,
    y_axis,
)
from frostline.report.curve_tables import Learning
from frostline.report.wording import axis_words, curve_words

if TYPE_CHECKING:
    import altair as alt

    from frostline.report.charts.curve import Drawing

MOST_PANELS = 12
"""Up to this many curves each have a panel, with intervals and runs; more share one panel per model, a line each."""
VIEW_WORDS: dict[View, str] = {
    "score": "score",
    "difference": "difference from full",
    "ratio": "ratio to full",
    "ratio_above_chance": "ratio above chance",
    "train_score": "training score",
}
_FORMATS: dict[View, str] = {
    "score": SCORE_FORMAT,
    "difference": "+.3~f",
    "ratio": ".0%",
    "ratio_above_chance": ".0%",
    "train_score": SCORE_FORMAT,
}


def view_chart(curves: Sequence[Curve], view: View, probes: Sequence[ProbePoint] = ()) -> Drawing | None:
    """The curves in a view; a single curve also shows its probes. None if the view is undefined."""
    seen = {panel: shown for panel, curve in _panels(curves) if (shown := _shown(curve, view))}
    if not seen:
        return None
    if len(seen) > MOST_PANELS:
        return _shared_chart(curves, view)
    rows = [each for panel, shown in seen.items() for each in _view_rows(panel, shown, axis_name(curves[0]))]
    drawn = marks(len(seen))
    if len(curves) == 1 and view == "score" and probes:
        rows += _probe_rows(rows[0]["panel"], probes)
        drawn = [*_probe_marks(), *drawn]
    x, y = _x(curves, rows), _view_y(curves, view)
    layers = [*(line.encode(y=y) for line in lines()), *(mark.encode(x=x, y=y) for mark in drawn)]
    return faceted(rows, layers)


def _shared_chart(curves: Sequence[Curve], view: View) -> Drawing:
    """Many curves, as in the figure of the paper: one panel per model, one line per task."""
    import altair as alt

    tasks, models = short([curve.task for curve in curves], 40), _models(curves, 40)
    seen = [(curve, shown) for curve in curves if (shown := _shown(curve, view))]
    axis = axis_name(curves[0])
    rows = [each for curve, shown in seen for each in _line_rows(models[curve.model], tasks[curve.task], shown, axis)]
    drawn_tasks = list(dict.fromkeys(each["task"] for each in rows))
    scale = alt.Scale(domain=drawn_tasks, range=COLOURS)
    colour = alt.Color("task:N", sort=drawn_tasks, scale=scale, legend=legend("task"))
    drawn = (layer("mean", "line", strokeWidth=1.8), layer("mean", "circle", is_said=True, size=36, opacity=1))
    layers = [mark.encode(x=_x(curves, rows), y=_view_y(curves, view), color=colour) for mark in drawn]
    return faceted(rows, layers, (520, 260), n_columns=2)


def _line_rows(panel: str, task: str, shown: Series, axis: AxisName) -> Iterator[Row]:
    for mark in shown.marks:
        if mark.value is not None:
            said = f"{task}, {_frozen(mark.at, axis)}: {_said(shown.view, mark.value, mark.interval)}"
            yield row(panel, "mean", x=mark.at, y=mark.value, said=said, task=task)


def line_search_chart(curves: Sequence[Curve]) -> Drawing | None:
    """Scores against the learning rates that were tried; None if none were."""
    rows = [each for panel, curve in _panels(curves) for each in _rate_rows(panel, curve)]
    if not rows:
        return None
    layers = [mark.encode(x=rate_x(rows), y=y_axis(_metrics(curves))) for mark in marks(len(curves))]
    return faceted(rows, layers)


def cost_chart(curves: Sequence[Curve]) -> Drawing | None:
    """Scores against the seconds of one run, one dot per depth; None if no time was measured."""
    import altair as alt

    rows = [each for panel, curve in _panels(curves) for each in _cost_rows(panel, curve)]
    if not rows:
        return None
    x = alt.X("x:Q", scale=alt.Scale(type="log", nice=False, padding=14), axis=axis("seconds of one run", "~g"))
    # With or without frozen embeddings, training all layers takes about as long: the names go to opposite sides.
    words = [
        layer(kind, "text", color=INK, fontSize=11, align=align, dx=dx)
        for kind, align, dx in (("name", "left", 8), ("full name", "right", -8))
    ]
    names = [mark.encode(text=alt.Text("label:N")) for mark in words]
    layers = [mark.encode(x=x, y=y_axis(_metrics(curves))) for mark in (*marks(len(curves)), *names)]
    return faceted(rows, layers)


def gains_chart(curves: Sequence[Curve]) -> Drawing | None:
    """What each additional layer adds, with its interval over seeds; None if no neighbours have enough seeds."""
    rows = [each for panel, curve in _panels(curves) for each in _gain_rows(panel, curve)]
    if not rows:
        return None
    title = "trained layers" if curves[0].axis is None else axis_words.words_of(curves[0]).title
    y = y_axis(f"gain in {_metrics(curves)} per layer", "+.3~f")
    return faceted(rows, [mark.encode(x=depth_x(rows, title), y=y) for mark in (*lines()[-1:], *marks(len(curves)))])


def _gain_rows(panel: str, curve: Curve) -> Iterator[Row]:
    if curve.gains:
        yield row(panel, "full", y=0.0)
    low, high = extent([gain.gain for gain in curve.gains], [gain.ci for gain in curve.gains])
    for gain in curve.gains:
        start, end = _ends(gain, curve.n_layers)
        said = f"from {start} to {end}: {numbers.difference(gain.gain)} {numbers.difference_interval(gain.ci)}"
        yield row(panel, "path", x=end, y=gain.gain)
        yield from marked(panel, end, gain.gain, cut(gain.ci, low, high), said)


def _ends(gain: Gain, n_layers: int) -> tuple[int, int]:
    """Between which numbers of trained layers, or values of another axis, a gain lies."""
    if gain.value_from is not None and gain.value_to is not None:
        return gain.value_from, gain.value_to
    assert isinstance(gain.n_frozen_from, int), "a gain lies between depths"
    assert isinstance(gain.n_frozen_to, int), "a gain lies between depths"
    return n_layers - gain.n_frozen_from, n_layers - gain.n_frozen_to


def learning_chart(learning: Sequence[tuple[Curve, Learning]]) -> Drawing | None:
    """Mean dev scores after each epoch; None if the runs are not known or have one epoch."""
    import altair as alt

    curves = [curve for curve, _ in learning]
    by_panel = zip(learning, _panels(curves), strict=True)
    rows = [each for (_, depths), (panel, one) in by_panel for each in _learning_rows(panel, depths, axis_name(one))]
    if not rows:
        return None
    shown, epochs = (list(dict.fromkeys(each[name] for each in rows)) for name in ("depth", "x"))
    scheme = alt.SchemeParams(name="viridis", extent=[0.2, 0.85])
    named = legend(axis_words.words_of(curves[0]).column)
    colour = alt.Color("depth:O", sort=shown, scale=alt.Scale(domain=shown, scheme=scheme), legend=named)
    paths, dots = layer("mean", "line", strokeWidth=2), layer("mean", "circle", is_said=True, size=44, opacity=1)
    x = alt.X("x:Q", scale=alt.Scale(zero=False, nice=False, padding=14), axis=axis("epoch", "d", epochs))
    layers = [mark.encode(x=x, y=y_axis(_metrics(curves)), color=colour) for mark in (paths, dots)]
    return faceted(rows, layers)


def _shown(curve: Curve, view: View) -> Series | None:
    """The curve in a view; None if it has no depth to draw there."""
    shown = series(curve, view)
    return shown if shown is not None and any(mark.value is not None for mark in shown.marks) else None


def _view_rows(panel: str, shown: Series, axis: AxisName) -> Iterator[Row]:
    full, (low, high) = shown.full, shown.extent
    if full.interval is not None:
        yield row(panel, "band", y=max(low, full.interval[0]), y2=min(high, full.interval[1]))
    for kind, at in {"full": full.value, "bar": shown.bar, "chance": shown.chance}.items():
        if at is not None:
            yield row(panel, kind, y=at)
    for mark in shown.marks:
        yield row(panel, "path", x=mark.at, y=mark.value)
        if mark.value is None:
            continue
        said = f"{_frozen(mark.at, axis)}: {_said(shown.view, mark.value, mark.interval)}"
        yield from marked(panel, mark.at, mark.value, cut(mark.interval, low, high), said)
        if len(mark.by_seed) > 1:
            for seed, value in mark.by_seed:
                said = f"{_frozen(mark.at, axis)}, seed {seed}: {_said(shown.view, value, None)}"
                yield row(panel, "seed", x=mark.at, y=value, said=said)
        if shown.asked is not None and value_of(shown.asked) == mark.at:
            yield row(panel, "ring", x=mark.at, y=mark.value)


def _probe_rows(panel: str, probes: Sequence[ProbePoint]) -> Iterator[Row]:
    low, high = extent([probe.mean for probe in probes], [probe.ci for probe in probes])
    first = probes[0]
    yield row(panel, "probe name", x=first.depth, y=first.mean, label="linear probe of the layers below")
    for probe in probes:
        yield row(panel, "probe path", x=probe.depth, y=probe.mean)
        yield row(panel, "probe", x=probe.depth, y=probe.mean, said=probe_said(probe))
        ends = cut(probe.ci, low, high)
        if ends is not None:
            yield row(panel, "probe interval", x=probe.depth, y=ends[0], y2=ends[1])


def probe_said(probe: ProbePoint) -> str:
    """The value of a linear probe, in words."""
    where = "embeddings" if probe.depth == 0 else f"layer {probe.depth}"
    return f"linear probe of {where}: {_said('score', probe.mean, probe.ci)}"


def _probe_marks() -> list[alt.Chart]:
    """The marks of the linear probes, in another colour and shape."""
    import altair as alt

    return [
        layer("probe path", "line", color=SECOND, strokeWidth=1.5, opacity=0.55, strokeDash=[4, 3]),
        layer("probe interval", "rule", color=SECOND, strokeWidth=2).encode(y2=alt.Y2("y2:Q")),
        layer("probe", "square", is_said=True, color=SECOND, size=44, opacity=1),
        layer("probe name", "text", color=SECOND, fontSize=11, align="left", dx=10, dy=14).encode(
            text=alt.Text("label:N")
        ),
    ]


def _rate_rows(panel: str, curve: Curve) -> Iterator[Row]:
    for tried in curve.line_search:
        if tried.score is not None:
            said = f"rate {numbers.learning_rate(tried.learning_rate)}: {numbers.score(tried.score)}"
            yield from marked(panel, tried.learning_rate, tried.score, None, said)
            if tried.learning_rate == curve.learning_rate:
                yield row(panel, "ring", x=tried.learning_rate, y=tried.score)


def _cost_rows(panel: str, curve: Curve) -> Iterator[Row]:
    for point in (curve.full, *curve.points):
        if point.mean is not None and point.seconds:
            at, axis = value_of(point), axis_name(curve)
            said = f"{_frozen(at, axis)}: {numbers.score(point.mean)} in {numbers.duration(point.seconds)}"
            yield from marked(panel, point.seconds, point.mean, point.ci, said)
            kind = "full name" if point is curve.full else "name"
            yield row(panel, kind, x=point.seconds, y=point.mean, label=axis_words.value(at))


def _learning_rows(panel: str, depths: Learning, axis: AxisName) -> Iterator[Row]:
    for at, points in depths:
        if len(points) == 1:
            continue
        for epoch, score in points:
            said = f"{_frozen(at, axis)}, epoch {epoch}: {numbers.score(score)}"
            yield row(panel, "mean", x=epoch, y=score, said=said, depth=axis_words.value(at))


def _panels(curves: Sequence[Curve]) -> list[tuple[str, Curve]]:
    """Each curve with the title of its panel."""
    tasks, models = short([curve.task for curve in curves], 28), _models(curves, 28)
    return [(f"{tasks[curve.task]} · {models[curve.model]}", curve) for curve in curves]


def _models(curves: Sequence[Curve], at_most: int) -> dict[str, str]:
    """Names of the models cut to fit, by the full name; a folder is shown by its last part."""
    names = {curve.model: numbers.model_name(curve.model, 1000) for curve in curves}
    brief = short(list(names.values()), at_most)
    return {model: brief[name] for model, name in names.items()}


def _frozen(at: Depth, axis: AxisName) -> str:
    """A place in the words of a mark."""
    if axis != "depth":
        return value_words(axis, at)
    return depth_words(at) if at is FULL else f"{at} frozen"


def _x(curves: Sequence[Curve], rows: Sequence[Row]) -> alt.X:
    """The axis of depths or values."""
    axis = axis_words.words_of(curves[0])
    return depth_x(rows, axis.title, x_scale([each["x"] for each in rows if "x" in each], is_log=axis.is_log))


def _said(view: View, value: float, interval: Interval | None) -> str:
    """A value of a view with its interval."""
    said = curve_words.view_value(view, value)
    return said if interval is None else f"{said} {curve_words.view_interval(view, interval)}"


def _metrics(curves: Iterable[Curve]) -> str:
    """The name of the metric, or `score` if there are several."""
    names = list(dict.fromkeys(numbers.one_line(curve.metric, 40) for curve in curves))
    return names[0] if len(names) == 1 else "score"


def _view_y(curves: Sequence[Curve], view: View) -> alt.Y:
    return y_axis(VIEW_WORDS[view] if view != "score" else _metrics(curves), _FORMATS[view])
