"""Finished runs → the curve: one point per place on its axis, operating points, warnings.

Groups of runs are given by place (`axis/places.py`): a depth, or a number that counts the values of another axis. This
module does not know how runs are made or stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frostline import stats
from frostline.analysis.axis.gains import layer_gains
from frostline.analysis.axis.operating_records import (
    DepthShare,
    DepthVerdict,
    Established,
    OperatingPoint,
    WithoutFailed,
)
from frostline.analysis.axis.places import Places, place_words
from frostline.analysis.curve_records import Curve, CurveCost, Point, RunCounts, TriedRate
from frostline.analysis.points import Frame, Replicates, depth_of, make_frame, replicated
from frostline.analysis.resampling import RESAMPLING_SEED, dev_variance
from frostline.analysis.verdicts import Judge
from frostline.analysis.warnings import DevMargin, curve_warnings, run_warnings
from frostline.errors import DataError
from frostline.records.depth import FULL, Depth
from frostline.records.requests import ResolvedAxis, StudyRequest
from frostline.records.results import RunResult
from frostline.records.specs import SCALES, Scale


@dataclass(frozen=True, kw_only=True)
class Along:
    """Along what a curve runs, and who judges it, where that is not the usual."""

    axis: ResolvedAxis | None = None
    """None: depth"""
    judge: Judge | None = None
    """gives the verdicts; None: one that knows the curve's runs and no others"""


_DEPTH = Along()


def build_curve(
    *,
    request: StudyRequest,
    full: Replicates,
    depths: Mapping[int, Replicates],
    line_search: Sequence[TriedRate],
    cost: CurveCost,
    runs: RunCounts,
    along: Along = _DEPTH,
) -> Curve:
    """The curve of finished runs; a FrostlineError if runs do not belong together or none finished."""
    groups = _by_place(full, depths)
    named = {_called(place, along.axis): group for place, group in groups.items()}
    _check_places(groups, along.axis)
    frame = make_frame(request.protocol, named, full)
    places = Places(along.axis, frame.n_layers)
    maker = _Maker(frame, places, along.judge or Judge.of(depths, frame, request.confidence))
    full_point = maker.point(FULL, full)
    scales = sorted(SCALES, key=lambda scale: scale != request.scale)
    plain = {place: maker.point(place, depths[place]) for place in sorted(depths)}
    found = tuple(maker.operating_point(keep, scale, plain) for keep in request.keep for scale in scales)
    points = maker.with_verdicts(plain, found[0]) if found else tuple(plain.values())
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
        operating_points_without_failed=maker.without_failed(request.keep, scales, full_point, plain),
        axis=along.axis,
        gains=layer_gains(depths, places, frame.n_rows),
    )
    missing = {places.value(place): group.missing_seeds() for place, group in groups.items()}
    dev = _dev_margin(full.finished())
    return curve.replace(warnings=curve_warnings(curve, missing, run_warnings(groups.values()), dev))


