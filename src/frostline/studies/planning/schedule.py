"""How long runs take on a cluster: a simulation of what the executor does with them.

Runs start in their order, each on the place that is free first. A node first waits for the files that it needs; the
driver sends them to one node after another. The first run on a node that starts from prefix states computes them, and
the others there wait for it. A round, for example of a line search, ends before the next one starts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class Load:
    """What there is to do, in seconds on one place."""

    rounds: Sequence[Sequence[float]]
    """runs by round"""
    prefix: float = 0.0
    """computing the prefix states, once per node"""
    transfer: float = 0.0
    """sending model and data to one node"""
    start: float = 0.0
    """starting the workers of a node"""


@final
@dataclass(frozen=True)
class Schedule:
    """When runs are done."""

    seconds: float
    """until the last one ends"""
    n_nodes: int
    """nodes that are held until then"""
    n_lost: int = 0
    """runs that were cut off with a node and done again"""

    @property
    def node_hours(self) -> float:
        """What all nodes together are held for."""
        return self.n_nodes * self.seconds / 3600


@final
@dataclass(frozen=True)
class Misfortune:
    """What goes wrong on a cluster; by default nothing does."""

    slowness: Callable[[int], float] = lambda _: 1.0
    """of a node: how many times as long it takes"""
    next_failure: Callable[[int], float] = lambda _: float("inf")
    """of a node: seconds until it fails next"""
    seconds_away: float = 300.0
    """until a node that failed is back, empty"""


@dataclass
class _Node:
    slowness: float
    ready: float
    """when it can start a run: files sent, workers started"""
    fails: float
    prefix_ready: float | None = None
    """when its prefix states are there; None: nobody has started to compute them"""


def simulate(load: Load, places: Sequence[int], misfortune: Misfortune | None = None) -> Schedule:
    """When everything is done on nodes with these numbers of places."""
    bad = misfortune or Misfortune()
    nodes = [
        _Node(bad.slowness(number), load.start + load.transfer * (number + 1), bad.next_failure(number))
        for number in range(len(places))
    ]
    free = [(nodes[number].ready, number) for number, n_places in enumerate(places) for _ in range(n_places)]
    heapq.heapify(free)
    now, n_lost = 0.0, 0
    for runs in load.rounds:
        begun, ends, left = now, [now], list(reversed(runs))
        while left:
            since, number = heapq.heappop(free)
            node, begins = nodes[number], max(since, begun)
            if node.prefix_ready is None:
                node.prefix_ready = max(begins, node.ready) + load.prefix * node.slowness
            done = max(begins, node.prefix_ready) + left[-1] * node.slowness
            if done <= node.fails:
                left.pop()
                ends.append(done)
                heapq.heappush(free, (done, number))
                continue
            # The node fails first: its run is done again, and it comes back without files and states.
            back = max(node.fails, begins) + bad.seconds_away + load.start + load.transfer
            n_lost += begins < node.fails
            nodes[number] = _Node(node.slowness, back, back + bad.next_failure(number))
            free = [(max(at, back) if other == number else at, other) for at, other in free] + [(back, number)]
            heapq.heapify(free)
        now = max(ends)
    return Schedule(now, len(places), n_lost)
