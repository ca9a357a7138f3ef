"""Where runs are done: a set of specs in, outcomes out, in whatever order they finish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from frostline.records import Crash, EpochRecord, RunResult, RunSpec


class Listener(Protocol):
    """Who wants to know how runs get on; called from any thread."""

    def started(self, spec: RunSpec) -> None:
        """A run has begun."""

    def epoch(self, spec: RunSpec, record: EpochRecord) -> None:
        """An epoch of a run has ended."""


class Executor(Protocol):
    """Does runs. Assumes nothing shared between them but what their specs name."""

    def run(self, specs: Sequence[RunSpec], listener: Listener) -> Iterator[RunResult | Crash]:
        """One outcome a spec, as they finish; a run that raises or whose process dies is a Crash."""
