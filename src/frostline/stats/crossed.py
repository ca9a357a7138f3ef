"""Intervals and margins over new seeds *and* new dev rows, for two models that were scored on the same rows.

A score varies because another seed trains another model, and because other rows would be asked. Seeds and rows are
crossed: every seed's model answers all rows. Their variances add, and what belongs to one seed on one row (the
interaction) is contained in both parts, so it is taken off once. The row part comes from resampled rows, the same ones
for both models, so that rows that are hard for both cancel out in a difference.

A model without mistakes has the same score on all resampled rows, but new rows may hold one that it gets wrong. So its
variance over rows counts as at least that of one wrong row.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from frostline.stats.basics import Floats, Interval, covariance_of_means, mean, t_quantile, variance_of_mean
from frostline.stats.intervals import MIN_SEEDS


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of one model's seeds."""

    scores: Floats
    """(seeds,), on the dev rows"""
    resampled: Floats
    """(resamples, seeds): the scores on resampled rows; the same resamples for all models"""

    @functools.cached_property
    def mean(self) -> float:
        """Of the scores."""
        return mean(self.scores)

    @functools.cached_property
    def variance_of_mean(self) -> float:
        """Over new seeds."""
        return variance_of_mean(self.scores)

    @functools.cached_property
    def by_row(self) -> Floats:
        """(resamples,): the mean score of the seeds on resampled rows."""
        found: Floats = self.resampled.mean(axis=1)
        return found

    @functools.cached_property
    def interaction(self) -> float:
        """The variance of the mean that belongs to single seeds on single rows.

        The variance over rows of one seed's score holds the interaction whole, that of the mean of S seeds a share 1/S.
        """
        n_seeds = int(self.resampled.shape[1])
        if n_seeds < 2:
            return 0.0
        alone = float(self.resampled.var(axis=0, ddof=1).mean())
        together = float(self.by_row.var(ddof=1))
        return max(0.0, alone - together) / (n_seeds - 1)


@dataclass(frozen=True)
class SeedPart:
    """A part of the covariance matrix of two means, and how well it is known."""

    matrix: Floats
    freedom: float

    def variance(self, weights: Floats) -> float:
        """Of a weighted sum of the means."""
        return float(weights @ self.matrix @ weights)


@dataclass(frozen=True, eq=False)
class CrossedPair:
    """The means of two models, and how far they may be off under new seeds and new rows."""

    means: Floats
    """(own, full)"""
    seeds: tuple[SeedPart, ...]
    """over new seeds"""
    rows: Floats
    """(2, 2): covariance over new rows"""
    interaction: Floats
    """(2,): the variance that is contained in both"""
    row_freedom: float

    def margin(self, weights: Sequence[float], error: float) -> float:
        """How far a weighted sum of the means may be off to one side, except in a share `error` of cases.

        Never less than with the seeds alone, or the rows alone: new rows cannot make a mean more certain.
        """
        chosen = np.array(weights)
        seeds, freedoms = [part.variance(chosen) for part in self.seeds], [part.freedom for part in self.seeds]
        rows = float(chosen @ self.rows @ chosen)
        rows_alone = max(0.0, rows - float(chosen**2 @ self.interaction))
        return max(
            _margin([*seeds, rows_alone], [*freedoms, self.row_freedom], error),
            _margin(seeds, freedoms, error),
            _margin([rows], [self.row_freedom], error),
        )

    def seed_margin(self, weights: Sequence[float], error: float) -> float:
        """The margin under new seeds alone, on these rows."""
        chosen = np.array(weights)
        parts = [part.variance(chosen) for part in self.seeds]
        return _margin(parts, [part.freedom for part in self.seeds], error)

    def with_more_seeds(self, factor: float) -> CrossedPair:
        """The same means and variances with `factor` times as many seeds of each model."""
        return CrossedPair(
            means=self.means,
            seeds=tuple(SeedPart(one.matrix / factor, (one.freedom + 1) * factor - 1) for one in self.seeds),
            rows=self.rows - np.diag(self.interaction * (1 - 1 / factor)),
            interaction=self.interaction / factor,
            row_freedom=self.row_freedom,
        )

    def on_these_rows(self) -> CrossedPair:
        """The same pair under new seeds alone."""
        return dataclasses.replace(self, rows=np.zeros((2, 2)), interaction=np.zeros(2))

    def difference_interval(self, *, confidence: float = 0.95) -> Interval:
        """The interval of own minus full."""
        value, half = float(self.means[0] - self.means[1]), self.margin((1.0, -1.0), (1 - confidence) / 2)
        return value - half, value + half

    def ratio_interval(self, *, base: float = 0.0, confidence: float = 0.95) -> Interval | None:
        """Fieller's interval of (own − base) / (full − base); None if unbounded, or full is not above the base.

        It holds the ratios for which own − ratio · full is within its margin. The margin is the largest of three, so
        the interval is the union of three of Fieller's.
        """
        above, below = float(self.means[0]) - base, float(self.means[1]) - base
        if below <= 0:
            return None
        ratio, error = above / below, (1 - confidence) / 2
        found = [_fieller(ratio, below, matrix, q) for matrix, q in self._spreads((1.0, -ratio), error)]
        if None in found:
            return None
        ends = [ratio, *(end for one in found if one is not None for end in one)]
        return min(ends), max(ends)

    def _spreads(self, weights: Sequence[float], error: float) -> Iterator[tuple[Floats, float]]:
        """The covariance matrices behind `margin`, each with its quantile; none for parts that do not vary."""
        chosen = np.array(weights)
        seeds = np.sum([part.matrix for part in self.seeds], axis=0)
        new_rows = self.rows - np.diag(self.interaction)
        in_seeds, in_new_rows = float(chosen @ seeds @ chosen), float(chosen @ new_rows @ chosen)
        if in_seeds > 0:
            freedom = _freedom([part.variance(chosen) for part in self.seeds], [part.freedom for part in self.seeds])
            yield seeds, t_quantile(freedom, 1 - 2 * error)
            if in_new_rows > 0:
                both = _freedom([in_seeds, in_new_rows], [freedom, self.row_freedom])
                yield seeds + new_rows, t_quantile(both, 1 - 2 * error)
        if float(chosen @ self.rows @ chosen) > 0:
            yield self.rows, t_quantile(self.row_freedom, 1 - 2 * error)


