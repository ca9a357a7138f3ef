"""Finished runs → the curve: one point per depth, operating points, warnings.

This module does not know how runs are made or stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from frostline import stats
from frostline.analysis.curve_records import (
    Curve,
    CurveCost,
    DepthShare,
    DepthVerdict,
    Established,
    OperatingPoint,
    Point,
    RunCounts,
    TriedRate,
    WithoutFailed,
)
from frostline.analysis.points import (
    Frame,
    Replicates,
    depth_of,
    make_frame,
    replicated,
    trained_above,
)
from frostline.analysis.resampling import RESAMPLING_SEED, dev_variance
from frostline.analysis.verdicts import Judge
from frostline.analysis.warnings import DevMargin, curve_warnings, means_by_depth, run_warnings
from frostline.errors import FrostlineError
from frostline.records.depth import FULL, Depth, depth_words
from frostline.records.requests import StudyRequest
from frostline.records.results import RunResult
from frostline.records.specs import SCALES, Scale


def build_curve(
    *,
    request: StudyRequest,
    full: Replicates,
    depths: Mapping[int, Replicates],
    line_search: Sequence[TriedRate],
    cost: CurveCost,
    runs: RunCounts,
    judge: Judge | None = None,
) -> Curve:
    """The curve of finished runs; a FrostlineError if runs do not belong together or none finished.

    `judge` gives the verdicts; None: one that knows these runs and no others.
    """
    groups = _by_depth(full, depths)
    _check_depths(groups)
    frame = make_frame(request.protocol, {_called(depth): group for depth, group in groups.items()}, full)
    full_point = _point(FULL, full, frame)
    judge = judge or Judge.of(depths, frame, request.confidence)
    scales = sorted(SCALES, key=lambda scale: scale != request.scale)
    plain = [_point(depth, depths[depth], frame) for depth in sorted(depths)]
    found = tuple(_operating_point(keep, scale, plain, judge, frame) for keep in request.keep for scale in scales)
    points = _with_verdicts(plain, found[0], judge, frame) if found else tuple(plain)
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
        confidence=request.confidence,
        operating_points_without_failed=_without_failed(request.keep, scales, full_point, plain, frame),
    )
    missing = {depth: group.missing_seeds() for depth, group in groups.items()}
    dev = _dev_margin(full.finished())
    return curve.replace(warnings=curve_warnings(curve, missing, run_warnings(groups.values()), dev))


def _point(depth: Depth, group: Replicates, frame: Frame) -> Point:
    return Point(**vars(replicated(depth, group, frame)))


def _with_verdicts(points: Sequence[Point], asked: OperatingPoint, judge: Judge, frame: Frame) -> tuple[Point, ...]:
    """The points with the verdicts of the first operating point; unchanged where it is undefined."""
    said, base = {one.n_frozen: one.verdict for one in asked.verdicts}, frame.base(asked.scale)
    return tuple(
        point.replace(
            verdict=said[depth],
            is_better=judge.is_better(depth),
            seeds_to_settle=judge.seeds_to_settle(depth, asked.keep, base),
        )
        if depth in said
        else point
        for point in points
        if (depth := point.n_frozen) is not FULL
    )


def _called(depth: Depth) -> str:
    return "the full model" if depth is FULL else depth_words(depth)


def _check_depths(groups: Mapping[Depth, Replicates]) -> None:
    for depth, group in groups.items():
        if any(depth_of(result) != depth for result in group.results):
            raise FrostlineError(f"some results of {_called(depth)} froze another depth")


def _by_depth(full: Replicates, depths: Mapping[int, Replicates]) -> dict[Depth, Replicates]:
    groups: dict[Depth, Replicates] = {FULL: full}
    groups.update((depth, depths[depth]) for depth in sorted(depths))
    return groups


def _dev_margin(results: Sequence[RunResult]) -> DevMargin | None:
    if not results:
        return None
    n_rows = results[0].n_dev
    resampled = 1.96 * math.sqrt(dev_variance(results[:1]))
    # The rule of three: a run without mistakes has no variance over its rows, but n rows only exclude errors above 3/n.
    return DevMargin(n_rows=n_rows, margin=max(resampled, 3 / n_rows))


def _operating_point(keep: float, scale: Scale, points: Sequence[Point], judge: Judge, frame: Frame) -> OperatingPoint:
    base = frame.base(scale)
    if frame.full_mean is None or not stats.is_above(frame.full_mean, base):
        return OperatingPoint.undefined(keep, scale)
    bar, means = stats.bar_of(keep, frame.full_mean, base), means_by_depth(points)
    n_frozen = stats.operating_depth(means, bar)
    verdicts = judge.verdicts(keep, base)
    established = stats.established_depth(verdicts)
    return OperatingPoint(
        keep=keep,
        scale=scale,
        n_frozen=n_frozen,
        trained_layers=trained_above(n_frozen, frame.n_layers),
        distribution=_distribution(keep, base, judge),
        plausible=stats.plausible_depths(verdicts) if judge.knows_something else (),
        is_monotone=stats.is_monotone(means, bar),
        verdicts=tuple(DepthVerdict(n_frozen=depth, verdict=said) for depth, said in verdicts.items()),
        established=Established(n_frozen=established, trained_layers=trained_above(established, frame.n_layers)),
    )


def _without_failed(
    keeps: Sequence[float], scales: Sequence[Scale], full: Point, points: Sequence[Point], frame: Frame
) -> tuple[WithoutFailed, ...]:
    """The operating points of the runs that did not fail; none where no run did, because they are the same."""
    if not any(point.n_failed for point in (full, *points)):
        return ()
    means = {p.n_frozen: p.mean_without_failed for p in points if p.mean_without_failed is not None}
    by_depth = {depth: mean for depth, mean in means.items() if depth is not FULL}
    found = []
    for keep, scale in itertools.product(keeps, scales):
        base, best = frame.base(scale), full.mean_without_failed
        is_defined = best is not None and stats.is_above(best, base)
        bar = stats.bar_of(keep, best, base) if best is not None and is_defined else math.inf
        depth = stats.operating_depth(by_depth, bar)
        trained = trained_above(depth, frame.n_layers) if is_defined else None
        found.append(WithoutFailed(keep=keep, scale=scale, n_frozen=depth, trained_layers=trained))
    return tuple(found)


def _distribution(keep: float, base: float, judge: Judge) -> tuple[DepthShare, ...]:
    """How probable each depth is; empty where a depth has too few runs to say."""
    scored = judge.scored
    if FULL not in scored or any(len(one.scores) < stats.MIN_SEEDS for one in scored.values()):
        return ()
    rng = np.random.default_rng(RESAMPLING_SEED)
    shares = stats.depth_distribution(scored, keep=keep, base=base, rng=rng)
    return tuple(DepthShare(n_frozen=depth, share=share) for depth, share in shares.items())
