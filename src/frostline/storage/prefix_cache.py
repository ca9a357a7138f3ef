"""The prefix cache: arrays on disk, found by key, written whole or not at all, checked when opened, limited in size.

A shelf holds the arrays of one split of one model, one per depth. Its key (`Origin.key`) says what they were computed
from. Its lock makes one process compute while the others wait, and dies with its holder. An array is filled in a hidden
folder and renamed when it is complete. Any array can be removed at any time: a process that has it mapped keeps its
pages, and it can be computed again. This module knows nothing about models; `training.prefix` decides what the arrays
mean.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError, UsageError, suggestion
from frostline.records.environment import versions
from frostline.records.keys import key_of
from frostline.records.serial import Record
from frostline.records.specs import CacheDtype
from frostline.storage import atomic

FORMAT = 1
"""Part of every shelf's key; raised when older files can no longer be read."""

HEADER_BYTES = 128
"""Size of the header of an array's file."""

_STATES = "states.npy"
_ROWS = "rows.npy"
_ENTRY = "entry.json"
_LOCK = "lock"
_UNFINISHED = ".unfinished-"
_CHUNK = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Entry(Record):
    """The description of one array."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    split: str
    """train or dev"""
    depth: int
    """number of layers below"""
    dtype: str
    """number format: fp32, fp16 or bf16"""
    n_bytes: int = 0
    """size of the array's file"""
    checksum: int = 0
    """CRC-32 of the array's file"""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What states were computed from."""

    model: str
    """Hub name or folder of the pretrained model"""
    model_fingerprint: str
    """key of its weights, configuration and tokenizer"""
    task: str
    """name of the task"""
    split: str
    """train or dev"""
    layout: str
    """packed or padded: which attention computes them"""
    device: str
    """where they are computed"""
    dtype: CacheDtype
    """the number format they are stored in"""
    is_whole: bool = False
    """keep all tokens after the last layer too, not only the one that the head reads"""

    @property
    def is_exact(self) -> bool:
        """Stored without rounding, so that deeper states computed from them have the same bits."""
        return self.dtype == "fp32"

    def key(self, tokens: str, **more: object) -> str:
        """The cache's key: equal if and only if the states are equal, whatever the names of model and task."""
        return key_of(
            {
                **more,
                **({"is_whole": True} if self.is_whole else {}),
                "format": FORMAT,
                "model": self.model_fingerprint,
                "tokens": tokens,
                "layout": self.layout,
                "device": self.device,
                "dtype": self.dtype,
                "versions": {name: versions()[name] for name in ("torch", "transformers")},
            }
        )