def _fieller(ratio: float, below: float, matrix: Floats, quantile: float) -> Interval | None:
    """Fieller's interval around a ratio whose denominator is `below`; None if it is unbounded."""
    weights = np.array([1.0, -ratio])
    a = below**2 - quantile**2 * float(matrix[1, 1])
    if a <= 0:
        return None
    # As in `intervals.ratio_interval`: with u = r − ratio, Fieller's set is u² a + 2 u b − c ≤ 0, where c ≥ 0.
    b = quantile**2 * float(matrix[0, 1] - ratio * matrix[1, 1])
    c = quantile**2 * float(weights @ matrix @ weights)
    root = math.sqrt(b * b + a * c)
    return ratio + (-b - root) / a, ratio + (-b + root) / a


def _margin(variances: Sequence[float], freedoms: Sequence[float], error: float) -> float:
    """The margin of a sum of independent parts."""
    known = [max(0.0, variance) for variance in variances]
    total = math.fsum(known)
    return 0.0 if total == 0 else t_quantile(_freedom(known, freedoms), 1 - 2 * error) * math.sqrt(total)


def _freedom(variances: Sequence[float], freedoms: Sequence[float]) -> float:
    """The degrees of freedom of a sum of independent parts, after Welch and Satterthwaite."""
    total = math.fsum(variances)
    # Shares, not variances: the squares of tiny variances would underflow to 0.
    spread = math.fsum((v / total) ** 2 / freedom for v, freedom in zip(variances, freedoms, strict=True))
    return 1 / spread


def paired_by_seed(own: Scored, full: Scored, n_rows: int) -> CrossedPair | None:
    """Two models trained with the same seeds, in the same order; None below three seeds or two rows."""
    n_seeds = len(own.scores)
    if n_seeds < MIN_SEEDS or n_rows < 2:
        return None
    both = covariance_of_means(own.scores, full.scores)
    matrix = np.array([[own.variance_of_mean, both], [both, full.variance_of_mean]])
    return _crossed(own, full, [SeedPart(matrix, n_seeds - 1)], n_rows)


def not_paired(own: Scored, full: Scored, n_rows: int) -> CrossedPair | None:
    """Two models whose seeds count as different ones; None below two seeds of each or two rows.

    There are more degrees of freedom than in `paired_by_seed`. If the same seed moves both models in the same
    direction, as it mostly does, margins are a little too wide, never too narrow.
    """
    if min(len(own.scores), len(full.scores)) < 2 or n_rows < 2:
        return None
    parts = []
    for place, scored in enumerate((own, full)):
        matrix = np.zeros((2, 2))
        matrix[place, place] = scored.variance_of_mean
        parts.append(SeedPart(matrix, len(scored.scores) - 1))
    return _crossed(own, full, parts, n_rows)


def least_row_variance(n_rows: int) -> float:
    """The variance over rows of a share of right answers if one of these rows is wrong."""
    return (n_rows - 1) / n_rows**3


def _crossed(own: Scored, full: Scored, seeds: Sequence[SeedPart], n_rows: int) -> CrossedPair:
    rows = np.cov([own.by_row, full.by_row])
    if own is not full:  # a model differs from itself by exactly 0
        np.fill_diagonal(rows, np.maximum(np.diag(rows), least_row_variance(n_rows)))
    return CrossedPair(
        means=np.array([own.mean, full.mean]),
        seeds=tuple(seeds),
        rows=rows,
        interaction=np.array([own.interaction, full.interaction]),
        row_freedom=1 / (1 / (n_rows - 1) + 1 / (len(own.resampled) - 1)),
    )
