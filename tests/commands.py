"""Commands, here or in a process of their own, and what their runs left on disk."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import forked_commands
from forked_commands import Command as Command
from frostline.execution.events import Listener
from frostline.execution.executor import Executor, Job, Outcome, cached_strategies
from frostline.records.results import EpochRecord, RunResult
from frostline.records.specs import RunSpec
from frostline.storage.runs import FolderIdentity, Store

SETTINGS = ("--seeds", "3", "--lrs", "1e-3,3e-3", "--epochs", "2", "--batch-size", "16")
"""Settings of the shared curve: 2 runs of the line search, 3 seeds of the full model and of the depths 1, 2, 3."""
N_SEARCHED, N_SEEDS, DEPTHS = 2, 3, (1, 2, 3)
N_RUNS = N_SEARCHED + N_SEEDS * (1 + len(DEPTHS))

ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Toy:
    """A tiny model and a toy task."""

    model: Path
    train: Path
    dev: Path

    @property
    def curve(self) -> tuple[str, ...]:
        """The command of the shared curve, but for `--out`."""
        return ("curve", str(self.model), str(self.train), "--dev", str(self.dev), *SETTINGS)


@dataclass(frozen=True)
class Finished:
    """A command that ended."""

    code: int
    stdout: str
    stderr: str
    out: Path

    @property
    def json(self) -> Any:
        """What it said, which must be one JSON value and nothing else."""
        return json.loads(self.stdout, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"JSON with {constant}")


def start(*arguments: str, cwd: Path, own_group: bool = False, **variables: str) -> Command:
    """A command in a process of its own, under way, with these environment variables besides the usual ones."""
    return forked_commands.start(*arguments, cwd=cwd, own_group=own_group, environment={**ENVIRONMENT, **variables})


def run_script(script: str, cwd: Path) -> Finished:
    """A script when it has ended: in a process of its own that has imported torch already."""
    process = forked_commands.start(script=script, cwd=cwd, own_group=False, environment=ENVIRONMENT)
    stdout, stderr = process.communicate()
    return Finished(process.returncode, stdout, stderr, cwd)


def frostline(*arguments: str, out: Path) -> Finished:
    """A command when it has ended: in this process, which has torch already; its workers are processes as always."""
    from frostline.cli import main

    stdout, stderr = io.StringIO(), io.StringIO()
    given = [*arguments, "--out", str(out)]
    with (
        mock.patch.object(sys, "argv", ["frostline", *given]),
        contextlib.chdir(out.parent),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        code = main(given)
    return Finished(code, stdout.getvalue(), stderr.getvalue(), out)


@contextlib.contextmanager
def after_the_first_run(out: Path, change: Callable[[], None]) -> Iterator[None]:
    """Changes something as soon as one run is stored."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set() and not list((out / "runs").glob("*.json")):
            time.sleep(0.005)
        change()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def runs_in(out: Path) -> dict[str, RunResult]:
    """The whole runs in an out folder, by key; fails where a file is not one."""
    identity = json.loads((out / "identity.json").read_text())["content"]
    store = Store.open(out, FolderIdentity.from_json(identity))
    found = {result.key: result for result in store.results()}
    assert store.damaged == {}
    return found


def run_files(out: Path) -> dict[str, tuple[int, bytes]]:
    """What lies under `runs`, by name: which file it is, and its bytes."""
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in (out / "runs").glob("*.json")}


def numbers(result: RunResult) -> list[object]:
    """All that a run computed, to the bit, without times."""
    epochs = [(epoch.train_loss, epoch.metrics, epoch.learning_rate) for epoch in result.epochs]
    return [epochs, result.score, result.metrics, result.chance, result.train_score, result.predictions]


def curve_numbers(curve: Any) -> dict[str, Any]:
    """A curve's JSON without what the call took."""
    return {name: value for name, value in curve.items() if name not in ("cost", "runs")}


def differences(found: Any, wanted: Any, at: str = "") -> list[str]:
    """The paths at which two JSON values differ.

    Types, names and their order must be the same. Decimals may differ by 1e-12 of their size: other processors sum in
    another order.
    """
    if type(found) is not type(wanted):
        return [f"{at or '.'}: {found!r} instead of {wanted!r}"]
    if isinstance(found, dict):
        if list(found) != list(wanted):
            return [f"{at or '.'}: the names {list(found)} instead of {list(wanted)}"]
        return [one for name in found for one in differences(found[name], wanted[name], f"{at}.{name}")]
    if isinstance(found, list):
        if len(found) != len(wanted):
            return [f"{at or '.'}: {len(found)} items instead of {len(wanted)}"]
        pairs = enumerate(zip(found, wanted, strict=True))
        return [one for place, (mine, other) in pairs for one in differences(mine, other, f"{at}[{place}]")]
    is_same = math.isclose(found, wanted, rel_tol=1e-12, abs_tol=0.0) if isinstance(found, float) else found == wanted
    return [] if is_same else [f"{at or '.'}: {found!r} instead of {wanted!r}"]


def children(parent: int) -> Iterator[tuple[int, list[str]]]:
    """Process id and command line of the living children of a process."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            _, _, after_name = (folder / "stat").read_text().rpartition(")")
            state, ppid = after_name.split()[:2]
            command = (folder / "cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(ppid) == parent and state != "Z":
            yield int(folder.name), command


def fork_servers_of(parent: int) -> set[int]:
    """Process ids of the living processes that fork the workers of a process."""
    programs = ("frostline.execution.worker", forked_commands.__file__)
    return {pid for pid, command in children(parent) if any(program in command for program in programs)}


def workers_of(parent: int) -> set[int]:
    """Process ids of the living workers of a process."""
    return {pid for server in fork_servers_of(parent) for pid, _ in children(server)}


def announced_rng() -> np.random.Generator:
    """Random moments: new ones in every run, told where a test fails, the same again by FROSTLINE_TEST_SEED."""
    seed = int(os.environ.get("FROSTLINE_TEST_SEED") or int.from_bytes(os.urandom(4), "little"))
    sys.stdout.write(f"FROSTLINE_TEST_SEED={seed}\n")
    return np.random.default_rng(seed)


def is_alive(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def check_one_line(code: int, wanted: int, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """Fails unless a command said one line with all these words on standard error, and nothing else."""
    said = capfd.readouterr()
    assert code == wanted, said.err
    assert said.out == ""
    assert said.err.startswith("frostline: ")
    assert said.err.count("\n") == 1, said.err
    for word in words:
        assert word in said.err


class Recorder(Listener):
    """Records the events of an executor, and may do something at an epoch."""

    def __init__(self, at_epoch: Callable[[RunSpec, EpochRecord], None] = lambda _, __: None) -> None:
        self.began: Counter[str] = Counter()
        self.epochs: dict[str, list[int]] = {}
        self._at_epoch = at_epoch
        self._lock = threading.Lock()

    def started(self, spec: RunSpec) -> None:
        with self._lock:
            self.began[spec.key] += 1

    def epoch(self, spec: RunSpec, record: EpochRecord) -> None:
        with self._lock:
            self.epochs.setdefault(spec.key, []).append(record.epoch)
        self._at_epoch(spec, record)


def run_all(executor: Executor, specs: Sequence[RunSpec], listener: Listener) -> list[Outcome]:
    """One outcome per spec, as they end."""
    for spec in specs:
        executor.start(Job(spec, nearby=tuple(cached_strategies(specs))), listener)
    outcomes = [executor.outcome() for _ in specs]
    return [outcome for outcome in outcomes if outcome is not None]
