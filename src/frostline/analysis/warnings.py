"""What a careful reader of a curve should know, one line each.

Reads records only; computes nothing that is not in them. Knows nothing of where the lines are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from frostline import stats
from frostline.analysis.records import Curve, OperatingPoint, Point


@dataclass(frozen=True, kw_only=True)
class DevMargin:
    """How much the dev rows alone say of a score."""

    n_rows: int
    """dev rows"""
    margin: float
    """how far other such rows may move the score of one run of the full model (95%)"""


def cautions(
    curve: Curve,
    missing: Mapping[int | None, tuple[int, ...]],
    notices: Iterable[str],
    dev: DevMargin | None = None,
) -> tuple[str, ...]:
    """The warnings of a curve, the gravest first, none twice.

    `missing` holds the seeds whose runs did not finish, by depth (None: the full model); `notices` what the runs had
    to say of the data; `dev` is None where the full model has no run.
    """
    lines = [
        *_of_crashes(curve, missing),
        *_of_scales(curve),
        *_of_high_chance(curve),
        *_of_failures(curve),
        *_of_order(curve),
        *_of_few_rows(curve, dev),
        *_of_few_seeds(curve),
        *_of_distributions(curve),
        *_of_selection(curve),
        *_of_intervals(curve),
        *notices,
    ]
    return tuple(dict.fromkeys(lines))


def _name(n_frozen: int | None) -> str:
    return "full model" if n_frozen is None else f"n_frozen {n_frozen}"


def _listed(numbers: Iterable[object]) -> str:
    return ", ".join(str(number) for number in numbers)


def _seeds(seeds: tuple[int, ...]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {_listed(seeds)}"


def _all_points(curve: Curve) -> tuple[Point, ...]:
    return (curve.full, *curve.points)


def _of_crashes(curve: Curve, missing: Mapping[int | None, tuple[int, ...]]) -> Iterator[str]:
    for point in _all_points(curve):
        seeds = missing.get(point.n_frozen, ())
        if point.mean is None:
            yield f"{_name(point.n_frozen)}: every run crashed ({_seeds(seeds)}); it has no score"
        elif seeds:
            yield f"{_name(point.n_frozen)}: {_seeds(seeds)} crashed: missing from its mean and its pairs"
    if curve.full.mean is None:
        yield "differences, ratios and operating points are not given: they need a finished run of the full model"
    crashed_rates = [f"{tried.learning_rate:g}" for tried in curve.line_search if tried.score is None]
    if crashed_rates:
        yield f"line search: the run at rate {_listed(crashed_rates)} crashed; the rate was chosen among the others"


def _of_scales(curve: Curve) -> Iterator[str]:
    if curve.full.mean is None:
        return
    said = f"the full model's mean {curve.metric} is {curve.full.mean:.4g}"
    if curve.full.ratio is None:
        yield f"ratio is not given: {said}, not above 0"
    if curve.full.ratio_above_chance is None:
        yield f"ratio_above_chance is not given: {said}, not above chance ({curve.chance:.4g})"


def _of_high_chance(curve: Curve) -> Iterator[str]:
    if curve.full.mean is None or curve.full.ratio is None:
        return
    cheap = [keep for keep in _keeps(curve) if stats.reaches(curve.chance, stats.bar_of(keep, curve.full.mean))]
    if cheap:
        share = curve.chance / curve.full.mean
        yield (
            f"a constant answer already has {share:.0%} of the full {curve.metric} ({curve.chance:.4g}), so keep "
            f"{_listed(f'{keep:g}' for keep in cheap)} says little on scale ratio; read ratio_above_chance"
        )


def _of_failures(curve: Curve) -> Iterator[str]:
    for point in _all_points(curve):
        if point.n_failed:
            runs = f"{point.n_failed} of {len(point.scores)} runs"
            yield f"{_name(point.n_frozen)}: {runs} ended at or below chance ({curve.chance:.4g}); they are in the mean"


def _of_order(curve: Curve) -> Iterator[str]:
    for found in curve.operating_points:
        if not found.is_monotone:
            short = _listed(_short_depths(curve, found))
            yield (
                f"not monotone: for keep {found.keep:g} on scale {found.scale} n_frozen {found.n_frozen} is enough, "
                f"yet n_frozen {short} falls short"
            )


def _short_depths(curve: Curve, found: OperatingPoint) -> tuple[int, ...]:
    assert curve.full.mean is not None, "an operating point that is not monotone has a full model"
    bar = stats.bar_of(found.keep, curve.full.mean, _base(curve, found))
    return stats.short_depths(means_by_depth(curve.points), bar)


def _base(curve: Curve, found: OperatingPoint) -> float:
    return 0.0 if found.scale == "ratio" else curve.chance


def means_by_depth(points: Iterable[Point]) -> dict[int, float]:
    """The mean scores of the depths that have one."""
    return {point.n_frozen: point.mean for point in points if point.n_frozen is not None and point.mean is not None}


def _of_few_rows(curve: Curve, dev: DevMargin | None) -> Iterator[str]:
    if dev is None or curve.full.mean is None:
        return
    narrow = []
    for keep in _keeps(curve):
        asked = curve.operating_point(keep)
        loss = curve.full.mean - stats.bar_of(keep, curve.full.mean, _base(curve, asked))
        if stats.is_above(loss, 0.0) and loss <= dev.margin:
            narrow.append(f"keep {keep:g} on scale {asked.scale} allows a loss of {loss:.2g}")
    if narrow:
        rows = "1 dev row" if dev.n_rows == 1 else f"{dev.n_rows} dev rows"
        yield (
            f"{rows}: others like them may move the {curve.metric} of one run by ±{dev.margin:.2g} (95%), yet "
            f"{_listed(narrow)}; more dev rows would say more"
        )


def _of_few_seeds(curve: Curve) -> Iterator[str]:
    few = [point for point in _all_points(curve) if 0 < len(point.seeds) < stats.MIN_SEEDS]
    if few:
        places = _listed(_name(point.n_frozen) for point in few)
        yield f"fewer than {stats.MIN_SEEDS} seeds, hence no intervals: {places}"


def _of_distributions(curve: Curve) -> Iterator[str]:
    if any(point.trained_layers is not None and not point.distribution for point in curve.operating_points):
        yield "no seed finished at every depth, so the operating points have no distribution"


def _of_selection(curve: Curve) -> Iterator[str]:
    if curve.line_search and curve.protocol == "paper":
        yield (
            f"the rate {curve.learning_rate:g} was selected on the dev set that gives the scores, as in the paper: "
            "a little optimistic"
        )


def _of_intervals(curve: Curve) -> Iterator[str]:
    if any(point.ci is not None for point in _all_points(curve)):
        yield "intervals are pointwise: each holds on its own, not all of them at once"


def _keeps(curve: Curve) -> tuple[float, ...]:
    return tuple(dict.fromkeys(point.keep for point in curve.operating_points))
