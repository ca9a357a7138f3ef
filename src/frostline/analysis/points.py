"""Runs that differ only in the seed → one point: mean, intervals, comparison with the full model.

Every number that a report shows about these runs is computed here. This module does not know how runs are made or
stored.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frostline import stats
from frostline.analysis.curve_records import Interval, OtherMetric, Replicated
from frostline.analysis.resampling import dev_scores, has_failed
from frostline.errors import DataError, FrostlineError
from frostline.kinds import kind_of
from frostline.records.depth import FULL, Depth
from frostline.records.results import RunResult
from frostline.records.specs import Protocol, RunSpec, Scale


@dataclass(frozen=True, kw_only=True)
class Replicates:
    """The runs of one depth or strategy, which differ only in the seed, and the results of those that finished."""

    specs: Sequence[RunSpec]
    """one spec per seed"""
    results: Sequence[RunResult]
    """results in any order"""

    def finished(self) -> tuple[RunResult, ...]:
        """The results in the order of the specs."""
        by_key = {result.key: result for result in self.results}
        return tuple(by_key[spec.key] for spec in self.specs if spec.key in by_key)

    @functools.cached_property
    def resampled(self) -> dict[int, stats.Floats]:
        """The scores on resampled dev rows by seed, (resamples,) each; empty below two runs."""
        results = self.finished()
        if len(results) < 2:
            return {}
        return {result.spec.seed: scores for result, scores in zip(results, dev_scores(results), strict=True)}

    @functools.cached_property
    def failed(self) -> frozenset[int]:
        """The seeds whose runs learned nothing."""
        return frozenset(result.spec.seed for result in self.finished() if has_failed(result))

    @property
    def has_mostly_failed(self) -> bool:
        """Whether half of the runs or more learned nothing."""
        return 2 * len(self.failed) >= len(self.finished())

    def scored(self, seeds: Sequence[int]) -> stats.Scored:
        """The scores of some of the seeds."""
        by_seed = {result.spec.seed: result.score for result in self.finished()}
        resampled = np.stack([self.resampled[seed] for seed in seeds], axis=1)
        return stats.Scored(np.array([by_seed[seed] for seed in seeds]), resampled)

    def missing_seeds(self) -> tuple[int, ...]:
        """The seeds whose runs did not finish."""
        there = {result.key for result in self.results}
        return tuple(spec.seed for spec in self.specs if spec.key not in there)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What all points of one curve or comparison are compared with."""

    metric: str
    chance: float
    n_layers: int
    n_rows: int
    """number of dev rows"""
    full_runs: Replicates | None
    """the full model, if it was run"""

    @functools.cached_property
    def full(self) -> Mapping[int, float]:
        """Scores of the full model by seed."""
        runs = () if self.full_runs is None else self.full_runs.finished()
        return {result.spec.seed: result.score for result in runs}

    @property
    def full_mean(self) -> float | None:
        """Mean score of the full model; None if it has no run."""
        return stats.mean(list(self.full.values())) if self.full else None

    def base(self, scale: Scale) -> float:
        """The score that counts as nothing on a scale."""
        return 0.0 if scale == "ratio" else self.chance


def make_frame(protocol: Protocol, groups: Mapping[str, Replicates], full: Replicates | None) -> Frame:
    """What these groups of runs, given by name, are compared with; a FrostlineError if they do not belong together."""
    for name, group in groups.items():
        _check_alike(name, group)
    _check_comparable(protocol, [group.specs[0] for group in groups.values()])
    results = [result for group in groups.values() for result in group.finished()]
    if not results:
        raise FrostlineError("every run crashed, so there is no result; see the errors of the runs")
    _check_same_data(results)
    metric = results[0].spec.task.metric
    if metric is None:
        raise FrostlineError("the runs do not say what their metric is; their task is not resolved")
    first = results[0]
    return Frame(metric=metric, chance=chance_of(first), n_layers=first.n_layers, n_rows=first.n_dev, full_runs=full)


def chance_of(result: RunResult) -> float:
    """The best score without reading a text, from the run's dev labels: what older runs store is defined otherwise."""
    task = result.spec.task
    return kind_of(task).chance(task.metric or "", result.predictions.labels.array())


