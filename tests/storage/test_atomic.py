"""Files and folders that appear whole or not at all: flushed in the right order, and cleaned up after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from frostline.errors import UsageError
from frostline.storage import atomic
from restricted import restrictions, run_restricted, start_restricted


class TestNewFolder:
    def test_it_appears_whole_and_with_usual_rights(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "new"
        with atomic.new_folder(path) as unfinished:
            (unfinished / "file").write_text("x")
            assert not path.exists()
        assert [one.name for one in path.iterdir()] == ["file"]
        assert list(path.parent.iterdir()) == [path]
        usual = tmp_path / "usual"
        usual.mkdir()
        assert path.stat().st_mode == usual.stat().st_mode

    def test_nothing_stays_of_one_that_fails(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError), atomic.new_folder(tmp_path / "new") as unfinished:
            (unfinished / "not there" / "file").write_text("x")
        assert list(tmp_path.iterdir()) == []

    def test_whoever_was_first_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "new"
        with atomic.new_folder(path) as unfinished:
            (unfinished / "file").write_text("second")
            path.mkdir()
            (path / "file").write_text("first")
        assert (path / "file").read_text() == "first"
        assert list(tmp_path.iterdir()) == [path]

    def test_an_empty_folder_is_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "new"
        path.mkdir()
        with atomic.new_folder(path) as unfinished:
            (unfinished / "file").write_text("x")
        assert (path / "file").read_text() == "x"

    def test_a_file_in_its_place_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "new").write_text("x")
        with pytest.raises(NotADirectoryError), atomic.new_folder(tmp_path / "new"):
            pass
        assert (tmp_path / "new").read_text() == "x"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is flushed, and what gets its final name, in order; by the last part of its path."""
    seen: list[tuple[str, str]] = []
    fsync, rename, replace, link = os.fsync, os.rename, os.replace, os.link

    def flush(handle: int) -> None:
        seen.append(("flush", Path(f"/proc/self/fd/{handle}").readlink().name))
        fsync(handle)

    def named(act: object) -> object:
        def do(source: Path, target: Path) -> None:
            seen.append(("name", Path(target).name))
            act(source, target)  # type: ignore[operator]

        return do

    monkeypatch.setattr(os, "fsync", flush)
    for name, act in (("rename", rename), ("replace", replace), ("link", link)):
        monkeypatch.setattr(os, name, named(act))
    return seen


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
class TestFlushedInOrder:
    """Leaving out any of these flushes makes one of these tests fail."""

    @pytest.mark.parametrize("write", [atomic.write, atomic.write_new])
    def test_a_file_before_it_gets_its_name_and_the_name_after(
        self, write: object, tmp_path: Path, steps: list[tuple[str, str]]
    ) -> None:
        write(tmp_path / "file", "content")  # type: ignore[operator]
        (first, temporary), *rest = steps
        assert first == "flush"
        assert temporary.startswith(atomic.TEMPORARY)
        assert rest == [("name", "file"), ("flush", tmp_path.name)]

    def test_new_parents(self, tmp_path: Path, steps: list[tuple[str, str]]) -> None:
        atomic.write(tmp_path / "a" / "b" / "file", "content")
        assert steps[:2] == [("flush", tmp_path.name), ("flush", "a")]
        assert steps[-2:] == [("name", "file"), ("flush", "b")]

    def test_a_folder_with_everything_in_it(self, tmp_path: Path, steps: list[tuple[str, str]]) -> None:
        with atomic.new_folder(tmp_path / "new") as unfinished:
            (unfinished / "inner").mkdir()
            for path in (unfinished / "one", unfinished / "inner" / "two"):
                path.write_text("x")
        assert steps == [
            ("flush", "two"),
            ("flush", "inner"),
            ("flush", "one"),
            ("flush", "new"),
            ("name", "new"),
            ("flush", tmp_path.name),
        ]


