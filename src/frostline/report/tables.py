"""A curve's tables as rows of written cells, the same for every format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frostline.analysis import Curve, OperatingPoint, Point
from frostline.report import text, wording


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table ready to set: every cell is written."""

    title: str
    """what it shows"""
    headers: tuple[str, ...]
    """one a column"""
    rows: tuple[tuple[str, ...], ...]
    """cells, row by row"""
    left: frozenset[str] = frozenset()
    """headers of the columns that hold words, not numbers"""


Cell = Callable[[Point], str]

_FROZEN: dict[str, Cell] = {"frozen": lambda point: wording.depth(point.n_frozen)}
_SCORES: dict[str, Cell] = {
    "trained layers": lambda point: str(point.trained_layers),
    "mean": lambda point: text.score(point.mean),
    "95% interval": lambda point: text.score_interval(point.ci),
    "with examples": lambda point: text.score_interval(point.ci_dev),
}
_COSTS: dict[str, Cell] = {
    "trained parameters": lambda point: text.count(point.trained_parameters),
    "seconds": lambda point: text.seconds(point.seconds),
}
_AGAINST: dict[str, Cell] = {
    "minus full": lambda point: text.difference(point.difference),
    "interval of it": lambda point: text.difference_interval(point.difference_ci),
    "share of full": lambda point: text.share(point.ratio),
    "interval of share": lambda point: text.share_interval(point.ratio_ci),
    "above chance": lambda point: text.share(point.ratio_above_chance),
}
_SEEDS: dict[str, Cell] = {
    "seeds": lambda point: str(len(point.seeds)),
    "failed": lambda point: str(point.n_failed),
}
_BY_SEED: dict[str, Cell] = {
    "mean without failed": lambda point: text.score(point.mean_without_failed),
    "scores by seed": lambda point: " ".join(text.score(one) for one in point.scores) or text.DASH,
}


def score_table(curve: Curve) -> Table:
    """Score, intervals and cost of the full model and each depth."""
    return _point_table(curve, f"Score ({text.one_line(curve.metric, 40)})", _FROZEN | _SCORES | _COSTS)


def against_table(curve: Curve) -> Table:
    """Each depth held against the full model."""
    return _point_table(curve, "Against the full model", _FROZEN | _AGAINST | _SEEDS)


def wide_table(curve: Curve) -> Table:
    """All of it in one table, with the scores of the seeds."""
    cells = _FROZEN | _SCORES | _AGAINST | _COSTS | _SEEDS | _BY_SEED
    return _point_table(curve, f"Score ({text.one_line(curve.metric, 40)})", cells)


def operating_table(curve: Curve) -> Table:
    """The operating points and where they fall when the seeds are resampled."""
    words = ("of", "frozen, when seeds are resampled")
    return Table(
        title="Operating points: fewest trained layers, of those tried, that keep a share",
        headers=("keep", words[0], "frozen", "trained layers", "95% set", words[1]),
        rows=tuple(_operating_row(asked) for asked in curve.operating_points),
        left=frozenset(words),
    )


def line_search_table(curve: Curve) -> Table:
    """What the line search tried; no rows when a rate was given. Of a race, how far each rate came."""
    rows = [(text.learning_rate(tried.learning_rate), text.score(tried.score)) for tried in curve.line_search]
    heads: tuple[str, ...] = ("learning rate", "score")
    if all(tried.share == 1 for tried in curve.line_search):
        return Table(title="Line search on the full model", headers=heads, rows=tuple(rows))
    shares = [text.rough_share(tried.share) for tried in curve.line_search]
    far = tuple((*row, share) for row, share in zip(rows, shares, strict=True))
    return Table(title="Race of rates on the full model", headers=(*heads, "of its steps"), rows=far)


def _operating_row(asked: OperatingPoint) -> tuple[str, ...]:
    frozen = text.DASH if asked.trained_layers is None else wording.depth(asked.n_frozen)
    trained = text.DASH if asked.trained_layers is None else str(asked.trained_layers)
    scale = wording.SCALE_WORDS[asked.scale]
    shares = wording.distribution(asked.distribution)
    return text.keep_share(asked.keep), scale, frozen, trained, wording.depths(asked.plausible), shares


def _point_table(curve: Curve, title: str, cells: dict[str, Cell]) -> Table:
    rows = tuple(tuple(cell(point) for cell in cells.values()) for point in (curve.full, *curve.points))
    return Table(title=title, headers=tuple(cells), rows=rows)
