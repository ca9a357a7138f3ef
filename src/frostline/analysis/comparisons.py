"""Finished runs of several strategies → a comparison: quality against cost, under one protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from frostline import stats
from frostline.analysis.points import Replicates, make_frame, make_point
from frostline.analysis.records import CurveCost, Interval, Point, RunCounts
from frostline.records.requests import CurveSpec
from frostline.records.results import RunResult
from frostline.records.serial import Record
from frostline.records.specs import Protocol

_NUMBER_BYTES = 4
"""of a weight, fp32"""


@dataclass(frozen=True, kw_only=True)
class StrategyPoint(Point):
    """The replicates of one strategy."""

    name: str
    """the strategy, as the user wrote it"""
    stored_bytes: int | None
    """what each further task adds to store: all that trained, fp32; None when every run crashed"""
    is_pareto: bool
    """no other strategy scores as high in less time, or higher in the same"""


@dataclass(frozen=True, kw_only=True)
class TriedFor(Record):
    """One run that chose a rate."""

    name: str
    """the strategy it was chosen for, as the user wrote it; `full` where one rate is chosen for all"""
    learning_rate: float
    """the rate"""
    score: float | None
    """its score on the rows that choose: held out of train (`tuned`) or dev (`paper`); None when the run crashed"""


@dataclass(frozen=True, kw_only=True)
class ProbePoint(Record):
    """The score of a linear fit to what one layer puts out."""

    depth: int
    """layers below (0: the embeddings)"""
    mean: float
    """mean score over the seeds, which draw the held-out rows"""
    ci: Interval | None
    """95% interval of the mean (Student's t); None below three seeds or where all are alike"""
    scores: tuple[float, ...]
    """one a seed"""


@dataclass(frozen=True, kw_only=True)
class Comparison(Record):
    """What each strategy reaches, and what it costs."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    metric: str
    """what a score is"""
    chance: float
    """best score of a constant prediction on dev"""
    n_layers: int
    """layers of the model"""
    protocol: Protocol
    """how rates were chosen"""
    line_search: tuple[TriedFor, ...]
    """every rate that was tried; empty when one was given"""
    strategies: tuple[StrategyPoint, ...]
    """in the order asked for"""
    probes: tuple[ProbePoint, ...]
    """of `features`, the score at every layer; empty where it was not among them"""
    cost: CurveCost
    """time and space"""
    runs: RunCounts
    """how many runs were done, reused, crashed"""
    warnings: tuple[str, ...]
    """what a careful reader should know"""

    def strategy(self, name: str) -> StrategyPoint | None:
        """The strategy that the user wrote so."""
        return next((point for point in self.strategies if point.name == name), None)


def build_comparison(
    *,
    request: CurveSpec,
    groups: Mapping[str, Replicates],
    n_trained: Mapping[str, int],
    n_frozen: Mapping[str, int | None],
    line_search: Sequence[TriedFor],
    cost: CurveCost,
    runs: RunCounts,
) -> Comparison:
    """The comparison of finished runs, by the strategies' names; a FrostlineError where none finished.

    Args:
        request: what was asked.
        groups: the runs of each strategy.
        n_trained: in how many layers each trains something.
        n_frozen: how many layers each freezes from the bottom, where it is a depth.
        line_search: what was tried to choose rates.
        cost: what it took.
        runs: how the runs came to be.
    """
    full = groups.get("full")
    frame = make_frame(request.protocol, groups, full)
    points = {name: make_point(n_frozen[name], group, frame) for name, group in groups.items()}
    comparison = Comparison(
        model=request.model,
        task=request.task.name,
        metric=frame.metric,
        chance=frame.chance,
        n_layers=frame.n_layers,
        protocol=request.protocol,
        line_search=tuple(line_search),
        strategies=tuple(
            _strategy_point(name, point.replace(trained_layers=n_trained[name]), points.values())
            for name, point in points.items()
        ),
        probes=probe_points([result for group in groups.values() for result in group.finished()]),
        cost=cost,
        runs=runs,
        warnings=(),
    )
    missing = {name: group.missing_seeds() for name, group in groups.items()}
    from_runs = [warning for group in groups.values() for result in group.finished() for warning in result.warnings]
    return comparison.replace(warnings=tuple(dict.fromkeys([*_cautions(comparison, missing), *from_runs])))


def probe_points(results: Iterable[RunResult]) -> tuple[ProbePoint, ...]:
    """The score at every layer, of those results that are fits to features."""
    scores: dict[int, list[float]] = {}
    for result in results:
        for probe in result.probes:
            scores.setdefault(probe.depth, []).append(probe.score)
    return tuple(
        ProbePoint(depth=depth, mean=stats.mean(values), ci=stats.t_interval(values), scores=tuple(values))
        for depth, values in sorted(scores.items())
    )


def _strategy_point(name: str, point: Point, others: Iterable[Point]) -> StrategyPoint:
    n_stored = point.trained_parameters
    return StrategyPoint(
        **vars(point),
        name=name,
        stored_bytes=None if n_stored is None else _NUMBER_BYTES * n_stored,
        is_pareto=is_on_front(point, others),
    )


def is_on_front(point: Point, others: Iterable[Point]) -> bool:
    """Whether no other scores as high in less time, or higher in the same."""
    if point.mean is None or point.seconds is None:
        return False
    return not any(
        other.mean is not None
        and other.seconds is not None
        and other.mean >= point.mean
        and other.seconds <= point.seconds
        and (other.mean, other.seconds) != (point.mean, point.seconds)
        for other in others
    )


def _cautions(comparison: Comparison, missing: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    for point in comparison.strategies:
        if seeds := missing[point.name]:
            listed = ", ".join(map(str, seeds))
            yield f"{point.name}: crashed with seed {listed}; " + (
                "it has no score" if point.mean is None else "missing from its mean"
            )
        if point.n_failed:
            runs = f"{point.n_failed} of {len(point.scores)} runs"
            yield f"{point.name}: {runs} ended at or below chance ({comparison.chance:.4g})"
    yield from _of_nulls(comparison)
    yield from _of_rates(comparison)
    if comparison.cost.prefix_seconds:
        yield (
            "times leave out what is computed of frozen layers, once for all runs: "
            f"{comparison.cost.prefix_seconds:.2g} s in all"
        )
    if any(0 < len(point.seeds) < stats.MIN_SEEDS for point in comparison.strategies):
        yield f"fewer than {stats.MIN_SEEDS} seeds, hence no intervals"
    yield "intervals are pointwise: each holds on its own; with many strategies the best is partly lucky"


def _of_nulls(comparison: Comparison) -> Iterator[str]:
    """Why numbers that are held against the full model are not given."""
    full = comparison.strategy("full")
    if full is None:
        yield "differences and ratios are not given: full is not among the strategies"
    elif full.mean is None:
        yield "differences and ratios are not given: no run of full finished"
    else:
        said = f"the full model's mean {comparison.metric} is {full.mean:.4g}"
        if full.ratio is None:
            yield f"ratio is not given: {said}, not above 0"
        if full.ratio_above_chance is None:
            yield f"ratio_above_chance is not given: {said}, not above chance ({comparison.chance:.4g})"


def _of_rates(comparison: Comparison) -> Iterator[str]:
    """What the choice of rates does to the strategies."""
    if comparison.protocol == "paper" or not comparison.line_search:
        others = [point.name for point in comparison.strategies if point.name != "full" and point.learning_rate]
        if others:
            whose = "the full model's rate" if comparison.line_search else "one rate that was given"
            yield (
                f"{', '.join(others)} trained at {whose}; updates, biases, adapters and heads want far larger ones "
                "than a whole model, so that they may be shown below what they can do; --protocol tuned without --lr "
                "gives each its own"
            )
    for point in comparison.strategies:
        tried = [one.learning_rate for one in comparison.line_search if one.name == point.name]
        if len(tried) > 1 and point.learning_rate == max(tried):
            rate = f"{point.learning_rate:g}"
            yield f"{point.name}: its rate {rate} is the highest that was tried; a higher one may be better"
