"""Intervals, paired comparisons, operating points and their distribution, on plain arrays.

Whatever is random takes the generator it draws from. Knows nothing of runs or records.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from frostline.errors import UsageError

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Interval = tuple[float, float]

ROUNDING = 1e-12
"""Scores closer than this are the same: 0.9 × 0.8 and 0.72 differ in their last bit only."""
MIN_SEEDS = 3
"""Below this no interval is given: Student's t with one degree of freedom is 13 standard errors wide."""
MAX_ENUMERATED = 5000
"""Resamples of the seeds are listed in full up to this many, and drawn beyond."""
N_DRAWN = 5000
"""Resamples of the seeds where they are drawn."""


def is_above(value: float, bar: float) -> bool:
    """Whether a value exceeds a bar by more than rounding."""
    return value > bar + ROUNDING


def reaches(value: float, bar: float) -> bool:
    """Whether a value is at a bar, but for rounding, or above it."""
    return value >= bar - ROUNDING


def mean(values: Sequence[float] | Floats) -> float:
    """The mean; of equal values exactly that value."""
    array = np.asarray(values, dtype=np.float64)
    return float(array[0] + (array - array[0]).mean())


def std(values: Sequence[float] | Floats) -> float | None:
    """The standard deviation (n − 1); of equal values exactly 0; None below two."""
    array = np.asarray(values, dtype=np.float64)
    return math.sqrt(_variance_of_mean(array) * len(array)) if len(array) > 1 else None


def t_interval(values: Sequence[float] | Floats, *, confidence: float = 0.95) -> Interval | None:
    """Student's t interval of the mean; None below three values."""
    array = np.asarray(values, dtype=np.float64)
    if len(array) < MIN_SEEDS:
        return None
    half = _t_quantile(len(array) - 1, confidence) * math.sqrt(_variance_of_mean(array))
    return mean(array) - half, mean(array) + half


def difference_interval(
    values: Sequence[float] | Floats, others: Sequence[float] | Floats, *, confidence: float = 0.95
) -> Interval | None:
    """Student's t interval of the mean of the paired differences, values less others; None below three pairs."""
    array, other = _paired(values, others)
    return t_interval(array - other, confidence=confidence)


def ratio_interval(
    numerators: Sequence[float] | Floats, denominators: Sequence[float] | Floats, *, confidence: float = 0.95
) -> Interval | None:
    """Fieller's interval of the ratio of two paired means; None below three pairs or where it has no bounds."""
    above, below = _paired(numerators, denominators)
    if len(below) < MIN_SEEDS or mean(below) == 0:
        return None
    if np.array_equal(above, below):
        return 1.0, 1.0
    t_squared = _t_quantile(len(below) - 1, confidence) ** 2
    a = mean(below) ** 2 - t_squared * _variance_of_mean(below)
    if a <= 0:
        return None
    # With u = r − ratio, Fieller's set is u² a + 2 u b − c ≤ 0, where c ≥ 0. Written around the ratio nothing cancels.
    ratio = mean(above) / mean(below)
    rest = above - ratio * below
    b = t_squared * _covariance_of_means(rest, below)
    c = t_squared * _variance_of_mean(rest)
    root = math.sqrt(b * b + a * c)
    low, high = ratio + (-b - root) / a, ratio + (-b + root) / a
    return (low, high) if np.isfinite([low, high]).all() else None


def moderated_margin(
    parts: Sequence[tuple[Sequence[float], float]], *, prior: float, prior_freedom: float, error: float
) -> float:
    """How far a weighted sum of means may be off to one side, but for a share `error` of cases.

    A part is (values, weight). Each part's variance is its own, moderated: as if `prior_freedom` more values had shown
    the variance `prior`, because two or three values alone say little of it. Degrees of freedom as Welch and
    Satterthwaite have it.
    """
    freedoms = [prior_freedom + len(values) - 1 for values, _ in parts]
    variances = [
        weight**2 * (prior_freedom * prior + sum_of_squares(values)) / freedom / len(values)
        for (values, weight), freedom in zip(parts, freedoms, strict=True)
    ]
    total = math.fsum(variances)
    if total == 0:
        return 0.0
    # Shares, not variances: the squares of tiny variances would vanish.
    spread = math.fsum((v / total) ** 2 / freedom for v, freedom in zip(variances, freedoms, strict=True))
    return _t_quantile(1 / spread, 1 - 2 * error) * math.sqrt(total)


def sum_of_squares(values: Sequence[float]) -> float:
    """Of what values differ from their mean by."""
    array = np.asarray(values, dtype=np.float64) - mean(values)
    return float(array @ array)


def row_variance(
    score: Callable[[Rows], float], n_rows: int, rng: np.random.Generator, *, n_resamples: int = 400
) -> float:
    """The variance of a score over resampled rows (bootstrap); `score` is called with row numbers, some repeated."""
    return float(np.var([score(rng.integers(n_rows, size=n_rows)) for _ in range(n_resamples)], ddof=1))


def resampled_counts(n_rows: int, rng: np.random.Generator, *, n_resamples: int = 400) -> NDArray[np.float32]:
    """How often each row is drawn in each resample (resamples, rows): the same ones that `row_variance` draws."""
    drawn = rng.integers(n_rows, size=(n_resamples, n_rows)) + n_rows * np.arange(n_resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=n_resamples * n_rows).reshape(n_resamples, n_rows).astype(np.float32)


