"""What happens in a sweep, and who hears about it: one word, `Listener`, for displays, trackers and tests.

Events come in this order for one run: planned, then found (it was in the store), or started, placed (on a cluster),
epoch …, and one of finished, paused, stopped, crashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from frostline.records.results import Crash, EpochRecord, PausedRun, RunResult
from frostline.records.specs import RunSpec


class Listener:
    """Receives events; override what you need.

    `started`, `placed`, `epoch` and `message` may be called from any thread.
    """

    def planned(self, specs: Sequence[RunSpec]) -> None:
        """These runs are ahead."""

    def found(self, result: RunResult) -> None:
        """A planned run was in the store."""

    def started(self, spec: RunSpec) -> None:
        """A run has started, or goes on after a pause."""

    def placed(self, spec: RunSpec, node: str) -> None:
        """A run that was started is done on this node of a cluster; again, if it moves to another one."""

    def epoch(self, spec: RunSpec, record: EpochRecord) -> None:
        """A run has finished an epoch."""

    def paused(self, paused_run: PausedRun) -> None:
        """A run was paused; its checkpoint is in the store."""

    def stopped(self, spec: RunSpec) -> None:
        """A run that was started is not wanted any more."""

    def finished(self, result: RunResult) -> None:
        """A run is done, and its result is in the store."""

    def crashed(self, crash: Crash, path: Path) -> None:
        """A run crashed; the file holds its traceback."""

    def message(self, text: str) -> None:
        """Something the user should read."""


@final
@dataclass(frozen=True)
class Broadcast(Listener):
    """Passes every event on to several listeners, in their order."""

    listeners: Sequence[Listener]

    def planned(self, specs: Sequence[RunSpec]) -> None:
        """These runs are ahead."""
        for listener in self.listeners:
            listener.planned(specs)

    def found(self, result: RunResult) -> None:
        """A planned run was in the store."""
        for listener in self.listeners:
            listener.found(result)

    def started(self, spec: RunSpec) -> None:
        """A run has started, or goes on after a pause."""
        for listener in self.listeners:
            listener.started(spec)

    def placed(self, spec: RunSpec, node: str) -> None:
        """A run is done on this node."""
        for listener in self.listeners:
            listener.placed(spec, node)

    def epoch(self, spec: RunSpec, record: EpochRecord) -> None:
        """A run has finished an epoch."""
        for listener in self.listeners:
            listener.epoch(spec, record)

    def paused(self, paused_run: PausedRun) -> None:
        """A run was paused; its checkpoint is in the store."""
        for listener in self.listeners:
            listener.paused(paused_run)

    def stopped(self, spec: RunSpec) -> None:
        """A run that was started is not wanted any more."""
        for listener in self.listeners:
            listener.stopped(spec)

    def finished(self, result: RunResult) -> None:
        """A run is done, and its result is in the store."""
        for listener in self.listeners:
            listener.finished(result)

    def crashed(self, crash: Crash, path: Path) -> None:
        """A run crashed; the file holds its traceback."""
        for listener in self.listeners:
            listener.crashed(crash, path)

    def message(self, text: str) -> None:
        """Something the user should read."""
        for listener in self.listeners:
            listener.message(text)
