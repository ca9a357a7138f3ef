"""How often the intervals hold what they promise, on simulated curves whose truth is known.

    python -m bench.coverage [--curves 2000] [--runs OUT …] [--json]

A curve has a full model and four depths, three or five seeds, and noise of one kind: Gaussian, skewed, bounded, in two
heaps, with failed runs, or the residuals of real runs (`--runs`: out folders of finished curves).
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.simulated import NOISES, Draw, Floats, noises, percent, show
from frostline import stats

MEANS = {3: 0.79, 4: 0.725, 5: 0.715, 6: 0.60}
"""two of them within half a deviation of the bar, which is at 0.72"""
FULL = 0.80
KEEP = 0.9
DEVIATION = 0.012
"""of a score from seed to seed"""
SHARED = 0.3
"""share of a score's variance that a seed has at every depth"""
N_SEEDS = (3, 5)
CHANCE = 0.5


FAILURES = {"5% of runs failed": 0.05, "20% of runs failed": 0.2}
"""runs that end at chance"""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How often the truth was inside, of all curves."""

    noise: str
    n_seeds: int
    n_curves: int
    mean: float
    difference: float
    ratio: float
    depth: float
    """the true operating depth is among the plausible ones"""
    n_plausible: float
    """how many there are, on average"""


def simulated(name: str, draw: Draw, n_seeds: int, n_curves: int, failed: float = 0.0) -> Coverage:
    """The coverage of every interval over many curves."""
    rng = np.random.default_rng([1911, n_seeds, *name.encode()])
    hits: list[tuple[bool, bool, bool, bool, int]] = []
    truth = {depth: mean + failed * (CHANCE - mean) for depth, mean in MEANS.items()}
    full_truth = FULL + failed * (CHANCE - FULL)
    true_depth = stats.operating_depth(truth, stats.bar_of(KEEP, full_truth))
    for _ in range(n_curves):
        seeds = draw(rng, n_seeds) * math.sqrt(SHARED)

        def scores(mean: float, seeds: Floats = seeds) -> Floats:
            noise = (seeds + draw(rng, n_seeds) * math.sqrt(1 - SHARED)) * DEVIATION
            return np.where(rng.random(n_seeds) < failed, CHANCE, mean + noise)

        full = scores(FULL)
        by_depth = {depth: scores(mean) for depth, mean in MEANS.items()}
        own = by_depth[4]
        plausible = stats.plausible_depths(by_depth, full, keep=KEEP)
        hits.append(
            (
                _holds(stats.t_interval(own), truth[4]),
                _holds(stats.difference_interval(own, full), truth[4] - full_truth),
                _holds(stats.ratio_interval(own, full), truth[4] / full_truth),
                true_depth in plausible,
                len(plausible),
            )
        )
    mean, difference, ratio, depth, size = (statistics.fmean(column) for column in zip(*hits, strict=True))
    return Coverage(
        noise=name,
        n_seeds=n_seeds,
        n_curves=n_curves,
        mean=mean,
        difference=difference,
        ratio=ratio,
        depth=depth,
        n_plausible=size,
    )


def _holds(interval: tuple[float, float] | None, truth: float) -> bool:
    """Whether the truth is inside; an interval without bounds holds everything."""
    return interval is None or interval[0] <= truth <= interval[1]


CELLS: dict[str, Callable[[Coverage], str]] = {
    "noise": lambda one: one.noise,
    "seeds": lambda one: str(one.n_seeds),
    "mean": lambda one: percent(one.mean),
    "difference": lambda one: percent(one.difference),
    "ratio": lambda one: percent(one.ratio),
    "operating depth": lambda one: percent(one.depth),
    "plausible depths": lambda one: f"{one.n_plausible:.1f}",
}


def main() -> None:
    """A table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=int, default=4000)
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = [simulated(name, draw, n, asked.curves) for name, draw in noises(asked.runs).items() for n in N_SEEDS]
    found += [
        simulated(name, NOISES["Gaussian"], n, asked.curves, share) for name, share in FAILURES.items() for n in N_SEEDS
    ]
    show(found, CELLS, as_json=asked.json)


if __name__ == "__main__":
    main()
