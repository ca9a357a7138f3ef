"""`frostline check`: every fault is found and named, and a repair leaves a folder in which nothing is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from frostline.cli import main
from frostline.errors import UsageError
from frostline.records.arrays import StoredArray
from frostline.storage.arrays import put_array
from frostline.storage.check import check_folder
from frostline.storage.claims import Claims
from frostline.storage.runs import FolderIdentity, Store
from frostline.storage.sealed import seal, seal_bytes
from storage.test_sealed import HEAD, PAUSED, RESOLVED, SPEC
from storage.test_store import CRASH, files_below
from synthetic import make_result

IDENTITY = FolderIdentity(model="toy-model", model_fingerprint="m", task="toy", data_fingerprint="d")
RESULTS = [make_result(depth, seed, {1: 0.75, 2: 0.8}[depth]) for depth in (1, 2) for seed in (1, 2)]
ONE = RESULTS[0]
RELEASE = Path(__file__).parent.parent / "data" / "release-0.1" / "out"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An output folder with a file of every kind."""
    store = Store.open(tmp_path / "out", IDENTITY)
    for result in RESULTS:
        store.put(result)
    store.put_crash(CRASH)
    store.put_paused(PAUSED)
    store.put_request(store.request_path("curve", "a" * 32), RESOLVED)
    (store.folder / "curve.json").write_text("{}")
    (store.folder / "notes.txt").write_text("the user's own")
    return store.folder


def found(out: Path) -> list[tuple[str, str]]:
    return [(finding.what, Path(finding.path).name) for finding in check_folder(out).findings]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def outputs_of(out: Path) -> Path:
    return out / "arrays" / f"{ONE.predictions.outputs.digest}.npy"


def write(path: Path, content: bytes = b"x") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def test_nothing_is_wrong_with_a_whole_folder(out: Path) -> None:
    checked = check_folder(out)
    assert checked.findings == []
    assert checked.warnings == []
    assert checked.n_files == 1 + len(RESULTS) + (2 + len(RESULTS)) + 1 + 2 + 1


def test_nothing_is_wrong_with_a_folder_of_an_earlier_release() -> None:
    checked = check_folder(RELEASE)
    assert checked.findings == []
    assert checked.n_files == 1 + len(list(RELEASE.glob("runs/*"))) + len(list(RELEASE.glob("specs/*")))


