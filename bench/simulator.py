"""Draws runs from a world and scores them on resampled rows, with the metrics that real runs are scored with.

A seed's model answers a row rightly with probability logistic(level(depth) + seed + row). Most of a row's difficulty is
shared by all models, so they make many of the same mistakes, as real ones do; a part of it belongs to the depth and is
the same for all seeds. Levels and spreads are computed so that the score of a depth has its true mean over all seeds
and rows. In a correlation task, labels and errors are Gaussian: every seed has a true correlation, and its errors have
the same parts as the difficulty of rows.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from bench.worlds import World
from frostline import stats
from frostline.analysis.resampling import RESAMPLING_SEED
from frostline.kinds import CLASSIFICATION
from frostline.records.depth import Depth

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Draw = Callable[[np.random.Generator, int], Floats]
"""a number of deviations of a score, of mean 0 and standard deviation 1"""
_ROW_SPREAD = 2.0
_SCALE = 0.7
"""of the logistic noise that each answer has of its own"""
_OWN_ROWS = 0.3
"""share of the variance of a row's difficulty that belongs to the depth"""
_OWN_ANSWERS = 0.3
"""share of the variance of an error that belongs to one seed on one row, in correlation tasks"""
_N_SEEDS_CALIBRATED = 2_000


def _bimodal(rng: np.random.Generator, number: int) -> Floats:
    """Most runs near one score, and one in five near a lower one."""
    drawn = np.where(rng.random(number) < 0.2, -3.0, 0.0) + rng.normal(0, 0.5, number)
    return (drawn + 0.6) / math.sqrt(0.25 + 9 * 0.2 * 0.8)


NOISES: dict[str, Draw] = {
    "Gaussian": lambda rng, number: rng.normal(size=number),
    "skewed": lambda rng, number: 1.0 - rng.exponential(size=number),
    "bimodal": _bimodal,
}


@dataclass(frozen=True)
class Drawn:
    """The runs of a curve."""

    answers: Singles
    """(rows, models, seeds): 1 where a row is answered rightly; in a correlation task, the answer"""
    labels: Singles
    """(rows,)"""
    has_failed: Mapping[Depth, NDArray[np.bool_]]
    """(seeds,): the runs that count as failed"""
    truth: Mapping[Depth, float]
    """the mean score of runs that do not fail, over all seeds and rows, at the rates that were chosen"""


