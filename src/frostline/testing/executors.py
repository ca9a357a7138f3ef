"""The contract of executors as a conformance suite: what `frostline.execution.executor.Executor` promises.

Real runs of a tiny model. A broken promise raises an AssertionError that names it. `check_executor` checks everything
on any executor; each promise is a function of its own, so that a broken executor can be tested against one of them.
All but the last share one executor, because starting a worker takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from frostline.execution.events import Listener
from frostline.execution.executor import Executor, Job, Outcome
from frostline.records.results import Crash, EpochRecord, PausedRun, RunResult
from frostline.records.specs import RunSpec
from frostline.testing.models import make_model, make_spec, make_task
from frostline.training.run import Runner

PATIENCE = 120.0
"""Seconds until a run that should have ended counts as lost."""
STEPS_PER_EPOCH = 6
_ENDLESS = 100_000

Pids = Callable[[], set[int]]


@dataclass(frozen=True)
class Trial:
    """Tiny runs, and their results when nothing disturbs them."""

    spec: RunSpec
    """a run of two epochs, with dropout"""
    result: RunResult

    @property
    def endless(self) -> RunSpec:
        """A run that does not end by itself."""
        return self.spec.replace(epochs=_ENDLESS)


class Events(Listener):
    """Records events, and signals the first epoch."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []
        self.first_epoch = threading.Event()
        self._lock = threading.Lock()

    def started(self, spec: RunSpec) -> None:
        """Records it."""
        with self._lock:
            self.seen.append(("started", spec.key, 0))

    def epoch(self, spec: RunSpec, record: EpochRecord) -> None:
        """Records it."""
        with self._lock:
            self.seen.append(("epoch", spec.key, record.epoch))
        self.first_epoch.set()

    def of(self, spec: RunSpec) -> list[tuple[str, int]]:
        """The events of one run, in order."""
        return [(name, epoch) for name, key, epoch in self.seen if key == spec.key]


