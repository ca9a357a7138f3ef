"""The commands that are disturbed, in processes with the shim, and what counts as the same numbers.

Commands are forked from a process that has imported torch, as in the tests: one takes about a second.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))  # the tests' commands are ours too
from bench.torture.shim import Shim
from commands import numbers, runs_in
from forked_commands import Command, CommandServer, start
from frostline.cli import main
from frostline.cli.app import app
from frostline.cli.commands import caches

DOCUMENTED = (2, 3, 5)
"""exit codes of a command that a failing disk may end with"""
TIMEOUT_SECONDS = 120.0
_NO_NUMBERS = {"cost", "runs", "seconds", "peak_bytes", "wall_seconds", "circumstances", "notices", "warnings"}
"""names of what depends on time and on the state of the cache"""
_COMMANDS = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
_COMMANDS |= {str(group.name) for group in app.registered_groups}
_CACHE_COMMANDS = {str(command.name) for command in caches.registered_commands}


@dataclass(frozen=True)
class Case:
    """A command, whose output folder is `out`, whose cache is `cache` and whose saved model is `save` in one folder."""

    name: str
    words: tuple[str, ...]
    n_workers: int = 1

    def arguments(self, base: Path) -> list[str]:
        """The command line."""
        saved = ["--save", str(base / "save")] if self.saves else ["--workers", str(self.n_workers)]
        return [*self.words, "--out", str(base / "out"), "--json", *saved]

    @property
    def saves(self) -> bool:
        """Whether it saves a model."""
        return self.words[0] == "train"


@dataclass(frozen=True)
class Ended:
    """A command that ended, or was ended."""

    code: int
    stdout: str
    stderr: str
    was_stuck: bool = False
    has_orphans: bool = False

    @property
    def fault(self) -> str:
        """What is wrong with how it ended, whatever it computed; empty if nothing is."""
        if self.was_stuck:
            return f"did not end within {TIMEOUT_SECONDS:.0f} s"
        if self.has_orphans:
            return "a process outlived it"
        if "Traceback" in self.stderr:
            return f"exit code {self.code} with a traceback"
        if self.code not in (0, *DOCUMENTED):
            return f"exit code {self.code}"
        n_lines = sum(line.startswith("frostline: ") for line in self.stderr.splitlines())
        if self.code in (2, 3) and n_lines != 1:
            return f"exit code {self.code} with {n_lines} lines of explanation"
        return ""


@dataclass(frozen=True)
class Numbers:
    """All that a command computed, to the bit, without times."""

    answer: Any
    runs: dict[str, list[object]] = field(repr=False)
    saved: dict[str, bytes] = field(repr=False)

    def difference(self, wanted: Numbers) -> str:
        """What is not as wanted; empty if nothing is. There may be more runs: a crash may have led a search on."""
        fields = [name for name in wanted.answer if self.answer.get(name) != wanted.answer[name]]
        n_runs = sum(self.runs.get(key) != run for key, run in wanted.runs.items())
        files = [name for name in wanted.saved if self.saved.get(name) != wanted.saved[name]]
        parts = [f"{', '.join(fields)} of the answer"] * bool(fields) + [f"{n_runs} runs"] * bool(n_runs)
        parts += [f"saved {', '.join(files)}"] * bool(files)
        return f"OTHER NUMBERS: {'; '.join(parts)}" if parts else ""


class _QuickServer(CommandServer):  # type: ignore[misc] # final, for everybody else
    """Forks commands that draw no pictures."""

    program = (str(Path(__file__).with_name("quick.py")),)

    @property
    def pid(self) -> int | None:
        """Its process, if it was started."""
        return None if self._process is None else self._process.pid


class Commands:
    """Starts commands with the shim. Use it as a context manager."""

    def __init__(self, cases: tuple[Case, ...], folder: Path) -> None:
        self.cases, self.folder = cases, folder
        (folder / "shim").mkdir()
        self.shim = Shim(folder / "shim")
        self._environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **self.shim.environment}
        self.server = _QuickServer(0, self._environment)

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.end()

    def case(self, name: str) -> Case:
        """The case of a name."""
        return next(case for case in self.cases if case.name == name)

    def start(self, case: Case, base: Path) -> Command:
        """A command, under way in a process group of its own."""
        base.mkdir(exist_ok=True)
        environment = {**self._environment, "FROSTLINE_CACHE": str(base / "cache")}
        arguments = case.arguments(base)
        return start(*arguments, cwd=base, own_group=True, environment=environment, server=self.server)

    def run(self, case: Case, base: Path) -> Ended:
        """A command when it has ended; one that does not end is killed."""
        return ended(self.start(case, base))


def ended(command: Command) -> Ended:
    """How a command ends; one that does not is killed."""
    stuck = threading.Event()

    def kill() -> None:
        stuck.set()
        os.kill(command.pid, signal.SIGUSR1)  # it says where it is stuck
        time.sleep(1)
        kill_group(command.pid)

    timer = threading.Timer(TIMEOUT_SECONDS, kill)
    timer.start()
    stdout, stderr = command.communicate()
    timer.cancel()
    return Ended(command.returncode, stdout, stderr, stuck.is_set(), has_orphans=_has_orphans(command.pid))


def kill_group(group: int) -> None:
    """Kills the processes of a group that we started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _has_orphans(group: int) -> bool:
    """Whether processes of a command outlive it; they are ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.01)
    kill_group(group)
    return True


def numbers_of(case: Case, base: Path, stdout: str) -> Numbers:
    """What a command that ended with exit code 0 said, stored and saved."""
    runs = {key: numbers(result) for key, result in runs_in(base / "out").items()}
    return Numbers(_without_times(json.loads(stdout)), runs, saved_files(base) if case.saves else {})


def wrong_files(base: Path) -> list[str]:
    """What `frostline check` and `frostline cache check` find, but for what killed processes left over."""
    found = []
    for words in (("check", str(base / "out")), ("cache", "check")):
        if words[0] not in _COMMANDS or words[-1] not in _CACHE_COMMANDS | {str(base / "out")}:
            continue  # this version has no such command
        said = io.StringIO()
        with mock.patch.dict(os.environ, FROSTLINE_CACHE=str(base / "cache")), contextlib.redirect_stdout(said):
            code = main([*words, "--json"])
        findings = json.loads(said.getvalue())["findings"] if code in (0, 3) else [{"what": f"exit code {code}"}]
        found += [str(finding) for finding in findings if finding["what"] != "left over"]
    return found


def saved_files(base: Path) -> dict[str, bytes]:
    """The files of the saved model by name."""
    return {path.name: path.read_bytes() for path in sorted((base / "save").glob("*"))}


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(one) for name, one in value.items() if name not in _NO_NUMBERS}
    return [_without_times(one) for one in value] if isinstance(value, list) else value


def toy_cases(folder: Path) -> dict[str, Case]:
    """A tiny model and a toy task, and the commands on them by name."""
    from frostline.testing.models import make_model, make_task

    model = make_model(folder / "tiny-bert", n_layers=2, initializer_range=0.5)
    train, dev = make_task(folder / "train.csv", n_rows=48), make_task(folder / "dev.csv", n_rows=24, seed=1)
    on = (str(model), str(train), "--dev", str(dev), "--batch-size", "8", "--epochs", "1")
    curve = ("curve", *on, "--seeds", "2", "--frozen", "2", "--lr", "2e-2")
    find = ("find", *on, "--seeds", "4", "--lrs", "1e-2,3e-2", "--protocol", "paper", "--frozen", "1,2")
    saved = ("train", *on, "--lr", "2e-2", "--frozen", "1")
    cases = (
        Case("curve", curve),
        Case("curve-2", curve, n_workers=2),
        Case("find", find),
        Case("find-2", find, n_workers=2),
        Case("train", saved),
        Case("depths", ("curve", *on, "--seeds", "1", "--lr", "2e-2")),
    )
    return {case.name: case for case in cases}


@contextlib.contextmanager
def toy_commands() -> Iterator[Commands]:
    """The commands of a bench, in memory: the disk of the machine is not what is tested."""
    with tempfile.TemporaryDirectory(dir=_fast_folder(), prefix="frostline-torture-") as name:
        folder = Path(name)
        with Commands(tuple(toy_cases(folder).values()), folder) as commands:
            yield commands


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
