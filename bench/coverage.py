"""How often the intervals hold what they promise, on simulated curves whose truth is known.

    python -m bench.coverage --seed 20261117 [--curves 2000] [--world NAME …] [--json FILE]

The worlds are in `bench/worlds.py`: one factor at a time from a base world, and bad combinations. Every interval is
judged on its own target. In worlds with failing runs, intervals are of runs that did not fail and not paired by seed,
as those behind the verdicts; they are null below two such runs. Null ones are counted apart. Verdicts come from the
code that `curve` runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from bench import cells
from bench.cells import Cell
from bench.simulator import Drawn, Simulator, scored_runs
from bench.tables import percent, show
from bench.worlds import KEEP, World
from frostline import stats
from frostline.analysis.verdicts import Judge
from frostline.records.depth import FULL, Depth

N_SEEDS = (3, 5)
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How often the truth was inside."""

    world: str
    n_seeds: int
    n_curves: int
    difference: float
    """of intervals of differences with examples, over all depths"""
    ratio: float
    above_chance: float
    error: float
    """the largest standard error of these three; the depths of one curve are not independent"""
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
    """of intervals of differences with examples, in the metric"""
    width_alone: float
    """of those of seeds alone"""

    @property
    def line(self) -> float:
        """What intervals and plausible sets must hold at least."""
        return 0.85 if self.world in ("skewed noise", "bimodal noise") else 0.94

    @property
    def holds_too_seldom(self) -> bool:
        """Whether an interval or the plausible set holds less often than it must, two standard errors allowed."""
        of_sets = math.sqrt(self.line * (1 - self.line) / self.n_curves)
        worst = min(self.difference, self.ratio, self.above_chance)
        return worst < self.line - 2 * self.error or self.depth < self.line - 2 * of_sets


Row = tuple[float, ...]
_NULL = (np.nan,) * 6


def simulated(cell: Cell) -> Coverage:
    """The coverage of every interval over many curves."""
    rng = np.random.default_rng([cell.seed, cell.n_seeds, *cell.world.encode()])
    simulator = Simulator(cell.simulated)
    curves = [_judged(simulator, cell.n_seeds, rng) for _ in range(cell.number)]
    intervals = np.array([one for one, _ in curves])
    verdicts = np.mean([one for _, one in curves], axis=0)
    holds = intervals[:, :, :4]
    difference, ratio, above_chance, seeds_alone = np.nanmean(holds, axis=(0, 1))
    width, width_alone = np.nanmean(intervals[:, :, 4:], axis=(0, 1))
    return Coverage(
        world=cell.world,
        n_seeds=cell.n_seeds,
        n_curves=cell.number,
        difference=difference,
        ratio=ratio,
        above_chance=above_chance,
        error=max(_standard_error(holds[:, :, place]) for place in range(3)),
        null=float(np.isnan(holds[:, :, :3]).mean()),
        depth=verdicts[0],
        n_plausible=verdicts[1],
        wrong=verdicts[2],
        open=verdicts[3],
        seeds_alone=seeds_alone,
        width=width,
        width_alone=width_alone,
    )


def _standard_error(holds: stats.Floats) -> float:
    """Of the share that holds, (curves, depths), null ones left out: curves are independent, depths are not."""
    given, held = (~np.isnan(holds)).sum(axis=1), np.nansum(holds, axis=1)
    rest = held - given * held.sum() / given.sum()
    return float(np.sqrt((rest**2).sum()) / given.sum())


def _judged(simulator: Simulator, n_seeds: int, rng: np.random.Generator) -> tuple[list[Row], Row]:
    """Whether each promise holds for one curve: the intervals of each depth, and the verdicts."""
    world, drawn = simulator.world, simulator.draw(n_seeds, rng)
    runs = scored_runs(world, drawn)
    sound = {depth: _chosen(one, ~drawn.has_failed[depth]) for depth, one in runs.items()}
    return [_intervals(world, drawn, sound, depth) for depth in world.depths], _verdicts(world, drawn, runs)


