"""What the rules of `find` are asked, what they are given, and how a search ends."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from frostline.records.depth import Depth, depth_words
from frostline.stats.basics import Floats

Run = tuple[Depth, int]
"""depth and seed"""

FIRST_SEEDS = 3
"""A depth is looked at first with this many seeds,"""
FULL_SEEDS = 4
"""and the full model never has fewer than this many."""
GROWTH = 1.6
"""Each later look has this many times the seeds of the one before."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished run, as far as the rules look at it; equal only to itself."""

    score: float
    resampled: Floats
    """(resamples,): its scores on resampled dev rows, the same resamples for all runs"""
    has_failed: bool = False
    """it learned nothing"""


Outcomes = Mapping[Depth, Mapping[int, Outcome | None]]
"""by depth and seed; None if the run crashed"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a search looks for, and its budget."""

    keep: float
    """share of the full score"""
    base: float = 0.0
    """the score that counts as nothing: 0, or chance"""
    chance: float = -math.inf
    """the full model must be above it, whatever the base"""
    confidence: float = 0.95
    """how sure an answer must be"""
    seeds: tuple[int, ...]
    """seeds in the order of use"""
    first_look: int = FIRST_SEEDS
    """seeds of a depth at its first look"""
    full_seeds: int = FULL_SEEDS
    """seeds that the full model has at least"""
    n_spare: int | None = None
    """how many failed runs may be replaced; None: as many as there are seeds"""
    depths: tuple[int, ...]
    """candidate depths, ascending"""
    n_rows: int
    """dev rows"""
    costs: Mapping[Depth, float]
    """cost of one run by depth, in full runs"""
    rate_costs: Mapping[Depth, float]
    """what choosing the rate of a depth will probably cost, in full runs; 0 where it is given, or chosen for another"""
    rate_spent: Mapping[Depth, float] = field(default_factory=dict)
    """what it did cost, for depths that have a rate: a race may be longer than foreseen"""
    budget: float
    """most that all runs together may cost, in full runs"""
    start: int | None = None
    """the depth to try first; None: the deepest cuts that are cheap together. It changes the order of runs and nothing
    else: what a look says does not depend on it"""
    words: Callable[[Depth], str] = depth_words
    """what a depth is called in a sentence; on another axis, what stands for one"""

    @functools.cached_property
    def looks(self) -> tuple[int, ...]:
        """How many seeds a depth has at each look.

        >>> Question(keep=0.9, seeds=tuple(range(10)), depths=(), n_rows=2, costs={}, rate_costs={}, budget=1).looks
        (3, 5, 8, 10)
        """
        found = [self.first_look]
        while found[-1] < len(self.seeds):
            found.append(min(len(self.seeds), round(GROWTH * found[-1])))
        return tuple(found)

    @functools.cached_property
    def spare_seeds(self) -> tuple[int, ...]:
        """The next unused seed numbers, which replace failed runs."""
        first = max(self.seeds) + 1
        return tuple(range(first, first + (len(self.seeds) if self.n_spare is None else self.n_spare)))

    @property
    def error_kept(self) -> float:
        """The error allowed for calling one depth kept at one look."""
        return self.error_short / max(1, len(self.depths))

    @property
    def error_short(self) -> float:
        """The error allowed for calling one depth short at one look."""
        return (1 - self.confidence) / 2 / len(self.looks)

    def cost(self, done: Sequence[Run], new: Sequence[Run] = ()) -> float:
        """The cost of these runs and of choosing the rates of their depths, in full runs.

        Args:
            done: runs whose depths have a rate; what it cost is known.
            new: further runs. Whether they can be paid for is decided before the rates of new depths are chosen, and a
                race that turns out longer does not change it.
        """
        spent = {depth: self.rate_spent.get(depth, self.rate_costs[depth]) for depth, _ in done}
        foreseen = {depth: self.rate_costs[depth] for depth, _ in new if depth not in spent}
        runs = [self.costs[depth] for depth, _ in (*done, *new)]
        return math.fsum([*runs, *spent.values(), *foreseen.values()])


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The end of a search."""

    n_frozen: Depth
    """most layers that can be frozen; FULL: no depth keeps the share"""
    is_decided: bool
    """the evidence reaches the confidence that was asked for; if not, `n_frozen` is the best estimate"""
    because: str
    """why the search ended"""
