"""The store: finished runs of one model, task and data, one file each, written whole and never changed.

The contract:
- `put` makes a result durable before it returns; `get` returns exactly what was put, or None.
- The arrays of a run are files of their own (`arrays.py`), written before the run's file. Equal arrays are one file.
- A file that is damaged or belongs elsewhere is reported in `damaged` and counts as missing, and so does a run whose
  array is damaged. When the run is put again the damaged file is moved aside, never deleted.
- Two processes may put the same run: the first wins.
- Crashes and paused runs have folders of their own and never count as results.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from frostline.errors import DataError, UsageError
from frostline.records.keys import key_of
from frostline.records.results import Crash, PausedRun, RunResult
from frostline.records.serial import Record, key_fields, not_in_key
from frostline.storage import atomic
from frostline.storage.arrays import get_array, put_array
from frostline.storage.sealed import is_sealed, read_sealed, reading, seal, unseal_bytes, unsealed

RecordT = TypeVar("RecordT", bound=Record)


@dataclass(frozen=True, kw_only=True)
class FolderIdentity(Record):
    """What an output folder holds: one model, one task, one version of the data."""

    model: str = not_in_key()
    """the pretrained model"""
    model_fingerprint: str
    """key of its weights, configuration and tokenizer"""
    task: str
    """the task"""
    data_fingerprint: str
    """key of its source files"""

    @property
    def key(self) -> str:
        """Equal for equal content, wherever its files are."""
        return key_of(key_fields(self))

    @property
    def text(self) -> str:
        """Model, task and data in one line."""
        return (
            f"model {self.model} ({self.model_fingerprint[:8]}) on task {self.task} (data {self.data_fingerprint[:8]})"
        )


def check_place(folder: Path) -> None:
    """Raises if an output folder is a file."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file; give a folder")


