"""Finished runs → the curve: means, intervals, comparisons with the full model, operating points.

Every number a report shows is computed here. Knows nothing of how runs are made or kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline import stats
from frostline.analysis.cautions import DevMargin, cautions, means_by_depth
from frostline.analysis.records import (
    Curve,
    CurveCost,
    DepthShare,
    Interval,
    OperatingPoint,
    OtherMetric,
    Point,
    RunCounts,
    TriedRate,
)
from frostline.errors import FrostlineError
from frostline.metrics import metric_named
from frostline.records import SCALES, CurveSpec, Protocol, RunResult, RunSpec, Scale

_MOST_ROWS_AT_ONCE = 20_000
"""dev rows up to which all resamples are held in memory"""
_RESAMPLING_SEED = 1911_03090
"""Every resampling starts from here, so the same runs give the same record."""


@dataclass(frozen=True, kw_only=True)
class Replicates:
    """The runs asked for at one depth, alike in all but the seed, and those of them that finished."""

    specs: Sequence[RunSpec]
    """what was asked, one a seed"""
    results: Sequence[RunResult]
    """what finished, in any order"""

    def finished(self) -> tuple[RunResult, ...]:
        """The results in the order of the specs."""
        by_key = {result.key: result for result in self.results}
        return tuple(by_key[spec.key] for spec in self.specs if spec.key in by_key)

    def missing_seeds(self) -> tuple[int, ...]:
        """The seeds whose runs did not finish."""
        there = {result.key for result in self.results}
        return tuple(spec.seed for spec in self.specs if spec.key not in there)


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """What every point of one curve is measured against."""

    metric: str
    chance: float
    n_layers: int
    full: Mapping[int, float]
    """the full model's scores by seed"""

    @property
    def full_mean(self) -> float | None:
        return stats.mean(list(self.full.values())) if self.full else None

    def base(self, scale: Scale) -> float:
        """The score that counts as nothing on a scale."""
        return 0.0 if scale == "ratio" else self.chance


def build_curve(
    *,
    request: CurveSpec,
    full: Replicates,
    depths: Mapping[int, Replicates],
    line_search: Sequence[TriedRate],
    cost: CurveCost,
    runs: RunCounts,
    extra_warnings: Sequence[str] = (),
) -> Curve:
    """The curve that finished runs draw; a FrostlineError where runs do not belong together or none finished."""
    frame = _frame(request.protocol, full, depths)
    full_point = _point(None, full, frame)
    points = tuple(_point(depth, depths[depth], frame) for depth in sorted(depths))
    scales = sorted(SCALES, key=lambda scale: scale != request.scale)
    found = tuple(_operating_point(keep, scale, points, frame) for keep in request.keep for scale in scales)
    curve = Curve(
        model=request.model,
        task=request.task.name,
        metric=frame.metric,
        chance=frame.chance,
        n_layers=frame.n_layers,
        protocol=request.protocol,
        learning_rate=full.specs[0].learning_rate,
        line_search=tuple(line_search),
        full=full_point,
        points=points,
        operating_points=found,
        is_monotone=all(point.is_monotone for point in found),
        cost=cost,
        runs=runs,
        warnings=(),
    )
    groups = _by_depth(full, depths)
    missing = {depth: group.missing_seeds() for depth, group in groups.items()}
    notices = [notice for group in groups.values() for result in group.finished() for notice in result.notices]
    dev = _dev_margin(frame.metric, full.finished())
    return curve.replace(warnings=cautions(curve, missing, [*notices, *extra_warnings], dev))


def _by_depth(full: Replicates, depths: Mapping[int, Replicates]) -> dict[int | None, Replicates]:
    groups: dict[int | None, Replicates] = {None: full}
    groups.update((depth, depths[depth]) for depth in sorted(depths))
    return groups


def _frame(protocol: Protocol, full: Replicates, depths: Mapping[int, Replicates]) -> _Frame:
    groups = _by_depth(full, depths)
    for depth, group in groups.items():
        _check_alike(depth, group)
    _check_comparable(protocol, [group.specs[0] for group in groups.values()])
    results = [result for group in groups.values() for result in group.finished()]
    if not results:
        raise FrostlineError("every run of the curve crashed, so there is nothing to draw; see the errors of the runs")
    _check_same_data(results)
    metric = results[0].spec.task.metric
    if metric is None:
        raise FrostlineError("the runs do not say what their metric is; their task is not resolved")
    scores = {result.spec.seed: result.score for result in full.finished()}
    return _Frame(metric=metric, chance=results[0].chance, n_layers=results[0].n_layers, full=scores)


