"""The tables of comparisons: of one comparison, and of several in one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frostline.analysis import Comparison, ProbePoint, StrategyPoint
from frostline.report import numbers
from frostline.report.tables import NAMES, Table, by_seed, names_of, unless_full, yes
from frostline.report.wording import comparison_words
from frostline.report.wording.comparison_words import CostKind

Cell = Callable[[StrategyPoint], str]

_WORDS = ("strategy",)
COST_HEADS: dict[CostKind, str] = {
    "seconds": "seconds",
    "parameters": "trained parameters",
    "memory": "memory",
}
_NAME: dict[str, Cell] = {"strategy": comparison_words.name}
_PARAMETERS: dict[str, Cell] = {"trained parameters": lambda point: numbers.count(point.trained_parameters)}
_STORED: dict[str, Cell] = {"bytes per task": lambda point: numbers.size(point.stored_bytes)}
_COSTS: dict[str, Cell] = {
    "seconds": lambda point: numbers.seconds(point.seconds),
    "memory": lambda point: numbers.size(point.peak_bytes),
}
_RATE: dict[str, Cell] = {"rate": lambda point: numbers.learning_rate(point.learning_rate)}
_SCORE: dict[str, Cell] = {
    "score": lambda point: numbers.score(point.mean),
    "95% interval": lambda point: numbers.score_interval(point.ci),
}
_AGAINST: dict[str, Cell] = {
    "minus full": lambda point: numbers.difference(point.difference),
    "interval of it": lambda point: _interval(point, numbers.difference_interval(point.difference_ci_adjusted)),
    "share of full": lambda point: numbers.share(point.ratio),
    "interval of share": lambda point: _interval(point, numbers.share_interval(point.ratio_ci_dev)),
}
_FRONT: dict[str, Cell] = {"front": lambda point: yes(point.is_pareto)}
_PROBABLE: dict[str, Cell] = {
    "probability": lambda point: numbers.DASH if point.p_pareto is None else numbers.rough_share(point.p_pareto)
}
_BY_SEED: dict[str, Cell] = {"by seed": lambda point: by_seed(point.scores)}


def _interval(point: StrategyPoint, interval: str) -> str:
    return unless_full(interval, is_full=point.name == "full")


def main_table(comparison: Comparison) -> Table:
    """Every number of each strategy, one row per strategy."""
    largest = max((point.trained_parameters or 0 for point in comparison.strategies), default=0)
    of_largest: dict[str, Cell] = {"of the largest": lambda point: numbers.part(point.trained_parameters, largest)}
    what = _PARAMETERS | of_largest | _STORED
    against = {head: cell for head, cell in _AGAINST.items() if head != "interval of share"}
    return _table(
        comparison, _heading(comparison), _NAME | what | _COSTS | _RATE | _SCORE | against | _FRONT | _PROBABLE
    )


def score_table(comparison: Comparison) -> Table:
    """Score and cost of each strategy, for a narrow screen."""
    return _table(comparison, _heading(comparison), _NAME | _PARAMETERS | _COSTS | _RATE | _SCORE | _FRONT)


def against_table(comparison: Comparison) -> Table:
    """Each strategy compared with full, for a narrow screen."""
    return _table(comparison, "Against full, and disk space per additional task", _NAME | _AGAINST | _STORED)


def cost_table(comparison: Comparison, kind: CostKind) -> Table:
    """The values of the chart of quality against a cost."""
    on_front = {point.name for point in comparison_words.front(comparison, kind)}
    costs: dict[str, Cell] = (
        (_PARAMETERS | _STORED) if kind == "parameters" else {COST_HEADS[kind]: _COSTS[COST_HEADS[kind]]}
    )
    front: dict[str, Cell] = {"front": lambda point: yes(point.name in on_front)}
    return _table(comparison, "The values of this chart", _NAME | costs | _SCORE | front | _BY_SEED)


def rates_table(comparison: Comparison) -> Table:
    """Every learning rate that was tried, and which one was chosen."""
    used = {point.name: point.learning_rate for point in comparison.strategies}
    rows = tuple(
        (
            numbers.one_line(tried.name, 40),
            numbers.learning_rate(tried.learning_rate),
            numbers.score(tried.score),
            yes(used.get(tried.name) == tried.learning_rate),
        )
        for tried in comparison.line_search
    )
    heads = ("strategy", "learning rate", "score", "chosen")
    return Table(title="Learning rates that were tried", headers=heads, rows=rows, left=_WORDS)


def probe_table(probes: Sequence[ProbePoint]) -> Table:
    """The score of a linear probe on each layer."""
    rows = tuple(
        (str(probe.depth), numbers.score(probe.mean), numbers.score_interval(probe.ci), by_seed(probe.scores))
        for probe in probes
    )
    heads = ("layers below", "score", "95% interval", "by seed")
    return Table(title="Linear probes: a linear fit to the outputs of each layer", headers=heads, rows=rows)


def summary_table(comparisons: Sequence[Comparison]) -> Table:
    """One row per comparison: the best strategy, and the fastest that keeps the share."""
    share = numbers.keep_share(comparison_words.KEEP)
    heads = ("metric", "full score", "best", "its score", "fastest", "score", "share of full")
    title = f"The best strategy, and the fastest that keeps {share} of the full score, with its costs as shares of full"
    rows = tuple((*names_of(comparison), *_summary(comparison)) for comparison in comparisons)
    words = (*NAMES, "metric", "best", "fastest")
    return Table(title=title, headers=(*NAMES, *heads, "parameters", "time", "memory"), rows=rows, left=words)


def paper_table(comparisons: Sequence[Comparison]) -> Table:
    """Every strategy of every comparison, for a paper."""
    cells = _NAME | _PARAMETERS | _COSTS | _SCORE | {"share of full": _AGAINST["share of full"]} | _FRONT
    rows = tuple(
        (*names_of(comparison), *(cell(point) for cell in cells.values()))
        for comparison in comparisons
        for point in comparison.strategies
    )
    words = (*NAMES, "strategy")
    return Table(title="Strategies", headers=(*NAMES, *cells), rows=rows, left=words)


def _summary(comparison: Comparison) -> tuple[str, ...]:
    full, top, enough = (
        comparison.strategy("full"),
        comparison_words.best(comparison),
        comparison_words.cheapest(comparison),
    )
    return (
        numbers.one_line(comparison.metric, 40),
        numbers.score(None if full is None else full.mean),
        numbers.DASH if top is None else comparison_words.name(top),
        numbers.score(None if top is None else top.mean),
        numbers.DASH if enough is None else comparison_words.name(enough),
        numbers.score(None if enough is None else enough.mean),
        numbers.share(None if enough is None else enough.ratio),
        *_parts(enough, full),
    )


def _parts(point: StrategyPoint | None, full: StrategyPoint | None) -> tuple[str, str, str]:
    if point is None or full is None:
        return numbers.DASH, numbers.DASH, numbers.DASH
    return (
        numbers.part(point.trained_parameters, full.trained_parameters),
        numbers.part(point.seconds, full.seconds),
        numbers.part(point.peak_bytes, full.peak_bytes),
    )


def _heading(comparison: Comparison) -> str:
    return f"Strategies, score and cost ({numbers.one_line(comparison.metric, 40)})"


def _table(comparison: Comparison, title: str, cells: dict[str, Cell]) -> Table:
    rows = tuple(tuple(cell(point) for cell in cells.values()) for point in comparison.strategies)
    return Table(title=title, headers=tuple(cells), rows=rows, left=_WORDS)