def _check_alike(what: str, group: Replicates) -> None:
    """Refuse runs that are not replicates: a mean never mixes specs that differ in more than the seed."""
    if len({spec.with_seed(0).key for spec in group.specs}) != 1:
        raise FrostlineError(f"the runs of {what} differ in more than the seed, or there are none; they have no mean")
    if len({spec.seed for spec in group.specs}) != len(group.specs):
        raise FrostlineError(f"the runs of {what} have a seed twice")
    if group.specs[0].role != "replicate":
        raise FrostlineError(f"the runs of {what} are of the line search, which never enters a mean")
    if {result.key for result in group.results} - {spec.key for spec in group.specs}:
        raise FrostlineError(f"there are results of {what} that were not asked for")


def _check_comparable(protocol: Protocol, specs: Sequence[RunSpec]) -> None:
    """Refuse to compare runs that differ in more than what trains (and, in protocol tuned, the learning rate)."""
    descending = [spec for spec in specs if spec.learning_rate]  # a closed-form fit has no rate
    alike = [
        spec.with_seed(0).replace(strategy="full", is_cached=False, cache_dtype="fp32", fit_seed=None)
        for spec in descending or specs
    ]
    if protocol == "tuned":
        alike = [spec.replace(learning_rate=0.0) for spec in alike]
    if len({spec.key for spec in alike}) != 1:
        raise FrostlineError("the runs differ in more than what trains; they cannot be compared")


def _check_same_data(results: Sequence[RunResult]) -> None:
    seen = {(result.n_layers, result.predictions.rows, result.predictions.labels) for result in results}
    if len(seen) != 1:
        raise DataError("the runs were not scored on the same dev rows of the same task; they cannot be compared")


def depth_of(result: RunResult) -> Depth | None:
    """The depth of a run; None if its strategy is not a depth."""
    if result.plan.n_frozen is None and result.spec.strategy == "full":
        return FULL
    return result.plan.n_frozen


def trained_above(depth: Depth, n_layers: int) -> int:
    """How many layers train above a depth."""
    return n_layers if depth is FULL else n_layers - depth


def replicated(n_frozen: Depth | None, group: Replicates, frame: Frame) -> Replicated:
    """Scores and costs of some replicates."""
    results = group.finished()
    scores = [result.score for result in results]
    failed = [result.spec.seed for result in results if result.spec.seed in group.failed]
    succeeded = [result.score for result in results if result.spec.seed not in group.failed]
    mean = _mean(scores)
    ratio = _share(mean, frame.full_mean, frame.base("ratio"))
    above_chance = _share(mean, frame.full_mean, frame.base("ratio_above_chance"))
    pair, over_seeds = pair_with_full(group, frame), _over_seeds(group, frame)
    return Replicated(
        n_frozen=n_frozen,
        trained_layers=trained_above(FULL if n_frozen is None else n_frozen, frame.n_layers),
        mean=mean,
        std=stats.std(scores),
        ci=unless_equal(scores, stats.t_interval(scores)),
        ci_dev=_dev_interval(group, scores, frame.n_rows),
        seeds=tuple(result.spec.seed for result in results),
        scores=tuple(scores),
        train_scores=tuple(result.train_score for result in results if result.train_score is not None),
        train_loss=tuple(result.epochs[-1].train_loss for result in results),
        other_metrics=_other_metrics(frame.metric, results),
        difference=over_seeds.difference,
        difference_ci=over_seeds.difference_ci,
        difference_ci_dev=None if pair is None else pair.difference_interval(),
        ratio=ratio,
        ratio_ci=over_seeds.ratio_ci,
        ratio_ci_dev=_ratio_interval_of(pair, ratio),
        ratio_above_chance=above_chance,
        ratio_above_chance_ci=over_seeds.above_chance_ci,
        ratio_above_chance_ci_dev=_ratio_interval_of(pair, above_chance, frame.chance),
        learning_rate=group.specs[0].learning_rate or None,
        trained_parameters=results[0].cost.trained_parameters if results else None,
        seconds=_mean([result.cost.seconds for result in results]),
        peak_bytes=_largest([result.cost.peak_bytes for result in results]),
        n_failed=len(failed),
        n_diverged=sum(result.diverged for result in results),
        failed_seeds=tuple(failed),
        p_failed=len(failed) / len(scores) if scores else None,
        p_failed_ci=stats.wilson_interval(len(failed), len(scores)),
        mean_without_failed=_mean(succeeded),
        expected_best=stats.expected_best(scores),
    )


def unless_equal(values: Sequence[float] | stats.Floats, interval: Interval | None) -> Interval | None:
    """The interval; None where all values are the same: that they do not vary is not known at 95%."""
    return None if len(values) and stats.is_equal(min(values), max(values)) else interval