def _check_alike(depth: int | None, group: Replicates) -> None:
    """Refuse replicates that are not replicates: a mean never mixes specs that differ in anything but the seed."""
    what = "the full model" if depth is None else f"n_frozen {depth}"
    if len({spec.replace(seed=0).key for spec in group.specs}) != 1:
        raise FrostlineError(f"the runs of {what} differ in more than the seed, or there are none; they have no mean")
    if len({spec.seed for spec in group.specs}) != len(group.specs):
        raise FrostlineError(f"the runs of {what} have a seed twice")
    if group.specs[0].role != "replicate":
        raise FrostlineError(f"the runs of {what} are of the line search, which never enters a mean")
    if {result.key for result in group.results} - {spec.key for spec in group.specs}:
        raise FrostlineError(f"there are results of {what} that were not asked for")
    if any(result.plan.n_frozen != depth for result in group.results):
        raise FrostlineError(f"there are results of {what} whose plan froze another depth")


def _check_comparable(protocol: Protocol, specs: Sequence[RunSpec]) -> None:
    """Refuse to compare depths that differ in more than what is frozen (and, tuned, in the rate)."""
    alike = [spec.replace(seed=0, strategy="full", is_cached=False, cache_dtype="fp32") for spec in specs]
    if protocol == "tuned":
        alike = [spec.replace(learning_rate=0.0) for spec in alike]
    if len({spec.key for spec in alike}) != 1:
        raise FrostlineError("the depths differ in more than what is frozen; they cannot be compared")


def _check_same_data(results: Sequence[RunResult]) -> None:
    seen = {(result.chance, result.n_layers, result.predictions.rows, result.predictions.labels) for result in results}
    if len(seen) != 1:
        raise FrostlineError("the runs were not scored on the same dev rows of the same task; they cannot be compared")


def _point(n_frozen: int | None, group: Replicates, frame: _Frame) -> Point:
    results = group.finished()
    scores = [result.score for result in results]
    succeeded = [score for score in scores if stats.is_above(score, frame.chance)]
    mean = _mean(scores)
    pairs = [(result.score, frame.full[result.spec.seed]) for result in results if result.spec.seed in frame.full]
    own, others = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    ratio = _share(mean, frame.full_mean, frame.base("ratio"))
    return Point(
        n_frozen=n_frozen,
        trained_layers=frame.n_layers - (n_frozen or 0),
        mean=mean,
        std=stats.std(scores),
        ci=stats.t_interval(scores),
        ci_dev=_dev_interval(frame.metric, results),
        seeds=tuple(result.spec.seed for result in results),
        scores=tuple(scores),
        train_scores=tuple(result.train_score for result in results),
        train_loss=tuple(result.epochs[-1].train_loss for result in results),
        other_metrics=_other_metrics(frame.metric, results),
        difference=_mean([score - other for score, other in pairs]),
        difference_ci=stats.difference_interval(own, others),
        ratio=ratio,
        ratio_ci=None if ratio is None else _ratio_interval(own, others),
        ratio_above_chance=_share(mean, frame.full_mean, frame.base("ratio_above_chance")),
        learning_rate=group.specs[0].learning_rate,
        trained_parameters=results[0].cost.trained_parameters if results else None,
        seconds=_mean([result.cost.seconds for result in results]),
        peak_bytes=_largest([result.cost.peak_bytes for result in results]),
        n_failed=len(scores) - len(succeeded),
        mean_without_failed=_mean(succeeded),
        expected_best=stats.expected_best(scores),
    )


def _mean(values: Sequence[float]) -> float | None:
    return stats.mean(values) if values else None


def _largest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _share(mean: float | None, full_mean: float | None, base: float) -> float | None:
    """What a mean has above a base, as a share of what the full model has; None where that is nothing."""
    if mean is None or full_mean is None or not stats.is_above(full_mean, base):
        return None
    return (mean - base) / (full_mean - base)


def _ratio_interval(own: Sequence[float], others: Sequence[float]) -> Interval | None:
    # Where runs crashed, the pairs are fewer than the runs the ratio is of, and may be worse.
    return stats.ratio_interval(own, others) if others and stats.is_above(stats.mean(others), 0.0) else None


def _other_metrics(metric: str, results: Sequence[RunResult]) -> dict[str, OtherMetric]:
    names = sorted({name for result in results for name in result.metrics} - {metric})
    scores = {name: tuple(result.metrics[name] for result in results) for name in names}
    return {name: OtherMetric(mean=stats.mean(values), scores=values) for name, values in scores.items()}


def _dev_interval(metric_name: str, results: Sequence[RunResult]) -> Interval | None:
    if len(results) < stats.MIN_SEEDS:
        return None
    variance, n_rows = dev_variance(metric_name, results), results[0].n_dev
    return stats.crossed_interval([result.score for result in results], variance, n_rows)


