"""Checks every stored file of an output folder, and repairs what is safe to repair.

Damaged files are moved to `damaged/`: their runs count as missing anyway, and the next command does them again. What
nothing refers to is removed. A finished run is never removed. Files beside our own subfolders are not looked at:
reports can be written again, and the rest is the user's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from frostline.errors import DataError, UsageError
from frostline.records.environment import mixed_environments
from frostline.records.results import Crash, Environment, PausedRun, RunResult
from frostline.storage import atomic, locks
from frostline.storage.arrays import check_array
from frostline.storage.findings import Fault, Finding, left_over
from frostline.storage.runs import FolderIdentity, read_checkpoint
from frostline.storage.sealed import is_sealed, read_sealed, reading, unsealed

_KEY = "[0-9a-f]{32}"
_NAMES = {
    "runs": re.compile(rf"({_KEY})\.json"),
    "arrays": re.compile(rf"({_KEY})\.npy"),
    "crashed": re.compile(rf"({_KEY})\.json"),
    "specs": re.compile(rf".+-({_KEY})\.json"),
    "paused": re.compile(rf"({_KEY})(-\d+\.json|\.checkpoint|\.pt)"),
}
"""the files of each subfolder"""
_OLD_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}")
"""how release 0.1 named files that it had not finished writing"""


@dataclass(frozen=True)
class Checked:
    """What a check of an output folder found."""

    n_files: int
    """files that were looked at"""
    findings: list[Finding]
    """what is wrong"""
    warnings: list[str]
    """what is not wrong, but worth knowing"""


def is_output_folder(folder: Path) -> bool:
    """Whether a folder holds runs, or held some."""
    return (folder / "identity.json").exists() or (folder / "runs").is_dir()


def check_folder(folder: Path, *, repair: bool = False) -> Checked:
    """What is wrong with the files of an output folder; a UsageError if it cannot be repaired now.

    While another process works there, what nothing refers to may be what it is just writing, and is not listed.
    """
    holders = [path.name for path in locks.paths_in(folder / "claims") if _is_locked(path)]
    if holders and repair:
        raise UsageError(f"another process works in {folder}; repair it when that process has ended")
    check = _Check(folder, repair)
    check.identity()
    for path in check.files("arrays"):
        check.array(path)
    for path in check.files("runs"):
        check.run(path)
    for path in check.files("crashed"):
        check.record(path, lambda path: _check_key(path, Crash.from_json(read_sealed(path)).key))
    for path in check.files("specs"):
        check.record(path, _check_request)
    for path in check.files("paused"):
        check.paused(path)
    if not holders:
        check.orphans()
        check.leftovers()
    return Checked(check.n_files, check.findings, mixed_environments(check.environments))


@dataclass
class _Check:
    """The state of one check."""

    folder: Path
    repair: bool
    n_files: int = 0
    findings: list[Finding] = field(default_factory=list)
    environments: list[Environment] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    """keys of whole runs"""
    arrays: dict[str, Path] = field(default_factory=dict)
    """whole arrays by digest"""
    digests: set[str] = field(default_factory=set)
    """of the arrays that runs name, whole or damaged"""
    kept: FolderIdentity | None = None

    def files(self, name: str) -> Iterator[Path]:
        """The files of a subfolder that have a name of ours; reports the others."""
        folder = self.folder / name
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name.startswith(atomic.TEMPORARY) or _OLD_TEMPORARY.fullmatch(path.name):
                continue  # looked at later
            if _NAMES[name].fullmatch(path.name) and path.is_file():
                self.n_files += 1
                yield path
            else:
                self._find(path, "foreign", "no file of frostline has this name")

    def identity(self) -> None:
        """Reads what the folder holds."""
        path = self.folder / "identity.json"
        self.n_files += 1
        if not path.exists():
            self._find(path, "damaged", "it is missing; the next command in this folder writes it again")
        else:
            self.record(path, self._read_identity)

    def _read_identity(self, path: Path) -> None:
        self.kept = FolderIdentity.from_json(read_sealed(path))

    def record(self, path: Path, read: Callable[[Path], object]) -> bool:
        """Whether a file can be read; a damaged one is reported."""
        try:
            read(path)
        except DataError as error:
            why = str(error).removeprefix(f"{path}: ")
            self._find(path, "damaged", why, lambda: atomic.move_aside(path, self.folder / "damaged"))
            return False
        return True

    def array(self, path: Path) -> None:
        """Looks at an array."""
        if self.record(path, check_array):
            self.arrays[path.stem] = path

    def run(self, path: Path) -> None:
        """Looks at a finished run, and whether its arrays are whole."""
        self.digests |= _named(path)
        found: list[RunResult] = []
        if not self.record(path, lambda path: found.append(_read_run(path))):
            return
        (result,) = found
        named = [array for array in result.arrays if array.read is None]
        if bad := [array.digest for array in named if array.digest not in self.arrays]:
            # It stays: another run that has the same array may bring it back.
            self._find(path, "damaged", f"its array {bad[0]} is damaged or missing; its run is done again")
            return
        self.finished.add(result.key)
        self.environments.append(result.environment)
        self._check_identity(path, result)

    def _check_identity(self, path: Path, result: RunResult) -> None:
        kept, spec = self.kept, result.spec
        own = (spec.model_fingerprint, spec.task.name, spec.data_fingerprint)
        if kept is not None and own != (kept.model_fingerprint, kept.task, kept.data_fingerprint):
            what = f"model {spec.model} ({own[0][:8]}) on task {own[1]} (data {own[2][:8]})"
            self._find(path, "mixed", f"it is a run of {what}; the folder holds {kept.text}")

    def paused(self, path: Path) -> None:
        """Looks at a paused run or its checkpoint."""
        key = path.name[:32]
        if path.suffix == ".pt":
            self._find(path, "orphaned", "an earlier release wrote this checkpoint; it is not used", path.unlink)
        elif path.suffix == ".json":
            self.record(path, _check_paused)
        elif key in self.finished:
            self._find(path, "left over", "its run has finished", path.unlink)
        elif not list(path.parent.glob(f"{key}-*.json")):
            self._find(path, "orphaned", "its paused run is missing", path.unlink)
        else:
            self.record(path, lambda path: read_checkpoint(path, key))

    def orphans(self) -> None:
        """Looks for arrays that no run names, not even a damaged one."""
        for path in (self.folder / "damaged").glob("*.json"):
            self.digests |= _named(path)
        for digest, path in self.arrays.items():
            if digest not in self.digests:
                self._find(path, "orphaned", "no run refers to it", path.unlink)

    def leftovers(self) -> None:
        """Looks for what killed processes left."""
        for folder in (self.folder, *(self.folder / name for name in _NAMES)):
            self.findings += left_over(folder, repair=self.repair)
            for path in sorted(folder.glob(".*")):
                if _OLD_TEMPORARY.fullmatch(path.name):
                    self._find(path, "left over", "a process was killed while it wrote this", path.unlink)
        for path in locks.paths_in(self.folder / "claims"):
            self._find(path, "left over", "a process was killed while it did this run", path.unlink)

    def _find(self, path: Path, what: Fault, why: str, remedy: Callable[[], object] | None = None) -> None:
        is_repaired = self.repair and remedy is not None
        if is_repaired and remedy is not None:
            with atomic.explained(str(path)), locks.gone_is_fine():
                remedy()
        self.findings.append(Finding(path=str(path), what=what, why=why, is_repaired=is_repaired))


def _named(path: Path) -> set[str]:
    """The digests of arrays that the file of a run names; the file may be damaged."""
    with contextlib.suppress(OSError):
        return set(re.findall(rf'"array": "({_KEY})"', path.read_text(encoding="utf-8", errors="replace")))
    return set()


def _read_run(path: Path) -> RunResult:
    result = RunResult.from_json(read_sealed(path))
    _check_key(path, result.key)
    return result


def _check_key(path: Path, key: str) -> None:
    if key != path.stem:
        raise DataError(f"it holds the run {key}", path=path)


def _check_paused(path: Path) -> None:
    paused = PausedRun.from_json(read_sealed(path))
    if path.name != f"{paused.key}-{paused.n_steps}.json":
        raise DataError(f"it holds the run {paused.key} after {paused.n_steps} steps", path=path)


def _check_request(path: Path) -> None:
    with reading("a resolved request", path):
        found = json.loads(path.read_text(encoding="utf-8"))
    if is_sealed(found):
        unsealed(found, path)
    elif not isinstance(found, dict):
        raise DataError("not a resolved request", path=path)


def _is_locked(path: Path) -> bool:
    """Whether a living process holds a claim."""
    with locks.gone_is_fine():
        handle = locks.open_existing(path)
        try:
            return locks.try_lock(handle) == "taken"
        finally:
            os.close(handle)
    return False
