"""A prefix cache that several processes share: others evict, hold the lock or lack locks; the numbers stay the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from commands import numbers, runs_in
from frostline.execution.events import Listener
from frostline.execution.executor import Job
from frostline.execution.local import LocalProcesses
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.storage.prefix_cache import Cache, Origin
from frostline.testing.models import make_model, make_spec, make_task
from frostline.training.pooled import pooled_states
from frostline.training.prefix import Prefixes, compute_states
from frostline.training.run import Runner
from restricted import restrictions
from tiny import Case

N_ROUNDS = 30
ORIGIN = Origin(model="m", model_fingerprint="f", task="t", split="train", layout="padded", device="cpu", dtype="fp32")

EVICTING = """
import sys
from pathlib import Path
from frostline.storage.prefix_cache import Cache
cache, freed = Cache(Path(sys.argv[1])), 0
print("ready", flush=True)
while not (Path(sys.argv[1]) / "stop").exists():
    freed += cache.remove(None)
print(freed)
"""


@contextlib.contextmanager
def evicting(folder: Path) -> Iterator[list[int]]:
    """A process that removes every array as soon as it is there; afterwards, how many bytes it removed."""
    evicted: list[int] = []
    with subprocess.Popen([sys.executable, "-c", EVICTING, folder], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield evicted
        finally:
            (folder / "stop").touch()
            evicted.append(int(process.communicate()[0]))


def test_evicting_while_another_process_writes_and_opens_never_crashes_it(tmp_path: Path) -> None:
    stack, encoded = Case("bert").stack(n_layers=2), Case("bert").encoded(20)
    right = {depth: compute_states(stack, encoded, depth).values for depth in (1, 2)}
    pooled = pooled_states(Prefixes(0), encoded, ORIGIN, lambda: stack, is_kept=False)
    notes = []
    with evicting(tmp_path) as evicted:
        for _ in range(N_ROUNDS):
            prefixes = Prefixes(2**30, Cache(tmp_path))
            for depth, wanted in right.items():
                found = prefixes.states(encoded, ORIGIN, depth, lambda: stack, nearby=(1, 2))
                assert np.array_equal(found.values, wanted)
                assert not found.values.flags.writeable
            assert np.array_equal(pooled_states(prefixes, encoded, ORIGIN, lambda: stack), pooled)
            notes += prefixes.notes
    (freed,) = evicted
    assert freed > 0, "nothing was evicted: no teeth"
    assert notes == [], "eviction is no damage"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    monkeypatch.setenv("FROSTLINE_CACHE", str(tmp_path / "cache"))
    model, task = make_model(tmp_path / "model"), make_task(tmp_path / "task.csv", n_rows=30)
    return make_spec(model, task, strategy="freeze:1", is_cached=True)


HOLDER = """
import contextlib, os, signal, sys
from pathlib import Path
from frostline.storage.prefix_cache import Cache
with contextlib.ExitStack() as held:
    for shelf in Cache(Path(sys.argv[1])).shelves():
        held.enter_context(shelf.locked())
    print("locked", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


class Heard(Listener):
    """Lets the holder of the lock go on when the worker reports it."""

    def __init__(self, holder: int) -> None:
        self.holder, self.messages = holder, list[str]()

    def message(self, text: str) -> None:
        self.messages.append(text)
        os.kill(self.holder, signal.SIGCONT)


def test_a_stopped_holder_of_the_lock_is_reported_while_a_worker_waits(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Runner().run(spec)
    # Workers import it when they start.
    (tmp_path / "sitecustomize.py").write_text(
        "from frostline.storage import locks\nlocks.SECONDS_BEFORE_REPORT = 0.5\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / "cache"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        heard = Heard(holder.pid)
        try:
            with LocalProcesses(1, threads=1, max_cache_bytes=2**30) as executor:
                executor.start(Job(spec), heard)
                outcome = executor.outcome(timeout=120)
        finally:
            holder.kill()
    assert isinstance(outcome, RunResult)
    assert numbers(outcome) == numbers(right)
    (message,) = heard.messages
    assert f"which process {holder.pid} has locked; it is stopped: `kill -CONT {holder.pid}` lets it go on" in message


def test_a_whole_command_where_links_locks_and_folder_sync_are_missing(spec: RunSpec, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "frostline", "train", spec.model, str(tmp_path / "task.csv"), "--frozen", "1"]
    settings = ["--lr", "1e-2", "--epochs", "1", "--batch-size", "8", "--json"]
    folders = ["--out", str(tmp_path / "out"), "--save", str(tmp_path / "saved")]
    environment = {**os.environ, **restrictions(tmp_path, "links", "folder-sync", "locks")}
    done = subprocess.run([*command, *settings, *folders], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    (found,) = runs_in(tmp_path / "out").values()
    assert numbers(found) == numbers(Runner(max_cache_bytes=0).run(found.spec))
    assert list((tmp_path / "cache").rglob("states.npy")), "the cache was used"
    assert not [warning for warning in found.warnings if "cache" in warning]
    assert (tmp_path / "saved" / "model.safetensors").is_file()
    assert not list(tmp_path.rglob(".frostline-*"))
