"""Operating points, and how probable each depth is."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from frostline.records.depth import FULL, Depth
from frostline.stats.basics import ROUNDING, Floats, Rows, mean, reaches
from frostline.stats.crossed import Scored

N_DRAWN = 4000
"""The number of draws of the true means."""


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
    scored: Mapping[Depth, Scored], *, keep: float, rng: np.random.Generator, base: float = 0.0
) -> dict[Depth, float]:
    """How probable it is that each depth is the operating depth, given these runs: over new seeds and new dev rows.

    True means are drawn around the observed ones: t-distributed over seeds, each model on its own, and over rows with
    the same rows for all models. FULL comes first, then the depths ascending. Depths that never occur are left out, and
    the shares sum to 1. If the full mean of a draw is not above the base, no share of it can be kept: it counts as
    FULL.
    """
    rows = rng.integers(len(scored[FULL].resampled), size=N_DRAWN)
    means = {depth: drawn_means(one, rows, rng) for depth, one in scored.items()}
    depths = sorted(depth for depth in scored if depth is not FULL)
    bars = base + keep * (means[FULL] - base)
    winner = np.full(N_DRAWN, -1)
    for place, depth in enumerate(depths):
        winner[means[depth] >= bars - ROUNDING] = place
    winner[means[FULL] <= base + ROUNDING] = -1
    counts = np.bincount(winner + 1, minlength=len(depths) + 1)
    named: list[Depth] = [FULL, *depths]
    return {depth: int(count) / N_DRAWN for depth, count in zip(named, counts, strict=True) if count}


def drawn_means(scored: Scored, rows: Rows, rng: np.random.Generator) -> Floats:
    """Where the true mean of a model may be."""
    n_seeds, by_row = len(scored.scores), scored.by_row
    variance = float(by_row.var(ddof=1))
    alone = max(0.0, variance - scored.interaction)  # what one seed has of its own on one row is in its scores
    shrink = math.sqrt(alone / variance) if variance > 0 else 0.0
    over_seeds = rng.standard_t(n_seeds - 1, N_DRAWN) * float(scored.scores.std(ddof=1)) / math.sqrt(n_seeds)
    drawn: Floats = mean(scored.scores) + over_seeds + shrink * (by_row[rows] - by_row.mean())
    return drawn
