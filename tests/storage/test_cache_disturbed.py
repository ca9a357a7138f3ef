"""A curve whose cache is disturbed, by a kill in the middle of a write, a full disk, a flipped byte: same numbers."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Command, Finished, Toy, announced_rng, curve_numbers, is_alive, numbers, runs_in, start, workers_of
from frostline.records.results import RunResult
from frostline.storage.sealed import read_sealed, seal
from frostline.storage.shelf import Entry
from frostline.testing.models import make_model, make_task
from frostline.training.run import Runner
from test_cli_killed import wait_for

N_KILLS = 3
SETTINGS = (
    "--lr", "1e-2", "--seeds", "2", "--epochs", "1", "--batch-size", "8", "--frozen", "1,3", "--workers", "1", "--json",
)  # fmt: skip
NOT_USED, DAMAGED = "was not used", "damaged prefix states were computed again"


@dataclass(frozen=True)
class Place:
    """Where a curve is done: its out folder and its cache."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def curve(self) -> dict[str, Any]:
        """The numbers in `curve.json`, without times; what the runs told apart."""
        curve = curve_numbers(json.loads((self.out / "curve.json").read_text()))
        for point in (curve["full"], *curve["points"]):
            del point["seconds"], point["peak_bytes"]
        del curve["warnings"]
        return curve

    @property
    def runs(self) -> dict[str, RunResult]:
        return runs_in(self.out)

    def states(self) -> dict[str, bytes]:
        """The files of states that are kept, by their place in the cache."""
        return {str(path.relative_to(self.cache)): path.read_bytes() for path in self.cache.rglob("states.npy")}

    def unfinished(self, since: int = 0) -> list[Path]:
        """What is being written, or was when its writer was killed; begun after a time in nanoseconds."""
        found = []
        for path in self.cache.glob("prefix/*/.frostline-*"):
            with contextlib.suppress(FileNotFoundError):
                found += [path] if path.stat().st_ctime_ns > since else []
        return found

    def told(self, words: str) -> list[RunResult]:
        """The runs with a warning of these words."""
        return [result for result in self.runs.values() if any(words in warning for warning in result.warnings)]


