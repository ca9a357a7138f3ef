"""A comparison's tables as rows of written cells, the same for every format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frostline.analysis import Comparison, ProbePoint, StrategyPoint
from frostline.report import comparison_wording, text
from frostline.report.comparison_wording import CostKind
from frostline.report.tables import Table

Cell = Callable[[StrategyPoint], str]

_NAMES = ("task", "model")
_WORDS = frozenset(("strategy",))
COST_HEADS: dict[CostKind, str] = {
    "seconds": "seconds",
    "parameters": "trained parameters",
    "memory": "memory",
}
_NAME: dict[str, Cell] = {"strategy": comparison_wording.name}
_PARAMETERS: dict[str, Cell] = {"trained parameters": lambda point: text.count(point.trained_parameters)}
_STORED: dict[str, Cell] = {"bytes a task": lambda point: text.size(point.stored_bytes)}
_COSTS: dict[str, Cell] = {
    "seconds": lambda point: text.seconds(point.seconds),
    "memory": lambda point: text.size(point.peak_bytes),
}
_RATE: dict[str, Cell] = {"rate": lambda point: text.learning_rate(point.learning_rate)}
_SCORE: dict[str, Cell] = {
    "score": lambda point: text.score(point.mean),
    "95% interval": lambda point: text.score_interval(point.ci),
}
_AGAINST: dict[str, Cell] = {
    "minus full": lambda point: text.difference(point.difference),
    "interval of it": lambda point: text.difference_interval(point.difference_ci),
    "share of full": lambda point: text.share(point.ratio),
    "interval of share": lambda point: text.share_interval(point.ratio_ci),
}
_FRONT: dict[str, Cell] = {"front": lambda point: _yes(point.is_pareto)}


def main_table(comparison: Comparison) -> Table:
    """Everything that is asked of a strategy, one row each."""
    largest = max((point.trained_parameters or 0 for point in comparison.strategies), default=0)
    of_largest: dict[str, Cell] = {"of the largest": lambda point: text.part(point.trained_parameters, largest)}
    what = _PARAMETERS | of_largest | _STORED
    against = {head: cell for head, cell in _AGAINST.items() if head != "interval of share"}
    return _table(comparison, _heading(comparison), _NAME | what | _COSTS | _RATE | _SCORE | against | _FRONT)


def score_table(comparison: Comparison) -> Table:
    """Score and cost of each strategy, narrow."""
    return _table(comparison, _heading(comparison), _NAME | _PARAMETERS | _COSTS | _RATE | _SCORE | _FRONT)


def against_table(comparison: Comparison) -> Table:
    """Each strategy held against full, narrow."""
    return _table(comparison, "Against full, and what a further task adds to store", _NAME | _AGAINST | _STORED)


def cost_table(comparison: Comparison, kind: CostKind) -> Table:
    """What a chart of quality against a cost shows."""
    on_front = {point.name for point in comparison_wording.front(comparison, kind)}
    costs: dict[str, Cell] = (
        (_PARAMETERS | _STORED) if kind == "parameters" else {COST_HEADS[kind]: _COSTS[COST_HEADS[kind]]}
    )
    front: dict[str, Cell] = {"front": lambda point: _yes(point.name in on_front)}
    return _table(comparison, "The values of this chart", _NAME | costs | _SCORE | front | _by_seed())


def rates_table(comparison: Comparison) -> Table:
    """Every rate that was tried, and for what it was taken."""
    used = {point.name: point.learning_rate for point in comparison.strategies}
    rows = tuple(
        (
            text.one_line(tried.name, 40),
            text.learning_rate(tried.learning_rate),
            text.score(tried.score),
            _yes(used.get(tried.name) == tried.learning_rate),
        )
        for tried in comparison.line_search
    )
    heads = ("strategy", "learning rate", "score", "taken")
    return Table(title="Rates that were tried", headers=heads, rows=rows, left=_WORDS)


def probe_table(probes: Sequence[ProbePoint]) -> Table:
    """The score of a linear fit to each layer's states."""
    rows = tuple(
        (str(probe.depth), text.score(probe.mean), text.score_interval(probe.ci), _scores(probe.scores))
        for probe in probes
    )
    heads = ("layers below", "score", "95% interval", "by seed")
    return Table(title="Linear fits to what each layer puts out", headers=heads, rows=rows)


def summary_table(comparisons: Sequence[Comparison]) -> Table:
    """One row a comparison: what scores highest, and the quickest that keeps the share."""
    share = text.keep_share(comparison_wording.KEEP)
    heads = ("metric", "full score", "highest", "its score", "quickest", "score", "share of full")
    title = f"What scores highest, and the quickest that keeps {share} of the full score; the rest as shares of full's"
    rows = tuple((*_names(comparison), *_summary(comparison)) for comparison in comparisons)
    words = frozenset((*_NAMES, "metric", "highest", "quickest"))
    return Table(title=title, headers=(*_NAMES, *heads, "parameters", "time", "memory"), rows=rows, left=words)


def paper_table(comparisons: Sequence[Comparison]) -> Table:
    """Every strategy of every comparison, for a paper."""
    cells = _NAME | _PARAMETERS | _COSTS | _SCORE | {"share of full": _AGAINST["share of full"]} | _FRONT
    rows = tuple(
        (*_names(comparison), *(cell(point) for cell in cells.values()))
        for comparison in comparisons
        for point in comparison.strategies
    )
    words = frozenset((*_NAMES, "strategy"))
    return Table(title="Strategies", headers=(*_NAMES, *cells), rows=rows, left=words)


def _summary(comparison: Comparison) -> tuple[str, ...]:
    full, top, enough = (
        comparison.strategy("full"),
        comparison_wording.best(comparison),
        comparison_wording.cheapest(comparison),
    )
    return (
        text.one_line(comparison.metric, 40),
        text.score(None if full is None else full.mean),
        text.DASH if top is None else comparison_wording.name(top),
        text.score(None if top is None else top.mean),
        text.DASH if enough is None else comparison_wording.name(enough),
        text.score(None if enough is None else enough.mean),
        text.share(None if enough is None else enough.ratio),
        *_parts(enough, full),
    )


def _parts(point: StrategyPoint | None, full: StrategyPoint | None) -> tuple[str, str, str]:
    if point is None or full is None:
        return text.DASH, text.DASH, text.DASH
    return (
        text.part(point.trained_parameters, full.trained_parameters),
        text.part(point.seconds, full.seconds),
        text.part(point.peak_bytes, full.peak_bytes),
    )


def _heading(comparison: Comparison) -> str:
    return f"Strategies, score and cost ({text.one_line(comparison.metric, 40)})"


def _names(comparison: Comparison) -> tuple[str, str]:
    return text.one_line(comparison.task, 60), text.one_line(comparison.model, 60)


def _by_seed() -> dict[str, Cell]:
    return {"by seed": lambda point: _scores(point.scores)}


def _scores(scores: Sequence[float]) -> str:
    return " ".join(text.score(one) for one in scores) or text.DASH


def _yes(is_so: bool) -> str:
    return "yes" if is_so else ""


def _table(comparison: Comparison, title: str, cells: dict[str, Cell]) -> Table:
    rows = tuple(tuple(cell(point) for cell in cells.values()) for point in comparison.strategies)
    return Table(title=title, headers=tuple(cells), rows=rows, left=_WORDS)