DAMAGE: dict[str, tuple[Callable[[Path], object], list[tuple[str, str]]]] = {
    "run": (lambda out: flip(out / "runs" / f"{ONE.key}.json"), [("damaged", f"{ONE.key}.json")]),
    "run of another key": (
        lambda out: shutil.copy(out / "runs" / f"{ONE.key}.json", out / "runs" / f"{'e' * 32}.json"),
        [("damaged", f"{'e' * 32}.json")],
    ),
    "request": (lambda out: flip(out / "specs" / f"curve-{'a' * 32}.json"), [("damaged", f"curve-{'a' * 32}.json")]),
    "identity": (lambda out: flip(out / "identity.json"), [("damaged", "identity.json")]),
    "crash": (lambda out: flip(out / "crashed" / f"{CRASH.key}.json"), [("damaged", f"{CRASH.key}.json")]),
    "pause": (lambda out: flip(out / "paused" / f"{SPEC.key}-7.json"), [("damaged", f"{SPEC.key}-7.json")]),
    "checkpoint": (
        lambda out: flip(out / "paused" / f"{SPEC.key}.checkpoint"), [("damaged", f"{SPEC.key}.checkpoint")]
    ),
    "checkpoint of another run": (
        lambda out: write(out / "paused" / f"{SPEC.key}.checkpoint", seal_bytes(HEAD | {"key": "b" * 32}, b"")),
        [("damaged", f"{SPEC.key}.checkpoint")],
    ),
    "array without run": (
        lambda out: put_array(out, StoredArray.of(np.arange(3))),
        [("orphaned", f"{StoredArray.of(np.arange(3)).digest}.npy")],
    ),
    "checkpoint without pause": (
        lambda out: write(out / "paused" / f"{'c' * 32}.checkpoint"), [("orphaned", f"{'c' * 32}.checkpoint")]
    ),
    "checkpoint of a finished run": (
        lambda out: write(out / "paused" / f"{ONE.key}.checkpoint"), [("left over", f"{ONE.key}.checkpoint")]
    ),
    "old checkpoint": (lambda out: write(out / "paused" / f"{SPEC.key}.pt"), [("orphaned", f"{SPEC.key}.pt")]),
    "old temporary file": (
        lambda out: write(out / "runs" / f".x.json.{'0' * 16}"), [("left over", f".x.json.{'0' * 16}")]
    ),
    "abandoned claim": (lambda out: write(out / "claims" / "key", b"1"), [("left over", "key")]),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_fault_is_found_and_repaired(out: Path, name: str) -> None:
    damage, wanted = DAMAGE[name]
    before = files_below(out)
    damage(out)
    damaged = files_below(out)
    assert found(out) == wanted
    assert files_below(out) == damaged, "without --repair nothing changes"
    checked = check_folder(out, repair=True)
    assert wanted[0] in [(one.what, Path(one.path).name) for one in checked.findings]
    assert all(one.is_repaired for one in checked.findings)
    assert [fault for fault in found(out) if fault[1] != "identity.json"] == []
    lost = {path for path in before - files_below(out) if Path(path).name != wanted[0][1]}
    assert lost == ({f"paused/{SPEC.key}.checkpoint"} if name == "pause" else set()), "what is whole stays"


@pytest.mark.parametrize("is_gone", [True, False])
def test_runs_whose_array_is_damaged_or_missing_stay_and_are_named(out: Path, is_gone: bool) -> None:
    outputs_of(out).unlink() if is_gone else flip(outputs_of(out))
    array = [] if is_gone else [("damaged", outputs_of(out).name)]
    assert found(out) == [*array, ("damaged", f"{ONE.key}.json")]
    check_folder(out, repair=True)
    assert (out / "runs" / f"{ONE.key}.json").is_file()
    assert found(out) == [("damaged", f"{ONE.key}.json")], "until the run is done again"
    store = Store(out)
    assert store.get(ONE.key) is None
    store.put(ONE)
    assert found(out) == []


def test_a_foreign_file_and_a_foreign_run_are_named_and_stay(out: Path) -> None:
    write(out / "runs" / "notes\x1b[2J.txt")
    other = ONE.replace(spec=ONE.spec.replace(model_fingerprint="another model"))
    path = out / "runs" / f"{other.key}.json"
    path.write_text(seal(other.without_arrays()))
    assert sorted(found(out)) == [("foreign", "notes\x1b[2J.txt"), ("mixed", path.name)]
    check_folder(out, repair=True)
    assert sorted(found(out)) == [("foreign", "notes\x1b[2J.txt"), ("mixed", path.name)]


def test_arrays_that_a_damaged_run_names_are_not_orphans(out: Path) -> None:
    path = out / "runs" / f"{ONE.key}.json"
    path.write_text(path.read_text().replace('"score": 0.75', '"score": 0.95'))
    check_folder(out, repair=True)
    assert outputs_of(out).is_file()


def test_runs_of_several_environments_are_a_warning(out: Path) -> None:
    where = ONE.environment
    versions = where.replace(versions={"torch": "1.0"}), where.replace(versions={"torch": "2.0"})
    for result, environment in zip(RESULTS[:2], versions, strict=True):
        Store(out).put(result.replace(environment=environment), replace=True)
    checked = check_folder(out)
    assert checked.findings == []
    assert "torch 1.0" in checked.warnings[0]
    assert "torch 2.0" in checked.warnings[0]


def test_while_another_process_works_there_nothing_is_an_orphan_and_nothing_is_repaired(out: Path) -> None:
    put_array(out, StoredArray.of(np.arange(3)))
    claims = Claims(out)
    assert claims.take(SPEC.key)
    assert found(out) == []
    with pytest.raises(UsageError, match=r"another process works in .*; repair it when"):
        check_folder(out, repair=True)
    claims.release_all()
    assert [what for what, _ in found(out)] == ["orphaned"]


class TestCommand:
    def test_a_whole_folder_is_exit_0(self, out: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(out)]) == 0
        assert "nothing wrong" in capfd.readouterr().out

    def test_a_damaged_one_is_exit_3_and_after_a_repair_0(self, out: Path, capfd: pytest.CaptureFixture[str]) -> None:
        flip(out / "runs" / f"{ONE.key}.json")
        assert main(["check", str(out)]) == 3
        assert f"damaged: {out}/runs/{ONE.key}.json" in capfd.readouterr().out
        assert main(["check", str(out), "--json"]) == 3
        (finding,) = json.loads(capfd.readouterr().out)["findings"]
        assert finding["what"] == "damaged"
        assert main(["check", str(out), "--repair"]) == 0
        assert main(["check", str(out)]) == 0

    def test_names_of_foreign_files_are_shown_without_control_characters(
        self, out: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        write(out / "runs" / "notes\x1b[2J.txt")
        assert main(["check", str(out)]) == 3
        assert "\x1b" not in capfd.readouterr().out

    def test_any_other_folder_is_exit_2(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(tmp_path)]) == 2
        assert "neither a frostline output folder nor a model" in capfd.readouterr().err

    def test_it_starts_without_torch(self, out: Path) -> None:
        code = "import sys; from frostline.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code, "check", str(out)]
        assert subprocess.run(command, check=False, env=environment).returncode == 0
