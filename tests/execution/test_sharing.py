"""Two commands on one output folder share the work, and one that is killed leaves it to the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from commands import Finished, Toy, curve_numbers, numbers, run_files, runs_in, start
from execution.test_sweep import BASE, Scripted
from frostline.execution.events import Listener
from frostline.execution.sweep import Sweep, Wanted
from frostline.records.depth import FULL
from frostline.records.results import RunResult
from frostline.storage.claims import Claims
from frostline.storage.runs import Store
from synthetic import make_result

SPECS = [BASE.replace(seed=seed) for seed in range(3)]


class Messages(Listener):
    """Keeps messages."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize("has_result", [True, False])
def test_a_run_claimed_elsewhere_is_left_until_it_is_stored_or_its_holder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_result: bool
) -> None:
    store, other, listener = Store(tmp_path), Claims(tmp_path), Messages()
    executor = Scripted(lambda _: 0.5)
    assert other.take(SPECS[0].key)
    n_waits = 0

    def sleep(_: float) -> None:
        nonlocal n_waits
        n_waits += 1
        if n_waits == 3:
            if has_result:
                store.put(make_result(FULL, 0, 0.9, spec=SPECS[0]))
            other.release_all()

    monkeypatch.setattr("time.sleep", sleep)
    sweep = Sweep(store, executor, [listener])
    outcomes = list(sweep.do([Wanted(spec) for spec in SPECS]))
    assert [outcome.key for outcome in outcomes] == [SPECS[1].key, SPECS[2].key, SPECS[0].key], "its own runs first"
    assert n_waits == 3
    assert listener.texts == [f"waiting for 1 run of another process (pid {os.getpid()})"]
    assert isinstance(outcomes[-1], RunResult)
    assert outcomes[-1].score == (0.9 if has_result else 0.5)
    assert (sweep.n_done, sweep.n_reused) == ((2, 1) if has_result else (3, 0))
    assert not (tmp_path / "claims").exists()


HOLDER = """
import sys, time
from pathlib import Path
from frostline.storage.claims import Claims

claims = Claims(Path(sys.argv[1]))
print(claims.take(sys.argv[2]), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_stopped_process_that_holds_a_claim_is_reported_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), SPECS[0].key], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    if is_stopped:
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
    monkeypatch.setattr("frostline.execution.sweep.STOPPED_SECONDS", 0.3)
    monkeypatch.setattr("frostline.execution.sweep.POLL_SECONDS", 0.1)
    threading.Timer(1.0, holder.kill).start()
    listener = Messages()
    (outcome,) = Sweep(Store(tmp_path), Scripted(lambda _: 0.5), [listener]).do([Wanted(SPECS[0])])
    holder.communicate()
    assert isinstance(outcome, RunResult), "once the holder is gone, the run is done here"
    assert listener.texts[0] == f"waiting for 1 run of another process (pid {holder.pid})"
    if is_stopped:
        (said,) = listener.texts[1:]
        assert said.startswith(f"process {holder.pid} is stopped and holds its runs")
    else:
        assert listener.texts[1:] == []


def test_an_error_in_the_middle_leaves_no_claim(tmp_path: Path) -> None:
    class Failing(Listener):
        def finished(self, result: RunResult) -> None:
            raise RuntimeError("the display is gone")

    with pytest.raises(RuntimeError):
        list(Sweep(Store(tmp_path), Scripted(lambda _: 0.5), [Failing()]).do([Wanted(spec) for spec in SPECS]))
    assert not (tmp_path / "claims").exists()


def curve_of(toy: Toy, out: Path, name: str) -> tuple[str, ...]:
    """The shared curve; the last flag changes no number and tells the two commands apart."""
    return (*toy.curve, "--json", "--workers", "1", "--cache-max-gb", name, "--out", str(out))


def test_two_commands_do_each_run_once_together(toy: Toy, undisturbed: Finished, tmp_path: Path) -> None:
    out = tmp_path / "out"
    processes = [start(*curve_of(toy, out, size), cwd=tmp_path) for size in ("1.5", "2.5")]
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    found = [json.loads(stdout) for stdout, _ in said]
    runs, wanted = runs_in(out), runs_in(undisturbed.out)
    assert {key: numbers(run) for key, run in runs.items()} == {key: numbers(run) for key, run in wanted.items()}
    by_command = [sum(size in run.environment.command for run in runs.values()) for size in ("1.5", "2.5")]
    assert [curve["runs"]["done"] for curve in found] == by_command
    assert sum(by_command) == len(runs), "no run was done twice"
    assert min(by_command) > 0, "both did some"
    assert curve_numbers(found[0]) == curve_numbers(found[1])
    assert not (out / "claims").exists()


def test_a_killed_command_leaves_its_runs_to_the_other(toy: Toy, undisturbed: Finished, tmp_path: Path) -> None:
    out = tmp_path / "out"
    victim, survivor = (start(*curve_of(toy, out, s), cwd=tmp_path, own_group=True) for s in ("1.5", "2.5"))
    deadline = time.monotonic() + 120
    while not ((out / "claims").is_dir() and run_files(out)) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    stdout, stderr = survivor.communicate()
    assert survivor.returncode == 0, stderr
    assert victim.returncode == -signal.SIGKILL
    counts, runs, wanted = json.loads(stdout)["runs"], runs_in(out), runs_in(undisturbed.out)
    assert counts["done"] + counts["reused"] == len(runs) == len(wanted)
    assert {key: numbers(run) for key, run in runs.items()} == {key: numbers(run) for key, run in wanted.items()}
