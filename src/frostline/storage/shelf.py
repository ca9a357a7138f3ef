"""A shelf of the prefix cache: arrays on disk, one per depth, written whole or not at all, and checked when opened.

The arrays of a shelf are those of one split of one model. Its lock makes one process compute while the others wait, and
dies with its holder. Without the lock (some file systems have none) several may compute the same array, and the first
to finish puts it there. An array is filled in a hidden folder and renamed when it is complete. Any array can be removed
at any time: a process that has it mapped keeps its pages, and it can be computed again.

An array is a folder of three files: `states.npy`, `rows.npy` and `entry.json`. The entry has checksums of both arrays
and of itself. Folders and files are readable by their owner only, because states at depth 0 reveal the tokens.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError
from frostline.records.serial import Record
from frostline.storage import atomic, locks
from frostline.storage.findings import Finding, left_over
from frostline.storage.sealed import read_sealed, seal

HEADER_BYTES = 128
"""Size of the header of an array's file."""

STATES = "states.npy"
ROWS = "rows.npy"
ENTRY = "entry.json"
LOCK = "lock"
DEPTH = "0|[1-9][0-9]{0,3}"
"""what the name of an array's folder looks like"""
_UNFINISHED = ".unfinished-"
"""how release 0.1 named what it had not finished writing"""
_CHUNK = 1 << 24

Array = tuple[NDArray[Any], NDArray[np.int64]]
"""states, mapped, and the ids of their rows"""


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
    rows_checksum: int = 0
    """CRC-32 of the file with the row ids"""
    shelf: str = ""
    """key of the shelf that it belongs to"""


@dataclass(frozen=True)
class Shelf:
    """The arrays of one split of one model, by depth."""

    folder: Path

    @contextlib.contextmanager
    def locked(self, say: locks.Say = lambda _: None) -> Iterator[None]:
        """Keeps other processes from writing here; removes what a killed process left unfinished.

        Args:
            say: called once if another process holds the lock for long.
        """
        atomic.make_folder(self.folder, 0o700)
        with locks.locked(self.folder / LOCK, say):
            atomic.leftovers(self.folder, remove=True)
            yield

    def depths(self) -> list[int]:
        """The depths that have an array, damaged or not, ascending."""
        return sorted(int(path.name) for path in self.folder.glob("*") if re.fullmatch(DEPTH, path.name))

    def entries(self) -> dict[int, Entry]:
        """The arrays of this shelf by depth, ascending; damaged descriptions are left out."""
        found: dict[int, Entry] = {}
        for depth in self.depths():
            with contextlib.suppress(DataError):
                found[depth] = self._entry(depth)
        return found

    def open(self, depth: int) -> Array | None:
        """The array of a depth; None if there is none, a DataError if it is damaged."""
        found = self.checked(depth)
        if found is not None:
            with contextlib.suppress(OSError):  # it was removed just now, or belongs to another user
                os.utime(self._place(depth))
        return found

    def checked(self, depth: int) -> Array | None:
        """The same, without counting as a use."""
        place = self._place(depth)
        if not place.is_dir():
            return None
        try:
            return self._read(depth)
        except DataError as error:
            if not place.is_dir() or _is_stale(error.__cause__):  # another process removed it meanwhile
                return None
            raise

    def _read(self, depth: int) -> Array:
        place, entry = self._place(depth), self._entry(depth)
        try:
            for name, checksum in ((STATES, entry.checksum), (ROWS, entry.rows_checksum)):
                if _checksum(place / name) != checksum:
                    raise DataError("its bytes are not those that were written", path=place / name)
            states: NDArray[Any] = np.load(place / STATES, mmap_mode="r", allow_pickle=False)
            rows: NDArray[np.int64] = np.load(place / ROWS, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"cannot be read ({error})", path=place) from error
        return states, rows

    def _entry(self, depth: int) -> Entry:
        path = self._place(depth) / ENTRY
        entry = Entry.from_json(read_sealed(path))
        if (entry.shelf, entry.depth) != (self.folder.name, depth):
            raise DataError(f"it describes the array {entry.shelf}/{entry.depth}", path=path)
        return entry

    @contextlib.contextmanager
    def writing(
        self, entry: Entry, shape: tuple[int, int], dtype: np.dtype[Any], rows: NDArray[np.int64]
    ) -> Iterator[NDArray[Any]]:
        """An array to fill; it appears under its depth when the block succeeds, and not at all otherwise.

        The caller may go on using the array, also after another process has removed it from the cache.
        """
        place = self._place(entry.depth)
        atomic.remove_folder(place)  # a damaged one, or the caller would have used it
        with atomic.new_folder(place, mode=0o700) as unfinished:
            path = unfinished / STATES
            path.touch(0o600)
            states = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(int(shape[0]), int(shape[1])))
            _claim_space(path)
            yield states
            states.flush()
            with open(unfinished / ROWS, "xb", opener=_private) as stream:
                np.save(stream, rows, allow_pickle=False)
            written = entry.replace(
                n_bytes=path.stat().st_size,
                checksum=_checksum(path),
                rows_checksum=_checksum(unfinished / ROWS),
                shelf=self.folder.name,
            )
            with open(unfinished / ENTRY, "x", encoding="utf-8", opener=_private) as described:
                described.write(seal(written))

    def remove(self, depth: int) -> None:
        """Removes an array; a process that has it mapped keeps its pages."""
        atomic.remove_folder(self._place(depth))

    def check(self, *, repair: bool) -> list[Finding]:
        """What is wrong here; every array is read. With `repair`, what is damaged or left over is removed."""
        found = left_over(self.folder, repair=repair)
        for path in sorted(self.folder.glob("*")):
            if path.is_dir() and re.fullmatch(DEPTH, path.name):
                found += self._check_array(int(path.name), repair=repair)
            elif path.name.startswith(_UNFINISHED):
                if repair:
                    atomic.remove_folder(path)
                why = "an earlier release was killed while it wrote this"
                found.append(Finding(path=str(path), what="left over", why=why, is_repaired=repair))
            elif path.name != LOCK and not path.name.startswith(atomic.TEMPORARY):
                found.append(Finding(path=str(path), what="foreign", why="not a file of the cache"))
        return found

    def _check_array(self, depth: int, *, repair: bool) -> list[Finding]:
        place = self._place(depth)
        try:
            self.checked(depth)
        except DataError as error:
            if repair:
                self.remove(depth)
            why = str(error).removeprefix(f"{place}: ")
            return [Finding(path=str(place), what="damaged", why=why, is_repaired=repair)]
        names: set[str] = set()
        with locks.gone_is_fine():
            names.update(path.name for path in place.iterdir())
        others = sorted(names - {STATES, ROWS, ENTRY})
        return [Finding(path=str(place / name), what="foreign", why="not a file of the cache") for name in others]

    def last_used(self, depth: int) -> float:
        """When an array was last opened, by the clock of its file system; 0 if it is gone."""
        with locks.gone_is_fine():
            return self._place(depth).stat().st_mtime
        return 0.0

    def _place(self, depth: int) -> Path:
        return self.folder / str(depth)


def _is_stale(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.ESTALE


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _claim_space(path: Path) -> None:
    # Without this, writing to a mapped file on a full disk ends in a signal (SIGBUS), not in an error.
    with path.open("r+b") as stream:
        n_bytes = path.stat().st_size
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(stream.fileno(), 0, n_bytes)
            return
        stream.seek(HEADER_BYTES)  # macOS
        for start in range(HEADER_BYTES, n_bytes, _CHUNK):
            stream.write(bytes(min(_CHUNK, n_bytes - start)))


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
