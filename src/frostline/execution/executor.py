"""The contract of executors: jobs in, outcomes out, wherever the runs happen.

`frostline.testing.executors.check_executor` tests all of it on any executor.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType, TracebackType
from typing import Protocol, Self

from frostline.errors import check_choice
from frostline.execution.events import Listener
from frostline.records.requests import Device, RunOptions
from frostline.records.results import Crash, PausedRun, RunResult
from frostline.records.specs import RunSpec

Outcome = RunResult | PausedRun | Crash


@dataclass(frozen=True)
class Job:
    """A run, or a part of one, for an executor."""

    spec: RunSpec
    until: int | None = None
    """pause after this many steps, counted over the whole run; None: go on to the end"""
    checkpoint: bytes | memoryview | None = field(default=None, repr=False)
    """the content the run goes on from; None: it starts at its first step"""
    nearby: tuple[str, ...] = ()
    """strategies that will run too: their prefix states may be computed in the same pass"""


class Executor(Protocol):
    """Does runs. Use it as a context manager.

    The contract:
    - **Shared state.** An executor shares nothing with a run but what the spec names and the content of the job. No
      path on the driver's disk goes to a worker, and none comes back.
    - **Outcomes.** Every started job has exactly one outcome, unless it is stopped. Outcomes come in the order in
      which the jobs end. One key has at most one job under way.
    - **Crash.** A run that raises is a `Crash` with its traceback; the other runs go on. So is a run whose process
      dies; an executor may do it again elsewhere first, a fixed number of times. The next job gets a working process.
    - **Stop.** A stopped job has no outcome, whether it waits, runs or has just ended, and its place is free again.
    - **Pause and resume.** With `until`, the outcome is a `PausedRun` with its checkpoint. A job with that checkpoint
      goes on from there, in any process, and ends with the bits of a run that never paused. A checkpoint that cannot
      be read, or that lies beyond `until`, is ignored: the run starts at its first step.
    - **Events.** The listener gets `started` once per job, before its first epoch, and `epoch` for each epoch of the
      job, in order and once, before the outcome; `placed` if there are several nodes; and `message` if a worker has
      something to say while it works. They may come from any thread. What a listener raises reaches the caller of
      `outcome`. All other events belong to the sweep.
    - **Exit.** Leaving the context ends all runs and all processes.
    """

    def __enter__(self) -> Self:
        """Starts whatever does the runs."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Ends all runs and processes."""

    @property
    def n_free(self) -> int:
        """How many jobs could start at once."""

    def start(self, job: Job, listener: Listener) -> None:
        """Starts a job as soon as there is a place for it; does not wait."""

    def outcome(self, timeout: float | None = None) -> Outcome | None:
        """The outcome of the next job to end; None after `timeout` seconds, or if no job is under way."""

    def stop(self, spec: RunSpec) -> None:
        """Ends the job of a spec; it has no outcome."""


def cached_strategies(specs: Sequence[RunSpec]) -> list[str]:
    """Strategies that start from cached prefix states."""
    return sorted({spec.strategy for spec in specs if spec.is_cached})


_PLACES = {"local": "frostline.execution.local", "ray": "frostline.execution.cluster.executor"}
"""where runs can happen, by name: the module whose `from_options` makes the executor, and `places_of` counts places.
Its `STARTS_AT_ONCE` says whether entering the executor takes no time, so that it may be done before data is read."""


def make_executor(options: RunOptions, *, n_workers: int | None, threads: int, device: Device) -> Executor:
    """The executor for the place where the options want runs to happen.

    Args:
        options: how runs are done.
        n_workers: most runs at the same time; None: as many as there is room for.
        threads: of each run.
        device: where each run trains, as the user asked for it.
    """
    module = _place_of(options)
    executor: Executor = module.from_options(options, n_workers=n_workers, threads=threads, device=device)
    return executor


def places_of(options: RunOptions, *, n_workers: int | None, threads: int, device: Device) -> tuple[int, ...]:
    """How many runs each machine could do at the same time; the arguments are those of `make_executor`."""
    module = _place_of(options)
    found: tuple[int, ...] = module.places_of(options, n_workers=n_workers, threads=threads, device=device)
    return found


def starts_at_once(options: RunOptions) -> bool:
    """Whether an executor for these options starts in no time, and prepares itself while the caller goes on."""
    return bool(_place_of(options).STARTS_AT_ONCE)


def _place_of(options: RunOptions) -> ModuleType:
    return importlib.import_module(_PLACES[check_choice("on", options.on, _PLACES)])
