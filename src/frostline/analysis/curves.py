"""Finished runs → the curve: a point a depth, operating points, what to beware of.

Knows nothing of how runs are made or kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from frostline import stats
from frostline.analysis.points import RESAMPLING_SEED, Frame, Replicates, dev_variance, make_frame, make_point
from frostline.analysis.records import Curve, CurveCost, DepthShare, OperatingPoint, Point, RunCounts, TriedRate
from frostline.analysis.warnings import DevMargin, cautions, means_by_depth
from frostline.errors import FrostlineError
from frostline.records.requests import CurveSpec
from frostline.records.results import RunResult
from frostline.records.specs import SCALES, Scale


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
    groups = _by_depth(full, depths)
    _check_depths(groups)
    frame = make_frame(request.protocol, {_called(depth): group for depth, group in groups.items()}, full)
    full_point = make_point(None, full, frame)
    points = tuple(make_point(depth, depths[depth], frame) for depth in sorted(depths))
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
    missing = {depth: group.missing_seeds() for depth, group in groups.items()}
    from_runs = [warning for group in groups.values() for result in group.finished() for warning in result.warnings]
    dev = _dev_margin(full.finished())
    return curve.replace(warnings=cautions(curve, missing, [*from_runs, *extra_warnings], dev))


def _called(depth: int | None) -> str:
    return "the full model" if depth is None else f"n_frozen {depth}"


def _check_depths(groups: Mapping[int | None, Replicates]) -> None:
    for depth, group in groups.items():
        if any(result.plan.n_frozen != depth for result in group.results):
            raise FrostlineError(f"there are results of {_called(depth)} whose plan froze another depth")


def _by_depth(full: Replicates, depths: Mapping[int, Replicates]) -> dict[int | None, Replicates]:
    groups: dict[int | None, Replicates] = {None: full}
    groups.update((depth, depths[depth]) for depth in sorted(depths))
    return groups


def _dev_margin(results: Sequence[RunResult]) -> DevMargin | None:
    if not results:
        return None
    n_rows = results[0].n_dev
    resampled = 1.96 * math.sqrt(dev_variance(results[:1]))
    # The rule of three: a run without a mistake does not vary over its rows, yet n of them rule out no more than 3/n.
    return DevMargin(n_rows=n_rows, margin=max(resampled, 3 / n_rows))


def _operating_point(keep: float, scale: Scale, points: Sequence[Point], frame: Frame) -> OperatingPoint:
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


def _distribution(keep: float, base: float, points: Sequence[Point], frame: Frame) -> tuple[DepthShare, ...]:
    """Shares over the resampled seeds that finished everywhere; empty where there is no such seed."""
    scores, full = _on_common_seeds(points, frame)
    if not len(full):
        return ()
    rng = np.random.default_rng(RESAMPLING_SEED)
    shares = stats.depth_distribution(scores, full, keep=keep, base=base, rng=rng)
    return tuple(DepthShare(n_frozen=depth, share=share) for depth, share in shares.items())


def _plausible(keep: float, base: float, points: Sequence[Point], frame: Frame) -> tuple[int | None, ...]:
    scores, full = _on_common_seeds(points, frame)
    return stats.plausible_depths(scores, full, keep=keep, base=base)


def _on_common_seeds(points: Sequence[Point], frame: Frame) -> tuple[dict[int, stats.Floats], stats.Floats]:
    """Scores by depth and the full model's, (seeds,) each, of the seeds that finished everywhere."""
    by_depth = {point.n_frozen: dict(zip(point.seeds, point.scores, strict=True)) for point in points if point.seeds}
    seeds = [seed for seed in frame.full if all(seed in scores for scores in by_depth.values())]
    scores = {d: np.array([scores[s] for s in seeds]) for d, scores in by_depth.items() if d is not None}
    return scores, np.array([frame.full[seed] for seed in seeds])
