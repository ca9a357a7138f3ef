"""How long the runs of a study would take on 1 to 64 nodes, from the measured times of stored runs.

    python -m bench.scaling runs/demo --places 4 --transfer-mb 95 --failures-per-day 1

The schedule is the one of `frostline.studies.planning.schedule`, which `--dry-run --on ray` uses too: the line search
first, then everything else; prefix states once per node; model and data sent to one node after another. Nodes differ
in speed (log-normal) and fail at random; each size is simulated many times, and the mean is shown.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from frostline.report import numbers
from frostline.studies.planning.schedule import Load, Misfortune, Schedule, simulate

SIZES = (1, 2, 4, 8, 16, 32, 64)
WORTH = 0.6
"""Twice the nodes are worth it if they take less than this share of the time."""


@dataclass(frozen=True)
class Conditions:
    """What a cluster is like."""

    places: int
    """runs at the same time on one node"""
    spread: float
    """standard deviation of the logarithm of a node's slowness"""
    failures_per_day: float
    """of one node"""
    repeats: int
    """simulations of each size"""


def read_load(out: Path, transfer: float, start: float) -> Load:
    """What the runs of an output folder took: a line search, if there was one, then everything else."""
    rounds: dict[bool, list[float]] = {True: [], False: []}
    prefix = 0.0
    for path in sorted((out / "runs").glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))["content"]
        rounds[content["spec"]["role"] != "replicate"].append(content["cost"]["seconds"])
        prefix += content["cost"]["prefix_seconds"]
    return Load(rounds=[runs for runs in rounds.values() if runs], prefix=prefix, transfer=transfer, start=start)


def mean_schedule(load: Load, n_nodes: int, given: Conditions, rng: np.random.Generator) -> Schedule:
    """The mean of several simulations."""
    per_second = given.failures_per_day / 86400
    found = []
    for _ in range(given.repeats):
        slowness = np.exp(rng.normal(0, given.spread, n_nodes))
        bad = Misfortune(
            slowness=lambda number, slowness=slowness: float(slowness[number]),  # type: ignore[misc]
            next_failure=lambda _: float(rng.exponential(1 / per_second)) if per_second else math.inf,
        )
        found.append(simulate(load, [given.places] * n_nodes, bad))
    seconds, lost = (float(np.mean([getattr(one, name) for one in found])) for name in ("seconds", "n_lost"))
    return Schedule(seconds, n_nodes, round(lost))


def largest_worthwhile(schedules: Sequence[Schedule]) -> int:
    """The number of nodes after which twice as many save too little."""
    for one, double in itertools.pairwise(schedules):
        if double.seconds > WORTH * one.seconds:
            return one.n_nodes
    return schedules[-1].n_nodes


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="output folder with finished runs")
    parser.add_argument("--places", type=int, default=4, help="runs at the same time on one node")
    parser.add_argument("--transfer-mb", type=float, default=95, help="model and data")
    parser.add_argument("--mb-per-second", type=float, default=100, help="from the driver to one node")
    parser.add_argument("--start-seconds", type=float, default=15, help="until the workers of a node are ready")
    parser.add_argument("--spread", type=float, default=0.1, help="of the logarithm of a node's slowness")
    parser.add_argument("--failures-per-day", type=float, default=0.1, help="of one node")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    load = read_load(asked.out, asked.transfer_mb / asked.mb_per_second, asked.start_seconds)
    given = Conditions(asked.places, asked.spread, asked.failures_per_day, asked.repeats)
    rng = np.random.default_rng(asked.seed)
    schedules = [mean_schedule(load, n_nodes, given, rng) for n_nodes in SIZES]
    n_runs = sum(map(len, load.rounds))
    print(f"{n_runs} runs, prefix {load.prefix:.1f} s per node, {given.places} places per node")
    print("| nodes | time | times as fast | node-hours |\n|---|---|---|---|")
    for one in schedules:
        faster = schedules[0].seconds / one.seconds
        print(f"| {one.n_nodes} | {numbers.duration(one.seconds)} | {faster:.1f} | {one.node_hours:.2f} |")
    print(f"more than {largest_worthwhile(schedules)} nodes do not pay: twice as many save less than {1 - WORTH:.0%}")


if __name__ == "__main__":
    main()