class Simulator:
    """Draws curves from a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._draw_noise = NOISES[world.kind]
        places = itertools.product(world.truth.items(), world.rate_losses)
        self._levels = {(depth, loss): self._calibrated(depth, best - loss) for (depth, best), loss in places}

    def draw(self, n_seeds: int, rng: np.random.Generator) -> Drawn:
        """One curve."""
        world, models = self.world, tuple(self.world.truth)
        losses = rng.choice(world.rate_losses, len(models))
        levels, spreads = np.array([self._levels[place] for place in zip(models, losses, strict=True)]).T[:, :, None]
        means = levels + spreads * self._draw_noise(rng, len(models) * n_seeds).reshape(len(models), n_seeds)
        fails = rng.random(means.shape) < np.array([[world.fails_at(depth)] for depth in models])
        draw = _correlated if world.metric == "pearson" else _answered
        answers, labels = draw(world, means.astype(np.float32), fails, rng)
        counted = fails & (rng.random(fails.shape) >= world.unnoticed)
        return Drawn(
            answers,
            labels,
            has_failed=dict(zip(models, counted, strict=True)),
            truth={depth: world.truth[depth] - loss for depth, loss in zip(models, losses, strict=True)},
        )

    def _calibrated(self, depth: Depth, wanted: float) -> tuple[float, float]:
        """The level of a depth and the spread of its seeds that give this mean score and the noise of the world."""
        noise = self.world.noise_at(depth)
        if self.world.metric == "pearson":
            return wanted, noise
        spread, level = 0.0, 0.0

        def missing(level: float) -> float:
            accuracies = self._accuracies(level + spread * self._deviations)
            return float(score_at(self.world, accuracies).mean()) - wanted

        for _ in range(5):
            level = brentq(missing, -15.0, 15.0)
            step = spread or 0.01
            spread = step * noise / float(self._accuracies(level + step * self._deviations).std())
        return brentq(missing, -15.0, 15.0), spread

    @functools.cached_property
    def _deviations(self) -> Floats:
        """Of many seeds; mean and variance are exactly 0 and 1, so that no error of the draw remains."""
        drawn = self._draw_noise(np.random.default_rng(7), _N_SEEDS_CALIBRATED)
        found: Floats = (drawn - drawn.mean()) / drawn.std()
        return found

    def _accuracies(self, levels: Floats) -> Floats:
        """The accuracy over all rows of seeds with these levels."""
        return np.interp(levels, *self._accuracy_of_level).astype(np.float64)

    @functools.cached_property
    def _accuracy_of_level(self) -> tuple[Floats, Floats]:
        """Levels, and the accuracy at each: an integral over the difficulty of rows."""
        levels, rows = np.linspace(-20, 20, 4001), np.linspace(-6, 6, 241)
        weights = np.exp(-(rows**2) / 2)
        each = 1 / (1 + np.exp(-(levels[:, None] + _row_spread(self.world) * rows) / _SCALE))
        return levels, each @ weights / weights.sum()


def _answered(
    world: World, levels: Singles, fails: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Singles, Singles]:
    """Which rows each run answers rightly, and labels; a run that fails guesses."""
    rows = _rows(world.n_rows, len(levels), rng)
    right = 1 / (1 + np.exp(-(levels + np.float32(_row_spread(world)) * rows[:, :, None]) / np.float32(_SCALE)))
    right[:, fails] = 0.5
    answers = rng.random(right.shape, dtype=np.float32) < right
    labels = rng.random(world.n_rows) < world.positives
    return answers.astype(np.float32), labels.astype(np.float32)


def _correlated(
    world: World, correlations: Singles, fails: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Singles, Singles]:
    """Answers with these correlations to the labels, and labels; a run that fails answers noise."""
    labels = rng.standard_normal(world.n_rows, dtype=np.float32)
    rows = _rows(world.n_rows, len(correlations), rng)
    own = rng.standard_normal((world.n_rows, *correlations.shape), dtype=np.float32)
    errors = math.sqrt(1 - _OWN_ANSWERS) * rows[:, :, None] + math.sqrt(_OWN_ANSWERS) * own
    share = np.where(fails, np.float32(0), np.clip(correlations, -1, 1))
    return share * labels[:, None, None] + np.sqrt(1 - share**2) * errors, labels


def _rows(n_rows: int, n_models: int, rng: np.random.Generator) -> Singles:
    """How difficult each row is for each model (rows, models); variance 1."""
    shared, own = (rng.standard_normal((n_rows, width), dtype=np.float32) for width in (1, n_models))
    return math.sqrt(1 - _OWN_ROWS) * shared + math.sqrt(_OWN_ROWS) * own


def _row_spread(world: World) -> float:
    """With little row noise, rows hardly differ in difficulty."""
    return math.sqrt(world.row_noise) * _ROW_SPREAD


def scored_runs(world: World, drawn: Drawn) -> dict[Depth, stats.Scored]:
    """The scores of all runs, on the dev rows and on resampled ones; those that failed are included."""
    n_rows, n_models, n_seeds = drawn.answers.shape
    answers, score = drawn.answers.reshape(n_rows, -1), _pearson if world.metric == "pearson" else _of_tables
    by_run = score(world, drawn.labels, answers, counts(n_rows)).reshape(-1, n_models, n_seeds)
    return {depth: stats.Scored(by_run[0, place], by_run[1:, place]) for place, depth in enumerate(drawn.truth)}


@functools.cache
def counts(n_rows: int) -> Singles:
    """How often each row counts (1 + resamples, rows): each once, then as in the resamples of real runs."""
    resampled = stats.resampled_counts(n_rows, np.random.default_rng(RESAMPLING_SEED))
    return np.concatenate([np.ones((1, n_rows), np.float32), resampled])


def score_at(world: World, accuracies: Floats) -> Floats:
    """The score on endless rows where both classes are answered rightly equally often."""
    return _score_of_tables(
        world,
        accuracies * world.positives,
        accuracies * (1 - world.positives),
        np.full(accuracies.shape, world.positives),
        np.ones(accuracies.shape),
    )


def _of_tables(world: World, labels: Singles, correct: Singles, counts: Singles) -> Floats:
    """The scores of classifiers (rows, runs) on counted rows (resamples, rows): (resamples, runs)."""
    if world.metric == "accuracy":  # needs no tables; this is the most frequent metric here
        return (counts @ correct).astype(np.float64) / len(labels)
    is_positive = labels[:, None]
    parts = (correct * is_positive, correct * (1 - is_positive), is_positive, np.ones_like(is_positive))
    return _score_of_tables(world, *((counts @ part).astype(np.float64) for part in parts))


def _score_of_tables(
    world: World, right_positives: Floats, right_negatives: Floats, positives: Floats, rows: Floats
) -> Floats:
    negatives = rows - positives
    cells = (right_negatives, negatives - right_negatives, positives - right_positives, right_positives)
    of_tables = CLASSIFICATION.metric(world.metric).of_tables
    assert of_tables is not None
    found: Floats = of_tables(np.stack(np.broadcast_arrays(*cells), axis=-1).reshape(*cells[0].shape, 2, 2))
    return found


def _pearson(_world: World, labels: Singles, answers: Singles, counts: Singles) -> Floats:
    """The correlations of answers (rows, runs) with the labels on counted rows (resamples, rows): (resamples, runs)."""
    true, n_rows = labels[:, None], len(labels)
    parts = (true, true**2, answers, answers**2, true * answers)
    mean_true, square_true, mean, square, product = ((counts @ part).astype(np.float64) / n_rows for part in parts)
    found: Floats = (product - mean_true * mean) / np.sqrt((square_true - mean_true**2) * (square - mean**2))
    return found
