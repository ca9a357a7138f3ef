"""What a store promises, as one class of contract tests, and real processes that die or collide while they put."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from frostline.errors import DataError, UsageError
from frostline.records.depth import with_full
from frostline.records.results import Crash, RunResult
from frostline.storage import atomic
from frostline.storage.runs import FolderIdentity, Store
from synthetic import make_result

IDENTITY = FolderIdentity(model="bert", model_fingerprint="a" * 32, task="toy", data_fingerprint="b" * 32)
RESULT = make_result(2, 0, 0.75)
CRASH = Crash(spec=RESULT.spec, error="boom", traceback="line 1", environment=RESULT.environment)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "out", IDENTITY)


def run_file(store: Store, result: RunResult = RESULT) -> Path:
    return store.folder / "runs" / f"{result.key}.json"


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def array_files(*results: RunResult) -> set[str]:
    return {f"arrays/{array.digest}.npy" for result in results for array in result.predictions.arrays}


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def with_flipped_byte(content: bytes) -> bytes:
    place = content.index(b'"array": "') + 20
    return content[:place] + (b"B" if content[place : place + 1] == b"A" else b"A") + content[place + 1 :]


def with_edited_score(content: bytes) -> bytes:
    assert content.count(b'"score": 0.75') == 1
    return content.replace(b'"score": 0.75', b'"score": 0.95')


def with_nan(content: bytes) -> bytes:
    return content.replace(b'"score": 0.75', b'"score": NaN')


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": truncated,
    "flipped byte": with_flipped_byte,
    "edited number": with_edited_score,
    "NaN": with_nan,
    "checksum alone": lambda content: json.dumps({"checksum": json.loads(content)["checksum"]}).encode(),
    "unsealed": lambda content: json.dumps(json.loads(content)["content"]).encode(),
    "other JSON": lambda _: b'{"name": "package", "version": "1.0.0"}',
    "a list": lambda _: b"[1, 2, 3]",
    "a number": lambda _: b"3",
    "binary": lambda _: bytes(range(256)) * 8,
    "not UTF-8": lambda content: content.replace(b"accuracy", b"accur\xff\xfe"),
    "empty": lambda _: b"",
}


class TestContract:
    def test_gives_exactly_what_was_put(self, store: Store) -> None:
        assert store.get(RESULT.key) is None
        store.put(RESULT)
        again = Store.open(store.folder, IDENTITY).get(RESULT.key)
        assert again == RESULT
        assert np.array_equal(again.predictions.outputs.array(), RESULT.predictions.outputs.array())
        assert store.damaged == {}

    def test_keeps_runs_apart(self, store: Store) -> None:
        results = [make_result(depth, seed, 0.5 + seed / 10) for depth in with_full((1, 2)) for seed in range(3)]
        for result in results:
            store.put(result)
        assert [store.get(result.key) for result in results] == results
        assert sorted(store.results(), key=lambda r: r.key) == sorted(results, key=lambda r: r.key)
        assert files_below(store.folder / "runs") == {f"{result.key}.json" for result in results}

    def test_the_first_put_wins(self, store: Store) -> None:
        store.put(RESULT)
        before = run_file(store).stat().st_ino
        store.put(RESULT.replace(score=0.1))
        assert store.get(RESULT.key) == RESULT
        assert run_file(store).stat().st_ino == before

    def test_replace_puts_the_new_one(self, store: Store) -> None:
        store.put(RESULT)
        store.put(RESULT.replace(score=0.1), replace=True)
        found = store.get(RESULT.key)
        assert found is not None
        assert found.score == 0.1
        assert len(store.results()) == 1

    def test_replace_will_do_for_a_first_put(self, store: Store) -> None:
        store.put(RESULT, replace=True)
        assert store.get(RESULT.key) == RESULT

    @pytest.mark.parametrize("name", DAMAGES)
    @pytest.mark.parametrize("replace", [False, True])
    def test_a_damaged_file_is_named_and_moved_aside(self, store: Store, name: str, replace: bool) -> None:
        store.put(RESULT)
        path = run_file(store)
        bad = DAMAGES[name](path.read_bytes())
        assert bad != path.read_bytes()
        path.write_bytes(bad)
        assert store.get(RESULT.key) is None
        assert list(store.damaged) == [path]
        assert str(path) in store.damaged[path]
        assert store.results() == []
        store.put(RESULT, replace=replace)
        assert store.get(RESULT.key) == RESULT
        assert [file.read_bytes() for file in (store.folder / "damaged").iterdir()] == [bad]

    def test_a_run_under_a_foreign_name_is_not_that_run(self, store: Store) -> None:
        other = make_result(2, 1, 0.5)
        store.put(other)
        run_file(store, other).rename(run_file(store))
        assert store.get(RESULT.key) is None
        assert other.key in store.damaged[run_file(store)]

    def test_nothing_moved_aside_is_ever_lost(self, store: Store) -> None:
        bad = [f"damage {number}".encode() for number in range(4)]
        aside = store.folder / "damaged"
        for number, content in enumerate(bad):
            run_file(store).parent.mkdir(exist_ok=True)
            run_file(store).write_bytes(content)
            store.put(RESULT)
            if number == 1:  # someone tidies up the first: the next must not land on the second
                next(file for file in aside.iterdir() if file.read_bytes() == bad[0]).unlink()
        assert sorted(file.read_bytes() for file in aside.iterdir()) == bad[1:]

    def test_other_files_in_the_folder_do_no_harm(self, store: Store) -> None:
        store.put(RESULT)
        (store.folder / "runs" / "notes.txt").write_text("mine")
        (store.folder / "runs" / "notes.json").write_text("{}")
        assert store.results() == [RESULT]
        assert list(store.damaged) == [store.folder / "runs" / "notes.json"]

    def test_a_crash_is_kept_apart_and_never_a_result(self, store: Store) -> None:
        path = store.put_crash(CRASH)
        assert path.parent != run_file(store).parent
        assert store.get(CRASH.key) is None
        assert store.results() == []
        assert Crash.from_json(json.loads(path.read_text())["content"]) == CRASH

    def test_the_last_crash_of_a_run_is_the_one_kept(self, store: Store) -> None:
        path = store.put_crash(CRASH)
        assert store.put_crash(CRASH.replace(error="boom again")) == path
        assert json.loads(path.read_text())["content"]["error"] == "boom again"

    def test_a_crash_does_not_hide_the_result(self, store: Store) -> None:
        store.put(RESULT)
        store.put_crash(CRASH)
        assert store.get(RESULT.key) == RESULT

    def test_nothing_but_whole_files_is_left(self, store: Store) -> None:
        store.put(RESULT)
        store.put(RESULT)
        store.put(RESULT, replace=True)
        store.put_crash(CRASH)
        assert files_below(store.folder) == {
            "identity.json",
            f"runs/{RESULT.key}.json",
            f"crashed/{RESULT.key}.json",
            *array_files(RESULT),
        }


class TestIdentity:
    @pytest.mark.parametrize("changes", [{"model": "gpt", "model_fingerprint": "c" * 32}, {"task": "c"}])
    def test_another_one_is_refused_naming_both(self, store: Store, changes: dict[str, str]) -> None:
        other = IDENTITY.replace(**changes)
        with pytest.raises(UsageError, match="--out") as raised:
            Store.open(store.folder, other)
        assert IDENTITY.text in str(raised.value)
        assert other.text in str(raised.value)
        assert IDENTITY.text != other.text

    def test_changed_data_is_said_to_have_changed(self, store: Store) -> None:
        reason = r"the data of toy changed since the first run in --out .*out \(\d{4}-\d\d-\d\d .*Give another --out"
        with pytest.raises(UsageError, match=reason) as raised:
            Store.open(store.folder, IDENTITY.replace(data_fingerprint="c" * 32))
        assert "cccc" not in str(raised.value), "no hash helps here"
        # Where the model is another too, both are named.
        with pytest.raises(UsageError, match="this is model"):
            Store.open(store.folder, IDENTITY.replace(data_fingerprint="c" * 32, model_fingerprint="d" * 32))

    def test_a_changed_model_is_said_to_have_changed(self, store: Store) -> None:
        with pytest.raises(UsageError, match=r"the model bert changed since the first run in --out .*Give another"):
            Store.open(store.folder, IDENTITY.replace(model_fingerprint="c" * 32))

    def test_the_same_model_elsewhere_is_welcome(self, store: Store) -> None:
        store.put(RESULT)
        assert Store.open(store.folder, IDENTITY.replace(model="/elsewhere/bert")).get(RESULT.key) == RESULT

    def test_a_damaged_identity_is_told_with_its_path(self, store: Store) -> None:
        path = store.folder / "identity.json"
        path.write_text(path.read_text().replace("toy", "top"))
        with pytest.raises(DataError, match=r"identity\.json: .*damaged or edited; move it away, or give another"):
            Store.open(store.folder, IDENTITY)

    def test_out_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("mine")
        with pytest.raises(UsageError, match="is a file; give a folder"):
            Store.open(tmp_path / "out", IDENTITY)
        assert (tmp_path / "out").read_text() == "mine"

    def test_out_lies_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        with pytest.raises(UsageError, match="cannot be written: Not a directory; give another folder"):
            Store.open(tmp_path / "file" / "out", IDENTITY)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_out_may_not_be_written(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(UsageError, match="cannot be written: Permission denied"):
            Store.open(tmp_path / "out", IDENTITY)


class TestAtomic:
    def test_a_full_disk_leaves_what_was_there(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        store.put(RESULT)
        before = files_below(store.folder)

        def fail(handle: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(UsageError, match=r"No space left.*make space"):
            store.put(RESULT.replace(score=0.1), replace=True)
        with pytest.raises(UsageError, match=r"No space left.*make space"):
            store.put(make_result(2, 1, 0.5))
        monkeypatch.undo()
        assert store.results() == [RESULT]
        assert files_below(store.folder) == before

    def test_write_goes_over_and_write_new_does_not(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "file"
        assert atomic.write_new(path, "one")
        assert not atomic.write_new(path, "two")
        assert path.read_text() == "one"
        assert atomic.write(path, "trois é\n") == path
        assert path.read_bytes() == "trois é\n".encode()
        assert files_below(tmp_path) == {"new/file"}

    def test_who_has_the_old_file_open_still_reads_it_whole(self, tmp_path: Path) -> None:
        path = atomic.write(tmp_path / "file", "old" * 1000)
        with path.open() as stream:
            atomic.write(path, "new")
            assert stream.read() == "old" * 1000
        assert path.read_text() == "new"


PUTTER = """
import sys
from pathlib import Path
from frostline.storage.runs import Store
from synthetic import make_result
from storage.test_store import IDENTITY

