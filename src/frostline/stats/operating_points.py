"""Operating points, and their distribution over resampled seeds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from frostline.records.depth import FULL, Depth
from frostline.stats.basics import ROUNDING, Floats, Rows, reaches

MAX_ENUMERATED = 5000
"""Up to this many resamples of the seeds are listed in full; beyond it they are drawn at random."""

N_DRAWN = 5000
"""The number of resamples when they are drawn."""


def bar_of(keep: float, full: float, base: float = 0.0) -> float:
    """The score that keeps a share of what the full model has above a base (0, or chance)."""
    return base + keep * (full - base)


def operating_depth(means: Mapping[int, float], bar: float) -> Depth:
    """The largest depth whose mean reaches the bar; FULL if none does."""
    kept = [depth for depth, value in means.items() if reaches(value, bar)]
    return max(kept) if kept else FULL


def short_depths(means: Mapping[int, float], bar: float) -> tuple[int, ...]:
    """The depths below the operating depth whose means fall short of the bar, ascending."""
    deepest = operating_depth(means, bar)
    if deepest is FULL:
        return ()
    return tuple(sorted(depth for depth, value in means.items() if depth < deepest and not reaches(value, bar)))


def is_monotone(means: Mapping[int, float], bar: float) -> bool:
    """Whether every depth below the operating depth reaches the bar too."""
    return not short_depths(means, bar)


def depth_distribution(
    scores: Mapping[int, Floats], full: Floats, *, keep: float, rng: np.random.Generator, base: float = 0.0
) -> dict[Depth, float]:
    """How often each depth is the operating depth when the seeds are resampled, the same seeds at every depth.

    `scores` holds an array (seeds,) for each depth, with the seeds in the order of `full`. FULL comes first, then the
    depths ascending. Depths that never occur are left out, and the shares sum to 1. If the full mean of a resample is
    not above the base, no share of it can be kept: the resample counts as FULL.
    """
    resamples = _seed_resamples(len(full), rng)
    depths = sorted(scores)
    full_means = full[resamples].mean(axis=1)
    bars = base + keep * (full_means - base)
    winner = np.full(len(resamples), -1)
    for place, depth in enumerate(depths):
        is_kept = scores[depth][resamples].mean(axis=1) >= bars - ROUNDING
        winner[is_kept] = place
    winner[full_means <= base + ROUNDING] = -1
    counts = np.bincount(winner + 1, minlength=len(depths) + 1)
    named: list[Depth] = [FULL, *depths]
    return {depth: int(count) / len(resamples) for depth, count in zip(named, counts, strict=True) if count}


def _seed_resamples(n_seeds: int, rng: np.random.Generator) -> Rows:
    """Seed numbers (resamples, seeds): all that exist, or a random draw."""
    if n_seeds**n_seeds <= MAX_ENUMERATED:
        return np.array(list(itertools.product(range(n_seeds), repeat=n_seeds)), dtype=np.intp)
    return rng.integers(n_seeds, size=(N_DRAWN, n_seeds), dtype=np.intp)
