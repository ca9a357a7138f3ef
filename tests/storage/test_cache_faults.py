"""A cache whose files are flipped, removed, foreign or left over, on file systems that lack something: no crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from commands import announced_rng
from frostline.cli import main
from frostline.errors import DataError
from frostline.storage import locks
from frostline.storage.prefix_cache import Cache
from frostline.storage.shelf import Entry, Shelf
from restricted import restrictions, run_restricted

ROWS = np.arange(7, 12)
VALUES = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
KEY, OTHER_KEY = "0" * 32, "1" * 32


def put(shelf: Shelf, depth: int, task: str = "t") -> None:
    entry = Entry(model="m", task=task, split="train", depth=depth, dtype="fp32")
    with shelf.locked(), shelf.writing(entry, (5, 4), np.dtype(np.float32), ROWS) as states:
        states[:] = VALUES


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache of two arrays; the one that commands use."""
    monkeypatch.setenv("FROSTLINE_CACHE", str(tmp_path / "cache"))
    cache = Cache(tmp_path / "cache")
    put(cache.shelf(KEY), 1)
    put(cache.shelf(OTHER_KEY), 2)
    return cache


def flips(n_bytes: int, name: str) -> Iterator[tuple[int, int]]:
    """Bits of a file: all of them, or 400 drawn ones of the states."""
    places = np.arange(8 * n_bytes)
    if name == "states.npy":
        places = announced_rng().choice(places, 400, replace=False)
    yield from ((int(place) // 8, int(place) % 8) for place in places)


@pytest.mark.parametrize("name", ["entry.json", "rows.npy", "states.npy"])
def test_every_flipped_bit_is_noticed_or_harmless(name: str, cache: Cache) -> None:
    shelf, n_noticed = cache.shelf(KEY), 0
    path = shelf.folder / "1" / name
    right = path.read_bytes()
    for place, bit in flips(len(right), name):
        wrong = bytearray(right)
        wrong[place] ^= 1 << bit
        path.write_bytes(wrong)
        try:
            found = shelf.open(1)
        except DataError:
            n_noticed += 1
            continue
        assert found is not None
        assert found[0].tobytes() == VALUES.tobytes(), (place, bit)
        assert found[1].tobytes() == ROWS.tobytes(), (place, bit)
    assert n_noticed > 0.9 * (400 if name == "states.npy" else 8 * len(right))


def test_an_array_in_another_place_is_noticed(cache: Cache) -> None:
    first, second = cache.shelf(KEY).folder, cache.shelf(OTHER_KEY).folder
    (first / "1").rename(first / "2")
    with pytest.raises(DataError, match=f"it describes the array {KEY}/1"):
        cache.shelf(KEY).open(2)
    (first / "2").rename(second / "1")
    with pytest.raises(DataError, match=f"it describes the array {KEY}/1"):
        cache.shelf(OTHER_KEY).open(1)


def test_an_unreadable_entry_is_no_obstacle(cache: Cache) -> None:
    shelf = cache.shelf(KEY)
    (shelf.folder / "1" / "entry.json").write_text("{")
    assert list(shelf.entries()) == []
    put(shelf, 1)
    assert shelf.open(1) is not None
    (shelf.folder / "1" / "entry.json").write_text("{")
    assert cache.make_room(cache.shelf(OTHER_KEY), {3: 80}, most=2 * 208)
    assert [shelf.depths(), cache.shelf(OTHER_KEY).depths()] == [[], [2]], "the damaged one goes first"


UMASK = """
import os, sys
from pathlib import Path
os.umask(0)
sys.path.insert(0, sys.argv[2])
from storage.test_cache_faults import put
from frostline.storage.prefix_cache import Cache
put(Cache(Path(sys.argv[1])).shelf("a"), 1)
"""


def test_only_the_owner_can_read_whatever_the_umask(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir(mode=0o755)
    tests = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", UMASK, given / "cache", tests], check=True)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in given.rglob("*")}
    folders, files = ("cache", "prefix", "a", "1"), ("lock", "states.npy", "rows.npy", "entry.json")
    assert modes == dict.fromkeys(folders, "0o700") | dict.fromkeys(files, "0o600")
    assert given.stat().st_mode & 0o777 == 0o755, "the user's own choice"


def test_a_link_in_place_of_the_lock_is_not_followed(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("content")
    lock = cache.shelf(KEY).folder / "lock"
    lock.unlink()
    lock.symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), cache.shelf(KEY).locked():
        pass
    assert (tmp_path / "precious").read_text() == "content"


HOLDER = """
import sys, time
from pathlib import Path
from frostline.storage.shelf import Shelf
with Shelf(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_long_wait_is_reported_once_and_goes_on(
    is_stopped: bool, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SECONDS_BEFORE_REPORT", 0.2)
    shelf, said = cache.shelf(KEY), []
    with subprocess.Popen([sys.executable, "-c", HOLDER, shelf.folder], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        if is_stopped:
            holder.send_signal(signal.SIGSTOP)

        def say(text: str) -> None:
            said.append(text)
            time.sleep(0.5)
            holder.kill()  # the lock dies with its holder, stopped or not

        in_any_case = threading.Timer(60, holder.kill)
        in_any_case.start()
        with shelf.locked(say):
            assert shelf.open(1) is not None
        in_any_case.cancel()
    (text,) = said
    assert f"for {shelf.folder / 'lock'}, which process {holder.pid} has locked" in text
    assert ("it is stopped" in text) == is_stopped


def test_a_lock_that_is_free_or_soon_free_is_not_reported(cache: Cache) -> None:
    said: list[str] = []
    for _ in range(2):
        with cache.shelf(KEY).locked(said.append):
            pass
    assert said == []


RESTRICTED = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from storage.test_cache_faults import VALUES, put
from frostline.storage.prefix_cache import Cache
shelf = Cache(Path(sys.argv[1])).shelf("a")
with shelf.locked():  # of no use there, and no obstacle
    put(shelf, 1)
    put(shelf, 2)
print((shelf.open(1)[0] == VALUES).all(), shelf.depths(), sorted(path.name for path in shelf.folder.iterdir()))
"""


def test_without_locks_hard_links_and_folder_sync(tmp_path: Path) -> None:
    lacking = restrictions(tmp_path, "links", "folder-sync", "locks")
    printed = run_restricted(RESTRICTED, tmp_path, Path(__file__).parents[1], **lacking)
    assert printed == "True [1, 2] ['1', '2', 'lock']\n"


STALE = """
import sys
from pathlib import Path
from frostline.storage.claims import Claims
from frostline.storage.shelf import Shelf
print(Shelf(Path(sys.argv[1])).open(1), Claims(Path(sys.argv[1])).take("key"))
"""


@pytest.mark.parametrize("name", ["/1/entry.json", "/1/rows.npy", "/1/states.npy", "/claims/key"])
def test_a_stale_handle_is_a_miss(name: str, cache: Cache) -> None:
    folder = cache.shelf(KEY).folder
    printed = run_restricted(STALE, folder, **restrictions(folder, STALE=name, STALE_TIMES="2"))
    if name == "/claims/key":
        assert printed.endswith(" True\n")
    else:
        assert printed == "None True\n"
    assert cache.shelf(KEY).open(1) is not None, "it was not taken for damaged, and is still there"


def test_check_says_that_nothing_is_wrong(cache: Cache, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "check"]) == 0
    assert capfd.readouterr().out == f"{cache.folder}: 2 arrays checked, nothing wrong\n"


def test_check_reads_no_array_that_is_being_written(cache: Cache) -> None:
    entry = Entry(model="m", task="t", split="train", depth=3, dtype="fp32")
    with cache.shelf(KEY).writing(entry, (5, 4), np.dtype(np.float32), ROWS):
        assert cache.check(repair=True) == []
    assert cache.shelf(KEY).open(3) is not None


def _harm(cache: Cache) -> dict[str, str]:
    """Does one harm of each kind; returns what is wrong by path."""
    shelf = cache.shelf(KEY).folder
    (shelf / "1" / "rows.npy").write_bytes(b"")
    (shelf / "notes.txt").write_text("mine")
    (cache.folder / "prefix" / "elsewhere\x1b[2J").mkdir()
    with subprocess.Popen([sys.executable, "-c", WRITER, shelf], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.kill()
    (unfinished,) = shelf.glob(".frostline-*")
    (shelf / ".unfinished-7").mkdir()
    return {
        str(shelf / "1"): "damaged",
        str(shelf / "notes.txt"): "foreign",
        str(cache.folder / "prefix" / "elsewhere\x1b[2J"): "foreign",
        str(unfinished): "left over",
        str(shelf / ".unfinished-7"): "left over",
    }


WRITER = """
import sys, time
from pathlib import Path
from frostline.storage import atomic
with atomic.new_folder(Path(sys.argv[1]) / "3"):
    print("writing", flush=True)
    time.sleep(60)
"""


def test_check_lists_what_is_wrong_and_repairs_what_is_ours(cache: Cache, capfd: pytest.CaptureFixture[str]) -> None:
    wrong = _harm(cache)
    assert main(["cache", "check", "--json"]) == 3
    said = json.loads(capfd.readouterr().out)
    assert {finding["path"]: finding["what"] for finding in said["findings"]} == wrong
    assert not any(finding["is_repaired"] for finding in said["findings"])
    assert all(os.path.lexists(path) for path in wrong), "it only looks"
    assert main(["cache", "check", "--repair"]) == 3, "foreign files are the user's to remove"
    said = capfd.readouterr().out
    assert "\x1b" not in said
    assert said.count("(repaired)") == 3
    assert "2 problems" in said
    assert {path for path in wrong if os.path.lexists(path)} == {path for path in wrong if wrong[path] == "foreign"}
    (cache.shelf(KEY).folder / "notes.txt").unlink()
    (cache.folder / "prefix" / "elsewhere\x1b[2J").rmdir()
    assert main(["cache", "check"]) == 0
    assert cache.shelf(OTHER_KEY).open(2) is not None, "what is whole stays"
