"""Files by content: a tree of files is named by the hash of its files, and a node keeps each tree once.

A tree lies in a folder of that name in the node's cache. Its files are written whole or not at all, for their owner
only, and their hashes are compared: when they are written, and when a process uses the tree for the first time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from frostline.errors import DataError
from frostline.records.keys import key_of
from frostline.records.serial import Record
from frostline.storage import atomic, locks

PIECE = 2**25
"""bytes that travel together"""


@dataclass(frozen=True, kw_only=True)
class File(Record):
    """A file of a tree."""

    path: str
    """below the tree's folder, with `/`"""
    n_bytes: int
    """its size"""
    sha256: str
    """of its content"""


@dataclass(frozen=True, kw_only=True)
class Tree(Record):
    """Files below one folder, in the order in which their bytes travel."""

    files: tuple[File, ...]
    """by path"""

    @property
    def digest(self) -> str:
        """The name of the tree: equal if and only if paths and contents are."""
        return key_of(self.to_json())


def read_tree(folder: Path, paths: Iterable[str]) -> tuple[Tree, Iterator[bytes]]:
    """The tree of some files of a folder, and their bytes in pieces; a DataError if a file changes in between."""
    files = tuple(_described(folder, path) for path in sorted(paths))
    return Tree(files=files), _pieces(folder, files)


def keep(tree: Tree, folder: Path, pieces: Iterable[bytes | memoryview]) -> Path:
    """The folder of a tree below `folder`; its pieces are read only if it is not there, or damaged.

    Of several processes, one writes and the others wait.
    """
    place = folder / tree.digest
    atomic.make_folder(folder, 0o700)
    with locks.locked(folder / f"{tree.digest}.lock"):
        if place.is_dir() and not _is_whole(tree, place):
            atomic.remove_folder(place)
        if not place.is_dir():
            with atomic.new_folder(place, mode=0o700) as unfinished:
                _write(tree, unfinished, iter(pieces))
    return place


def _described(folder: Path, path: str) -> File:
    try:
        with (folder / path).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return File(path=path, n_bytes=stream.tell(), sha256=digest)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path=folder / path) from error


def _pieces(folder: Path, files: Iterable[File]) -> Iterator[bytes]:
    for file in files:
        digest = hashlib.sha256()
        with (folder / file.path).open("rb") as stream:
            while piece := stream.read(PIECE):
                digest.update(piece)
                yield piece
        if digest.hexdigest() != file.sha256:
            raise DataError("changed while it was sent; run the command again", path=folder / file.path)


def _is_whole(tree: Tree, place: Path) -> bool:
    try:
        return all(_described(place, file.path) == file for file in tree.files)
    except DataError:
        return False


def _write(tree: Tree, folder: Path, pieces: Iterator[bytes | memoryview]) -> None:
    """Writes the files of a tree; a DataError if the bytes are not those of the tree."""
    for file in tree.files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts:
            raise DataError(f"{file.path!r} is not a path below a folder")
        atomic.make_folder(folder / path.parent, 0o700)
        digest, n_left = hashlib.sha256(), file.n_bytes
        target = folder / path
        target.touch(0o600)
        with target.open("wb") as stream:
            while n_left > 0 and (piece := next(pieces, None)) is not None:
                digest.update(piece)
                stream.write(piece)
                n_left -= len(piece)
        if digest.hexdigest() != file.sha256:
            raise DataError(f"{file.path} did not arrive whole; run the command again")