class _Failing(Listener):
    """Raises at an epoch."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def epoch(self, *_: object) -> None:
        """Raises."""
        raise self._error


def make_trial(folder: Path) -> Trial:
    """Tiny runs on a model and a task in the folder."""
    model = make_model(folder / "model", n_layers=2, initializer_range=0.25)
    spec = make_spec(model, make_task(folder / "task.csv", n_rows=54), epochs=2)
    return Trial(spec, Runner(max_cache_bytes=0).run(spec))


def check_executor(make: Callable[[int], Executor], folder: Path, pids: Pids | None = None, *, deaths: int = 1) -> None:
    """Raises unless an executor keeps the contract.

    Args:
        make: an executor with this many places.
        folder: an empty folder for a tiny model and its task.
        pids: ids of the processes that do runs; by default the worker processes below this one.
        deaths: how often the process of a run must die until the run is a crash; before that it is done again.
    """
    trial, pids = make_trial(folder), pids or worker_pids
    before = pids()
    with make(2) as executor:
        check_outcomes(executor, trial)
        check_order(executor, trial)
        check_crash(executor, trial)
        check_pause(executor, trial)
        check_listener(executor, trial)
        check_stop(executor, trial)
    check_no_process(pids, before)
    with make(1) as executor:
        check_death(executor, trial, pids, before, deaths)
        executor.start(Job(trial.endless), Events())  # exit ends a run that is under way
    check_no_process(pids, before)


def check_outcomes(executor: Executor, trial: Trial) -> None:
    """Every started run has exactly one outcome, with the bits of a run in this process, and its events in order."""
    specs = [trial.spec, trial.spec.replace(seed=1), trial.spec.replace(seed=2)]
    events = Events()
    for spec in specs:
        executor.start(Job(spec), events)
    outcomes = [_outcome(executor, f"run {number} of {len(specs)} has an outcome") for number in range(1, 4)]
    assert sorted(outcome.key for outcome in outcomes) == sorted(spec.key for spec in specs), "one outcome per run"
    assert executor.outcome(timeout=0.1) is None, "no outcome without a run"
    first = next(outcome for outcome in outcomes if outcome.key == trial.spec.key)
    _check_same(first, trial, "a run here and a run there have the same bits")
    for spec in specs:
        assert events.of(spec) == [("started", 0), ("epoch", 1), ("epoch", 2)], "started once, then epochs in order"


def check_order(executor: Executor, trial: Trial) -> None:
    """Outcomes come in the order in which runs end; a timeout without an outcome gives None."""
    events, long, short = Events(), trial.endless, trial.spec.replace(epochs=1)
    executor.start(Job(long), events)
    executor.start(Job(short), events)
    assert _outcome(executor, "a short run beside a long one has an outcome").key == short.key, "the first to end"
    began = time.monotonic()
    assert executor.outcome(timeout=0.2) is None, "no outcome before a run ends"
    assert time.monotonic() - began < PATIENCE / 2, "a timeout ends the wait"
    executor.stop(long)


def check_crash(executor: Executor, trial: Trial) -> None:
    """A run that raises is a Crash with its traceback, and the other runs go on."""
    impossible = trial.spec.replace(strategy="freeze:99")
    executor.start(Job(impossible), Events())
    executor.start(Job(trial.spec), Events())
    found = {outcome.key: outcome for outcome in _outcomes(executor, 2, "a run that raises has an outcome")}
    crash = found[impossible.key]
    assert isinstance(crash, Crash), "a run that raises is a crash"
    assert "freeze:99" in crash.error, "a crash names the error"
    assert crash.traceback.startswith("Traceback"), "a crash has its traceback"
    _check_same(found[trial.spec.key], trial, "other runs are not disturbed by a crash")


def check_pause(executor: Executor, trial: Trial) -> None:
    """A paused run goes on from its checkpoint to the bits of an undisturbed run, without repeating an epoch."""
    events, spec = Events(), trial.spec
    executor.start(Job(spec, until=STEPS_PER_EPOCH + 2), events)
    paused = _outcome(executor, "a paused run has an outcome")
    assert isinstance(paused, PausedRun), "a run pauses where it is asked to"
    assert paused.n_steps == STEPS_PER_EPOCH + 2, "a run pauses after the wanted step"
    assert paused.checkpoint, "a paused run has a checkpoint"
    executor.start(Job(spec, checkpoint=paused.checkpoint), events)
    _check_same(_outcome(executor, "a resumed run has an outcome"), trial, "paused and resumed, the bits are the same")
    wanted = [("started", 0), ("epoch", 1), ("started", 0), ("epoch", 2)]
    assert events.of(spec) == wanted, "a resumed run goes on from its checkpoint, not from the start"


def check_listener(executor: Executor, trial: Trial) -> None:
    """What a listener raises reaches the caller, and the next run is not disturbed."""
    error, raised = RuntimeError("the display is gone"), None
    executor.start(Job(trial.spec.replace(seed=3)), _Failing(error))
    try:
        executor.outcome(PATIENCE)
    except RuntimeError as found:
        raised = found
    assert raised is error, "what a listener raises reaches the caller"
    executor.start(Job(trial.spec), Events())
    promise = "the answers to a run whose listener failed are not those to the next one"
    _check_same(_outcome(executor, "the run after a failed listener has an outcome"), trial, promise)


def check_stop(executor: Executor, trial: Trial) -> None:
    """A stopped run has no outcome, under way or waiting, and its place is free again."""
    n_places, events = executor.n_free, Events()
    runs = [trial.endless.replace(seed=seed) for seed in range(n_places + 1)]
    for spec in runs:
        executor.start(Job(spec), events)
    assert executor.n_free == 0, "no place is free while runs wait"
    assert events.first_epoch.wait(PATIENCE), "a run reports its epochs while it runs"
    for spec in reversed(runs):
        executor.stop(spec)
    assert executor.n_free == n_places, "stopped runs free their places"
    executor.start(Job(trial.spec), Events())
    _check_same(_outcome(executor, "a run after a stop has an outcome"), trial, "a stopped run leaves no trace")
    assert executor.outcome(timeout=0.1) is None, "a stopped run has no outcome"


def check_death(executor: Executor, trial: Trial, pids: Pids, before: set[int], deaths: int = 1) -> None:
    """A run whose process is killed `deaths` times is a Crash, no earlier, and the next run works."""
    events = Events()
    executor.start(Job(trial.endless), events)
    for number in range(deaths):
        assert events.first_epoch.wait(PATIENCE), "a run reports its epochs while it runs, also when it is done again"
        assert number == 0 or executor.outcome(timeout=0.1) is None, "a run that is done again has no outcome yet"
        events.first_epoch.clear()
        for pid in pids() - before:
            with contextlib.suppress(ProcessLookupError):  # it died with another one
                os.kill(pid, signal.SIGKILL)
    crash = _outcome(executor, "a run whose process died has an outcome")
    assert isinstance(crash, Crash), "a run whose process died is a crash"
    assert crash.key == trial.endless.key, "the crash is that of the run"
    wanted = [("started", 0), *(("epoch", number) for number in range(1, len(events.of(trial.endless))))]
    assert events.of(trial.endless) == wanted, "a run that is done again reports no event twice"
    executor.start(Job(trial.spec), Events())
    _check_same(_outcome(executor, "the run after a death has an outcome"), trial, "the next run works")


def check_no_process(pids: Pids, before: set[int]) -> None:
    """After the exit no process is left."""
    deadline = time.monotonic() + 10
    while (left := pids() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, "exit leaves no process"


def worker_pids() -> set[int]:
    """Ids of the living processes of executors that this process or its children started."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if state != "Z" and b"frostline.execution" in command:
            parents[int(folder.name)] = int(parent)
    ours = {pid for pid, parent in parents.items() if parent == os.getpid()}
    return ours | {pid for pid, parent in parents.items() if parent in ours}


def _outcome(executor: Executor, promise: str) -> Outcome:
    outcome = executor.outcome(PATIENCE)
    assert outcome is not None, promise
    return outcome


def _outcomes(executor: Executor, number: int, promise: str) -> Sequence[Outcome]:
    return [_outcome(executor, promise) for _ in range(number)]


def _check_same(outcome: Outcome, trial: Trial, promise: str) -> None:
    assert isinstance(outcome, RunResult), f"{promise}: {outcome}"
    assert outcome.key == trial.spec.key, promise
    wanted = trial.result
    assert outcome.predictions == wanted.predictions, promise
    assert [e.train_loss for e in outcome.epochs] == [e.train_loss for e in wanted.epochs], promise
    assert outcome.train_score == wanted.train_score, promise