@dataclass(frozen=True)
class _Maker:
    """Makes the records of one curve."""

    frame: Frame
    places: Places
    judge: Judge

    def point(self, place: Depth, group: Replicates) -> Point:
        """The point of a place, without its verdict."""
        made = replicated(self.places.named(place)["n_frozen"], group, self.frame)
        fields = vars(made) | {"trained_layers": self.places.trained_layers(place)}
        return Point(**fields, value=self.places.named(place)["value"])

    def with_verdicts(self, points: Mapping[int, Point], asked: OperatingPoint) -> tuple[Point, ...]:
        """The points with the verdicts of the first operating point; unchanged where it is undefined."""
        if not asked.verdicts:
            return tuple(points.values())
        base = self.frame.base(asked.scale)
        said = self.judge.verdicts(asked.keep, base)
        return tuple(
            point.replace(
                verdict=said[place],
                is_better=self.judge.is_better(place),
                seeds_to_settle=self.judge.seeds_to_settle(place, asked.keep, base),
            )
            if place in said
            else point
            for place, point in points.items()
        )

    def operating_point(self, keep: float, scale: Scale, points: Mapping[int, Point]) -> OperatingPoint:
        """The cheapest place that keeps a share, and what is sure about it."""
        frame, places, base = self.frame, self.places, self.frame.base(scale)
        if frame.full_mean is None or not stats.is_above(frame.full_mean, base):
            return OperatingPoint.undefined(keep, scale)
        bar = stats.bar_of(keep, frame.full_mean, base)
        means = {place: point.mean for place, point in points.items() if point.mean is not None}
        place, verdicts = stats.operating_depth(means, bar), self.judge.verdicts(keep, base)
        sure = stats.established_depth(verdicts)
        plausible = stats.plausible_depths(verdicts) if self.judge.knows_something else ()
        return OperatingPoint(
            keep=keep,
            scale=scale,
            **places.named(place),
            trained_layers=places.trained_layers(place),
            distribution=self._distribution(keep, base),
            plausible=tuple(places.value(one) for one in plausible),
            is_monotone=stats.is_monotone(means, bar),
            verdicts=tuple(DepthVerdict(**places.named(one), verdict=said) for one, said in verdicts.items()),
            established=Established(**places.named(sure), trained_layers=places.trained_layers(sure)),
        )

    def without_failed(
        self, keeps: Sequence[float], scales: Sequence[Scale], full: Point, points: Mapping[int, Point]
    ) -> tuple[WithoutFailed, ...]:
        """The operating points of the runs that did not fail; none where no run did, because they are the same."""
        if not any(point.n_failed for point in (full, *points.values())):
            return ()
        means = {place: mean for place, point in points.items() if (mean := _sound_mean(point)) is not None}
        found = []
        for keep, scale in itertools.product(keeps, scales):
            base, best = self.frame.base(scale), full.mean_without_failed
            is_defined = best is not None and stats.is_above(best, base)
            bar = stats.bar_of(keep, best, base) if best is not None and is_defined else math.inf
            place = stats.operating_depth(means, bar)
            trained = self.places.trained_layers(place) if is_defined else None
            found.append(WithoutFailed(keep=keep, scale=scale, **self.places.named(place), trained_layers=trained))
        return tuple(found)

    def _distribution(self, keep: float, base: float) -> tuple[DepthShare, ...]:
        """How probable each place is; empty where one has too few runs to say."""
        scored = self.judge.scored
        if FULL not in scored or any(len(one.scores) < stats.MIN_SEEDS for one in scored.values()):
            return ()
        rng = np.random.default_rng(RESAMPLING_SEED)
        shares = stats.depth_distribution(scored, keep=keep, base=base, rng=rng)
        return tuple(DepthShare(**self.places.named(place), share=share) for place, share in shares.items())


def _sound_mean(point: Point) -> float | None:
    """The mean of the runs that did not fail; of all runs where half or more did."""
    return point.mean if 2 * point.n_failed >= len(point.scores) else point.mean_without_failed


def _called(place: Depth, axis: ResolvedAxis | None) -> str:
    return "the full model" if place is FULL else place_words(axis, place)


def _check_places(groups: Mapping[Depth, Replicates], axis: ResolvedAxis | None) -> None:
    for place, group in groups.items():
        if any(not _is_at(result, place, axis) for result in group.results):
            what = "froze another depth" if axis is None else "are of another strategy"
            raise DataError(f"some results of {_called(place, axis)} {what}")


def _is_at(result: RunResult, place: Depth, axis: ResolvedAxis | None) -> bool:
    if axis is None or place is FULL:
        return depth_of(result) == place
    return result.spec.strategy == axis.strategies[place]


def _by_place(full: Replicates, groups: Mapping[int, Replicates]) -> dict[Depth, Replicates]:
    found: dict[Depth, Replicates] = {FULL: full}
    found.update((place, groups[place]) for place in sorted(groups))
    return found


def _dev_margin(results: Sequence[RunResult]) -> DevMargin | None:
    if not results:
        return None
    n_rows = results[0].n_dev
    resampled = 1.96 * math.sqrt(dev_variance(results[:1]))
    # The rule of three: a run without mistakes has no variance over its rows, but n rows only exclude errors above 3/n.
    return DevMargin(n_rows=n_rows, margin=max(resampled, 3 / n_rows))