def _intervals(world: World, drawn: Drawn, sound: Mapping[Depth, stats.Scored], depth: Depth) -> Row:
    """Whether the intervals of difference, ratio, ratio above chance and over seeds alone hold, and two widths."""
    own, full = sound[depth], sound[FULL]
    pair = (stats.not_paired if world.failing else stats.paired_by_seed)(own, full, world.n_rows)
    if pair is None:
        return _NULL
    both = min(len(own.scores), len(full.scores))
    alone = stats.difference_interval(own.scores[:both], full.scores[:both]) or (np.nan, np.nan)
    target, of_full, chance = drawn.truth[depth], drawn.truth[FULL], world.chance
    difference = pair.difference_interval()
    return (
        _holds(difference, target - of_full),
        _holds(pair.ratio_interval(), target / of_full),
        _holds(pair.ratio_interval(base=chance), (target - chance) / (of_full - chance)),
        _holds(alone, target - of_full),
        difference[1] - difference[0],
        alone[1] - alone[0],
    )


def _verdicts(world: World, drawn: Drawn, runs: Mapping[Depth, stats.Scored]) -> Row:
    """Whether the true depth is plausible, how many are, whether a verdict is wrong, and the share that is open."""
    said = judge_of(world, drawn, runs).verdicts(KEEP, 0.0)
    bar, plausible = stats.bar_of(KEEP, drawn.truth[FULL]), stats.plausible_depths(said)
    truth = {depth: drawn.truth[depth] for depth in world.depths}
    wrong = any(one == ("kept" if truth[depth] < bar else "short") for depth, one in said.items())
    n_open = sum(one == "open" for one in said.values())
    return stats.operating_depth(truth, bar) in plausible, len(plausible), wrong, n_open / len(said)


def judge_of(world: World, drawn: Drawn, runs: Mapping[Depth, stats.Scored]) -> Judge:
    """The judge of a curve. It sees runs that did not fail, and all runs of a depth where half or more failed."""
    mostly_failed = {depth: 2 * failed.sum() >= len(failed) for depth, failed in drawn.has_failed.items()}
    counted = {
        depth: one if mostly_failed[depth] else _chosen(one, ~drawn.has_failed[depth])
        for depth, one in runs.items()
        if not mostly_failed[FULL]
    }
    enough = {depth: one for depth, one in counted.items() if len(one.scores) > 1}
    failed = frozenset(depth for depth in world.depths if mostly_failed[depth])
    return Judge(enough, world.depths, world.n_rows, CONFIDENCE, failed)


def _chosen(scored: stats.Scored, seeds: slice | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> stats.Scored:
    """Some of the runs; the same object if these are all, because it keeps what was computed from it."""
    scores = scored.scores[seeds]
    return scored if len(scores) == len(scored.scores) else stats.Scored(scores, scored.resampled[:, seeds])


def _holds(interval: tuple[float, float] | None, truth: float) -> float:
    """Whether the truth is inside; not a number where there is no interval."""
    return np.nan if interval is None or np.isnan(interval[0]) else float(interval[0] <= truth <= interval[1])


COLUMNS: dict[str, Callable[[Coverage], str]] = {
    "world": lambda one: one.world,
    "seeds": lambda one: str(one.n_seeds),
    "difference": lambda one: percent(one.difference),
    "ratio": lambda one: percent(one.ratio),
    "above chance": lambda one: percent(one.above_chance),
    "error": lambda one: percent(one.error),
    "nothing given": lambda one: percent(one.null),
    "plausible set": lambda one: percent(one.depth),
    "its size": lambda one: f"{one.n_plausible:.1f}",
    "a wrong verdict": lambda one: percent(one.wrong),
    "open": lambda one: percent(one.open),
    "seeds alone": lambda one: percent(one.seeds_alone),
    "widths": lambda one: f"{one.width:.3f}, {one.width_alone:.3f}",
}


def main() -> None:
    """Prints a table, and the worlds where intervals or sets hold too seldom."""
    asked = cells.parser(__doc__, "curves").parse_args()
    rows = cells.run(simulated, asked, N_SEEDS, Coverage)
    show(rows, COLUMNS)
    cells.print_missed([f"{one.world} ({one.n_seeds} seeds)" for one in rows if one.holds_too_seldom])


if __name__ == "__main__":
    main()
