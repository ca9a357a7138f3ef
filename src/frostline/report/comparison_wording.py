"""What a comparison of strategies says, in words: what scores highest, what is enough for less, how it was run."""

from __future__ import annotations

from typing import Literal

from frostline import stats
from frostline.analysis import Comparison, Interval, StrategyPoint, is_on_front
from frostline.report import text, wording

KEEP = 0.9
"""share of the full score that the cheapest strategy worth naming keeps"""
CostKind = Literal["seconds", "parameters", "memory"]
COSTS: tuple[CostKind, ...] = ("seconds", "parameters", "memory")
PROTOCOL_WORDS = {
    "paper": "the full model's best rate, chosen on dev, for every strategy",
    "tuned": "a rate for each strategy, chosen on rows held out of train",
}
NOTE = (
    "Strategies: the front is by time, and on it no other scores as high in less, or higher in the same. "
    "Bytes a task: what each further task adds to store, all that trained, fp32. "
    "Seconds: training and evaluating one run, frozen layers apart. 95% intervals: new seeds on this dev set."
)


def name(point: StrategyPoint) -> str:
    """The strategy, as the user wrote it."""
    return text.one_line(point.name, 40)


def best(comparison: Comparison) -> StrategyPoint | None:
    """The strategy with the highest mean score; of equal ones the quickest; None where no run finished."""
    scored = [point for point in comparison.strategies if point.mean is not None]
    return max(scored, key=lambda point: (point.mean or 0.0, -_seconds(point)), default=None)


def cheapest(comparison: Comparison) -> StrategyPoint | None:
    """The quickest strategy on the front that keeps the share of the full score; None where that means nothing."""
    full = comparison.strategy("full")
    if full is None or full.mean is None or full.ratio is None:
        return None
    bar = stats.bar_of(KEEP, full.mean)
    enough = [p for p in comparison.strategies if p.is_pareto and p.mean is not None and stats.reaches(p.mean, bar)]
    return min(enough, key=_seconds, default=None)


def answer(comparison: Comparison) -> str:
    """What scores highest, and what is enough for less."""
    top = best(comparison)
    if top is None:
        return "No run finished, so there is nothing to compare."
    first = f"{name(top)} scores highest: {_scored(comparison, top)}, chance {text.score(comparison.chance)}."
    return f"{first} {_second(comparison, top)}"


def short_answer(comparison: Comparison) -> str:
    """The answer for the head of a chart, without intervals and costs."""
    top, enough = best(comparison), cheapest(comparison)
    if top is None:
        return f"Strategies and {_metric(comparison)}"
    first = f"{name(top)} scores highest"
    if enough is None or enough.name == "full":
        return first
    kept = f"{text.share(enough.ratio)} of the full score"
    if enough.name == top.name:
        return f"{first}, with {kept}, and nothing quicker keeps {text.keep_share(KEEP)}"
    return f"{first}; {name(enough)} keeps {kept}"


def how_run(comparison: Comparison) -> list[tuple[str, str]]:
    """How the comparison came to be, as names and what they are."""
    seeds = sorted({seed for point in comparison.strategies for seed in point.seeds})
    return [
        ("protocol", f"{comparison.protocol} ({PROTOCOL_WORDS[comparison.protocol]})"),
        ("learning rates", _rates(comparison)),
        ("seeds", ", ".join(str(seed) for seed in seeds) or text.DASH),
        *wording.runs_and_cost(comparison.runs, comparison.cost),
    ]


def cost_of(point: StrategyPoint, kind: CostKind) -> float | None:
    """What one run of a strategy takes."""
    if kind == "seconds":
        return point.seconds
    return point.trained_parameters if kind == "parameters" else point.peak_bytes


def front(comparison: Comparison, kind: CostKind) -> list[StrategyPoint]:
    """The strategies that none beats at a cost, the cheapest first."""
    if kind == "seconds":
        found = [point for point in comparison.strategies if point.is_pareto]
    else:
        # The same rule as for time, with another cost in its place.
        costed = [point.replace(seconds=cost_of(point, kind)) for point in comparison.strategies]
        pairs = zip(comparison.strategies, costed, strict=True)
        found = [point for point, other in pairs if is_on_front(other, costed)]
    return sorted(found, key=lambda point: cost_of(point, kind) or 0.0)


def _seconds(point: StrategyPoint) -> float:
    return float("inf") if point.seconds is None else point.seconds


def _metric(comparison: Comparison) -> str:
    return text.one_line(comparison.metric, 40)


def _scored(comparison: Comparison, point: StrategyPoint) -> str:
    return f"{_metric(comparison)} {text.score(point.mean)}{_interval(text.score_interval(point.ci), point.ci)}"


def _interval(said: str, ends: Interval | None) -> str:
    return "" if ends is None else f" {said}"


def _second(comparison: Comparison, top: StrategyPoint) -> str:
    """The sentence on what is enough for less."""
    full, enough = comparison.strategy("full"), cheapest(comparison)
    if full is None:
        return "Shares of the full score are not given: full is not among the strategies."
    if full.mean is None:
        return "No run of full finished, so no strategy can be held against it."
    if full.ratio is None:
        return f"Shares of the full score mean nothing here: {text.score(full.mean)} is not above 0."
    share = f"{text.keep_share(KEEP)} of the full score"
    if enough is None:
        return f"No strategy on the front keeps {share}."
    if enough.name == "full":
        return f"No quicker strategy keeps {share}."
    kept = f"{text.share(enough.ratio)}{_interval(text.share_interval(enough.ratio_ci), enough.ratio_ci)}"
    is_top = enough.name == top.name
    which = "It is also" if is_top else f"{name(enough)} is"
    own = "" if is_top else f"{_metric(comparison)} {text.score(enough.mean)} "
    against = f"{own}against {text.score(full.mean)}"
    return f"{which} the quickest that keeps {share}: {kept} ({against}) with {wording.savings(enough, full)}."


def _rates(comparison: Comparison) -> str:
    tried = len(comparison.line_search)
    used = list(
        dict.fromkeys(point.learning_rate for point in comparison.strategies if point.learning_rate is not None)
    )
    said = ", ".join(text.learning_rate(rate) for rate in sorted(used)) or text.DASH
    if not tried:
        return f"{said} (given)"
    if comparison.protocol == "tuned":
        return f"{said} (each strategy's best of those tried, {text.counted(tried, 'run')} in all)"
    return f"{said} (best of {tried} in the line search on full)"
