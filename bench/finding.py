"""How often `find` is right, and what it costs: its own logic on simulated curves whose truth is known.

    python -m bench.finding [--curves 2000] [--json]

A curve is a mean score at each depth and noise around it; the search asks for scores one by one, as it asks for runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from frostline import deciding, stats
from frostline.deciding import Decision, Question

N_LAYERS = (6, 12, 24)
KEEP = 0.9
N_SEEDS = 5
N_RATES = 5
RACE = 1.5
"""Full runs that a race of five rates takes: all to a sixth of their steps, two of them to a half."""

Means = dict[int | None, float]
"""the true mean score by depth; None: the full model"""


@dataclass(frozen=True)
class Truth:
    """A curve that is known."""

    shape: str
    means: Means
    deviation: float
    """of a score from seed to seed"""
    row_noise: float
    """standard deviation of a score over other dev rows"""

    @property
    def depths(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(sorted(depth for depth in self.means if depth is not None))

    @property
    def answer(self) -> int | None:
        """The largest depth that keeps the share."""
        depths = {depth: mean for depth, mean in self.means.items() if depth is not None}
        full = self.means[None]
        assert full is not None
        return stats.operating_depth(depths, stats.bar_of(KEEP, full))

    @property
    def distance(self) -> float:
        """How far the nearest depth is from the bar, in deviations of a score."""
        bar = stats.bar_of(KEEP, self.means[None])
        return min(abs(self.means[depth] - bar) for depth in self.depths) / self.deviation


def draw(shape: str, rng: np.random.Generator) -> Truth:
    """A curve of a shape: how high, how steep and how noisy is drawn."""
    n_layers = int(rng.choice(N_LAYERS))
    full = rng.uniform(0.6, 0.95)
    depths = range(n_layers // 2, n_layers + 1)
    means: Means = {None: full, **{depth: full * _share(shape, depth, n_layers, rng) for depth in depths}}
    if shape == "dipping":
        _dip(means, n_layers, rng)
    deviation = float(rng.choice([0.004, 0.008, 0.016]))
    # What is known of GLUE: a score varies from seed to seed about half to once as much as over other dev rows.
    return Truth(shape, means, deviation, deviation * rng.uniform(1.0, 2.5))


SHAPES = ("monotone", "flat", "dipping", "better")


def _share(shape: str, depth: int, n_layers: int, rng: np.random.Generator) -> float:
    """The share of the full score that a depth keeps."""
    frozen = depth / n_layers
    if shape == "flat":
        return 1 - 0.03 * frozen
    if shape == "better":
        return 1 + 0.03 * math.sin(math.pi * frozen) - 0.35 * max(0.0, frozen - 0.85) / 0.15 * rng.uniform(0.9, 1.1)
    return 1 - rng.uniform(0.3, 0.4) * frozen**6


def _dip(means: Means, n_layers: int, rng: np.random.Generator) -> None:
    """One depth in the middle falls short of the bar, those beside it do not."""
    depth = int(rng.integers(n_layers // 2, n_layers - 1))
    means[depth] = means[None] * rng.uniform(0.8, 0.86)


Noise = Callable[[np.random.Generator, float], float]
"""draws one deviation of a score, of a standard deviation"""

NOISES: dict[str, Noise] = {
    "gaussian": lambda rng, deviation: float(rng.normal(0.0, deviation)),
    "skewed": lambda rng, deviation: float(deviation * (1.0 - rng.exponential())),
}


def costs(n_layers: int, depths: tuple[int, ...]) -> dict[int | None, float]:
    """Of one run in full runs, as the cost model has it."""
    units = {depth: 3 * (n_layers - depth) + 0.1 for depth in depths}
    return {None: 1.0, **{depth: cost / (3 * n_layers + 0.1) for depth, cost in units.items()}}


def searched(truth: Truth, rng: np.random.Generator, noise: Noise) -> tuple[Decision, float, float]:
    """What the search says, what it spent and what the whole curve would have cost, in full runs."""
    n_layers = max(truth.depths)
    by_run = costs(n_layers, truth.depths)
    whole = N_RATES + N_SEEDS * sum(by_run.values())
    question = Question(
        keep=KEEP, seeds=tuple(range(N_SEEDS)), depths=truth.depths, costs=by_run, budget=whole / 2 - RACE
    )
    scores: dict[int | None, dict[int, float | None]] = {}
    while isinstance(step := deciding.next_step(question, scores, truth.row_noise**2), list):
        for depth, seed in step:
            scores.setdefault(depth, {})[seed] = truth.means[depth] + noise(rng, truth.deviation)
    spent = question.cost([(depth, seed) for depth, by_seed in scores.items() for seed in by_seed])
    return step, spent + RACE, whole


def is_near(truth: Truth, said: int | None) -> bool:
    """Whether an answer is right within one layer; the full model alone is one beyond the shallowest depth."""
    beyond = min(truth.depths) - 1
    return abs((beyond if said is None else said) - (beyond if truth.answer is None else truth.answer)) <= 1


@dataclass(frozen=True, kw_only=True)
class Found:
    """How a kind of curve was judged."""

    shape: str
    noise: str
    n_curves: int
    decided: float
    right: float
    """of the decided"""
    near: float
    """of the decided: right within one layer"""
    decided_at_the_bar: float | None
    """share decided where some depth is within one deviation of the bar; None where there is no such curve"""
    cost: float
    """median share of the whole curve's cost"""


def judged(shape: str, noise: str, n_curves: int, seed: int) -> Found:
    """Many curves of a shape."""
    rng = np.random.default_rng([seed, SHAPES.index(shape), list(NOISES).index(noise)])
    truths = [draw(shape, rng) for _ in range(n_curves)]
    outcomes = [(truth, *searched(truth, rng, NOISES[noise])) for truth in truths]
    decided = [(truth, decision) for truth, decision, _, _ in outcomes if decision.is_decided]
    close = [decision for truth, decision, _, _ in outcomes if truth.distance < 1]
    return Found(
        shape=shape,
        noise=noise,
        n_curves=n_curves,
        decided=len(decided) / n_curves,
        right=statistics.fmean(truth.answer == decision.n_frozen for truth, decision in decided),
        near=statistics.fmean(is_near(truth, decision.n_frozen) for truth, decision in decided),
        decided_at_the_bar=statistics.fmean(decision.is_decided for decision in close) if close else None,
        cost=statistics.median(spent / whole for _, _, spent, whole in outcomes),
    )


def main() -> None:
    """A table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = [judged(shape, noise, asked.curves, asked.seed) for noise in NOISES for shape in SHAPES]
    if asked.json:
        json.dump([dataclasses.asdict(one) for one in found], sys.stdout, indent=2)
        return
    print("| noise | curve | decided | right | within one layer | decided at the bar | cost |")
    print("|---|---|---|---|---|---|---|")
    for one in found:
        print("| " + " | ".join(_cells(one)) + " |")


def _cells(found: Found) -> list[Any]:
    shares = (found.decided, found.right, found.near, found.decided_at_the_bar, found.cost)
    return [found.noise, found.shape, *("–" if share is None else f"{share:.1%}" for share in shares)]


if __name__ == "__main__":
    main()
