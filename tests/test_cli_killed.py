"""A curve that is interrupted, killed again and again, or loses a worker, and ends with the same numbers."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from commands import (
    DEPTHS,
    N_RUNS,
    N_SEARCHED,
    Finished,
    Toy,
    announced_rng,
    curve_numbers,
    frostline,
    is_alive,
    numbers,
    run_files,
    runs_in,
    start,
    workers_of,
)
from frostline.cli import main
from frostline.studies.requests import parse

# Longer than the shared curve: on a busy machine several runs end between two looks at it, and some must be left to do.
LONGER = ("--seeds", "8")
N_LONGER = N_SEARCHED + 8 * (1 + len(DEPTHS))

Files = dict[str, tuple[int, bytes]]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When to end a call: some seconds after so many runs were stored."""

    n_runs: int
    delay: float


@dataclass(frozen=True)
class Disturbance:
    """One call that was ended before it was done."""

    signal: signal.Signals
    code: int
    stderr: str
    kept: Files
    """run files when it had ended"""
    has_orphans: bool
    """a worker outlived it"""
    waited: float
    """seconds from its start to the runs that were waited for"""


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return is_true


def n_runs(out: Path) -> int:
    """How many runs are stored."""
    return sum(1 for _ in (out / "runs").glob("*.json"))


def disturb(toy: Toy, out: Path, ended_by: signal.Signals, moment: Moment, n_workers: int) -> Disturbance:
    """Starts the shared curve and ends its process group at a moment."""
    n_wanted = min(n_runs(out) + moment.n_runs, N_LONGER - 5)
    began = time.monotonic()
    process = start(
        *toy.curve, *LONGER, "--json", "--workers", str(n_workers), "--out", str(out), cwd=out.parent, own_group=True
    )
    assert wait_for(lambda: n_runs(out) >= n_wanted or process.poll() is not None)
    waited = time.monotonic() - began
    # Not longer than one run more: a machine that is suddenly faster would leave nothing to disturb.
    wait_for(lambda: n_runs(out) > n_wanted, seconds=moment.delay)
    assert process.poll() is None, "the curve was over before it was disturbed: no teeth"
    os.killpg(process.pid, signal.SIGSTOP)  # looking for workers takes longer than a run
    workers = workers_of(process.pid)
    os.killpg(process.pid, ended_by)
    os.killpg(process.pid, signal.SIGCONT)
    _, stderr = process.communicate()
    has_orphans = not wait_for(lambda: not any(is_alive(pid) for pid in workers), seconds=10)
    return Disturbance(ended_by, process.returncode, stderr, run_files(out), has_orphans, waited)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("killed") / "out"


@pytest.fixture(scope="module")
def disturbances(toy: Toy, out: Path) -> list[Disturbance]:
    """Ctrl-C after the first run, then killed at random moments: before a run is done, and between and within runs."""
    rng = announced_rng()
    interrupted = disturb(toy, out, signal.SIGINT, Moment(n_runs=1, delay=0.05), n_workers=1)
    # Moments are measured by the time to the first run, which goes with the speed of the machine.
    unit = interrupted.waited
    moments = [
        Moment(n_runs=0, delay=rng.uniform(0, 0.9 * unit)),
        Moment(n_runs=int(rng.integers(1, 3)), delay=rng.uniform(0, 0.02 * unit)),
        Moment(n_runs=int(rng.integers(1, 3)), delay=rng.uniform(0, 0.02 * unit)),
    ]
    killed = [
        disturb(toy, out, signal.SIGKILL, moment, n_workers=1 + place % 2) for place, moment in enumerate(moments)
    ]
    return [interrupted, *killed]


@pytest.fixture(scope="module")
def resumed(toy: Toy, out: Path, disturbances: list[Disturbance]) -> Finished:
    """The same command once more, left in peace."""
    return frostline(*toy.curve, *LONGER, "--json", "--workers", "2", out=out)


