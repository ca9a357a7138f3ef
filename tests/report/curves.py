"""Curves for the tests of reports: made from scores, or from anything at all. Their statistics are only plausible."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from frostline.analysis import (
    Curve,
    CurveCost,
    DepthShare,
    DepthVerdict,
    Established,
    Interval,
    OperatingPoint,
    OtherMetric,
    Point,
    RunCounts,
    TriedRate,
)
from frostline.records.depth import FULL, Depth
from frostline.records.specs import SCALES, Scale
from frostline.report import numbers

DEMO_SCORES: dict[Depth, tuple[float, ...]] = {
    FULL: (0.769, 0.788, 0.781, 0.776, 0.792),
    3: (0.775, 0.756, 0.768, 0.771, 0.762),
    4: (0.755, 0.743, 0.749, 0.761, 0.738),
    5: (0.644, 0.634, 0.655, 0.628, 0.641),
    6: (0.598, 0.603, 0.591, 0.606, 0.600),
}
PARAMETERS: dict[int, int] = {0: 10_795_778, 3: 5_471_618, 4: 3_697_154, 5: 1_922_690, 6: 148_226}


def around(values: Sequence[float], *, half_width: float = 2.0) -> Interval | None:
    """An interval about the mean of at least three values."""
    if len(values) < 3:
        return None
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    return mean - half_width * spread, mean + half_width * spread


def _shares(interval: Interval | None, share: float | None, full: float | None, base: float) -> Interval | None:
    """An interval of scores as one of shares of the full score above a base."""
    if interval is None or share is None or full is None:
        return None
    return (interval[0] - base) / (full - base), (interval[1] - base) / (full - base)


def point(
    n_frozen: Depth, scores: Sequence[float], full: Sequence[float], *, n_layers: int = 6, chance: float = 0.5
) -> Point:
    """The point of one depth with these scores, held against the full model's."""
    mean = statistics.fmean(scores) if scores else None
    full_mean = statistics.fmean(full) if full else None
    gaps = [score - other for score, other in zip(scores, full, strict=False)]
    has_both = mean is not None and full_mean is not None
    ratio = mean / full_mean if has_both and full_mean > 0 else None  # type: ignore[operator]
    above = (mean - chance) / (full_mean - chance) if has_both and full_mean > chance else None  # type: ignore[operator]
    ci = around(scores)
    good = [score for score in scores if score > chance]
    return Point(
        n_frozen=n_frozen,
        trained_layers=n_layers - (0 if n_frozen is FULL else n_frozen),
        mean=mean,
        std=statistics.stdev(scores) if len(scores) > 1 else None,
        ci=ci,
        ci_dev=around(scores, half_width=3.0),
        seeds=tuple(range(len(scores))),
        scores=tuple(scores),
        train_scores=tuple(min(1.0, score + 0.1) for score in scores),
        train_loss=tuple(1 - score for score in scores),
        other_metrics={"f1": OtherMetric(mean=mean, scores=tuple(scores))} if mean is not None else {},
        difference=statistics.fmean(gaps) if gaps else None,
        difference_ci=around(gaps),
        ratio=ratio,
        ratio_ci=(ci[0] / full_mean, ci[1] / full_mean) if ci and ratio is not None and full_mean else None,
        ratio_above_chance=above,
        difference_ci_dev=around(gaps, half_width=3.0),
        ratio_ci_dev=_shares(around(scores, half_width=3.0), ratio, full_mean, 0.0),
        ratio_above_chance_ci=_shares(ci, above, full_mean, chance),
        ratio_above_chance_ci_dev=_shares(around(scores, half_width=3.0), above, full_mean, chance),
        verdict=None if n_frozen is FULL or ratio is None else "kept" if ratio > 0.95 else "open",
        is_better=None if n_frozen is FULL or ratio is None else ratio > 1.02,
        learning_rate=5e-5,
        trained_parameters=22_713_986 if n_frozen is FULL else PARAMETERS.get(n_frozen, 1_000_000 + n_frozen),
        seconds=(52.4 if n_frozen is FULL else 3.2 * (n_layers - n_frozen) + 0.31) if scores else None,
        peak_bytes=412_000_000 if n_frozen is FULL else 90_000_000 + 40_000_000 * (n_layers - n_frozen),
        n_failed=len(scores) - len(good),
        mean_without_failed=statistics.fmean(good) if good else None,
        expected_best=tuple(sorted(scores)),
    )


def operating_point(
    points: Sequence[Point], keep: float, scale: Scale, *, full: Point, n_layers: int = 6
) -> OperatingPoint:
    """The operating point of these points, with a made-up distribution around it."""
    own = full.ratio if scale == "ratio" else full.ratio_above_chance
    if own is None:
        return OperatingPoint.undefined(keep, scale)
    kept = [(p, p.ratio if scale == "ratio" else p.ratio_above_chance) for p in points]
    deep_enough = [p for p, share in kept if share is not None and share >= keep]
    best = deep_enough[-1] if deep_enough else None
    shares = (DepthShare(n_frozen=best.n_frozen if best else FULL, share=0.875), DepthShare(n_frozen=3, share=0.125))
    return OperatingPoint(
        keep=keep,
        scale=scale,
        n_frozen=best.n_frozen if best else FULL,
        trained_layers=best.trained_layers if best else n_layers,
        distribution=shares,
        plausible=(FULL, 3, 4),
        is_monotone=True,
        verdicts=tuple(DepthVerdict(n_frozen=3, verdict="kept") for p in points if p.n_frozen == 3),
        established=Established(
            n_frozen=best.n_frozen if best else FULL, trained_layers=best.trained_layers if best else n_layers
        ),
    )


def make_curve(
    scores: Mapping[Depth, Sequence[float]] | None = None,
    *,
    n_layers: int = 6,
    chance: float = 0.5,
    keeps: Sequence[float] = (0.9,),
    scales: Sequence[Scale] = SCALES,
) -> Curve:
    """A curve with these scores at the full model (FULL) and each depth; by default the demo's."""
    given = DEMO_SCORES if scores is None else scores
    full_scores = given.get(FULL, ())
    full = point(FULL, full_scores, full_scores, n_layers=n_layers, chance=chance)
    points = tuple(
        point(n_frozen, given[n_frozen], full_scores, n_layers=n_layers, chance=chance)
        for n_frozen in sorted(n for n in given if n is not FULL)
    )
    return Curve(
        model="all-MiniLM-L6-v2",
        task="rotten-tomatoes",
        metric="accuracy",
        chance=chance,
        n_layers=n_layers,
        protocol="paper",
        learning_rate=5e-5,
        line_search=(TriedRate(learning_rate=1e-5, score=0.741), TriedRate(learning_rate=5e-5, score=0.784)),
        full=full,
        points=points,
        operating_points=tuple(
            operating_point(points, keep, scale, full=full, n_layers=n_layers) for keep in keeps for scale in scales
        ),
        is_monotone=True,
        cost=CurveCost(wall_seconds=192.0, prefix_seconds=21.3, train_seconds=341.0, cache_bytes=91_000_000),
        runs=RunCounts(done=20, reused=5, crashed=0),
        warnings=(),
    )


def verdict_cell(point: Point) -> str:
    """How tables show a verdict."""
    better = ", better" if point.is_better else ""
    return f"{point.verdict}{better}" if point.verdict else numbers.DASH
