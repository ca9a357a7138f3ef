"""How often the intervals hold what they promise, on simulated curves whose truth is known.

    python -m bench.coverage [--curves 2000] [--seed 1] [--world NAME …] [--json]

The worlds are in `bench/worlds.py`: one factor at a time from a base world, and bad combinations. Every interval is
judged on its own target, over runs that did not fail. `nothing given` counts intervals that are null.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.simulated import percent, show
from bench.worlds import CHANCE, KEEP, WORLDS, Drawn, Simulator, World, scores_of
from frostline import stats
from frostline.records.depth import FULL, Depth

N_SEEDS = (3, 5)
ERROR = 0.05


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How often the truth was inside, of all curves."""

    world: str
    n_seeds: int
    n_curves: int
    difference: float
    """of intervals of differences with examples, over all depths"""
    ratio: float
    above_chance: float
    null: float
    """share of these intervals that is not given"""
    depth: float
    """the true operating depth is among the plausible ones"""
    n_plausible: float
    """how many there are, on average"""
    wrong: float
    """curves with at least one wrong verdict"""
    open: float
    """share of the verdicts that is open"""
    seeds_alone: float
    """of intervals of differences over new seeds alone, for comparison"""
    width: float
    """of intervals of differences with examples, in accuracy"""
    width_alone: float
    """of those of seeds alone"""


Row = tuple[float, ...]


def simulated(world: World, n_seeds: int, n_curves: int, seed: int) -> Coverage:
    """The coverage of every interval over many curves."""
    rng = np.random.default_rng([seed, n_seeds, *world.name.encode()])
    simulator = Simulator(world)
    rows = np.array([_judged(simulator, n_seeds, rng) for _ in range(n_curves)])
    kept = rows[~np.isnan(rows[:, 0])]  # a curve with too few runs that did not fail has no intervals
    found = dict(zip(_COLUMNS, kept.mean(axis=0), strict=True))
    found["null"] = 1 - (1 - found["null"]) * len(kept) / n_curves
    return Coverage(world=world.name, n_seeds=n_seeds, n_curves=n_curves, **{n: float(v) for n, v in found.items()})


_COLUMNS = (
    "difference", "ratio", "above_chance", "null", "depth", "n_plausible", "wrong", "open", "seeds_alone", "width",
    "width_alone",
)  # fmt: skip


def _judged(simulator: Simulator, n_seeds: int, rng: np.random.Generator) -> Row:
    """Whether each promise holds for one curve."""
    world, drawn = simulator.world, simulator.draw(n_seeds, rng)
    counts = resamples(world.n_rows)
    scored = {depth: scored_runs(world, drawn, depth, counts) for depth in drawn.correct}
    full, error = scored[FULL], ERROR / len(world.depths)
    if len(full.scores) < stats.MIN_SEEDS:
        return tuple([np.nan] * len(_COLUMNS))
    hits: list[Row] = []
    verdicts: dict[int, stats.Verdict] = {}
    for depth in world.depths:
        own, target = scored[depth], drawn.truth[depth]
        verdicts[depth] = stats.verdict(stats.not_paired(own, full, world.n_rows), keep=KEEP, base=0.0, error=error)
        both = min(len(own.scores), len(full.scores))
        pair = stats.paired_by_seed(_first(own, both), _first(full, both), world.n_rows)
        if pair is not None:
            hits.append(_intervals(pair, target, drawn.truth[FULL], _first(own, both), _first(full, both)))
    truth = {depth: drawn.truth[depth] for depth in world.depths}
    bar = stats.bar_of(KEEP, drawn.truth[FULL])
    plausible = stats.plausible_depths(verdicts)
    wrong = any(
        (said == "kept" and truth[d] < bar) or (said == "short" and truth[d] >= bar) for d, said in verdicts.items()
    )
    n_open = sum(said == "open" for said in verdicts.values()) / len(verdicts)
    means = np.mean(hits, axis=0) if hits else np.full(7, np.nan)
    is_there = stats.operating_depth(truth, bar) in plausible
    return (*means[:4], is_there, len(plausible), wrong, n_open, *means[4:])


def _intervals(
    pair: stats.CrossedPair, own: float, full: float, own_runs: stats.Scored, full_runs: stats.Scored
) -> Row:
    difference, ratio = pair.difference_interval(), pair.ratio_interval()
    above = pair.ratio_interval(base=CHANCE)
    alone = stats.difference_interval(own_runs.scores, full_runs.scores) or (np.nan, np.nan)
    return (
        _holds(difference, own - full),
        _holds(ratio, own / full),
        _holds(above, (own - CHANCE) / (full - CHANCE)),
        ((ratio is None) + (above is None)) / 2,
        _holds(alone, own - full),
        difference[1] - difference[0],
        alone[1] - alone[0],
    )


def scored_runs(world: World, drawn: Drawn, depth: Depth, counts: NDArray[np.float32]) -> stats.Scored:
    """The runs that did not fail; all of them if half or more failed."""
    failed = drawn.has_failed[depth]
    answers = drawn.correct[depth] if 2 * failed.sum() >= len(failed) else drawn.correct[depth][:, ~failed]
    return stats.Scored(
        scores_of(world, drawn.labels, answers, np.ones((1, len(answers)), np.float32))[0],
        scores_of(world, drawn.labels, answers, counts),
    )


def _first(scored: stats.Scored, number: int) -> stats.Scored:
    return stats.Scored(scored.scores[:number], scored.resampled[:, :number])


@functools.cache
def resamples(n_rows: int) -> NDArray[np.float32]:
    """The same resamples for all curves, as in real use."""
    return stats.resampled_counts(n_rows, np.random.default_rng(1911))


def _holds(interval: tuple[float, float] | None, truth: float) -> bool:
    """Whether the truth is inside; an interval without bounds holds everything."""
    return interval is None or interval[0] <= truth <= interval[1]


CELLS: dict[str, Callable[[Coverage], str]] = {
    "world": lambda one: one.world,
    "seeds": lambda one: str(one.n_seeds),
    "difference": lambda one: percent(one.difference),
    "ratio": lambda one: percent(one.ratio),
    "above chance": lambda one: percent(one.above_chance),
    "nothing given": lambda one: percent(one.null),
    "plausible set": lambda one: percent(one.depth),
    "its size": lambda one: f"{one.n_plausible:.1f}",
    "a wrong verdict": lambda one: percent(one.wrong),
    "open": lambda one: percent(one.open),
    "seeds alone": lambda one: percent(one.seeds_alone),
    "widths": lambda one: f"{one.width:.3f}, {one.width_alone:.3f}",
}


def main() -> None:
    """A table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--world", nargs="*", help="only these worlds")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    chosen = [world for world in WORLDS if not asked.world or world.name in asked.world]
    cells = [(world, n) for world in chosen for n in N_SEEDS]
    with ProcessPoolExecutor(asked.workers) as pool:
        judged = functools.partial(_cell, n_curves=asked.curves, seed=asked.seed)
        show(list(pool.map(judged, cells)), CELLS, as_json=asked.json)


def _cell(cell: tuple[World, int], n_curves: int, seed: int) -> Coverage:
    return simulated(*cell, n_curves, seed)


if __name__ == "__main__":
    main()
