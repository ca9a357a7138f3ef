"""What a comparison says in words: the best strategy, the fastest that is good enough, how it was run."""

from __future__ import annotations

from typing import Literal

from frostline import stats
from frostline.analysis import Comparison, Interval, StrategyPoint, is_on_front
from frostline.report import numbers
from frostline.report.wording import curve_words, run_words
from frostline.report.wording.failure_words import advice, failed_runs, with_failed

KEEP = 0.9
"""share of the full score that the fastest strategy in the answer must keep"""
CostKind = Literal["seconds", "parameters", "memory"]
COSTS: tuple[CostKind, ...] = ("seconds", "parameters", "memory")
PROTOCOL_WORDS = {
    "paper": "the best learning rate of the full model, chosen on dev, for every strategy",
    "tuned": "a learning rate for each strategy, chosen on rows held out of train",
}
NOTE = (
    "Front: no other strategy scores as high in less time, or higher in the same time. "
    "Bytes per task: disk space for each additional task, all trained parameters in fp32. "
    "Seconds: time to train and evaluate one run, without computing the frozen layers. "
    "95% intervals: new seeds on this dev set. Failed: the run learned nothing."
)


def name(point: StrategyPoint) -> str:
    """The strategy as the user wrote it."""
    return numbers.one_line(point.name, 40)


def title(comparison: Comparison) -> str:
    """Which model on which task, and how many strategies."""
    n_compared = len(comparison.strategies)
    count = "1 strategy" if n_compared == 1 else f"{numbers.count(n_compared)} strategies"
    return f"{curve_words.title(comparison)}: {count}"


def best(comparison: Comparison) -> StrategyPoint | None:
    """The strategy with the highest mean score, the faster one if equal; None if no run finished."""
    scored = [point for point in comparison.strategies if point.mean is not None]
    return max(scored, key=lambda point: (point.mean or 0.0, -_seconds(point)), default=None)


def cheapest(comparison: Comparison) -> StrategyPoint | None:
    """The fastest strategy on the front that keeps the share of the full score; None if there is none."""
    full = comparison.strategy("full")
    if full is None or full.mean is None or full.ratio is None:
        return None
    bar = stats.bar_of(KEEP, full.mean)
    enough = [p for p in comparison.strategies if p.is_pareto and p.mean is not None and stats.reaches(p.mean, bar)]
    return min(enough, key=_seconds, default=None)


def answer(comparison: Comparison) -> str:
    """The best strategy, and the fastest that keeps the share."""
    top = best(comparison)
    if top is None:
        return "No run finished, so there is nothing to compare."
    scored = f"{_scored(comparison, top)}, chance {numbers.score(comparison.chance)}"
    return f"{name(top)}{with_failed(top)} scores highest: {scored}. {_second(comparison, top)}"


def short_answer(comparison: Comparison) -> str:
    """The answer as the title of a chart, without intervals and costs."""
    top, enough = best(comparison), cheapest(comparison)
    if top is None:
        return f"Strategies and {_metric(comparison)}"
    first = f"{name(top)}{with_failed(top)} scores highest"
    if enough is None or enough.name == "full":
        return first
    kept = f"{numbers.share(enough.ratio)} of the full score"
    if enough.name == top.name:
        return f"{first}, with {kept}, and nothing faster keeps {numbers.keep_share(KEEP)}"
    return f"{first}; {name(enough)}{with_failed(enough)} keeps {kept}"


def how_run(comparison: Comparison) -> list[tuple[str, str]]:
    """How the comparison was run, as names and values."""
    seeds = sorted({seed for point in comparison.strategies for seed in point.seeds})
    return [
        ("protocol", f"{comparison.protocol} ({PROTOCOL_WORDS[comparison.protocol]})"),
        ("learning rates", _rates(comparison)),
        ("seeds", ", ".join(str(seed) for seed in seeds) or numbers.DASH),
        *run_words.runs_and_cost(comparison.runs, comparison.cost),
        *run_words.model_folder(comparison),
    ]


def cost_of(point: StrategyPoint, kind: CostKind) -> float | None:
    """The cost of one run of a strategy."""
    if kind == "seconds":
        return point.seconds
    return point.trained_parameters if kind == "parameters" else point.peak_bytes


def front(comparison: Comparison, kind: CostKind) -> list[StrategyPoint]:
    """The strategies on the front for a cost, the cheapest first."""
    if kind == "seconds":
        found = [point for point in comparison.strategies if point.is_pareto]
    else:
        # The same rule as for time, with another cost in place of seconds.
        costed = [point.replace(seconds=cost_of(point, kind)) for point in comparison.strategies]
        pairs = zip(comparison.strategies, costed, strict=True)
        found = [point for point, other in pairs if is_on_front(other, costed)]
    return sorted(found, key=lambda point: cost_of(point, kind) or 0.0)


def _seconds(point: StrategyPoint) -> float:
    return float("inf") if point.seconds is None else point.seconds


def _metric(comparison: Comparison) -> str:
    return numbers.one_line(comparison.metric, 40)


def _scored(comparison: Comparison, point: StrategyPoint) -> str:
    return f"{_metric(comparison)} {numbers.score(point.mean)}{_interval(numbers.score_interval(point.ci), point.ci)}"


def _interval(said: str, ends: Interval | None) -> str:
    return "" if ends is None else f" {said}"


def _second(comparison: Comparison, top: StrategyPoint) -> str:
    """The sentence about the fastest strategy that keeps the share."""
    full, enough = comparison.strategy("full"), cheapest(comparison)
    if full is None:
        return "Shares of the full score are not given: `full` is not among the strategies."
    if full.mean is None:
        return "No run of `full` finished, so no strategy can be compared with it."
    if full.ratio is None or not curve_words.has_learned(full):
        scored = f"{_metric(comparison)} {numbers.score(full.mean)}, chance {numbers.score(comparison.chance)}"
        return f"The full model did not learn: {scored}; {advice(full, comparison.chance)}."
    share = f"{numbers.keep_share(KEEP)} of the full score"
    if enough is None:
        return f"No strategy on the front keeps {share}."
    if enough.name == "full":
        return f"No faster strategy keeps {share}."
    interval = enough.ratio_ci_dev or enough.ratio_ci  # earlier releases have no intervals with examples
    kept = f"{numbers.share(enough.ratio)}{_interval(numbers.share_interval(interval), interval)}"
    is_top = enough.name == top.name
    costs = curve_words.savings(enough, full)
    if curve_words.is_constant(comparison, enough):
        failed = f"{failed_runs(enough)} failed"
        return f"{name(enough)} keeps {kept} of the full score, but does no better than a constant answer ({failed})."
    which = "It is also" if is_top else f"{name(enough)}{with_failed(enough)} is"
    own = "" if is_top else f"{_metric(comparison)} {numbers.score(enough.mean)} "
    against = f"{own}against {numbers.score(full.mean)}"
    return f"{which} the fastest that keeps {share}: {kept} ({against}) with {costs}."


def _rates(comparison: Comparison) -> str:
    tried = len(comparison.line_search)
    used = list(
        dict.fromkeys(point.learning_rate for point in comparison.strategies if point.learning_rate is not None)
    )
    said = ", ".join(numbers.learning_rate(rate) for rate in sorted(used)) or numbers.DASH
    if not tried:
        return f"{said} (given)"
    if comparison.protocol == "tuned":
        return f"{said} (the best for each strategy, {numbers.counted(tried, 'run')} in all)"
    return f"{said} (best of {tried} in the line search on full)"