@pytest.fixture(scope="module")
def peace(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The same curve, never disturbed."""
    return frostline(*toy.curve, *LONGER, "--json", "--workers", "2", out=tmp_path_factory.mktemp("peace") / "out")


def test_an_interrupted_call_says_so_in_one_line_and_keeps_what_is_done(disturbances: list[Disturbance]) -> None:
    interrupted = disturbances[0]
    assert interrupted.code == 130
    assert "Traceback" not in interrupted.stderr
    last = interrupted.stderr.splitlines()[-1]
    assert last == "frostline: interrupted; finished runs are kept, the same command goes on from there"
    assert 1 <= len(interrupted.kept) < N_LONGER


def test_killed_calls_were_killed_in_the_middle(disturbances: list[Disturbance]) -> None:
    for killed in disturbances[1:]:
        assert (killed.signal, killed.code) == (signal.SIGKILL, -signal.SIGKILL)
    assert len(disturbances[-1].kept) < N_LONGER


def test_no_worker_outlives_its_parent(disturbances: list[Disturbance]) -> None:
    assert not any(disturbance.has_orphans for disturbance in disturbances)


def test_no_stored_run_is_done_or_written_again(disturbances: list[Disturbance], resumed: Finished, out: Path) -> None:
    states = [*(disturbance.kept for disturbance in disturbances), run_files(out)]
    for earlier, later in itertools.pairwise(states):
        assert {name: later.get(name) for name in earlier} == earlier
    n_kept = len(disturbances[-1].kept)
    assert resumed.json["runs"] == {"done": N_LONGER - n_kept, "reused": n_kept, "crashed": 0}


def test_it_ends_with_the_numbers_of_an_undisturbed_run(resumed: Finished, peace: Finished) -> None:
    assert resumed.code == 0, resumed.stderr
    found, wanted = curve_numbers(resumed.json), curve_numbers(peace.json)
    for point in (found["full"], *found["points"], wanted["full"], *wanted["points"]):
        del point["seconds"], point["peak_bytes"]
    assert found == wanted
    runs = runs_in(peace.out)
    assert {key: numbers(r) for key, r in runs_in(resumed.out).items()} == {key: numbers(r) for key, r in runs.items()}


def test_what_was_resolved_first_is_kept(resumed: Finished, peace: Finished) -> None:
    (kept,), (wanted,) = ((finished.out / "specs").iterdir() for finished in (resumed, peace))
    assert (kept.name, kept.read_text()) == (wanted.name, wanted.read_text())


def test_a_worker_that_is_killed_is_a_crash_that_the_next_call_tries_again(
    toy: Toy, undisturbed: Finished, out_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = out_copy
    (lost,) = [r for r in runs_in(out).values() if (r.spec.strategy, r.spec.seed) == ("freeze:3", 1)]
    (out / "runs" / f"{lost.key}.json").unlink()
    process = start(*toy.curve, "--json", "--workers", "1", "--out", str(out), cwd=tmp_path)
    assert wait_for(lambda: len(workers_of(process.pid)) == 1)
    (worker,) = workers_of(process.pid)
    os.kill(worker, signal.SIGKILL)
    stdout, stderr = process.communicate()
    assert process.returncode == 5
    assert "Traceback" not in stderr
    curve = json.loads(stdout)
    assert curve["runs"] == {"done": 0, "reused": N_RUNS - 1, "crashed": 1}
    assert (curve["points"][-1]["seeds"], len(curve["points"][-1]["scores"])) == ([0, 2], 2)
    assert any("crash" in warning for warning in curve["warnings"])
    (crash,) = (out / "crashed").iterdir()
    assert crash.stem == lost.key
    assert "SIGKILL" in crash.read_text()
    assert str(crash) in stderr
    assert json.loads((out / "curve.json").read_text()) == curve

    assert main([*toy.curve, "--json", "--workers", "1", "--out", str(out)]) == 0
    curve = json.loads(capsys.readouterr().out)
    assert curve["runs"] == {"done": 1, "reused": N_RUNS - 1, "crashed": 0}
    assert numbers(runs_in(out)[lost.key]) == numbers(lost)
    assert curve["points"][-1]["scores"] == undisturbed.json["points"][-1]["scores"]


def test_runs_that_diverge_count_as_failed(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parse, "MOST_RATE", math.inf)
    asked = ["curve", str(toy.model), str(toy.train), "--epochs", "1", "--workers", "1", "--json"]
    # Above a rate that throws weights out of range, layers give NaN; a lone linear head only large numbers.
    asked += ["--lr", "1e30", "--seeds", "1", "--frozen", "2,3", "--out", str(tmp_path / "out")]
    assert main(asked) == 0
    said = capsys.readouterr()
    curve = json.loads(said.out)
    assert curve["runs"] == {"done": 3, "reused": 0, "crashed": 0}
    assert (curve["full"]["mean"], curve["full"]["n_failed"]) == (curve["chance"], 1)
    assert (curve["full"]["p_failed"], curve["full"]["train_loss"]) == (1.0, [None])
    assert [point["n_diverged"] for point in (curve["full"], *curve["points"])] == [1, 1, 0]
    assert said.err.count("training diverged") == 2
    assert "Traceback" not in said.err
    assert len(run_files(tmp_path / "out")) == 3
