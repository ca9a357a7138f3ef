"""Means, spreads and comparisons that every other module here builds on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from frostline.errors import UsageError

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Interval = tuple[float, float]

ROUNDING = 1e-12
"""Scores closer than this are equal: 0.9 × 0.8 and 0.72 differ only in the last bit."""


def is_equal(value: float, other: float) -> bool:
    """Whether two numbers differ by rounding errors at most."""
    return abs(value - other) <= ROUNDING


def is_above(value: float, bar: float) -> bool:
    """Whether a value exceeds a bar by more than rounding."""
    return value > bar + ROUNDING


def reaches(value: float, bar: float) -> bool:
    """Whether a value is at or above a bar, allowing for rounding."""
    return value >= bar - ROUNDING


def mean(values: Sequence[float] | Floats) -> float:
    """The mean; for equal values it is exactly that value."""
    array = np.asarray(values, dtype=np.float64)
    return float(array[0] + (array - array[0]).mean())


def std(values: Sequence[float] | Floats) -> float | None:
    """The standard deviation (n − 1); exactly 0 for equal values; None below two values."""
    array = np.asarray(values, dtype=np.float64)
    return math.sqrt(variance_of_mean(array) * len(array)) if len(array) > 1 else None


def paired(values: Sequence[float] | Floats, others: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    """Both as arrays; a UsageError if they cannot be paired."""
    array, other = np.asarray(values, dtype=np.float64), np.asarray(others, dtype=np.float64)
    if array.ndim != 1 or array.shape != other.shape:
        raise UsageError(f"paired values have shapes {array.shape} and {other.shape}; each needs its partner: (pairs,)")
    return array, other


def variance_of_mean(values: Floats) -> float:
    """The variance of the mean of independent values."""
    return covariance_of_means(values, values)


def covariance_of_means(values: Floats, others: Floats) -> float:
    """The covariance of the means of paired values."""
    n_pairs = len(values)
    return float((values - mean(values)) @ (others - mean(others))) / (n_pairs - 1) / n_pairs


def t_quantile(freedom: float, confidence: float) -> float:
    """How many standard errors a two-sided interval reaches to each side."""
    if not 0 < confidence < 1:
        raise UsageError(f"confidence is {confidence}; it must lie between 0 and 1, e.g. 0.95")
    # Imported here so that reports, which read the records but compute nothing, start without scipy.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))
