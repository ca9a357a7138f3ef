"""The sweep: early starts on idle workers, reruns, pauses, and claims of other processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from commands import Recorder, Toy
from frostline.execution.events import Listener
from frostline.execution.executor import Job
from frostline.execution.local import LocalProcesses
from frostline.execution.progress import label
from frostline.execution.sweep import Sweep, Wanted
from frostline.records.depth import FULL
from frostline.records.requests import Rerun
from frostline.records.results import Crash, RunResult
from frostline.records.specs import RunSpec
from frostline.storage.runs import Store
from frostline.testing.models import make_spec
from synthetic import make_result
from synthetic import make_spec as make_synthetic


class Scripted:
    """An executor with two places in which the run that was begun first ends first, unless its label is `slow`."""

    def __init__(self, scores: Callable[[RunSpec], float], slow: str = "") -> None:
        self.begun: list[str] = []
        self.stopped: list[str] = []
        self._open: list[RunSpec] = []
        self._scores, self._slow = scores, slow

    @property
    def n_free(self) -> int:
        return 2 - len(self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None

    def start(self, job: Job, listener: Listener) -> None:
        assert self.n_free, "nothing is started without a place"
        assert job == Job(job.spec), "nothing here is cached or was paused"
        listener.started(job.spec)
        self.begun.append(label(job.spec))
        self._open.append(job.spec)

    def outcome(self, timeout: float | None = None) -> RunResult | Crash | None:
        if not self._open:
            return None
        spec = min(self._open, key=lambda spec: label(spec) == self._slow)
        self._open.remove(spec)
        return make_result(FULL, spec.seed, self._scores(spec), spec=spec)

    def stop(self, spec: RunSpec) -> None:
        self._open.remove(spec)
        self.stopped.append(label(spec))


BASE = make_synthetic(FULL, 0)
SEARCH = [BASE.replace(role="line_search", learning_rate=rate) for rate in (1e-5, 2e-5, 3e-5)]


def replicates_of(searched: Sequence[RunResult]) -> list[RunSpec]:
    """Three seeds at the rate that leads."""
    if not searched:
        return []
    best = max(searched, key=lambda result: result.score)
    return [BASE.replace(learning_rate=best.spec.learning_rate, seed=seed) for seed in range(3)]


def run(
    sweep: Sweep, specs: Sequence[RunSpec], guess: Callable[[Sequence[RunResult]], Sequence[RunSpec]] = lambda _: ()
) -> dict[str, RunResult]:
    """The results of a step by key."""
    found: dict[str, RunResult] = {}
    for outcome in sweep.do([Wanted(spec) for spec in specs], lambda: guess(list(found.values()))):
        assert isinstance(outcome, RunResult)
        found[outcome.key] = outcome
    return found


def searched(folder: Path, scores: dict[float, float], slow: str = "", rerun: Rerun = "only-missing") -> Scripted:
    """Who did a line search and the replicates at the rate that wins it."""
    executor = Scripted(lambda spec: scores[spec.learning_rate], slow)
    sweep = Sweep(Store(folder), executor, rerun=rerun)
    found = run(sweep, SEARCH, replicates_of)
    assert found.keys() == {spec.key for spec in SEARCH}
    wanted = replicates_of(list(found.values()))
    assert run(sweep, wanted).keys() == {spec.key for spec in wanted}
    assert sweep.n_done + sweep.n_reused == len(SEARCH) + len(wanted), "what was guessed wrong does not count"
    assert {path.stem for path in (folder / "runs").glob("*.json")} == {spec.key for spec in (*SEARCH, *wanted)}
    assert not (folder / "claims").exists(), "all claims are released"
    return executor


LAST = "line search 3e-05"


def test_a_right_guess_is_kept_and_not_done_twice(tmp_path: Path) -> None:
    executor = searched(tmp_path, {1e-5: 0.6, 2e-5: 0.8, 3e-5: 0.7})
    assert executor.begun == [label(spec) for spec in SEARCH] + [f"full seed {seed}" for seed in range(3)]
    assert not executor.stopped


def test_a_wrong_guess_under_way_is_stopped_and_not_stored(tmp_path: Path) -> None:
    executor = searched(tmp_path, {1e-5: 0.6, 2e-5: 0.8, 3e-5: 0.9})
    assert executor.stopped == ["full seed 0"]
    assert len(executor.begun) == len(SEARCH) + 1 + 3


@pytest.mark.parametrize("last", [0.7, 0.9])
def test_a_guess_that_ended_before_the_search_is_kept_or_dropped(tmp_path: Path, last: float) -> None:
    executor = searched(tmp_path, {1e-5: 0.6, 2e-5: 0.8, 3e-5: last}, slow=LAST)
    is_right = last < 0.8
    assert not executor.stopped, "all guesses had ended"
    assert len(executor.begun) == len(SEARCH) + 3 + (0 if is_right else 3)


def test_what_is_stored_is_not_guessed_again_unless_all_is_done_anew(tmp_path: Path) -> None:
    scores = {1e-5: 0.6, 2e-5: 0.8, 3e-5: 0.7}
    searched(tmp_path, scores)
    (tmp_path / "runs" / f"{SEARCH[2].key}.json").unlink()
    assert searched(tmp_path, scores, slow=LAST).begun == [LAST]
    assert len(searched(tmp_path, scores, rerun="always").begun) == 6


def test_a_run_that_is_stopped_has_no_outcome_and_its_place_is_free_again(toy: Toy) -> None:
    is_under_way = threading.Event()
    listener = Recorder(lambda _spec, _record: is_under_way.set())
    endless = make_spec(toy.model, toy.train, layout="packed").replace(epochs=10_000)
    short, waits = endless.replace(epochs=1), endless.replace(seed=1)
    with LocalProcesses(1, threads=1, max_cache_bytes=2**30) as executor:
        for spec in (endless, waits):
            executor.start(Job(spec), listener)
        assert executor.n_free == 0
        assert is_under_way.wait(60)
        executor.stop(waits)
        executor.stop(endless)
        assert executor.n_free == 1
        executor.start(Job(short), listener)
        outcome = executor.outcome()
    assert isinstance(outcome, RunResult), outcome
    assert outcome.spec == short