@dataclass
class Store:
    """The runs of an output folder."""

    folder: Path
    damaged: dict[Path, str] = field(default_factory=dict)
    """files that were not used, and why"""

    @classmethod
    def open(cls, folder: Path, identity: FolderIdentity) -> Store:
        """The store in a folder, created if needed; refused if it holds another model, task or data."""
        with atomic.explained(f"--out {folder}"):
            check_place(folder)
            atomic.make_folder(folder)
        path = folder / "identity.json"
        if not path.exists():  # on a full disk, what is there can still be read
            atomic.write_new(path, seal(identity))
        try:
            kept = FolderIdentity.from_json(read_sealed(path))
        except DataError as error:
            what = str(error).removeprefix(f"{path}: ")
            raise DataError(f"{what}; move it away, or give another --out folder", path=path) from error
        if kept.key != identity.key:
            raise UsageError(f"{_difference(folder, path, kept, identity)}. Give another --out folder")
        return cls(folder)

    def get(self, key: str) -> RunResult | None:
        """The finished run with this key; None if there is none."""
        path = self._path(key)
        if not path.is_file():
            return None
        try:
            result = RunResult.from_json(read_sealed(path))
            if result.key != key:
                raise DataError(f"it holds the run {result.key}", path=path)
            _check_epochs(result, path)
            # Release 0.1 wrote the values of arrays into the run's own file.
            result = result.with_arrays(lambda one: get_array(self.folder, one) if one.read is None else one)
        except DataError as error:
            self.damaged[path] = str(error)
            return None
        return result

    def put(self, result: RunResult, *, replace: bool = False) -> RunResult:
        """Stores a finished run; with `replace`, over the one that is there. Returns it with its arrays in files."""
        path = self._path(result.key)
        if path.is_file() and self.get(result.key) is None:
            atomic.move_aside(path, self.folder / "damaged")
        stored = result.with_arrays(lambda array: put_array(self.folder, array))  # first: no run without its arrays
        write = atomic.write if replace else atomic.write_new
        write(path, seal(stored.without_arrays()))
        return stored

    def put_crash(self, crash: Crash) -> Path:
        """Stores the last crash of a run; the next call tries that run again."""
        return atomic.write(self._crash_path(crash.key), seal(crash))

    def has_crashed(self, key: str) -> bool:
        """Whether a run ever crashed; it may have finished since."""
        return self._crash_path(key).is_file()

    def put_paused(self, paused: PausedRun) -> None:
        """Stores a paused run and its checkpoint."""
        if paused.checkpoint is not None:  # first, so that a paused run that is known can go on
            atomic.write(self._checkpoint_path(paused.key), paused.checkpoint)
        atomic.write(self._paused_path(paused.key, paused.n_steps), seal(paused))

    def get_paused(self, key: str, n_steps: int) -> PausedRun | None:
        """The run with this key as it was after `n_steps`, without its checkpoint; None if missing or damaged."""
        path = self._paused_path(key, n_steps)
        if not path.is_file():
            return None
        try:
            paused = PausedRun.from_json(read_sealed(path))
            if (paused.key, paused.n_steps) != (key, n_steps):
                raise DataError(f"it holds the run {paused.key} after {paused.n_steps} steps", path=path)
        except DataError as error:
            self.damaged[path] = str(error)
            return None
        return paused

    def checkpoint(self, key: str) -> bytes | None:
        """The content that a paused run goes on from; None if it is missing or damaged, or belongs to another run."""
        path = self._checkpoint_path(key)
        old = path.with_suffix(".pt")
        if old.is_file():
            self.damaged[old] = str(DataError("an earlier release wrote this checkpoint, without a checksum", path=old))
        if not path.is_file():
            return None
        try:
            return read_checkpoint(path, key)
        except DataError as error:
            self.damaged[path] = str(error)
            return None

    def drop_checkpoint(self, key: str) -> None:
        """Removes the checkpoint of a run; the scores of its pauses stay."""
        path = self._checkpoint_path(key)
        path.unlink(missing_ok=True)
        path.with_suffix(".pt").unlink(missing_ok=True)

    def _checkpoint_path(self, key: str) -> Path:
        return self.folder / "paused" / f"{key}.checkpoint"

    def _crash_path(self, key: str) -> Path:
        return self.folder / "crashed" / f"{key}.json"

    def _paused_path(self, key: str, n_steps: int) -> Path:
        return self.folder / "paused" / f"{key}-{n_steps}.json"

    def request_path(self, command: str, key: str) -> Path:
        """Where the resolved request of a command is kept."""
        return self.folder / "specs" / f"{command}-{key}.json"

    def requests(self, command: str, kind: type[RecordT]) -> list[RecordT]:
        """The resolved requests of a command, in the order of their keys."""
        return [self.read_request(path, kind) for path in sorted((self.folder / "specs").glob(f"{command}-*.json"))]

    def put_request(self, path: Path, resolved: Record) -> None:
        """Stores a resolved request, unless there is one."""
        atomic.write_new(path, seal(resolved, indent=2))

    def read_request(self, path: Path, kind: type[RecordT]) -> RecordT:
        """A resolved request; a DataError where the file is not one."""
        try:
            with reading("JSON", path):
                found = json.loads(path.read_text(encoding="utf-8"))
            # Release 0.1 wrote requests without a checksum.
            return kind.from_json(unsealed(found, path) if is_sealed(found) else found)
        except DataError as error:
            what = str(error).removeprefix(f"{path}: ")
            raise DataError(
                f"not a resolved request: {what}; move it away to have it resolved again", path=path
            ) from error

    def results(self) -> list[RunResult]:
        """All finished runs, in the order of their keys."""
        found = [self.get(path.stem) for path in sorted((self.folder / "runs").glob("*.json"))]
        return [result for result in found if result is not None]

    def _path(self, key: str) -> Path:
        return self.folder / "runs" / f"{key}.json"


def read_checkpoint(path: Path, key: str) -> bytes:
    """The content of a checkpoint; a DataError if it is damaged or belongs to another run."""
    with reading("a sealed checkpoint", path):
        content = path.read_bytes()
    head, _ = unseal_bytes(content, path)
    if head.get("key") != key:
        raise DataError(f"it holds the run {head.get('key')}", path=path)
    return content


def _difference(folder: Path, path: Path, kept: FolderIdentity, given: FolderIdentity) -> str:
    """Why a folder cannot hold the runs of this model, task and data."""
    at = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC)
    since = f"the first run in --out {folder} ({at:%Y-%m-%d %H:%M} UTC)"
    if kept.replace(data_fingerprint=given.data_fingerprint).key == given.key:
        return f"the data of {kept.task} changed since {since}"
    if kept.replace(model_fingerprint=given.model_fingerprint) == given:
        return f"the model {kept.model} changed since {since}: its weights, configuration or tokenizer differ"
    return f"--out {folder} holds {kept.text}; this is {given.text}"


def _check_epochs(result: RunResult, path: Path) -> None:
    """Raises if a run, however well sealed, lacks an epoch, or an epoch its score."""
    if not result.epochs:
        raise DataError("it holds a run without an epoch", path=path)
    metric = result.spec.task.metric
    if metric and any(metric not in epoch.metrics for epoch in result.epochs):
        raise DataError(f"it holds an epoch without its {metric}", path=path)
