"""Does the runs a study wants: finds them in the store, or has an executor do them, and stores what comes back.

Knows nothing about studies. A run that crashed or was cut off is not in the store, so the next command that wants it
does it again; within one command it is not tried twice. Three things are subtle:

**Early starts.** While the last runs of one step are under way, workers would be idle. The caller may name runs that
it will probably want next (`likely`), and these start early. Their outcomes are held back until the next call of `do`:
if it wants them they are stored, otherwise they are stopped or dropped. So what is stored depends on the scores alone,
not on which worker was faster.

**Claims.** Another command may work on the same output folder. A run is claimed before it starts (`storage.claims`).
Runs that another living process has claimed are left to it; the sweep does its own first, then waits. It takes the
result from the store when the other process is done, and does the run itself if the other process died or crashed it.
A sweep that waits gives up its early starts: otherwise two sweeps could each wait for a run the other holds back.

**Pauses.** A run that is wanted `until` some step is paused there. Its checkpoint is written by the driver, here, and
handed to the executor as content when the run goes on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Self

from frostline.analysis import RunCounts
from frostline.errors import UsageError
from frostline.execution.events import Broadcast, Listener
from frostline.execution.executor import Executor, Job, Outcome, cached_strategies
from frostline.execution.progress import label
from frostline.records.environment import check_environments, own_command
from frostline.records.requests import Rerun
from frostline.records.results import Crash, Environment, PausedRun, RunResult
from frostline.records.specs import RunSpec, TaskSpec
from frostline.storage import locks
from frostline.storage.claims import Claims
from frostline.storage.runs import Store

Likely = Callable[[], Sequence[RunSpec]]
"""The runs that will probably be wanted next, given the outcomes so far."""

POLL_SECONDS = 0.5
"""How often a sweep asks whether another process is done with a run."""
STOPPED_SECONDS = 30.0
"""How long a sweep waits before it reports that the other process is stopped."""


@dataclass(frozen=True)
class Wanted:
    """A run that is wanted to its end, or until a number of steps."""

    spec: RunSpec
    until: int | None = None

    @property
    def key(self) -> str:
        """The key of the run."""
        return self.spec.key


def stored_outcome(store: Store, wanted: Wanted) -> RunResult | PausedRun | None:
    """What a store has of a wanted run. A run that diverged before its pause has finished."""
    if wanted.until is None:
        return store.get(wanted.key)
    paused = store.get_paused(wanted.key, wanted.until)
    if paused is not None:
        return paused
    finished = store.get(wanted.key)
    return finished if finished is not None and finished.diverged else None


@dataclass
class _Call:
    """The state of one call of `Sweep.do`."""

    left: dict[str, Wanted]
    """runs without an outcome"""
    waiting: dict[str, Wanted]
    """those of them that are not started here"""
    elsewhere: set[str] = field(default_factory=set)
    """keys of waiting runs that another process has claimed"""
    waits_since: float | None = None
    """when everything that is left was first seen to be claimed by another process"""
    stopped: set[int] = field(default_factory=set)
    """processes that were reported as stopped"""

    @property
    def is_idle(self) -> bool:
        """Whether everything that is left was claimed by another process."""
        return self.left.keys() == self.elsewhere


@dataclass
class Sweep:
    """Does the wanted runs that are not in the store, and counts. Use it as a context manager."""

    store: Store
    executor: Executor
    listeners: Sequence[Listener] = ()
    rerun: Rerun = "only-missing"
    nearby: Sequence[str] = ()
    """strategies whose prefix states are computed together with deeper ones, because they may be wanted later"""
    same_as: Environment | None = None
    """stored runs from another environment are refused; None: they are used"""
    n_done: int = field(default=0, init=False)
    n_reused: int = field(default=0, init=False)
    crashes: list[Crash] = field(default_factory=list, init=False)
    _planned: set[tuple[str, TaskSpec]] = field(default_factory=set, init=False)
    _early: dict[str, RunSpec] = field(default_factory=dict, init=False)
    """runs started before they were wanted"""
    _held: dict[str, Outcome] = field(default_factory=dict, init=False)
    """outcomes of early runs that have ended"""
    _fresh: dict[str, set[int | None]] = field(default_factory=dict, init=False)
    """what this sweep did itself: by key, the steps it paused at (None: the end)"""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._claims.release_all()

    @property
    def counts(self) -> RunCounts:
        """How many runs were done, found and crashed so far."""
        return RunCounts(done=self.n_done, reused=self.n_reused, crashed=len(self.crashes))

    def plan(self, specs: Sequence[RunSpec]) -> None:
        """Announces runs that are ahead. A run counts once, even if it is planned again with another learning rate."""
        names = {(label(spec), spec.task): spec for spec in specs}
        if new := [spec for name, spec in names.items() if name not in self._planned]:
            self._listener.planned(new)
        self._planned |= names.keys()

    def do(self, wanted: Sequence[Wanted], likely: Likely = list) -> Iterator[Outcome]:
        """One outcome per wanted run, found in the store or done now, as they come.

        Crashes are outcomes too, and are also added to `crashes`.

        Args:
            wanted: the runs.
            likely: runs to start early on idle workers; asked again after each outcome.
        """
        # If the caller or a listener raises, no claim may stay: the same Python process may try again.
        with contextlib.ExitStack() as if_it_fails:
            if_it_fails.callback(self._claims.release_all)
            found = {one.key: kept for one in wanted if (kept := self._stored(one)) is not None}
            missing = {one.key: one for one in wanted if one.key not in found}
            self._check_missing(missing)
            for kept in found.values():
                yield self._found(kept)
            yield from self._outcomes(missing, likely)
            if_it_fails.pop_all()

    @cached_property
    def _listener(self) -> Listener:
        return Broadcast(self.listeners)

    @cached_property
    def _claims(self) -> Claims:
        return Claims(self.store.folder)

    def _stored(self, wanted: Wanted) -> RunResult | PausedRun | None:
        """What the store has of a run; with rerun `always`, only what this sweep put there."""
        key, fresh = wanted.key, self._fresh.get(wanted.key, set())
        if self.rerun == "always" and wanted.until not in fresh:
            if not fresh:  # an old checkpoint must not be used either
                self.store.drop_checkpoint(key)
            return None
        kept = stored_outcome(self.store, wanted)
        if self.same_as is not None and isinstance(kept, RunResult):
            check_environments([kept.environment], self.same_as)
        return kept

    def _check_missing(self, missing: Mapping[str, Wanted]) -> None:
        """Reports damaged files; a UsageError if runs are missing and must not be done."""
        self._report_damaged()
        if missing and self.rerun == "never":
            raise UsageError(f"{len(missing)} runs are missing and --rerun never forbids doing them")

    def _report_damaged(self) -> None:
        for reason in self.store.damaged.values():
            self._listener.message(f"not used: {reason}; the run is done again")
        self.store.damaged.clear()

    def _outcomes(self, missing: dict[str, Wanted], likely: Likely) -> Iterator[Outcome]:
        """One outcome per missing run, as they end."""
        whole = {key for key, one in missing.items() if one.until is None}
        self._drop_early(self._early.keys() - whole)
        started = self._early.keys() | self._held.keys()
        call = _Call(dict(missing), {key: one for key, one in missing.items() if key not in started})
        self._early.clear()
        for key in list(self._held):
            del call.left[key]
            yield self._ended(self._held.pop(key))
        while call.left:
            yield from self._start_waiting(call)
            if call.left and call.is_idle:
                self._wait(call)
            elif call.left:
                if self.executor.n_free and not call.waiting:
                    self._start_early(likely(), call)
                yield from self._next_outcome(call)

    def _next_outcome(self, call: _Call) -> Iterator[Outcome]:
        """The outcome of the next run to end, unless it is an early one; none if it is time to look again.

        While runs wait, the executor may get more places, and another process may be done with what it has claimed.
        """
        outcome = self.executor.outcome(POLL_SECONDS if call.waiting else None)
        if outcome is None:
            assert call.waiting, "a run is under way"
        elif outcome.key in self._early:
            self._held[outcome.key] = outcome
        else:
            del call.left[outcome.key]
            yield self._ended(outcome)

    def _start_waiting(self, call: _Call) -> Iterator[Outcome]:
        """Starts waiting runs on free workers; yields those that another process has done since."""
        for key, one in list(call.waiting.items()):
            if not self.executor.n_free:
                return
            if not self._claims.take(key):
                call.elsewhere.add(key)
                continue
            call.elsewhere.discard(key)
            del call.waiting[key]
            kept = self._stored(one)
            self.store.damaged.clear()  # reported already
            if kept is None:
                self._start(one, [other.spec for other in call.left.values()])
            else:
                self._claims.release(key)
                del call.left[key]
                yield self._found(kept)

    def _wait(self, call: _Call) -> None:
        """Waits a moment for another process; says so once, and once more if that process is stopped."""
        self._drop_early(set(self._early))
        holders = self._claims.holders(call.left)
        if call.waits_since is None:
            call.waits_since = time.monotonic()
            runs = "1 run" if len(call.left) == 1 else f"{len(call.left)} runs"
            pids = ", ".join(str(pid) for pid in holders)
            self._listener.message(f"waiting for {runs} of another process (pid {pids})")
        if time.monotonic() - call.waits_since >= STOPPED_SECONDS:
            for pid in [pid for pid in holders if pid not in call.stopped and locks.is_stopped(pid)]:
                call.stopped.add(pid)
                self._listener.message(
                    f"process {pid} is stopped and holds its runs: continue it with `kill -CONT {pid}`, or end it "
                    f"with `kill -KILL {pid}` and its runs are done here"
                )
        time.sleep(POLL_SECONDS)

    def _start_early(self, likely: Sequence[RunSpec], call: _Call) -> None:
        """Starts runs that will probably be wanted, as long as workers are free."""
        for spec in likely:
            if not self.executor.n_free:
                return
            if spec.key in self._early or spec.key in call.left or not self._claims.take(spec.key):
                continue
            if self._stored(Wanted(spec)) is not None:
                self._claims.release(spec.key)
                continue
            self._early[spec.key] = spec
            self._start(Wanted(spec), likely)

    def _start(self, wanted: Wanted, others: Sequence[RunSpec]) -> None:
        nearby = tuple(sorted({*cached_strategies(others), *self.nearby}))
        job = Job(wanted.spec, wanted.until, self.store.checkpoint(wanted.key), nearby)
        self._report_damaged()
        self.executor.start(job, self._listener)

    def _drop_early(self, keys: Collection[str]) -> None:
        """Stops early runs, or drops their outcomes."""
        for key in list(keys):
            spec = self._early.pop(key)
            if self._held.pop(key, None) is None:
                self.executor.stop(spec)
            self._claims.release(key)
            self._listener.stopped(spec)

    def _found(self, kept: RunResult | PausedRun) -> RunResult | PausedRun:
        if isinstance(kept, RunResult):
            self.n_reused += 1
            self._listener.found(kept)
        return kept

    def _ended(self, outcome: Outcome) -> Outcome:
        """Stores an outcome, reports it and releases its claim."""
        if isinstance(outcome, RunResult):
            outcome = self._keep(outcome)
        elif isinstance(outcome, PausedRun):
            outcome = self._keep_paused(outcome)
        else:
            outcome = self._keep_crash(outcome)
        self._claims.release(outcome.key)
        return outcome

    def _keep(self, result: RunResult) -> RunResult:
        result = result.replace(environment=result.environment.replace(command=own_command()))
        result = self.store.put(result, replace=self.rerun == "always")  # its arrays may be large: not in memory
        self.store.drop_checkpoint(result.key)
        self._fresh.setdefault(result.key, set()).add(None)
        self.n_done += 1
        self._listener.finished(result)
        return result

    def _keep_paused(self, paused: PausedRun) -> PausedRun:
        self.store.put_paused(paused)
        self._fresh.setdefault(paused.key, set()).add(paused.n_steps)
        self._listener.paused(paused)
        return paused.replace(checkpoint=None)  # it may be large, and it is in the store

    def _keep_crash(self, crash: Crash) -> Crash:
        crash = crash.replace(environment=crash.environment.replace(command=own_command()))
        path = self.store.put_crash(crash)
        self.crashes.append(crash)
        self._listener.crashed(crash, path)
        return crash