folder, who, n_dev, n_runs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = Store.open(folder, IDENTITY)
for seed in range(n_runs):
    result = make_result(2, seed, 0.5, n_dev=n_dev, warnings=(who,))
    print("ready", flush=True)
    sys.stdin.readline()
    store.put(result)
    print(result.key, flush=True)
"""


class Putter:
    """A process that makes a result, says so, and puts it when it is told to."""

    def __init__(self, folder: Path, who: str, *, n_dev: int, n_runs: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PUTTER, str(folder), who, str(n_dev), str(n_runs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, times: int = 1) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n" * times)
        self.process.stdin.flush()


class TestProcesses:
    def test_two_that_put_the_same_run_at_once_leave_one_whole_file(self, tmp_path: Path) -> None:
        names, n_runs = ("one", "two"), 60
        putters = [Putter(tmp_path, name, n_dev=2000, n_runs=n_runs) for name in names]
        keys: set[str] = set()
        for _ in range(n_runs):
            assert [putter.said() for putter in putters] == ["ready", "ready"]
            for putter in putters:
                putter.tell()
            keys |= {putter.said() for putter in putters}
        for putter in putters:
            putter.process.communicate()
            assert putter.process.returncode == 0
        store = Store.open(tmp_path, IDENTITY)
        results = store.results()
        assert store.damaged == {}
        assert {result.key for result in results} == keys
        assert len(keys) == n_runs
        assert {result.warnings for result in results} <= {(name,) for name in names}
        wanted = {"identity.json", *(f"runs/{key}.json" for key in keys)}
        assert files_below(tmp_path) == wanted | array_files(*results)

    def test_one_that_is_killed_leaves_only_whole_files(self, tmp_path: Path, rng: np.random.Generator) -> None:
        n_kept = 0
        for attempt in range(4):
            folder = tmp_path / str(attempt)
            putter = Putter(folder, "one", n_dev=50_000, n_runs=1000)
            assert putter.said() == "ready"
            putter.tell(1000)
            time.sleep(rng.uniform(0, 0.4))
            putter.process.send_signal(signal.SIGKILL)
            told = putter.process.communicate()[0].split()
            assert putter.process.returncode == -signal.SIGKILL
            store = Store.open(folder, IDENTITY)
            kept = {result.key for result in store.results()}
            assert store.damaged == {}
            assert {word for word in told if len(word) == 32} <= kept, "a run that was put is gone"
            n_kept += len(kept)
        assert n_kept > 0
