"""Where runs are done: specs in, outcomes out, in whatever order they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from frostline.records.results import Crash, EpochRecord, Leg, Paused, RunResult
from frostline.records.specs import RunSpec

Outcome = RunResult | Paused | Crash


class Listener(Protocol):
    """Who wants to know how runs get on; called from any thread."""

    def started(self, spec: RunSpec) -> None:
        """A run has begun."""

    def epoch(self, spec: RunSpec, record: EpochRecord) -> None:
        """An epoch of a run has ended."""


class Executor(Protocol):
    """Does runs. Assumes nothing shared between them but what their specs name."""

    @property
    def n_free(self) -> int:
        """How many runs could be begun at once."""

    def start(self, spec: RunSpec, listener: Listener, beside: Sequence[str] = (), leg: Leg | None = None) -> None:
        """Begins a run, as soon as there is a place for it.

        Args:
            spec: the run.
            listener: who is told how it gets on.
            leg: the part of it that is done; None: all.
            beside: strategies that will be run too; what they start from may be computed with what this one does.
        """

    def outcome(self) -> Outcome:
        """What came of the run that ends next; one that raises or whose process dies is a Crash."""

    def stop(self, spec: RunSpec) -> None:
        """Ends a run that is under way or waits; it has no outcome."""


def cached_strategies(specs: Sequence[RunSpec]) -> list[str]:
    """Those that start from kept states."""
    return sorted({spec.strategy for spec in specs if spec.is_cached})
