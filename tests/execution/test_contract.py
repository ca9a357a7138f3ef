"""Local processes keep the contract of executors; executors that are broken on purpose do not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
import torch

from commands import children, workers_of
from frostline.execution.events import Broadcast, Listener
from frostline.execution.executor import Executor, Job, Outcome
from frostline.execution.local import LocalProcesses
from frostline.records.results import Crash
from frostline.records.specs import RunSpec
from frostline.testing import executors as conformance
from frostline.testing.executors import Trial, check_executor, make_trial
from frostline.training.checkpoints import Checkpoint, from_bytes, to_bytes


def make_local(n_workers: int) -> LocalProcesses:
    return LocalProcesses(n_workers, threads=1, max_cache_bytes=0)


def forked_pids() -> set[int]:
    """Fork servers that were themselves forked, and their workers."""
    servers = workers_of(os.getpid())
    return servers | {pid for server in servers for pid, _ in children(server)}


def test_local_processes_keep_the_contract(tmp_path: Path) -> None:
    check_executor(make_local, tmp_path, forked_pids)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return make_trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="module")
def local() -> Iterator[LocalProcesses]:
    with make_local(2) as made:
        yield made


@dataclass
class Wrapped:
    """An executor that passes everything on to another; the broken ones change one thing."""

    inner: Executor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None

    @property
    def n_free(self) -> int:
        return self.inner.n_free

    def start(self, job: Job, listener: Listener) -> None:
        self.inner.start(job, listener)

    def outcome(self, timeout: float | None = None) -> Outcome | None:
        return self.inner.outcome(timeout)

    def stop(self, spec: RunSpec) -> None:
        self.inner.stop(spec)


class LosesAnOutcome(Wrapped):
    """Of two outcomes it hands over one."""

    def outcome(self, timeout: float | None = None) -> Outcome | None:
        self.inner.outcome(timeout)
        return self.inner.outcome(timeout)


class ResumesFromScratch(Wrapped):
    """It ignores checkpoints. The bits are the same, but the first epoch is done twice."""

    def start(self, job: Job, listener: Listener) -> None:
        self.inner.start(Job(job.spec, job.until), listener)


class ForgetsTheGenerator(Wrapped):
    """It resumes, but dropout draws other numbers."""

    def start(self, job: Job, listener: Listener) -> None:
        if (checkpoint := from_bytes(job.checkpoint, job.spec.key)) is not None:
            changed = Checkpoint(**(vars(checkpoint) | {"generator": torch.Generator().manual_seed(7).get_state()}))
            job = Job(job.spec, job.until, to_bytes(changed, job.spec.key))
        self.inner.start(job, listener)


class HidesCrashes(Wrapped):
    """A crash is reported as nothing."""

    def outcome(self, timeout: float | None = None) -> Outcome | None:
        found = self.inner.outcome(timeout)
        return None if isinstance(found, Crash) else found


class HidesErrors(Wrapped):
    """What a listener raises is lost."""

    def start(self, job: Job, listener: Listener) -> None:
        self.inner.start(job, Listener())


class StartsTwice(Wrapped):
    """Every event comes twice."""

    def start(self, job: Job, listener: Listener) -> None:
        self.inner.start(job, Broadcast([listener, listener]))


class IgnoresPauses(Wrapped):
    """It goes on to the end."""

    def start(self, job: Job, listener: Listener) -> None:
        self.inner.start(Job(job.spec, None, job.checkpoint), listener)


Check = Callable[[Executor, Trial], None]


@pytest.mark.parametrize(
    ("broken", "check", "promise"),
    [
        (LosesAnOutcome, conformance.check_outcomes, "has an outcome"),
        (StartsTwice, conformance.check_outcomes, "started once"),
        (HidesCrashes, conformance.check_crash, "a run that raises has an outcome"),
        (HidesErrors, conformance.check_listener, "reaches the caller"),
        (ResumesFromScratch, conformance.check_pause, "not from the start"),
        (ForgetsTheGenerator, conformance.check_pause, "the bits are the same"),
        (IgnoresPauses, conformance.check_pause, "pauses where it is asked to"),
    ],
)
def test_twin_a_broken_executor_is_found(
    local: LocalProcesses, trial: Trial, broken: type[Wrapped], check: Check, promise: str
) -> None:
    check(Wrapped(local), trial)
    with pytest.raises(AssertionError, match=promise):
        check(broken(local), trial)
    while local.outcome() is not None:  # what the broken one left behind
        pass


def test_twin_a_process_that_outlives_its_executor_is_found(
    local: LocalProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert local.n_free == 2
    monkeypatch.setattr("time.monotonic", iter(range(0, 1000, 100)).__next__)
    with pytest.raises(AssertionError, match="leaves no process"):
        conformance.check_no_process(forked_pids, set())
