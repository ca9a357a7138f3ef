"""Arrays on disk: whole or not there, checked, bounded; killed writers, full disks and flipped bytes lose nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from frostline.cli import main
from frostline.errors import DataError, UsageError
from frostline.storage.prefix_cache import Cache, default_folder, free_bytes
from frostline.storage.shelf import Entry, Shelf

ROWS = np.arange(5)


def _entry(depth: int, task: str = "t") -> Entry:
    return Entry(model="m", task=task, split="train", depth=depth, dtype="fp32")


def _put(shelf: Shelf, depth: int, value: float = 1.0, task: str = "t") -> None:
    with shelf.locked(), shelf.writing(_entry(depth, task), (5, 4), np.dtype(np.float32), ROWS) as states:
        states[:] = value


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_what_is_written_is_read_again_by_another_process(cache: Cache) -> None:
    shelf = cache.shelf("a")
    assert shelf.open(3) is None
    _put(shelf, 3, 0.1)
    code = (
        "import sys, pathlib; from frostline.storage.shelf import Shelf; "
        "states, rows = Shelf(pathlib.Path(sys.argv[1])).open(3); "
        "print(type(states).__name__, states.tobytes().hex(), rows.tolist())"
    )
    said = subprocess.run([sys.executable, "-c", code, str(shelf.folder)], capture_output=True, text=True, check=True)
    assert said.stdout.split(maxsplit=2) == [
        "memmap",
        np.full(20, 0.1, np.float32).tobytes().hex(),
        f"{ROWS.tolist()}\n",
    ]
    assert list(shelf.entries()) == [3]
    assert shelf.entries()[3].n_bytes == cache.used_bytes() == 128 + 80


@pytest.mark.parametrize("name", ["states.npy", "rows.npy", "entry.json"])
@pytest.mark.parametrize("harm", ["cut", "gone", "flipped"])
def test_what_is_damaged_is_noticed(name: str, harm: str, cache: Cache) -> None:
    shelf = cache.shelf("a")
    _put(shelf, 1)
    path = shelf.folder / "1" / name
    content = bytearray(path.read_bytes())
    if harm == "gone":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[-5] ^= 1
        path.write_bytes(content)
    with pytest.raises(DataError, match="a/1"):
        shelf.open(1)
    shelf.remove(1)
    _put(shelf, 1, 2.0)
    found = shelf.open(1)
    assert found is not None
    assert (found[0] == 2.0).all()


def test_a_writer_that_fails_leaves_nothing(cache: Cache) -> None:
    shelf = cache.shelf("a")
    dtype = np.dtype(np.float32)
    with pytest.raises(ZeroDivisionError), shelf.locked(), shelf.writing(_entry(2), (5, 4), dtype, ROWS):
        raise ZeroDivisionError
    assert [path.name for path in shelf.folder.iterdir()] == ["lock"]
    assert shelf.open(2) is None


WRITER = """
import pathlib, sys, time
import numpy as np
from frostline.storage.shelf import Entry, Shelf
shelf = Shelf(pathlib.Path(sys.argv[1]))
entry = Entry(model="m", task="t", split="train", depth=1, dtype="fp32")
with shelf.locked(), shelf.writing(entry, (5, 4), np.dtype(np.float32), np.arange(5)) as states:
    states[:] = 1
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_leaves_no_lock_and_no_rest(cache: Cache) -> None:
    shelf = cache.shelf("a")
    with subprocess.Popen([sys.executable, "-c", WRITER, str(shelf.folder)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        assert len(list(shelf.folder.glob(".frostline-*/1/states.npy"))) == 1
        assert cache.used_bytes() == 208, "what is being written counts"
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        began = time.monotonic()
        _put(shelf, 1, 3.0)
        assert time.monotonic() - began < 10
    found = shelf.open(1)
    assert found is not None
    assert (found[0] == 3.0).all()
    assert sorted(path.name for path in shelf.folder.iterdir()) == ["1", "lock"]


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_is_being_written_takes_room_until_its_writer_dies(is_killed: bool, cache: Cache) -> None:
    command = [sys.executable, "-c", WRITER, str(cache.shelf("a").folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        if is_killed:
            writer.kill()
            writer.wait()
        assert cache.make_room(cache.shelf("b"), {2: 80}, most=2 * 208 - 1) == is_killed
        writer.kill()


def test_who_waits_for_the_lock_finds_what_the_other_wrote(cache: Cache) -> None:
    shelf = cache.shelf("a")
    quick = WRITER.replace("time.sleep(60)", "time.sleep(0.5)")
    with subprocess.Popen([sys.executable, "-c", quick, str(shelf.folder)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        assert shelf.open(1) is None
        with shelf.locked():
            assert shelf.open(1) is not None


def test_a_full_disk_is_an_error_before_a_number_is_written(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = cache.shelf("a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        _put(shelf, 1)
    assert shelf.open(1) is None
    assert not list(shelf.folder.glob(".frostline-*"))


def test_a_removed_array_stays_with_who_has_it_mapped(cache: Cache) -> None:
    shelf = cache.shelf("a")
    _put(shelf, 1, 7.0)
    found = shelf.open(1)
    assert found is not None
    shelf.remove(1)
    shelf.remove(1)
    assert shelf.open(1) is None
    assert (found[0] == 7.0).all()


def test_room_is_made_by_the_least_recently_used_of_other_depths(cache: Cache) -> None:
    one, other = cache.shelf("one"), cache.shelf("other")
    for number, (shelf, depth) in enumerate(((one, 1), (one, 2), (other, 1), (other, 2))):
        _put(shelf, depth)
        os.utime(shelf.folder / str(depth), (number, number))
    assert cache.make_room(one, {3: 80}, most=5 * 208)
    assert (list(one.entries()), list(other.entries())) == ([1, 2], [1, 2])
    os.utime(one.folder / "1", (99, 99))
    assert cache.make_room(one, {3: 80}, most=4 * 208)
    assert (list(one.entries()), list(other.entries())) == ([1], [1, 2])
    assert cache.make_room(one, {3: 80}, most=2 * 208)
    assert (list(one.entries()), list(other.entries())) == ([], [2])
    assert not cache.make_room(one, {2: 80}, most=208), "the same depth of other rows is not given up"
    assert list(other.entries()) == [2]


def test_what_would_never_fit_removes_nothing(cache: Cache) -> None:
    _put(cache.shelf("a"), 1)
    assert not cache.make_room(cache.shelf("b"), {2: 1000}, most=999)
    assert list(cache.shelf("a").entries()) == [1]


def test_no_more_than_the_disk_has(cache: Cache) -> None:
    assert not cache.make_room(cache.shelf("a"), {1: free_bytes(cache.folder) + 10**9}, most=2**62)


def test_the_folder_can_be_moved_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(default_folder()) == os.environ["FROSTLINE_CACHE"]
    monkeypatch.delenv("FROSTLINE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_folder() == Path("/somewhere/frostline")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_folder() == Path.home() / ".cache" / "frostline"


def test_ls_and_rm_by_the_command(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FROSTLINE_CACHE", str(cache.folder))
    assert main(["cache", "ls"]) == 0
    assert "0 arrays" in " ".join(capfd.readouterr().out.split())
    _put(cache.shelf("a"), 1)
    _put(cache.shelf("b"), 2, task="other")
    assert main(["cache", "ls", "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert [(entry["task"], entry["depth"], entry["n_bytes"]) for entry in said["entries"]] == [
        ("other", 2, 208),
        ("t", 1, 208),
    ]
    assert main(["cache", "ls"]) == 0
    assert "2 arrays" in " ".join(capfd.readouterr().out.split())
    assert main(["cache", "rm", "othr"]) == 2
    assert "nothing is kept of 'othr'; kept: m, other, t. Did you mean 'other'?" in capfd.readouterr().err
    assert main(["cache", "rm", "other"]) == 0
    assert "208 bytes removed" in capfd.readouterr().out
    assert [entry.task for entry in cache.entries()] == ["t"]
    assert main(["cache", "rm"]) == 0
    assert cache.entries() == []
    with pytest.raises(UsageError):
        cache.remove("t")
