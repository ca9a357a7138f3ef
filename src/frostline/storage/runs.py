"""The store: finished runs of one model, task and data, one file each, written whole and never changed.

The contract:
- `put` makes a result durable before it returns; `get` returns exactly what was put, or None.
- A file that is damaged or belongs elsewhere is reported in `damaged` and counts as missing. When its run is put again
  it is moved aside, never deleted.
- Two processes may put the same run: the first wins.
- Crashes and paused runs have folders of their own and never count as results.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from frostline.errors import DataError, UsageError
from frostline.records.keys import key_of
from frostline.records.results import Crash, PausedRun, RunResult
from frostline.records.serial import Record, key_fields, not_in_key
from frostline.storage import atomic

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
            if folder.exists() and not folder.is_dir():
                raise UsageError(f"--out {folder} is a file; give a folder")
            folder.mkdir(parents=True, exist_ok=True)
        path = folder / "identity.json"
        if not path.exists():  # on a full disk, what is there can still be read
            atomic.write_new(path, _sealed(identity))
        try:
            kept = FolderIdentity.from_json(_opened(path))
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
            result = RunResult.from_json(_opened(path))
            if result.key != key:
                raise DataError(f"it holds the run {result.key}", path=path)
        except DataError as error:
            self.damaged[path] = str(error)
            return None
        return result

    def put(self, result: RunResult, *, replace: bool = False) -> None:
        """Stores a finished run; with `replace`, over the one that is there."""
        path = self._path(result.key)
        if path.is_file() and self.get(result.key) is None:
            self._move_aside(path)
        if replace:
            atomic.write(path, _sealed(result))
        else:
            atomic.write_new(path, _sealed(result))

    def put_crash(self, crash: Crash) -> Path:
        """Stores the last crash of a run; the next call tries that run again."""
        return atomic.write(self._crash_path(crash.key), _sealed(crash))

    def has_crashed(self, key: str) -> bool:
        """Whether a run ever crashed; it may have finished since."""
        return self._crash_path(key).is_file()

    def put_paused(self, paused: PausedRun) -> None:
        """Stores a paused run and its checkpoint."""
        if paused.checkpoint is not None:  # first, so that a paused run that is known can go on
            atomic.write(self._checkpoint_path(paused.key), paused.checkpoint)
        atomic.write(self._paused_path(paused.key, paused.n_steps), _sealed(paused))

    def get_paused(self, key: str, n_steps: int) -> PausedRun | None:
        """The run with this key as it was after `n_steps`, without its checkpoint; None if missing or damaged."""
        path = self._paused_path(key, n_steps)
        try:
            return PausedRun.from_json(_opened(path)) if path.is_file() else None
        except DataError as error:
            self.damaged[path] = str(error)
            return None

    def checkpoint(self, key: str) -> bytes | None:
        """The content that a paused run goes on from; None if there is none."""
        path = self._checkpoint_path(key)
        return path.read_bytes() if path.is_file() else None

    def drop_checkpoint(self, key: str) -> None:
        """Removes the checkpoint of a run; the scores of its pauses stay."""
        self._checkpoint_path(key).unlink(missing_ok=True)

    def _checkpoint_path(self, key: str) -> Path:
        return self.folder / "paused" / f"{key}.pt"

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

    def read_request(self, path: Path, kind: type[RecordT]) -> RecordT:
        """A resolved request; a DataError where the file is not one."""
        try:
            return kind.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, DataError) as error:
            message = f"not a resolved request: {error}; move it away to have it resolved again"
            raise DataError(message, path=path) from error

    def results(self) -> list[RunResult]:
        """All finished runs, in the order of their keys."""
        found = [self.get(path.stem) for path in sorted((self.folder / "runs").glob("*.json"))]
        return [result for result in found if result is not None]

    def _path(self, key: str) -> Path:
        return self.folder / "runs" / f"{key}.json"

    def _move_aside(self, path: Path) -> None:
        aside = self.folder / "damaged"
        with atomic.explained(str(aside)):
            aside.mkdir(exist_ok=True)
            names = (aside / f"{path.stem}-{number}.json" for number in itertools.count())
            path.rename(next(name for name in names if not name.exists()))


def _difference(folder: Path, path: Path, kept: FolderIdentity, given: FolderIdentity) -> str:
    """Why a folder cannot hold the runs of this model, task and data."""
    if kept.replace(data_fingerprint=given.data_fingerprint).key == given.key:
        since = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC)
        return f"the data of {kept.task} changed since the first run in --out {folder} ({since:%Y-%m-%d %H:%M} UTC)"
    return f"--out {folder} holds {kept.text}; this is {given.text}"


def _sealed(record: Record) -> str:
    content = record.to_json()
    return json.dumps({"checksum": key_of(content), "content": content}, allow_nan=False) + "\n"


def _opened(path: Path) -> Any:
    """The content of a sealed file; a DataError if it is not what was written."""
    try:
        sealed = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(sealed, dict) or set(sealed) != {"checksum", "content"}:
            raise DataError("not a frostline record", path=path)
        checksum = key_of(sealed["content"])
    except (OSError, ValueError) as error:  # not UTF-8, not JSON, or JSON with a NaN
        raise DataError(f"not readable as a frostline record: {error}", path=path) from error
    if checksum != sealed["checksum"]:
        raise DataError("its checksum does not match its content; it was damaged or edited", path=path)
    return sealed["content"]