def default_folder() -> Path:
    """`$FROSTLINE_CACHE`, else `frostline` below `$XDG_CACHE_HOME` or `~/.cache`."""
    if given := os.environ.get("FROSTLINE_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "frostline"


@dataclass(frozen=True)
class Shelf:
    """The arrays of one split of one model, by depth."""

    folder: Path

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from writing here; removes what a killed process left unfinished."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            for leftover in self.folder.glob(f"{_UNFINISHED}*"):
                shutil.rmtree(leftover, ignore_errors=True)  # another process may be removing it too
            yield

    def entries(self) -> dict[int, Entry]:
        """The arrays of this shelf by depth, ascending; damaged descriptions are left out."""
        found: dict[int, Entry] = {}
        for path in self.folder.glob(f"[0-9]*/{_ENTRY}"):
            with contextlib.suppress(DataError):
                entry = _read_entry(path)
                found[entry.depth] = entry
        return dict(sorted(found.items()))

    def open(self, depth: int) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        """The array of a depth, mapped, and its row ids; None if there is none, a DataError if it is damaged."""
        place = self._place(depth)
        if not place.is_dir():
            return None
        entry = _read_entry(place / _ENTRY)
        try:
            if _checksum(place / _STATES) != entry.checksum:
                raise DataError("its bytes are not those that were written", path=place / _STATES)
            states: NDArray[Any] = np.load(place / _STATES, mmap_mode="r", allow_pickle=False)
            rows: NDArray[np.int64] = np.load(place / _ROWS, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"cannot be read ({error})", path=place) from error
        os.utime(place)
        return states, rows

    @contextlib.contextmanager
    def writing(
        self, entry: Entry, shape: tuple[int, int], dtype: np.dtype[Any], rows: NDArray[np.int64]
    ) -> Iterator[NDArray[Any]]:
        """An array to fill; it appears under its depth when the block succeeds, and not at all otherwise."""
        unfinished = self.folder / f"{_UNFINISHED}{entry.depth}"
        unfinished.mkdir()
        try:
            path = unfinished / _STATES
            states = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(int(shape[0]), int(shape[1])))
            _claim_space(path)
            yield states
            states.flush()
            np.save(unfinished / _ROWS, rows, allow_pickle=False)
            written = entry.replace(n_bytes=path.stat().st_size, checksum=_checksum(path))
            (unfinished / _ENTRY).write_text(json.dumps(written.to_json(), indent=2) + "\n", encoding="utf-8")
            for name in (_STATES, _ROWS, _ENTRY):
                atomic.sync(unfinished / name)
            unfinished.rename(self._place(entry.depth))
            atomic.sync(self.folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def remove(self, depth: int) -> None:
        """Removes an array; a process that has it mapped keeps its pages."""
        gone = self.folder / f"{_UNFINISHED}gone-{depth}-{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            self._place(depth).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def last_used(self, depth: int) -> float:
        """When an array was last opened; 0 if it is gone."""
        place = self._place(depth)
        return place.stat().st_mtime if place.is_dir() else 0.0

    def _place(self, depth: int) -> Path:
        return self.folder / str(depth)


@dataclass(frozen=True)
class Cache:
    """All shelves of a cache folder."""

    folder: Path

    def shelf(self, key: str) -> Shelf:
        """The shelf of a key, whether it exists or not."""
        return Shelf(self.folder / "prefix" / key)

    def shelves(self) -> list[Shelf]:
        """The shelves that exist."""
        return [Shelf(path) for path in sorted((self.folder / "prefix").glob("*")) if path.is_dir()]

    def entries(self) -> list[Entry]:
        """The descriptions of all arrays."""
        found = [entry for shelf in self.shelves() for entry in shelf.entries().values()]
        return sorted(found, key=lambda entry: (entry.model, entry.task, entry.split, entry.depth))

    def used_bytes(self) -> int:
        """Size of all arrays."""
        return sum(entry.n_bytes for entry in self.entries())

    def remove(self, name: str | None) -> int:
        """Removes the arrays of a model or task, or all; returns the freed bytes.

        A UsageError if there is nothing under the name.
        """
        known = sorted({known for entry in self.entries() for known in (entry.model, entry.task)})
        if name is not None and name not in known:
            kept = ", ".join(known) or "nothing"
            raise UsageError(f"nothing is kept of {name!r}; kept: {kept}.{suggestion(name, known)}")
        freed = 0
        for shelf in self.shelves():
            for depth, entry in shelf.entries().items():
                if name in (None, entry.model, entry.task):
                    shelf.remove(depth)
                    freed += entry.n_bytes
        return freed

    def make_room(self, shelf: Shelf, sizes: Mapping[int, int], most: int, of: Entry | None = None) -> bool:
        """Removes arrays of other depths until new arrays, sizes by depth, fit below `most`; returns whether they fit.

        Arrays of the same shelf go first, because deeper ones were built from them already; then the least recently
        used. A process that has a removed array mapped keeps its pages. If the new arrays would not fit into an empty
        cache, nothing is removed.
        """
        needed = sum(n_bytes + HEADER_BYTES for n_bytes in sizes.values())
        if needed > most:
            return False
        others = [
            (other, depth)
            for other in self.shelves()
            for depth, kept in other.entries().items()
            if depth not in sizes or (of is not None and (kept.model, kept.task) != (of.model, of.task))
        ]
        others.sort(key=lambda other: (other[0] != shelf, other[0].last_used(other[1])))
        for other, kept in others:
            if self.used_bytes() + needed <= most:
                break
            other.remove(kept)
        return self.used_bytes() + needed <= most and needed <= free_bytes(self.folder)


def free_bytes(folder: Path) -> int:
    """Free space on the disk of a folder, which need not exist yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def _read_entry(path: Path) -> Entry:
    try:
        return Entry.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, DataError) as error:
        raise DataError(f"not a description of states ({error})", path=path) from error


def _claim_space(path: Path) -> None:
    # Without this, writing to a mapped file on a full disk ends in a signal (SIGBUS), not in an error.
    with path.open("r+b") as stream:
        os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
