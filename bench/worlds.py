"""Simulated curves whose truth is known: rows that models answer rightly or wrongly.

A seed's model answers a row rightly if  level(depth) + seed + row + interaction > 0.  Most of a row's difficulty is
shared by all models, so they make many of the same mistakes, as real ones do; a part of it belongs to the depth and is
the same for all seeds. Levels are chosen so that a depth has its true accuracy over all seeds and rows.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.simulated import NOISES, Draw
from frostline.records.depth import FULL, Depth

KEEP = 0.9
CHANCE = 0.5
_ROW_SPREAD = 2.0
_OWN_ROWS = 0.3
"""share of the variance of a row's difficulty that belongs to the depth"""
_N_CALIBRATION = 200_000
Curve = Callable[[float], float]
"""the share of the full accuracy by the share of layers that is frozen"""

CURVES: dict[str, Curve] = {
    "monotone": lambda frozen: 1 - 0.35 * frozen**6,
    "flat": lambda frozen: 1 - 0.02 * frozen,
    "dipping": lambda frozen: 0.84 if 0.6 <= frozen < 0.72 else 1 - 0.35 * frozen**6,
    "better in the middle": lambda frozen: 1 + 0.03 * np.sin(np.pi * frozen) - 0.3 * max(0.0, frozen - 0.7) / 0.3,
    "plateau just over the bar": lambda frozen: KEEP + 0.0006 if frozen > 0.5 else 1.0,
    "plateau just under the bar": lambda frozen: KEEP - 0.0006 if frozen > 0.5 else 1.0,
    "far from the bar": lambda frozen: 1.0 if frozen < 0.8 else KEEP - 0.1,
}


