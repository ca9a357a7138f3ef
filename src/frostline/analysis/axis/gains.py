"""What each additional layer adds to the score: diminishing returns, with intervals."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from frostline import stats
from frostline.analysis.axis.operating_records import Gain
from frostline.analysis.axis.places import Places
from frostline.analysis.points import Replicates

_COUNTS_LAYERS = ("transfer", "reinit")
"""Axes whose values are numbers of layers; on the others there is no additional layer."""


def layer_gains(groups: Mapping[int, Replicates], places: Places, n_rows: int) -> tuple[Gain, ...]:
    """The gain from each place of a curve to the one before it, the cheapest first.

    Runs are paired by seed. Neighbours with fewer than three seeds in common have no gain.
    """
    if places.axis is not None and places.axis.name not in _COUNTS_LAYERS:
        return ()
    found = (
        _gain(groups, place, before, places, n_rows)
        for before, place in reversed(list(itertools.pairwise(sorted(groups))))
    )
    return tuple(gain for gain in found if gain is not None)


def _gain(groups: Mapping[int, Replicates], start: int, end: int, places: Places, n_rows: int) -> Gain | None:
    """The gain from one place to another."""
    less, more = groups[start].resampled, groups[end].resampled
    seeds = [seed for seed in less if seed in more]
    if len(seeds) < stats.MIN_SEEDS:
        return None
    before, after = groups[start].scored(seeds), groups[end].scored(seeds)
    n_layers = _distance(places, start, end)
    differences = after.scores - before.scores
    interval = stats.t_interval(differences)
    # That differences do not vary is not known from a few seeds.
    is_constant = stats.is_equal(float(differences.min()), float(differences.max()))
    pair = stats.paired_by_seed(after, before, n_rows)
    at_start, at_end = places.named(start), places.named(end)
    return Gain(
        n_frozen_from=at_start["n_frozen"],
        n_frozen_to=at_end["n_frozen"],
        gain=stats.mean(differences) / n_layers,
        ci=None if interval is None or is_constant else tuple(bound / n_layers for bound in interval),
        ci_dev=None if pair is None else tuple(bound / n_layers for bound in pair.difference_interval()),
        value_from=at_start["value"],
        value_to=at_end["value"],
    )


def _distance(places: Places, start: int, end: int) -> int:
    """How many layers lie between two places."""
    first, last = places.value(start), places.value(end)
    assert isinstance(first, int), "places of groups are values"
    assert isinstance(last, int), "places of groups are values"
    return abs(last - first)
