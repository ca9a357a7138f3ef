"""How often the intervals hold what they promise, on simulated curves whose truth is known.

    python -m bench.coverage [--curves 2000] [--runs OUT …] [--json]

A curve has a full model and four depths, three or five seeds, and noise of one kind: Gaussian, skewed, bounded, in two
heaps, with failed runs, or the residuals of real runs (`--runs`: out folders of finished curves).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from frostline import stats
from frostline.store import Store

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
"""so many deviations of a score, of mean 0 and standard deviation 1 at a full score of 0"""

MEANS = {3: 0.79, 4: 0.77, 5: 0.70, 6: 0.60}
FULL = 0.80
KEEP = 0.9
DEVIATION = 0.012
"""of a score from seed to seed"""
SHARED = 0.3
"""share of a score's variance that a seed has at every depth"""
N_SEEDS = (3, 5)
CHANCE = 0.5


def _bounded(rng: np.random.Generator, number: int) -> Floats:
    """Most runs near a bound that none can pass."""
    drawn = rng.beta(6.0, 0.8, number)
    mean, variance = 6.0 / 6.8, 6.0 * 0.8 / (6.8**2 * 7.8)
    return (drawn - mean) / math.sqrt(variance)


def _in_two_heaps(rng: np.random.Generator, number: int) -> Floats:
    """A good heap, and a bad one that a run in five falls into."""
    drawn = np.where(rng.random(number) < 0.2, -3.0, 0.0) + rng.normal(0, 0.5, number)
    return (drawn + 0.6) / math.sqrt(0.25 + 9 * 0.2 * 0.8)


NOISES: dict[str, Draw] = {
    "Gaussian": lambda rng, number: rng.normal(size=number),
    "skewed": lambda rng, number: 1.0 - rng.exponential(size=number),
    "bounded": _bounded,
    "two heaps": _in_two_heaps,
}
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


def residuals(folders: Sequence[Path]) -> Draw:
    """Deviations as real runs have them: scores less the mean of their replicates, over all depths, scaled alike."""
    pooled: list[float] = []
    for folder in folders:
        groups: dict[str, list[float]] = {}
        for result in Store(folder).results():
            if result.spec.role == "replicate":
                groups.setdefault(result.spec.replace(seed=0).key, []).append(result.score)
        for scores in groups.values():
            deviation = stats.std(scores) if len(scores) > 2 else None
            if deviation:
                pooled += [(score - stats.mean(scores)) / deviation for score in scores]
    if len(pooled) < 50:
        raise SystemExit(f"only {len(pooled)} scores with replicates in {', '.join(map(str, folders))}; give more")
    values = np.array(pooled)
    scaled = (values - values.mean()) / values.std()
    return lambda rng, number: rng.choice(scaled, number)


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


def main() -> None:
    """A table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=int, default=4000)
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    draws = NOISES | ({"residuals of real runs": residuals(asked.runs)} if asked.runs else {})
    found = [simulated(name, draw, n, asked.curves) for name, draw in draws.items() for n in N_SEEDS]
    found += [
        simulated(name, NOISES["Gaussian"], n, asked.curves, share) for name, share in FAILURES.items() for n in N_SEEDS
    ]
    if asked.json:
        json.dump([dataclasses.asdict(one) for one in found], sys.stdout, indent=2)
        return
    print("| noise | seeds | mean | difference | ratio | operating depth | plausible depths |")
    print("|---|---|---|---|---|---|---|")
    for one in found:
        shares = " | ".join(f"{share:.1%}" for share in (one.mean, one.difference, one.ratio, one.depth))
        print(f"| {one.noise} | {one.n_seeds} | {shares} | {one.n_plausible:.1f} |")


if __name__ == "__main__":
    main()
