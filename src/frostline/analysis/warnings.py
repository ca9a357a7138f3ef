"""The warnings of a curve: what the reader should know, one line each.

This module reads records and computes nothing new. It does not know where the lines are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from frostline import stats
from frostline.analysis.axis.operating_records import OperatingPoint
from frostline.analysis.axis.places import value_of, words_at
from frostline.analysis.curve_records import Curve, Point, Replicated
from frostline.analysis.points import Replicates
from frostline.records.depth import Depth
from frostline.records.environment import mixed_environments


@dataclass(frozen=True, kw_only=True)
class DevMargin:
    """How precisely the dev rows alone measure a score."""

    n_rows: int
    """number of dev rows"""
    margin: float
    """how far a new sample of dev rows may move the score of one run of the full model (95%)"""


def curve_warnings(
    curve: Curve,
    missing: Mapping[Depth, tuple[int, ...]],
    others: Iterable[str],
    dev: DevMargin | None = None,
) -> tuple[str, ...]:
    """The warnings of a curve, the most serious first, without duplicates.

    `missing` holds the seeds whose runs did not finish, by depth or value. `others` come last, such as warnings about
    the data. `dev` is None if the full model has no run.
    """
    lines = [
        *_crashes(curve, missing),
        *_scales(curve),
        *_high_chance(curve),
        *_failures(curve),
        *_order(curve),
        *_few_rows(curve, dev),
        *_few_seeds(curve),
        *_distributions(curve),
        *_selection(curve),
        *_intervals(curve),
        *others,
    ]
    return tuple(dict.fromkeys(lines))


def run_warnings(groups: Iterable[Replicates]) -> list[str]:
    """Whether runs whose scores are compared were made in different environments; then what the runs say themselves."""
    results = [result for group in groups for result in group.finished()]
    mixed = mixed_environments(result.environment for result in results)
    return [*mixed, *(warning for result in results for warning in result.warnings)]


def _listed(numbers: Iterable[object]) -> str:
    return ", ".join(str(number) for number in numbers)


def _seeds(seeds: tuple[int, ...]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {_listed(seeds)}"


def _place(curve: Curve, point: Point) -> str:
    return words_at(curve, value_of(point))


def _all_points(curve: Curve) -> tuple[Point, ...]:
    return (curve.full, *curve.points)


def _crashes(curve: Curve, missing: Mapping[Depth, tuple[int, ...]]) -> Iterator[str]:
    for point in _all_points(curve):
        seeds = missing.get(value_of(point), ())
        if point.mean is None:
            yield f"{_place(curve, point)}: every run crashed ({_seeds(seeds)}); it has no score"
        elif seeds:
            yield f"{_place(curve, point)}: {_seeds(seeds)} crashed; not in its mean or its pairs"
    if curve.full.mean is None:
        yield "differences, ratios and operating points are not given: they need a finished run of the full model"
    crashed_rates = [f"{tried.learning_rate:g}" for tried in curve.line_search if tried.score is None]
    if crashed_rates:
        yield f"line search: the run at rate {_listed(crashed_rates)} crashed; the rate was chosen from the others"


def _scales(curve: Curve) -> Iterator[str]:
    if curve.full.mean is None:
        return
    said = f"the full model's mean {curve.metric} is {curve.full.mean:.4g}"
    if curve.full.ratio is None:
        yield f"ratio is not given: {said}, not above 0"
    if curve.full.ratio_above_chance is None:
        yield f"ratio_above_chance is not given: {said}, not above chance ({curve.chance:.4g})"


def _high_chance(curve: Curve) -> Iterator[str]:
    if curve.full.mean is None or curve.full.ratio is None:
        return
    cheap = [keep for keep in _keeps(curve) if stats.reaches(curve.chance, stats.bar_of(keep, curve.full.mean))]
    if cheap:
        share = curve.chance / curve.full.mean
        yield (
            f"a constant answer already has {share:.0%} of the full {curve.metric} ({curve.chance:.4g}), so keep "
            f"{_listed(f'{keep:g}' for keep in cheap)} says little on scale ratio; use --scale ratio_above_chance"
        )


def _failures(curve: Curve) -> Iterator[str]:
    for point in _all_points(curve):
        if point.n_failed:
            said = f"{failed_words(point)} (chance {curve.chance:.4g})"
            yield f"{_place(curve, point)}: {said}; the mean includes them"


def failed_words(point: Replicated) -> str:
    """How many runs failed, how many of them diverged, and how likely a run is to fail."""
    diverged = f", {point.n_diverged} diverged" if point.n_diverged else ""
    likely = "" if point.p_failed_ci is None else f", {point.p_failed_ci[0]:.0%} to {point.p_failed_ci[1]:.0%} of all"
    return f"{point.n_failed} of {len(point.scores)} runs learned nothing{diverged}{likely}"


def _order(curve: Curve) -> Iterator[str]:
    for found in curve.operating_points:
        if not found.is_monotone:
            short = _listed(_short_of(curve, found))
            enough = words_at(curve, value_of(found)) if curve.axis else f"{found.n_frozen} frozen layers"
            yield (
                f"not monotone: for keep {found.keep:g} on scale {found.scale}, {enough} are "
                f"enough, but {short} fall short"
            )


def _short_of(curve: Curve, found: OperatingPoint) -> tuple[Depth, ...]:
    """Depths or values before the operating point that fall short."""
    assert curve.full.mean is not None, "an operating point that is not monotone has a full model"
    bar = stats.bar_of(found.keep, curve.full.mean, _base(curve, found))
    means = {place: point.mean for place, point in enumerate(curve.points) if point.mean is not None}
    return tuple(value_of(curve.points[place]) for place in stats.short_depths(means, bar))


def _base(curve: Curve, found: OperatingPoint) -> float:
    return 0.0 if found.scale == "ratio" else curve.chance


def _few_rows(curve: Curve, dev: DevMargin | None) -> Iterator[str]:
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
            f"{rows}: a new sample of them may move the {curve.metric} of one run by ±{dev.margin:.2g} (95%), but "
            f"{_listed(narrow)}; more dev rows give a more reliable answer"
        )


def _few_seeds(curve: Curve) -> Iterator[str]:
    few = [point for point in _all_points(curve) if 0 < len(point.seeds) < stats.MIN_SEEDS]
    if few:
        places = _listed(_place(curve, point) for point in few)
        yield f"fewer than {stats.MIN_SEEDS} seeds, so there are no intervals: {places}"


def _distributions(curve: Curve) -> Iterator[str]:
    if any(point.trained_layers is not None and not point.distribution for point in curve.operating_points):
        yield f"fewer than {stats.MIN_SEEDS} runs to judge by, so depths have no probabilities"


def _selection(curve: Curve) -> Iterator[str]:
    if curve.line_search and curve.protocol == "paper":
        yield (
            f"the rate {curve.learning_rate:g} was selected on the dev set that gives the scores, as in the paper: "
            "scores are slightly optimistic"
        )


def _intervals(curve: Curve) -> Iterator[str]:
    if any(point.ci is not None for point in _all_points(curve)):
        yield "intervals are pointwise: each holds on its own, not all of them at once"


def _keeps(curve: Curve) -> tuple[float, ...]:
    return tuple(dict.fromkeys(point.keep for point in curve.operating_points))