def crossed_interval(
    scores: Sequence[float] | Floats,
    variance_of_rows: float,
    n_rows: int,
    *,
    n_resamples: int = 400,
    confidence: float = 0.95,
) -> Interval | None:
    """The interval of the mean score under new seeds and new rows; None below three seeds or two rows.

    `scores` holds one a seed, all on the same rows; `variance_of_rows` is that of their mean, from `row_variance` with
    as many resamples. Seeds and rows are crossed random effects, so their variances add. What a seed does to single
    rows is in both parts, which makes the interval a little too wide rather than too narrow. Degrees of freedom as
    Welch and Satterthwaite have it, but never narrower than `t_interval`: new rows cannot make the mean more certain.
    """
    array = np.asarray(scores, dtype=np.float64)
    if len(array) < MIN_SEEDS or n_rows < 2:
        return None
    seeds = _variance_of_mean(array)
    total = seeds + variance_of_rows
    if total == 0:
        return mean(array), mean(array)
    # Shares, not variances: the squares of tiny variances would vanish.
    share = seeds / total
    spread = share**2 / (len(array) - 1) + (1 - share) ** 2 * (1 / (n_rows - 1) + 1 / (n_resamples - 1))
    both = _t_quantile(1 / spread, confidence) * math.sqrt(total)
    half = max(both, _t_quantile(len(array) - 1, confidence) * math.sqrt(seeds))
    return mean(array) - half, mean(array) + half


def expected_best(values: Sequence[float] | Floats) -> tuple[float, ...]:
    """The expected best of k of these values, drawn with replacement, for k from 1 to all of them.

    >>> expected_best([0.7, 0.9])
    (0.8, 0.85)
    """
    ranked = np.sort(np.asarray(values, dtype=np.float64))
    steps = np.arange(len(ranked) + 1) / max(1, len(ranked))
    return tuple(float(ranked @ np.diff(steps**k)) for k in range(1, len(ranked) + 1))


def bar_of(keep: float, full: float, base: float = 0.0) -> float:
    """The score that keeps a share of what the full model has above a base (0, or chance)."""
    return base + keep * (full - base)


def operating_depth(means: Mapping[int, float], bar: float) -> int | None:
    """The largest depth whose mean reaches the bar; None where none does."""
    return max((depth for depth, value in means.items() if reaches(value, bar)), default=None)


def short_depths(means: Mapping[int, float], bar: float) -> tuple[int, ...]:
    """The depths below the operating depth whose means fall short of the bar, ascending."""
    deepest = operating_depth(means, bar)
    if deepest is None:
        return ()
    return tuple(sorted(depth for depth, value in means.items() if depth < deepest and not reaches(value, bar)))


def is_monotone(means: Mapping[int, float], bar: float) -> bool:
    """Whether every depth below the operating depth reaches the bar too."""
    return not short_depths(means, bar)


def plausible_depths(
    scores: Mapping[int, Floats], full: Floats, *, keep: float, base: float = 0.0, confidence: float = 0.95
) -> tuple[int | None, ...]:
    """The depths that may be the operating depth, None (the full model alone) first; empty below three seeds.

    `scores` holds (seeds,) by depth, in the order of seeds that `full` has. A depth surely keeps the share where the
    interval of what it has above the bar, paired by seed, lies above 0, and surely falls short where it lies below. The
    operating depth is none that surely falls short, and none above one that surely keeps.
    """
    bars = base + keep * (full - base)
    above = {depth: t_interval(values - bars, confidence=confidence) for depth, values in scores.items()}
    known = {depth: interval for depth, interval in above.items() if interval is not None}
    if not known:
        return ()
    sure = max((depth for depth, (low, _) in known.items() if is_above(low, 0.0)), default=None)
    kept = [d for d, (_, high) in sorted(known.items()) if reaches(high, 0.0) and (sure is None or d >= sure)]
    return (*([None] if sure is None else []), *kept)


def depth_distribution(
    scores: Mapping[int, Floats], full: Floats, *, keep: float, rng: np.random.Generator, base: float = 0.0
) -> dict[int | None, float]:
    """How often each depth is the operating depth when the seeds are resampled, the same at every depth.

    `scores` holds (seeds,) by depth, in the order of seeds that `full` has. None, the full model alone, comes first,
    then the depths ascending; those that never occur are left out, and the shares sum to 1. A resample whose full mean
    is not above the base has nothing to keep a share of: it counts as None.
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
    named: list[int | None] = [None, *depths]
    return {depth: int(count) / len(resamples) for depth, count in zip(named, counts, strict=True) if count}


def _seed_resamples(n_seeds: int, rng: np.random.Generator) -> Rows:
    """Seed numbers (resamples, seeds): all there are, or a draw."""
    if n_seeds**n_seeds <= MAX_ENUMERATED:
        return np.array(list(itertools.product(range(n_seeds), repeat=n_seeds)), dtype=np.intp)
    return rng.integers(n_seeds, size=(N_DRAWN, n_seeds), dtype=np.intp)


def _t_quantile(freedom: float, confidence: float) -> float:
    """How many standard errors a two-sided interval reaches to each side."""
    if not 0 < confidence < 1:
        raise UsageError(f"confidence is {confidence}; it must lie between 0 and 1, e.g. 0.95")
    # Here, not above: reports read the records beside what computes them, and start without scipy.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _paired(values: Sequence[float] | Floats, others: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    array, other = np.asarray(values, dtype=np.float64), np.asarray(others, dtype=np.float64)
    if array.ndim != 1 or array.shape != other.shape:
        raise UsageError(f"paired values have shapes {array.shape} and {other.shape}; each needs its partner: (pairs,)")
    return array, other


def _variance_of_mean(values: Floats) -> float:
    return _covariance_of_means(values, values)


def _covariance_of_means(values: Floats, others: Floats) -> float:
    n_pairs = len(values)
    return float((values - mean(values)) @ (others - mean(others))) / (n_pairs - 1) / n_pairs
