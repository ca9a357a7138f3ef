"""Whether the probabilities of depths are right: of all depths with a probability of 80%, 80% should be the true one.

    python -m bench.reliability [--curves 200] [--seed 1]

Worlds of `bench.coverage` without failing runs and with at most 2,000 dev rows.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from numpy.typing import NDArray

from bench.simulator import Simulator, scored_runs
from bench.tables import percent
from bench.worlds import KEEP, WORLDS
from frostline import stats
from frostline.records.depth import FULL, with_full

BINS = (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 1.001)


def drawn(n_seeds: int, n_curves: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The probability of each depth of each curve, and whether it is the true one."""
    rng, probabilities, is_true = np.random.default_rng([seed, n_seeds]), [], []
    for world in (one for one in WORLDS if not one.failing and one.n_rows <= 2000):
        simulator = Simulator(world)
        for _ in range(n_curves):
            curve = simulator.draw(n_seeds, rng)
            shares = stats.depth_distribution(scored_runs(world, curve), keep=KEEP, rng=rng)
            truth = {depth: curve.truth[depth] for depth in world.depths}
            true = stats.operating_depth(truth, stats.bar_of(KEEP, curve.truth[FULL]))
            for depth in with_full(world.depths):
                probabilities.append(shares.get(depth, 0.0))
                is_true.append(depth == true)
    return np.array(probabilities), np.array(is_true)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print("| seeds | probability | depths | mean probability | the true one |\n|---|---|---|---|---|")
    for n_seeds in (3, 5):
        probabilities, is_true = drawn(n_seeds, asked.curves, asked.seed)
        for low, high in itertools.pairwise(BINS):
            inside = (probabilities >= low) & (probabilities < high)
            means = [percent(float(values[inside].mean())) for values in (probabilities, is_true)]
            said = f"{percent(low)} to {percent(min(high, 1.0))}"
            print(f"| {n_seeds} | {said} | {inside.sum()} | {means[0]} | {means[1]} |", flush=True)


if __name__ == "__main__":
    main()
