"""How often `find` is right, and what it costs: its own logic on simulated curves whose truth is known.

    python -m bench.finding [--curves 2000] [--runs OUT …] [--json]

A curve is a mean score at each depth and noise around it; the search asks for scores one by one, as it asks for runs.
`--runs`: out folders of finished curves, whose residuals are one kind of noise.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.simulated import Draw, noises, percent, show
from frostline import stats
from frostline.records.depth import FULL, Depth, with_full
from frostline.stats import search_rules
from frostline.stats.search_rules import Decision, Question
from frostline.studies.planning.axis import layer_forwards

N_LAYERS = (6, 12, 24)
KEEP = 0.9
N_SEEDS = 5
RACE = search_rules.race_cost(5)
LINE_SEARCH = 5
"""full runs of the whole curve's line search"""
AT_THE_BAR = 1.0
"""A depth as near as this, in deviations of its score, is within noise of the bar."""

UNEVEN = math.log(3)
"""Depths' deviations are up to three times, or down to a third of, the curve's: real ones differ as much."""


@dataclass(frozen=True)
class Truth:
    """A curve that is known."""

    means: Mapping[Depth, float]
    """the true mean score"""
    deviations: Mapping[Depth, float]
    """of a score from seed to seed"""
    row_noise: float
    """standard deviation of a score over other dev rows"""

    @property
    def depths(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(sorted(depth for depth in self.means if depth is not FULL))

    @property
    def bar(self) -> float:
        """The score that keeps the share."""
        return stats.bar_of(KEEP, self.means[FULL])

    @property
    def answer(self) -> Depth:
        """The largest depth that keeps the share."""
        return stats.operating_depth({depth: self.means[depth] for depth in self.depths}, self.bar)

    @property
    def is_at_the_bar(self) -> bool:
        """Whether a depth that matters to the answer is within noise of the bar."""
        matter = [depth for depth in self.depths if self.answer is FULL or depth >= self.answer]
        return any(abs(self.means[depth] - self.bar) < AT_THE_BAR * self.deviations[depth] for depth in matter)


Shares = Callable[[float], float]
"""the share of the full score by the share of layers that is frozen"""


def _monotone(rng: np.random.Generator) -> Shares:
    drop, power = rng.uniform(0.15, 0.5), rng.uniform(3, 9)
    return lambda frozen: 1 - drop * frozen**power


def _flat(rng: np.random.Generator) -> Shares:
    drop = rng.uniform(0.0, 0.05)
    return lambda frozen: 1 - drop * frozen


def _dipping(rng: np.random.Generator) -> Shares:
    """One stretch in the middle falls short of the bar, what is beside it does not."""
    falling, start, depth = _monotone(rng), rng.uniform(0.5, 0.8), rng.uniform(0.8, 0.86)
    return lambda frozen: min(depth, falling(frozen)) if start <= frozen < start + 0.15 else falling(frozen)


def _better(rng: np.random.Generator) -> Shares:
    """The frozen model is better until few layers train, as the paper found on SST-2."""
    gain, drop = rng.uniform(0.005, 0.04), rng.uniform(0.15, 0.5)
    return lambda frozen: 1 + gain * math.sin(math.pi * frozen) - drop * max(0.0, frozen - 0.7) / 0.3


SHAPES: dict[str, Callable[[np.random.Generator], Shares]] = {
    "monotone": _monotone,
    "flat": _flat,
    "dipping": _dipping,
    "better": _better,
}


def draw(shape: str, rng: np.random.Generator) -> Truth:
    """A curve of a shape: how high, how steep and how noisy is drawn."""
    n_layers = int(rng.choice(N_LAYERS))
    full, share = rng.uniform(0.6, 0.95), SHAPES[shape](rng)
    depths = range(n_layers // 2, n_layers + 1)
    deviation = float(rng.choice([0.004, 0.008, 0.016]))
    return Truth(
        means={FULL: full, **{depth: full * share(depth / n_layers) for depth in depths}},
        deviations={depth: deviation * math.exp(rng.uniform(-UNEVEN, UNEVEN)) for depth in with_full(depths)},
        row_noise=deviation * rng.uniform(0.7, 2.5),
    )


def costs(depths: tuple[int, ...]) -> dict[Depth, float]:
    """Of one run in full runs, as the cost model has it; the deepest cut freezes all layers."""
    n_layers = max(depths)
    of_full = layer_forwards(n_layers)
    return {FULL: 1.0, **{depth: layer_forwards(n_layers - depth) / of_full for depth in depths}}


def searched(truth: Truth, rng: np.random.Generator, noise: Draw) -> tuple[Decision, float]:
    """What the search says, and the share of the whole curve's cost that it spent."""
    by_run = costs(truth.depths)
    whole = LINE_SEARCH + N_SEEDS * math.fsum(by_run.values())
    seeds = tuple(range(N_SEEDS))
    question = Question(keep=KEEP, seeds=seeds, depths=truth.depths, costs=by_run, budget=whole / 2, spent=RACE)
    scores: dict[Depth, dict[int, float | None]] = {}
    while isinstance(step := search_rules.next_step(question, scores, truth.row_noise**2), list):
        for (depth, seed), deviation in zip(step, noise(rng, len(step)), strict=True):
            scores.setdefault(depth, {})[seed] = truth.means[depth] + truth.deviations[depth] * float(deviation)
    spent = question.cost([(depth, seed) for depth, by_seed in scores.items() for seed in by_seed])
    return step, (RACE + spent) / whole


def is_near(truth: Truth, said: Depth) -> bool:
    """Whether an answer is right within one layer; the full model alone is one beyond the shallowest depth."""
    beyond = min(truth.depths) - 1
    return abs((beyond if said is FULL else said) - (beyond if truth.answer is FULL else truth.answer)) <= 1


@dataclass(frozen=True, kw_only=True)
class Found:
    """How a kind of curve was judged."""

    shape: str
    noise: str
    n_curves: int
    decided: float
    right: float | None
    """of the decided"""
    near: float | None
    """of the decided: right within one layer"""
    open_near: float | None
    """of the open: the estimate is right within one layer"""
    open_at_the_bar: float | None
    """of the curves with a depth within noise of the bar: said to be open"""
    cost: float
    """median share of the whole curve's cost"""


def judged(shape: str, name: str, noise: Draw, n_curves: int, seed: int) -> Found:
    """Many curves of a shape."""
    rng = np.random.default_rng([seed, *shape.encode(), *name.encode()])
    truths = [draw(shape, rng) for _ in range(n_curves)]
    ends = [(truth, *searched(truth, rng, noise)) for truth in truths]
    decided = [(truth, end) for truth, end, _ in ends if end.is_decided]
    unsure = [(truth, end) for truth, end, _ in ends if not end.is_decided]
    return Found(
        shape=shape,
        noise=name,
        n_curves=n_curves,
        decided=len(decided) / n_curves,
        right=_share([truth.answer == end.n_frozen for truth, end in decided]),
        near=_share([is_near(truth, end.n_frozen) for truth, end in decided]),
        open_near=_share([is_near(truth, end.n_frozen) for truth, end in unsure]),
        open_at_the_bar=_share([not end.is_decided for truth, end, _ in ends if truth.is_at_the_bar]),
        cost=statistics.median(cost for _, _, cost in ends),
    )


def _share(said: list[bool]) -> float | None:
    return statistics.fmean(said) if said else None


CELLS: dict[str, Callable[[Found], str]] = {
    "noise": lambda one: one.noise,
    "curve": lambda one: one.shape,
    "decided": lambda one: percent(one.decided),
    "of these right": lambda one: percent(one.right),
    "within one layer": lambda one: percent(one.near),
    "open: estimate within one layer": lambda one: percent(one.open_near),
    "open where a depth is at the bar": lambda one: percent(one.open_at_the_bar),
    "cost": lambda one: percent(one.cost),
}


def main() -> None:
    """A table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=int, default=2000)
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = [
        judged(shape, name, noise, asked.curves, asked.seed)
        for name, noise in noises(asked.runs).items()
        for shape in SHAPES
    ]
    show(found, CELLS, as_json=asked.json)


if __name__ == "__main__":
    main()
