"""The tables of curves: of one curve, and of several in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from frostline.analysis import Curve, Gain, Mark, OperatingPoint, Point, TriedRate, View, series, value_of
from frostline.records.depth import FULL, Depth
from frostline.report import numbers
from frostline.report.tables import NAMES, Table, by_seed, names_of, unless_full, yes
from frostline.report.wording import axis_words, curve_words
from frostline.report.wording.failure_words import with_failed

Learning = Sequence[tuple[Depth, list[tuple[int, float]]]]
"""(epoch, mean dev score) of each depth or value"""

Cell = Callable[[Point], str]

_TRAINED: dict[str, Cell] = {"trained layers": lambda point: str(point.trained_layers)}
_SCORES: dict[str, Cell] = {
    "mean": lambda point: numbers.score(point.mean),
    "95% interval": lambda point: numbers.score_interval(point.ci),
    "with examples": lambda point: numbers.score_interval(point.ci_dev),
}
_COSTS: dict[str, Cell] = {
    "trained parameters": lambda point: numbers.count(point.trained_parameters),
    "seconds": lambda point: numbers.seconds(point.seconds),
}
_DIFFERENCE: dict[str, Cell] = {
    "minus full": lambda point: numbers.difference(point.difference),
    "interval of it": lambda point: _interval(point, numbers.difference_interval(point.difference_ci_dev)),
}
_SHARES: dict[str, Cell] = {
    "share of full": lambda point: numbers.share(point.ratio),
    "interval of share": lambda point: _interval(point, numbers.share_interval(point.ratio_ci_dev)),
    "above chance": lambda point: numbers.share(point.ratio_above_chance),
    "verdict": lambda point: _verdict(point),
}
_SEEDS: dict[str, Cell] = {
    "seeds": lambda point: str(len(point.seeds)),
    "failed": lambda point: str(point.n_failed),
}
_BY_SEED: dict[str, Cell] = {
    "mean without failed": lambda point: numbers.score(point.mean_without_failed),
    "scores by seed": lambda point: by_seed(point.scores),
}


def _interval(point: Point, interval: str) -> str:
    return unless_full(interval, is_full=value_of(point) is FULL)


def score_table(curve: Curve) -> Table:
    """Score, intervals and cost of the full model and each depth."""
    title = f"Score ({numbers.one_line(curve.metric, 40)})"
    return _point_table(curve, title, _places(curve) | _trained(curve) | _SCORES | _COSTS)


def against_table(curve: Curve) -> Table:
    """Each depth compared with the full model, in 80 columns: without the interval of the difference."""
    minus_full = {"minus full": _DIFFERENCE["minus full"]}
    return _point_table(curve, "Against the full model", _places(curve) | minus_full | _SHARES | _SEEDS)


def wide_table(curve: Curve) -> Table:
    """Everything in one table, with the scores of all seeds."""
    cells = _places(curve) | _trained(curve) | _SCORES | _DIFFERENCE | _SHARES | _COSTS | _SEEDS | _BY_SEED
    return _point_table(curve, f"Score ({numbers.one_line(curve.metric, 40)})", cells)


def operating_table(curve: Curve) -> Table:
    """The operating points, and how probable each depth is."""
    words, axis = ("of", "probability of each"), axis_words.words_of(curve)
    plausible = f"{numbers.rough_share(curve.confidence)} set"
    return Table(
        title=f"Operating points: {axis.point}",
        headers=("keep", words[0], axis.column, *_trained(curve), "established", plausible, words[1]),
        rows=tuple(_operating_row(curve, asked) for asked in curve.operating_points),
        left=words,
    )


def line_search_table(curve: Curve) -> Table:
    """The learning rates that were tried; for a race, also how far each rate was trained."""
    rows = [(numbers.learning_rate(tried.learning_rate), numbers.score(tried.score)) for tried in curve.line_search]
    heads: tuple[str, ...] = ("learning rate", "score")
    if all(tried.share == 1 for tried in curve.line_search):
        return Table(title="Line search on the full model", headers=heads, rows=tuple(rows))
    shares = [numbers.rough_share(tried.share) for tried in curve.line_search]
    far = tuple((*row, share) for row, share in zip(rows, shares, strict=True))
    return Table(title="Race of rates on the full model", headers=(*heads, "of its steps"), rows=far)


def gains_table(curves: Sequence[Curve]) -> Table:
    """What each additional layer adds to the score."""
    axis = axis_words.words_of(curves[0])
    heads = (f"{axis.column}, from", "to", "gain per layer", "95% interval", "with examples")
    rows = [(*names_of(curve), *_gain_row(gain)) for curve in curves for gain in curve.gains]
    title = "Gain per additional trained layer" if curves[0].axis is None else "Gain per layer"
    return Table(title=title, headers=(*NAMES, *heads), rows=tuple(rows), left=NAMES)


def summary_table(curves: Sequence[Curve]) -> Table:
    """One row per curve: its first operating point, what it keeps and what it costs."""
    column = axis_words.words_of(curves[0]).column
    heads = ("metric", "full score", "keep", column, "trained layers", "score", "kept", "95% interval")
    costs = ("parameters", "time", "memory")
    rows = [(*names_of(curve), *_summary(curve)) for curve in curves]
    words = (*NAMES, "metric")
    what = axis_words.words_of(curves[0]).point.partition(",")[0]
    title = f"The {what} that keep the share; parameters, time and memory as shares of the full model"
    return Table(title=title, headers=(*NAMES, *heads, *costs), rows=tuple(rows), left=words)


def paper_table(curves: Sequence[Curve]) -> Table:
    """Three rows per curve, as in the paper: nothing frozen, the operating point, everything frozen but the output."""
    column = axis_words.words_of(curves[0]).column
    heads = ("what", column, "trained layers", "trained parameters", "score", "95% interval", "share of full")
    rows = [(*names_of(curve), *row) for curve in curves for row in _paper_rows(curve)]
    words = (*NAMES, "what")
    return Table(title="Operating points", headers=(*NAMES, *heads), rows=tuple(rows), left=words)


def view_table(curves: Sequence[Curve], view: View) -> Table:
    """The values of the chart of a view: every mean, interval and run."""
    rows = []
    for curve in curves:
        shown = series(curve, view)
        if shown is not None:
            rows += [(*names_of(curve), *_view_row(view, mark)) for mark in (shown.full, *shown.marks)]
    heads = (*NAMES, axis_words.words_of(curves[0]).column, "value", "95% interval", "by seed")
    return Table(title="The values of this chart", headers=heads, rows=tuple(rows), left=NAMES)


def rates_table(curves: Sequence[Curve]) -> Table:
    """Every learning rate that was tried, and which one was chosen."""
    rows = [
        (*names_of(curve), *_rate_row(tried, is_chosen=tried.learning_rate == curve.learning_rate))
        for curve in curves
        for tried in curve.line_search
    ]
    heads = (*NAMES, "learning rate", "score", "of its steps", "chosen")
    return Table(title="Learning rates tried on the full model", headers=heads, rows=tuple(rows), left=NAMES)


def cost_table(curves: Sequence[Curve]) -> Table:
    """Score and cost of every depth."""
    rows = [(*names_of(curve), *_cost_row(point)) for curve in curves for point in (curve.full, *curve.points)]
    heads = (*NAMES, axis_words.words_of(curves[0]).column, "score", "seconds", "memory", "trained parameters")
    return Table(title="Score and cost of one run", headers=heads, rows=tuple(rows), left=NAMES)


def learning_table(learning: Sequence[tuple[Curve, Learning]]) -> Table:
    """The mean dev score after each epoch."""
    n_epochs = max((len(points) for _, depths in learning for _, points in depths), default=0)
    rows = []
    for curve, depths in learning:
        for at, points in depths:
            scores = [numbers.score(score) for _, score in points]
            rows.append((*names_of(curve), axis_words.value(at), *_filled(scores, n_epochs)))
    column = axis_words.words_of(learning[0][0]).column if learning else "frozen"
    heads = (*NAMES, column, *(f"epoch {epoch}" for epoch in range(1, n_epochs + 1)))
    return Table(title="Mean dev score after each epoch", headers=heads, rows=tuple(rows), left=NAMES)


def _verdict(point: Point) -> str:
    better = ", better" if point.is_better else ""
    return numbers.DASH if point.verdict is None else f"{point.verdict}{better}"


def _summary(curve: Curve) -> Iterable[str]:
    asked = curve_words.headline(curve)
    point = None if asked is None else curve_words.point_at(curve, value_of(asked))
    scale = "ratio" if asked is None else asked.scale
    is_known = asked is not None and asked.trained_layers is not None
    return (
        numbers.one_line(curve.metric, 40),
        numbers.score(curve.full.mean),
        numbers.DASH if asked is None else numbers.keep_share(asked.keep),
        _depth_cell(curve, value_of(asked)) if asked is not None and is_known else numbers.DASH,
        str(asked.trained_layers) if asked is not None and is_known else numbers.DASH,
        numbers.DASH if point is None else numbers.score(point.mean),
        numbers.DASH if point is None else numbers.share(curve_words.kept(point, scale)),
        numbers.DASH if point is None else numbers.share_interval(curve_words.share_interval(point, scale)),
        *_parts(curve, point),
    )


def _parts(curve: Curve, point: Point | None) -> tuple[str, str, str]:
    if point is None:
        return numbers.DASH, numbers.DASH, numbers.DASH
    return (
        numbers.part(point.trained_parameters, curve.full.trained_parameters),
        numbers.part(point.seconds, curve.full.seconds),
        numbers.part(point.peak_bytes, curve.full.peak_bytes),
    )


def _paper_rows(curve: Curve) -> list[tuple[str, ...]]:
    rows = [("nothing frozen" if curve.axis is None else "full model", *_paper_cells(curve.full))]
    asked = curve_words.headline(curve)
    if asked is not None:
        point = curve_words.point_at(curve, value_of(asked))
        above = "" if asked.scale == "ratio" else " above chance"
        fewest = "fewest layers" if curve.axis is None else axis_words.words_of(curve).point.partition(",")[0]
        what = f"{fewest} for {numbers.keep_share(asked.keep)}{above}"
        rows.append((what, *(_paper_cells(point) if point is not None else [numbers.DASH] * 6)))
    head = curve_words.point_at(curve, curve.n_layers) if curve.axis is None else None
    if head is not None:
        rows.append(("all frozen but the output", *_paper_cells(head)))
    return rows


def _paper_cells(point: Point) -> tuple[str, ...]:
    return (
        f"{axis_words.value(value_of(point))}{with_failed(point)}",
        str(point.trained_layers),
        numbers.count(point.trained_parameters),
        numbers.score(point.mean),
        numbers.score_interval(point.ci),
        numbers.share(point.ratio),
    )


def _view_row(view: View, mark: Mark) -> tuple[str, ...]:
    seeds = " ".join(curve_words.view_value(view, one) for _, one in mark.by_seed) or numbers.DASH
    value, interval = curve_words.view_value(view, mark.value), curve_words.view_interval(view, mark.interval)
    return axis_words.value(mark.at), value, interval, seeds


def _gain_row(gain: Gain) -> tuple[str, ...]:
    start, end = (gain.n_frozen_from, gain.n_frozen_to)
    if gain.value_from is not None and gain.value_to is not None:
        start, end = gain.value_from, gain.value_to
    return (
        axis_words.value(start),
        axis_words.value(end),
        numbers.difference(gain.gain),
        numbers.difference_interval(gain.ci),
        numbers.difference_interval(gain.ci_dev),
    )


def _rate_row(tried: TriedRate, *, is_chosen: bool) -> tuple[str, ...]:
    rate, score = numbers.learning_rate(tried.learning_rate), numbers.score(tried.score)
    return rate, score, numbers.rough_share(tried.share), yes(is_chosen)


def _cost_row(point: Point) -> tuple[str, ...]:
    return (
        axis_words.value(value_of(point)),
        numbers.score(point.mean),
        numbers.seconds(point.seconds),
        numbers.size(point.peak_bytes),
        numbers.count(point.trained_parameters),
    )


def _filled(cells: Sequence[str], number: int) -> list[str]:
    return [*cells, *[numbers.DASH] * (number - len(cells))]


def _depth_cell(curve: Curve, at: Depth) -> str:
    """A depth or value, with how many of its runs failed."""
    return f"{axis_words.value(at)}{with_failed(curve_words.point_at(curve, at))}"


def _operating_row(curve: Curve, asked: OperatingPoint) -> tuple[str, ...]:
    frozen = numbers.DASH if asked.trained_layers is None else _depth_cell(curve, value_of(asked))
    trained = numbers.DASH if asked.trained_layers is None else str(asked.trained_layers)
    scale = curve_words.SCALE_WORDS[asked.scale]
    shares = curve_words.distribution(asked.distribution)
    established = numbers.DASH if asked.established is None else _depth_cell(curve, value_of(asked.established))
    return (
        numbers.keep_share(asked.keep),
        scale,
        frozen,
        *([trained] if curve.axis is None else []),
        established,
        curve_words.depths(asked.plausible),
        shares,
    )


def _places(curve: Curve) -> dict[str, Cell]:
    return {axis_words.words_of(curve).column: lambda point: axis_words.value(value_of(point))}


def _trained(curve: Curve) -> dict[str, Cell]:
    """The column of trained layers; on another axis they say little."""
    return _TRAINED if curve.axis is None else {}


def _point_table(curve: Curve, title: str, cells: dict[str, Cell]) -> Table:
    rows = tuple(tuple(cell(point) for cell in cells.values()) for point in (curve.full, *curve.points))
    return Table(title=title, headers=tuple(cells), rows=rows)
