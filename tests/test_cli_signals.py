"""SIGTERM and SIGHUP end a command as Ctrl-C does; a second signal ends it at once."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import ENVIRONMENT, Toy, fork_servers_of, is_alive, run_files, start, workers_of
from frostline.cli import main

KEPT = "finished runs are kept, the same command goes on from there"


def wait_until(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not (path.is_dir() and any(path.iterdir())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_sweep_that_is_ended_keeps_what_is_done_and_leaves_nothing_behind(
    toy: Toy, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "out"
    process = start(*toy.curve, "--seeds", "8", "--workers", "2", "--out", str(out), cwd=tmp_path, own_group=True)
    wait_until(out / "runs")
    processes = workers_of(process.pid) | fork_servers_of(process.pid)
    os.killpg(process.pid, number)  # workers get it too, as from a closed terminal or a job scheduler
    stdout, stderr = process.communicate()
    assert process.returncode == code, stderr
    assert stdout == ""
    assert stderr.splitlines()[-1] == f"frostline: ended by {number.name}; {KEPT}"
    assert "Traceback" not in stderr
    assert "crashed" not in stderr
    assert not (out / "crashed").exists()
    assert not (out / "claims").exists()
    assert run_files(out)
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in processes if is_alive(pid)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_ends_while_it_and_its_workers_import(
    toy: Toy, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    started = tmp_path / "started"
    started.mkdir()
    late = f"import os, pathlib, time; pathlib.Path({str(started)!r}, str(os.getpid())).touch(); time.sleep(600)"
    (tmp_path / "torch.py").write_text(late)
    variables = {**ENVIRONMENT, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "frostline", *toy.curve, "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as process:
        wait_until(started)
        process.send_signal(number)
        _, stderr = process.communicate()
    assert process.returncode == code
    assert stderr.splitlines()[-1].endswith(KEPT)
    assert "Traceback" not in stderr
    assert not [path for path in started.iterdir() if is_alive(int(path.name))]


# A command that takes its time to clean up.
SLOW = """
import sys, time
from frostline.cli import entry
from frostline.cli.app import app

@app.command()
def slow():
    try:
        print("begun", flush=True)
        time.sleep(600)
    finally:
        print("cleaning up", flush=True)
        time.sleep(SECONDS)

sys.argv = ["frostline", "slow"]
entry()
"""


def slow_command(seconds: str, before: Callable[[], object] | None = None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW.replace("SECONDS", seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def test_a_second_signal_ends_it_at_once() -> None:
    with slow_command("600") as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "cleaning up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    with slow_command("0", lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:  # as nohup does
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


def test_a_terminal_that_is_closed_ends_it_with_the_code_of_the_signal() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a suite under nohup ignores it
        os.execv(sys.executable, [sys.executable, "-c", SLOW.replace("SECONDS", "0")])
    read = b""
    while b"begun" not in read:
        read += os.read(terminal, 1000)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 129


def test_python_programs_keep_their_own_signal_handlers(capsys: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert main(["tasks"]) == 0
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
