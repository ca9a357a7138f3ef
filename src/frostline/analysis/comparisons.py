"""Finished runs of several strategies → a comparison of quality and cost under one protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frostline import stats
from frostline.analysis.curve_records import CurveCost, Interval, Replicated, RunCounts
from frostline.analysis.points import Frame, Replicates, make_frame, pair_with_full, replicated, unless_equal
from frostline.analysis.resampling import RESAMPLING_SEED
from frostline.analysis.warnings import failed_words, run_warnings
from frostline.records.requests import StudyRequest
from frostline.records.results import RunResult
from frostline.records.serial import Record, added_later, if_set
from frostline.records.specs import Protocol

_NUMBER_BYTES = 4
"""size of one fp32 weight"""


@dataclass(frozen=True, kw_only=True)
class StrategyPoint(Replicated):
    """The runs of one strategy."""

    n_frozen: int | None
    """layers frozen from the bottom; None: the strategy is not a depth"""
    name: str
    """the strategy as the user wrote it"""
    stored_bytes: int | None
    """disk space per additional task: all trained parameters in fp32; None if every run crashed"""
    is_pareto: bool
    """no other strategy scores as high in less time, or higher in the same time"""
    p_pareto: float | None = added_later(None)
    """how probable it is that this holds for the true means, over new seeds and new dev examples; None where a
    strategy has fewer than three runs"""
    difference_ci_adjusted: Interval | None = added_later(None)
    """interval of the difference from full: new seeds and new dev examples. Those of all strategies hold at once with
    95% confidence"""


@dataclass(frozen=True, kw_only=True)
class TriedFor(Record):
    """One run that chose a rate."""

    name: str
    """the strategy that needs the rate, as the user wrote it; `full` if one rate is chosen for all"""
    learning_rate: float
    """the rate"""
    score: float | None
    """its score on the rows that decide: held out of train (`tuned`) or dev (`paper`); None if the run crashed"""


@dataclass(frozen=True, kw_only=True)
class ProbePoint(Record):
    """The score of a linear probe: a linear fit to the outputs of one layer."""

    depth: int
    """layers below the probe (0: embeddings only)"""
    mean: float
    """mean score over the seeds; a fit that draws nothing gives each the same score"""
    ci: Interval | None
    """95% interval of the mean (Student's t); None below three seeds, or if all scores are the same"""
    scores: tuple[float, ...]
    """one score per seed"""


@dataclass(frozen=True, kw_only=True)
class Comparison(Record):
    """The quality and cost of each strategy."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    metric: str
    """name of the metric that gives the score"""
    chance: float
    """best score of a constant prediction on dev"""
    n_layers: int
    """number of layers of the model"""
    protocol: Protocol
    """how learning rates were chosen"""
    line_search: tuple[TriedFor, ...]
    """every learning rate that was tried; empty if a rate was given"""
    strategies: tuple[StrategyPoint, ...]
    """in the order of the request"""
    probes: tuple[ProbePoint, ...]
    """the score of `features` at every layer; empty without that strategy"""
    cost: CurveCost
    """time and disk use"""
    runs: RunCounts
    """how many runs were done, reused, crashed"""
    warnings: tuple[str, ...]
    """what the reader should know about data, model and statistics"""
    per_class: int | None = if_set(None)
    """training rows of each class, drawn again by every seed; None: all runs train on the same rows"""

    @property
    def n_crashed(self) -> int:
        """Runs that raised an error or died in this call."""
        return self.runs.crashed

    def strategy(self, name: str) -> StrategyPoint | None:
        """The strategy with this name; None if there is none."""
        return next((point for point in self.strategies if point.name == name), None)


def build_comparison(
    *,
    request: StudyRequest,
    groups: Mapping[str, Replicates],
    n_trained: Mapping[str, int],
    n_frozen: Mapping[str, int | None],
    line_search: Sequence[TriedFor],
    cost: CurveCost,
    runs: RunCounts,
) -> Comparison:
    """The comparison of finished runs; a FrostlineError if none finished. Mappings are keyed by strategy name.

    Args:
        request: the request.
        groups: the runs of each strategy.
        n_trained: in how many layers each strategy trains something.
        n_frozen: how many layers each strategy freezes from the bottom; None if it is not a depth.
        line_search: the learning rates that were tried.
        cost: time and disk use.
        runs: how many runs were done, reused, crashed.
    """
    full = groups.get("full")
    frame = make_frame(request.protocol, groups, full)
    points = {name: replicated(n_frozen[name], group, frame) for name, group in groups.items()}
    on_front = _front_probabilities(groups, points)
    adjusted = {name: _adjusted_interval(name, groups, frame) for name in groups}
    comparison = Comparison(
        model=request.model,
        task=request.task.name,
        metric=frame.metric,
        chance=frame.chance,
        n_layers=frame.n_layers,
        protocol=request.protocol,
        line_search=tuple(line_search),
        strategies=tuple(
            _strategy_point(name, point.replace(trained_layers=n_trained[name]), points.values()).replace(
                p_pareto=on_front.get(name), difference_ci_adjusted=adjusted[name]
            )
            for name, point in points.items()
        ),
        probes=probe_points([result for group in groups.values() for result in group.finished()]),
        cost=cost,
        runs=runs,
        warnings=(),
        per_class=_per_class(request, groups),
    )
    missing = {name: group.missing_seeds() for name, group in groups.items()}
    warnings = [*_warnings(comparison, missing), *run_warnings(groups.values())]
    return comparison.replace(warnings=tuple(dict.fromkeys(warnings)))


def _per_class(request: StudyRequest, groups: Mapping[str, Replicates]) -> int | None:
    """Training rows of each class, where every seed draws equally many."""
    if not request.is_balanced:
        return None
    first = next(result for group in groups.values() for result in group.finished())
    return first.n_train // len(first.label_names)


def _adjusted_interval(name: str, groups: Mapping[str, Replicates], frame: Frame) -> Interval | None:
    """The interval of a difference from full that pays for the number of strategies (Bonferroni)."""
    if name == "full" or "full" not in groups:
        return None
    pair = pair_with_full(groups[name], frame)
    return None if pair is None else pair.difference_interval(confidence=1 - 0.05 / (len(groups) - 1))


def _front_probabilities(groups: Mapping[str, Replicates], points: Mapping[str, Replicated]) -> dict[str, float]:
    """How often each strategy is on the front when true means are drawn around the observed ones."""
    if any(len(group.resampled) < stats.MIN_SEEDS for group in groups.values()):
        return {}
    rng = np.random.default_rng(RESAMPLING_SEED)
    scored = [group.scored(list(group.resampled)) for group in groups.values()]
    rows = rng.integers(len(scored[0].resampled), size=stats.N_DRAWN)
    scores = np.stack([stats.drawn_means(one, rows, rng) for one in scored])
    seconds = np.array([points[name].seconds for name in groups])[:, None]
    better = (scores[None] >= scores[:, None]) & (seconds[None] <= seconds[:, None])
    better &= (scores[None] > scores[:, None]) | (seconds[None] < seconds[:, None])
    shares = 1 - better.any(axis=1).mean(axis=1)
    return dict(zip(groups, shares.tolist(), strict=True))


def probe_points(results: Iterable[RunResult]) -> tuple[ProbePoint, ...]:
    """The score at every layer, from the results that have probes."""
    scores: dict[int, list[float]] = {}
    for result in results:
        for probe in result.probes:
            scores.setdefault(probe.depth, []).append(probe.score)
    return tuple(
        ProbePoint(
            depth=depth,
            mean=stats.mean(values),
            ci=unless_equal(values, stats.t_interval(values)),
            scores=tuple(values),
        )
        for depth, values in sorted(scores.items())
    )


def _strategy_point(name: str, point: Replicated, others: Iterable[Replicated]) -> StrategyPoint:
    n_stored = point.trained_parameters
    return StrategyPoint(
        **vars(point),
        name=name,
        stored_bytes=None if n_stored is None else _NUMBER_BYTES * n_stored,
        is_pareto=is_on_front(point, others),
    )


def is_on_front(point: Replicated, others: Iterable[Replicated]) -> bool:
    """Whether no other point scores as high in less time, or higher in the same time."""
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


def _warnings(comparison: Comparison, missing: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    for point in comparison.strategies:
        if seeds := missing[point.name]:
            listed = ", ".join(map(str, seeds))
            yield f"{point.name}: crashed with seed {listed}; " + (
                "it has no score" if point.mean is None else "missing from its mean"
            )
        if point.n_failed:
            yield f"{point.name}: {failed_words(point)} (chance {comparison.chance:.4g})"
    yield from _missing_ratios(comparison)
    yield from _rate_warnings(comparison)
    if comparison.cost.prefix_seconds:
        yield (
            "times do not include computing the frozen layers, which is done once for all runs: "
            f"{comparison.cost.prefix_seconds:.2g} s in total"
        )
    if any(0 < len(point.seeds) < stats.MIN_SEEDS for point in comparison.strategies):
        yield f"fewer than {stats.MIN_SEEDS} seeds, so there are no intervals"
    yield "intervals are pointwise: each holds on its own; with many strategies the best is partly lucky"


def _missing_ratios(comparison: Comparison) -> Iterator[str]:
    """Why differences and ratios to the full model are missing."""
    full = comparison.strategy("full")
    if full is None:
        yield "differences and ratios are not given: `full` is not among the strategies"
    elif full.mean is None:
        yield "differences and ratios are not given: no run of `full` finished"
    else:
        said = f"the full model's mean {comparison.metric} is {full.mean:.4g}"
        if full.ratio is None:
            yield f"ratio is not given: {said}, not above 0"
        if full.ratio_above_chance is None:
            yield f"ratio_above_chance is not given: {said}, not above chance ({comparison.chance:.4g})"


def _rate_warnings(comparison: Comparison) -> Iterator[str]:
    """How the choice of rates may affect strategies."""
    if comparison.protocol == "paper" or not comparison.line_search:
        others = [point.name for point in comparison.strategies if point.name != "full" and point.learning_rate]
        if others:
            whose = "the full model's rate" if comparison.line_search else "one rate that was given"
            yield (
                f"{', '.join(others)} trained at {whose}; LoRA, biases, adapters and heads need far higher rates than "
                "a whole model, so their scores may be too low; --protocol tuned without --lr chooses a rate for each"
            )
    for point in comparison.strategies:
        tried = [one.learning_rate for one in comparison.line_search if one.name == point.name]
        if len(tried) > 1 and point.learning_rate == max(tried):
            rate = f"{point.learning_rate:g}"
            yield f"{point.name}: its rate {rate} is the highest that was tried; a higher rate may be better"