def _difference_interval(own: stats.Floats, others: stats.Floats, *, is_full: bool) -> Interval | None:
    """The interval of a difference; the full model differs from itself by exactly 0."""
    interval = stats.difference_interval(own, others)
    return interval if is_full else unless_equal(own - others, interval)


def _mean(values: Sequence[float]) -> float | None:
    return stats.mean(values) if values else None


def _largest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _share(mean: float | None, full_mean: float | None, base: float) -> float | None:
    """The mean above a base as a share of the full mean above it; None if the full mean is not above the base."""
    if mean is None or full_mean is None or not stats.is_above(full_mean, base):
        return None
    return (mean - base) / (full_mean - base)


@dataclass(frozen=True, kw_only=True)
class _OverSeeds:
    """A comparison with the full model on these dev rows: how far new seeds may move it."""

    difference: float | None = None
    difference_ci: Interval | None = None
    ratio_ci: Interval | None = None
    above_chance_ci: Interval | None = None


def _over_seeds(group: Replicates, frame: Frame) -> _OverSeeds:
    """Paired by seed; or, if the full model has other seeds, over all runs, as the ratio is."""
    own = {result.spec.seed: result.score for result in group.finished()}
    if not own or not frame.full:
        return _OverSeeds()
    if own.keys() == frame.full.keys():
        values, others = np.array(list(own.values())), np.array([frame.full[seed] for seed in own])
        return _OverSeeds(
            difference=stats.mean(values - others),
            difference_ci=_difference_interval(values, others, is_full=group is frame.full_runs),
            ratio_ci=_ratio_interval(values, others),
            above_chance_ci=_ratio_interval(values, others, frame.chance),
        )
    mean, full_mean = stats.mean(list(own.values())), stats.mean(list(frame.full.values()))
    pair = pair_with_full(group, frame)
    alone = None if pair is None else pair.on_these_rows()
    varies = alone is not None and alone.margin((1.0, -1.0), 0.025) > 0
    return _OverSeeds(
        difference=mean - full_mean,
        difference_ci=alone.difference_interval() if alone is not None and varies else None,
        ratio_ci=_ratio_interval_of(alone, _share(mean, full_mean, 0.0)),
        above_chance_ci=_ratio_interval_of(alone, _share(mean, full_mean, frame.chance), frame.chance),
    )


def _ratio_interval(own: stats.Floats, others: stats.Floats, base: float = 0.0) -> Interval | None:
    return stats.ratio_interval(own - base, others - base) if stats.is_above(stats.mean(others), base) else None


def _ratio_interval_of(pair: stats.CrossedPair | None, ratio: float | None, base: float = 0.0) -> Interval | None:
    return None if pair is None or ratio is None else pair.ratio_interval(base=base)


def pair_with_full(group: Replicates, frame: Frame) -> stats.CrossedPair | None:
    """The means of these runs and of the full model; None below three runs of either.

    They are paired by seed if both have the same seeds. A search runs more seeds of the full model than of a depth, and
    runs may crash: then all runs of both count, not paired, so that an interval is always about the means it is shown
    with.
    """
    full = frame.full_runs
    if full is None or min(len(group.resampled), len(full.resampled)) < stats.MIN_SEEDS:
        return None
    own, others = group.scored(list(group.resampled)), full.scored(list(full.resampled))
    if group is full:
        return stats.paired_by_seed(own, own, frame.n_rows)
    if group.resampled.keys() != full.resampled.keys():
        return stats.not_paired(own, others, frame.n_rows)
    return stats.paired_by_seed(own, full.scored(list(group.resampled)), frame.n_rows)


def _other_metrics(metric: str, results: Sequence[RunResult]) -> dict[str, OtherMetric]:
    # A release may add a metric, and its runs may stand beside older ones: only what all of them have has a mean.
    shared = set[str].intersection(*(set(result.metrics) for result in results)) if results else set()
    names = sorted(shared - {metric})
    scores = {name: tuple(result.metrics[name] for result in results) for name in names}
    return {name: OtherMetric(mean=stats.mean(values), scores=values) for name, values in scores.items()}


def _dev_interval(group: Replicates, scores: Sequence[float], n_rows: int) -> Interval | None:
    if len(scores) < stats.MIN_SEEDS:
        return None
    variance = float(np.var(np.array(list(group.resampled.values())).mean(axis=0), ddof=1))
    return stats.crossed_interval(scores, max(variance, stats.least_row_variance(n_rows)), n_rows)