class Asked(Toy):
    """Few rows to train on, and so many dev rows that writing their states takes a while."""

    @contextlib.contextmanager
    def under_way(self, place: Place) -> Iterator[Command]:
        """The real command, in a process group of its own, which does not outlive the block."""
        asked = ("curve", str(self.model), str(self.train), "--dev", str(self.dev), *SETTINGS)
        process = start(
            *asked, "--out", str(place.out), cwd=place.folder, own_group=True, FROSTLINE_CACHE=str(place.cache)
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.close()

    def finish(self, place: Place) -> Finished:
        """The real command, when it has ended well."""
        with self.under_way(place) as process:
            return _ended_well(process, place)


def _ended_well(process: Command, place: Place) -> Finished:
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert "Traceback" not in stderr
    return Finished(process.returncode, stdout, stderr, place.out)


def _check_same(found: Place, wanted: Place) -> None:
    """Fails unless the curves and all their runs have the same numbers, to the bit, and nothing is left unfinished."""
    assert found.curve == wanted.curve
    assert {key: numbers(run) for key, run in found.runs.items()} == {
        key: numbers(run) for key, run in wanted.runs.items()
    }
    assert found.unfinished() == []


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("asked")
    return Asked(
        model=make_model(folder / "tiny-bert", n_layers=3, initializer_range=0.25),
        train=make_task(folder / "reviews.csv", n_rows=96),
        dev=make_task(folder / "dev.csv", n_rows=4000, seed=1),
    )


@pytest.fixture(scope="module")
def peace(asked: Asked, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The curve as it is when nothing disturbs it."""
    place = Place(tmp_path_factory.mktemp("peace"))
    asked.finish(place)
    assert not place.told(NOT_USED)
    assert not place.told(DAMAGED)
    return place


def _stop(process: Command) -> None:
    """Stops a group of processes; they are at rest when this returns."""
    everyone = {process.pid, *workers_of(process.pid)}
    os.killpg(process.pid, signal.SIGSTOP)
    assert wait_for(lambda: all(_state(pid) == "T" for pid in everyone), seconds=10)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _stop_while_writing(process: Command, place: Place, began: int, delay: float) -> None:
    """Stops the command some time after it has begun to write states, and before they are all written."""
    while True:
        wait_for(lambda: bool(place.unfinished(began)) or process.poll() is not None)
        if process.poll() is not None:
            pytest.fail(f"it was over before it was caught writing: no teeth\n{process.communicate()[1]}")
        time.sleep(delay)
        _stop(process)
        if place.unfinished(began):
            return
        os.killpg(process.pid, signal.SIGCONT)
        delay /= 2


def _kill(process: Command) -> None:
    """Kills a group of processes; they are gone when this returns."""
    workers = workers_of(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert wait_for(lambda: not any(is_alive(pid) for pid in workers), seconds=10)


def _write_seconds(place: Place) -> float:
    """How long a curve took to write the states of one depth or more."""
    return max(run.cost.prefix_seconds for run in place.runs.values())


@pytest.mark.thorough
def test_killed_again_and_again_while_writing_it_ends_with_the_same_numbers(
    asked: Asked, peace: Place, tmp_path: Path
) -> None:
    place, rng = Place(tmp_path), announced_rng()
    for _ in range(N_KILLS):
        began = time.time_ns()
        with asked.under_way(place) as process:
            # The training rows' states come first and take no time, so half of it is still inside the dev rows'.
            _stop_while_writing(process, place, began, delay=rng.uniform(0, 0.5 * _write_seconds(peace)))
            _kill(process)
        assert place.unfinished(began), "nothing was left half-written: no teeth"
        assert place.states() != peace.states()
    resumed = asked.finish(place)
    assert resumed.json["runs"]["done"] > 0
    _check_same(place, peace)
    assert place.states() == peace.states()
    assert not place.told(DAMAGED)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Place]:
    """A place whose cache is a small disk of its own; only root may make one."""
    place = Place(tmp_path)
    place.cache.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place.cache)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount a small disk; the limit on the size of files is tested instead")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place.cache)], check=True)


def _fill(folder: Path) -> None:
    """Leaves no byte on the disk of a folder."""
    (folder / "filler").write_bytes(bytes(shutil.disk_usage(folder).free))
    assert shutil.disk_usage(folder).free == 0


def test_a_disk_that_fills_up_while_it_writes_is_told_and_moves_no_number(
    asked: Asked, peace: Place, small_disk: Place
) -> None:
    began, delay = time.time_ns(), announced_rng().uniform(0, 0.5 * _write_seconds(peace))
    with asked.under_way(small_disk) as process:
        _stop_while_writing(process, small_disk, began, delay)
        _fill(small_disk.cache)
        os.killpg(process.pid, signal.SIGCONT)
        finished = _ended_well(process, small_disk)
    _check_same(small_disk, peace)
    assert small_disk.told(f"the prefix cache in {small_disk.cache} {NOT_USED}: No space left on device")
    assert any(NOT_USED in warning for warning in finished.json["warnings"])
    assert len(small_disk.states()) < len(peace.states())


def test_files_that_may_not_grow_are_told_and_move_no_number(asked: Asked, peace: Place, tmp_path: Path) -> None:
    place = Place(tmp_path)
    most = max(len(content) for content in peace.states().values()) - 1
    assert max(path.stat().st_size for path in peace.out.rglob("*.json")) < most, "results could not be stored either"
    with asked.under_way(place) as process:
        # Long before it starts a worker, which inherits the limit.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        finished = _ended_well(process, place)
    _check_same(place, peace)
    assert place.told(f"the prefix cache in {place.cache} {NOT_USED}: File too large")
    assert any(NOT_USED in warning for warning in finished.json["warnings"])
    assert max(len(content) for content in place.states().values()) <= most


@pytest.fixture
def half(peace: Place, tmp_path: Path) -> Place:
    """All states, but of the runs those of the first seed alone, as after a call with one seed."""
    place = Place(Path(shutil.copytree(peace.folder, tmp_path / "half")))
    for key, run in place.runs.items():
        if run.spec.seed == 1:
            (place.out / "runs" / f"{key}.json").unlink()
    return place


def _new_run(place: Place) -> RunResult:
    """The run that needs the states of depth 1 and was not there when they were harmed."""
    (found,) = [run for run in place.runs.values() if (run.spec.strategy, run.spec.seed) == ("freeze:1", 1)]
    return found


def test_a_flipped_byte_is_noticed_the_states_rebuilt_and_no_number_moved(
    asked: Asked, peace: Place, half: Place
) -> None:
    rng, before = announced_rng(), half.states()
    for path in half.cache.rglob("1/states.npy"):
        content = bytearray(path.read_bytes())
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
    assert half.states() != before
    finished = asked.finish(half)
    assert finished.json["runs"] == {"done": 3, "reused": 3, "crashed": 0}
    _check_same(half, peace)
    assert [run.key for run in half.told(DAMAGED)] == [_new_run(half).key]
    assert sum(DAMAGED in warning for warning in _new_run(half).warnings) == 2, "train and dev"
    assert half.states() == before == peace.states()


def test_twin_other_states_that_look_whole_move_numbers(
    peace: Place, half: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_CACHE", str(half.cache))
    right = _new_run(peace)
    assert numbers(Runner().run(right.spec)) == numbers(right)
    for path in half.cache.rglob("1/states.npy"):
        np.save(path, np.load(path)[::-1])
        entry = path.with_name("entry.json")
        entry.write_text(seal(Entry.from_json(read_sealed(entry)).replace(checksum=zlib.crc32(path.read_bytes()))))
    wrong = Runner().run(right.spec)
    assert wrong.warnings == right.warnings
    assert numbers(wrong) != numbers(right)