# Each stops where a kill would do most harm: something is written under a temporary name only.
WRITING = {
    "a file": """
import os, sys, time
from pathlib import Path
from frostline.storage import atomic
def slow(handle):
    print("writing", flush=True)
    time.sleep(60)
os.fsync = slow
atomic.write(Path(sys.argv[1]) / "new", "content")
""",
    "a folder": """
import sys, time
from pathlib import Path
from frostline.storage import atomic
with atomic.new_folder(Path(sys.argv[1]) / "new") as unfinished:
    (unfinished / "file").write_text("content")
    print("writing", flush=True)
    time.sleep(60)
""",
}
FIRST_WRITE = """
import sys
from pathlib import Path
from frostline.storage import atomic
atomic.write(Path(sys.argv[1]) / "other", "content")
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("what", WRITING)
def test_what_a_killed_process_left_goes_with_the_next_write_there(what: str, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITING[what], tmp_path], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        (temporary,) = names(tmp_path)
        subprocess.run([sys.executable, "-c", FIRST_WRITE, tmp_path], check=True)
        assert names(tmp_path) == [temporary, "other"], "its owner lives"
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert names(tmp_path) == [temporary, "other"], "nothing was left: no teeth"
    subprocess.run([sys.executable, "-c", FIRST_WRITE, tmp_path], check=True)
    assert names(tmp_path) == ["other"]


def test_names_of_another_host_are_left_alone_for_a_day(tmp_path: Path) -> None:
    ours = tmp_path / f"{atomic.TEMPORARY}{atomic._host()}000000000000"
    host = "0000" if atomic._host() != "0000" else "1111"
    theirs = tmp_path / f"{atomic.TEMPORARY}{host}000000000000"
    for path in (ours, theirs, tmp_path / ".hidden"):
        path.write_text("x")
    assert atomic.leftovers(tmp_path, remove=False) == [ours]
    assert atomic.leftovers(tmp_path, remove=True) == [ours]
    os.utime(theirs, (0, 0))
    assert atomic.leftovers(tmp_path, remove=True) == [theirs]
    assert names(tmp_path) == [".hidden"]


PUT = """
import os, sys
from pathlib import Path
from frostline.storage import atomic
path = Path(sys.argv[1]) / "new"
try:
    os.link(__import__("frostline").__file__, path.with_name("linked"))
except PermissionError:
    sys.stdin.readline()
    print(atomic.write_new(path, sys.argv[2]))
"""


def test_without_hard_links_and_folder_sync_the_first_put_still_wins(tmp_path: Path) -> None:
    lacking = restrictions(tmp_path, "links", "folder-sync")
    processes = [start_restricted(PUT, tmp_path, number, **lacking) for number in range(4)]
    said = [process.communicate("\n") for process in processes]
    assert sorted(printed for printed, _ in said) == ["False\n", "False\n", "False\n", "True\n"], said
    winner = [printed for printed, _ in said].index("True\n")
    assert (tmp_path / "new").read_text() == str(winner)
    assert names(tmp_path) == ["new"]


def test_without_locks_too_files_are_still_whole(tmp_path: Path) -> None:
    lacking = restrictions(tmp_path, "links", "folder-sync", "locks")
    assert run_restricted(PUT, tmp_path, "first", **lacking) == "True\n"
    assert run_restricted(PUT, tmp_path, "second", **lacking) == "False\n"
    assert (tmp_path / "new").read_text() == "first"
    assert names(tmp_path) == ["new"]


def test_a_file_that_cannot_be_flushed_is_never_skipped(tmp_path: Path) -> None:
    code = PUT.replace("except PermissionError", "finally").replace("os.link", "str")
    with start_restricted(code, tmp_path, "x", **restrictions(tmp_path, "file-sync")) as process:
        _, said = process.communicate("\n")
    assert UsageError.__name__ in said
    assert "cannot be written: Invalid argument" in said
    assert names(tmp_path) == []