@dataclass(frozen=True, kw_only=True)
class World:
    """What a curve is drawn from."""

    name: str
    n_layers: int = 12
    curve: str = "monotone"
    n_rows: int = 872
    full: float = 0.92
    """accuracy of the full model"""
    noise: float = 0.012
    """standard deviation of a depth's accuracy from seed to seed"""
    full_noise: float | None = None
    """the full model's; None: as the depths'"""
    noise_rises: bool = False
    """twice the noise at the deepest cut, half of it at the shallowest"""
    kind: str = "Gaussian"
    """of the noise"""
    row_noise: float = 1.0
    """how much of a row's difficulty is its own"""
    failing: float = 0.0
    """share of the runs that end at chance"""
    only_full_fails: bool = False
    metric: str = "accuracy"
    """accuracy, f1, mcc: from which rows are answered rightly; pearson: the answers are numbers"""
    positives: float = 0.5
    """share of the rows that belong to class 1"""
    rate_losses: tuple[float, ...] = (0.0,)
    """what a race may lose: each model gets one of these, drawn for each curve"""

    @property
    def depths(self) -> tuple[int, ...]:
        """Ascending: half of the layers to all of them."""
        return tuple(range(self.n_layers // 2, self.n_layers + 1))

    @property
    def truth(self) -> Mapping[Depth, float]:
        """The accuracy of runs that do not fail, over all seeds and rows."""
        share = CURVES[self.curve]
        return {FULL: self.full, **{depth: self.full * share(depth / self.n_layers) for depth in self.depths}}

    def noise_at(self, depth: Depth) -> float:
        """The standard deviation from seed to seed."""
        if depth is FULL:
            return self.noise if self.full_noise is None else self.full_noise
        first, last = self.depths[0], self.depths[-1]
        return self.noise * (0.5 + 1.5 * (depth - first) / (last - first)) if self.noise_rises else self.noise


BASE = World(name="base")
_DEV_SETS = {"RTE": (277, 0.66), "MRPC": (408, 0.84), "STS-B": (1500, 0.88), "no other": (10_000, 0.92)}
"""rows and full accuracy; the base world's are SST-2's"""


def _worlds() -> list[World]:
    """One factor at a time from the base world, and the named bad combinations."""
    change = dataclasses.replace
    found = [BASE]
    found += [change(BASE, name=f"{n} layers", n_layers=n) for n in (6, 24)]
    found += [change(BASE, name=f"dev set like {n}", n_rows=r, full=f) for n, (r, f) in _DEV_SETS.items()]
    found += [change(BASE, name=name, curve=name) for name in CURVES if name != "monotone"]
    found += [
        change(BASE, name="noisy full model, quiet depths", full_noise=0.016, noise=0.0018),
        change(BASE, name="noise rises with depth", noise_rises=True),
        *(change(BASE, name=f"{kind} noise", kind=kind) for kind in ("skewed", "bimodal")),
        change(BASE, name="row noise × 0.1", row_noise=0.1),
        *(change(BASE, name=f"{share:.0%} of runs fail", failing=share) for share in (0.05, 0.2)),
        *(change(BASE, name=f"{s:.0%} of full runs fail", failing=s, only_full_fails=True) for s in (0.05, 0.2)),
    ]
    found += [
        change(BASE, name="MRPC, F1", n_rows=408, full=0.84, metric="f1", positives=0.68),
        change(BASE, name="CoLA, MCC", n_rows=1043, full=0.82, metric="mcc", positives=0.69),
        change(BASE, name="CoLA, MCC, 6 layers", n_rows=1043, full=0.82, metric="mcc", positives=0.69, n_layers=6),
    ]
    found.append(change(BASE, name="a race that may lose 1 or 3 points", rate_losses=(0.0, 0.0, 0.01, 0.03)))
    plateau = change(BASE, curve="plateau just under the bar")
    over = change(BASE, curve="plateau just over the bar")
    for where, one in (("under", plateau), ("over", over)):
        found += [
            change(one, name=f"plateau {where}, 24 layers", n_layers=24),
            change(
                one, name=f"plateau {where}, noisy full, 10,000 rows", full_noise=0.016, noise=0.0018, n_rows=10_000
            ),
            change(one, name=f"plateau {where}, 20% fail", failing=0.2),
            change(one, name=f"plateau {where}, RTE", n_rows=277, full=0.66),
        ]
    return found


WORLDS = _worlds()


@dataclass(frozen=True)
class Drawn:
    """A curve: which rows each run answered rightly, and which runs failed."""

    correct: Mapping[Depth, NDArray[np.float32]]
    """(rows, seeds)"""
    labels: NDArray[np.float32]
    """(rows,)"""
    has_failed: Mapping[Depth, NDArray[np.bool_]]
    """(seeds,)"""
    truth: Mapping[Depth, float]
    """the accuracy of runs that do not fail, over all seeds and rows, at the rates that were chosen"""


class Simulator:
    """Draws curves from a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        places = itertools.product(world.truth, world.rate_losses)
        self._levels = {(depth, loss): self._calibrated(depth, loss) for depth, loss in places}

    def draw(self, n_seeds: int, rng: np.random.Generator) -> Drawn:
        """One curve."""
        world = self.world
        shared = _rows(rng, world.n_rows, world.row_noise)
        correct, failed, truth = {}, {}, {}
        for depth, best in world.truth.items():
            loss = world.rate_losses[rng.integers(len(world.rate_losses))] if len(world.rate_losses) > 1 else 0.0
            level, spread = self._levels[depth, loss]
            truth[depth] = best - loss
            own = _rows(rng, world.n_rows, world.row_noise)
            rows = np.sqrt(1 - _OWN_ROWS) * shared + np.sqrt(_OWN_ROWS) * own
            seeds = spread * self._noise(rng, n_seeds)
            extra = rng.logistic(0.0, 0.7, (world.n_rows, n_seeds)).astype(np.float32)
            right = level + seeds + rows[:, None] + extra > 0
            fails = world.failing if depth is FULL or not world.only_full_fails else 0.0
            failed[depth] = rng.random(n_seeds) < fails
            guessed = rng.random((world.n_rows, n_seeds)) < CHANCE
            correct[depth] = np.where(failed[depth], guessed, right).astype(np.float32)
        labels = (rng.random(world.n_rows) < world.positives).astype(np.float32)
        return Drawn(correct, labels, failed, {depth: self._in_metric(depth, mean) for depth, mean in truth.items()})

    def _in_metric(self, depth: Depth, accuracy: float) -> float:
        """The true mean of the metric at a true accuracy, over seeds."""
        if self.world.metric == "accuracy":
            return accuracy
        return self._means[depth, accuracy]

    @functools.cached_property
    def _means(self) -> dict[tuple[Depth, float], float]:
        """The mean of the metric over seeds on endless rows, by depth and accuracy."""
        world, rng, found = self.world, np.random.default_rng(8), {}
        plain = _rows(rng, 40_000, world.row_noise) + rng.logistic(0.0, 0.7, 40_000)
        for (depth, loss), (level, spread) in self._levels.items():
            by_seed = [float(np.mean(plain + level + shift > 0)) for shift in spread * self._noise(rng, 400)]
            values = [metric_of(world.metric, np.array([a]), np.array([1.0]), world.positives)[0] for a in by_seed]
            found[depth, world.truth[depth] - loss] = float(np.mean(values))
        return found

    @property
    def _noise(self) -> Draw:
        return NOISES[self.world.kind]

    def _calibrated(self, depth: Depth, loss: float) -> tuple[float, float]:
        """The level of a depth and the spread of its seeds, on the scale inside: they give its accuracy and noise."""
        rng, wanted = np.random.default_rng(7), self.world.truth[depth] - loss
        plain = _rows(rng, _N_CALIBRATION, self.world.row_noise) + rng.logistic(0.0, 0.7, _N_CALIBRATION)
        spread = 0.0
        for _ in range(4):
            all_parts = plain + spread * self._noise(rng, _N_CALIBRATION)
            level = -float(np.quantile(all_parts, 1 - wanted))
            slope = float(np.mean(np.abs(plain + level) < 0.1)) / 0.2
            spread = self.world.noise_at(depth) / slope
        return level, spread


def metric_of(
    metric: str, right: NDArray[np.float64], total: NDArray[np.float64], positives: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """A metric where both classes are answered rightly equally often: shares of right rows, of all, of positives."""
    accuracy = right / total
    hits = positives * accuracy
    answered = hits + (1 - positives) * (1 - accuracy)
    return score_of(metric, accuracy, hits, answered, np.asarray(positives))


def score_of(
    metric: str,
    accuracy: NDArray[np.float64],
    hits: NDArray[np.float64],
    answered: NDArray[np.float64],
    positives: NDArray[np.float64],
) -> NDArray[np.float64]:
    """A metric from shares of the rows: right, rightly in class 1, answered with class 1, in class 1."""
    if metric == "accuracy":
        return accuracy
    if metric == "f1":
        return np.asarray(2 * hits / (positives + answered))
    covariance = hits - positives * answered
    spread = positives * (1 - positives) * answered * (1 - answered)
    return np.asarray(covariance / np.sqrt(np.maximum(spread, 1e-12)))


def scores_of(
    world: World, labels: NDArray[np.float32], correct: NDArray[np.float32], counts: NDArray[np.float32]
) -> NDArray[np.float64]:
    """The scores of runs (rows, seeds) on resampled rows (resamples, rows): (resamples, seeds)."""
    n_rows = len(correct)
    right = (counts @ correct).astype(np.float64) / n_rows
    if world.metric == "accuracy":
        return right
    one = labels[:, None]
    hits = (counts @ (correct * one)).astype(np.float64) / n_rows
    answered = hits + (counts @ ((1 - correct) * (1 - one))).astype(np.float64) / n_rows
    positives = (counts @ one).astype(np.float64) / n_rows
    return score_of(world.metric, right, hits, answered, positives)


def _rows(rng: np.random.Generator, number: int, row_noise: float) -> NDArray[np.float32]:
    """The difficulty of rows; with little row noise, rows hardly differ."""
    spread = float(np.sqrt(row_noise)) * _ROW_SPREAD
    return rng.normal(0.0, spread, number).astype(np.float32)