def _dev_margin(metric_name: str, results: Sequence[RunResult]) -> DevMargin | None:
    if not results:
        return None
    n_rows = results[0].n_dev
    resampled = 1.96 * math.sqrt(dev_variance(metric_name, results[:1]))
    # The rule of three: a run without a mistake does not vary over its rows, yet n of them rule out no more than 3/n.
    return DevMargin(n_rows=n_rows, margin=max(resampled, 3 / n_rows))


def dev_variance(metric_name: str, results: Sequence[RunResult]) -> float:
    """The variance of the results' mean score over resampled dev rows."""
    outputs = [result.predictions.outputs.array() for result in results]
    return row_variance(metric_name, results[0].predictions.labels.array(), outputs)


def row_variance(metric_name: str, labels: NDArray[Any], outputs: Sequence[NDArray[Any]]) -> float:
    """The variance over resampled rows of the mean score of several models' outputs."""
    metric = metric_named(metric_name)
    answers = [metric.checked_answers(labels, one) for one in outputs]
    if metric.of_tables is not None and len(labels) <= _MOST_ROWS_AT_ONCE:
        return _row_variance_of_classes(metric.of_tables, labels, answers)

    def mean_score(rows: stats.Rows) -> float:
        true = labels[rows]
        return math.fsum(metric.of(true, answer[rows]) for answer in answers) / len(answers)

    return stats.row_variance(mean_score, len(labels), np.random.default_rng(_RESAMPLING_SEED))


def _row_variance_of_classes(
    of_tables: Callable[[NDArray[Any]], NDArray[Any]], labels: NDArray[Any], answers: Sequence[NDArray[Any]]
) -> float:
    """The same, all resamples at once: each is a table of how often a class was taken for another."""
    n_classes = int(max(labels.max(), *(answer.max() for answer in answers))) + 1
    counts = _resampled_counts(len(labels))
    cells = np.eye(n_classes**2, dtype=np.float32)
    tables = [(counts @ cells[n_classes * labels.astype(np.int64) + answer]).astype(np.float64) for answer in answers]
    scores = [of_tables(table.reshape(-1, n_classes, n_classes)) for table in tables]
    return float(np.var(np.mean(scores, axis=0), ddof=1))


@functools.lru_cache(maxsize=2)
def _resampled_counts(n_rows: int) -> NDArray[np.float32]:
    return stats.resampled_counts(n_rows, np.random.default_rng(_RESAMPLING_SEED))


def _operating_point(keep: float, scale: Scale, points: Sequence[Point], frame: _Frame) -> OperatingPoint:
    base = frame.base(scale)
    if frame.full_mean is None or not stats.is_above(frame.full_mean, base):
        return OperatingPoint.of_nothing(keep, scale)
    bar, means = stats.bar_of(keep, frame.full_mean, base), means_by_depth(points)
    n_frozen = stats.operating_depth(means, bar)
    return OperatingPoint(
        keep=keep,
        scale=scale,
        n_frozen=n_frozen,
        trained_layers=frame.n_layers - (n_frozen or 0),
        distribution=_distribution(keep, base, points, frame),
        plausible=_plausible(keep, base, points, frame),
        is_monotone=stats.is_monotone(means, bar),
    )


def _distribution(keep: float, base: float, points: Sequence[Point], frame: _Frame) -> tuple[DepthShare, ...]:
    """Shares over the resampled seeds that finished everywhere; empty where there is no such seed."""
    scores, full = _on_common_seeds(points, frame)
    if not len(full):
        return ()
    rng = np.random.default_rng(_RESAMPLING_SEED)
    shares = stats.depth_distribution(scores, full, keep=keep, base=base, rng=rng)
    return tuple(DepthShare(n_frozen=depth, share=share) for depth, share in shares.items())


def _plausible(keep: float, base: float, points: Sequence[Point], frame: _Frame) -> tuple[int | None, ...]:
    scores, full = _on_common_seeds(points, frame)
    return stats.plausible_depths(scores, full, keep=keep, base=base)


def _on_common_seeds(points: Sequence[Point], frame: _Frame) -> tuple[dict[int, stats.Floats], stats.Floats]:
    """Scores by depth and the full model's, (seeds,) each, of the seeds that finished everywhere."""
    by_depth = {point.n_frozen: dict(zip(point.seeds, point.scores, strict=True)) for point in points if point.seeds}
    seeds = [seed for seed in frame.full if all(seed in scores for scores in by_depth.values())]
    scores = {d: np.array([scores[s] for s in seeds]) for d, scores in by_depth.items() if d is not None}
    return scores, np.array([frame.full[seed] for seed in seeds])
