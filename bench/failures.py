"""How often runs are counted as failed: runs that learned nothing, and runs that are 10 points above chance.

python -m bench.failures --runs 2000 --seed 20261118
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from frostline.analysis.resampling import is_by_chance
from frostline.records.arrays import StoredArray
from frostline.records.specs import TaskSpec

N_ROWS = 872
Draw = Callable[[np.random.Generator, bool], tuple[NDArray[np.float64], NDArray[np.float32]]]


def _classes(n_classes: int) -> Draw:
    """Answers of a classifier: random, or right in 10% more rows than random ones. It favours a random class."""

    def draw(rng: np.random.Generator, has_learned: bool) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        labels = rng.integers(n_classes, size=N_ROWS)
        shares = np.ones(n_classes) / n_classes if has_learned else rng.dirichlet(np.ones(n_classes))
        answers = rng.choice(n_classes, size=N_ROWS, p=shares)
        known = rng.random(N_ROWS) < (0.1 / (1 - 1 / n_classes) if has_learned else 0.0)
        return labels.astype(np.int64), np.eye(n_classes, dtype=np.float32)[np.where(known, labels, answers)]

    return draw


def _margins(rng: np.random.Generator, has_learned: bool) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Margins of two classes, shifted between them so that the area under the curve is 0.6."""
    labels = rng.integers(2, size=N_ROWS)
    margins = rng.normal(size=N_ROWS) + (0.358 * labels if has_learned else 0.0)
    return labels.astype(np.int64), np.stack([np.zeros(N_ROWS), margins], axis=1).astype(np.float32)


def _values(rng: np.random.Generator, has_learned: bool) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Values that correlate with the labels by 0.1, or not at all."""
    labels, noise = rng.normal(size=N_ROWS), rng.normal(size=N_ROWS)
    share = 0.1 if has_learned else 0.0
    return labels, (share * labels + np.sqrt(1 - share**2) * noise).astype(np.float32)[:, None]


CASES: dict[str, tuple[str, Draw]] = {
    "accuracy": ("classification", _classes(2)),
    "mcc": ("classification", _classes(2)),
    "macro_f1": ("classification", _classes(5)),
    "roc_auc": ("classification", _margins),
    "pearson": ("regression", _values),
}


def failed_share(metric: str, n_runs: int, rng: np.random.Generator, *, has_learned: bool) -> float:
    """The share of simulated runs that count as failed."""
    kind, draw = CASES[metric]
    task = TaskSpec(name="simulated", source=None, data=None, dev=None, kind=kind, metric=metric)
    drawn = (draw(rng, has_learned) for _ in range(n_runs))
    return float(np.mean([is_by_chance(task, StoredArray.of(a), StoredArray.of(b)) for a, b in drawn]))


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--metrics", nargs="*", choices=CASES, default=list(CASES))
    asked = parser.parse_args()
    print(f"| metric | learned nothing, counted as failed | 10 points above chance, counted as failed |\n|{'---|' * 3}")
    for place, metric in enumerate(CASES):
        if metric not in asked.metrics:
            continue
        shares = [
            failed_share(metric, asked.runs, np.random.default_rng([asked.seed, place, learned]), has_learned=learned)
            for learned in (False, True)
        ]
        print(f"| {metric} | {shares[0]:.1%} | {shares[1]:.1%} |", flush=True)


if __name__ == "__main__":
    main()
