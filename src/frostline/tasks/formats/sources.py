"""Where rows are found: the parts of a source by role, opened but not read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

from frostline.records.keys import fingerprint_of_files, key_of
from frostline.tasks.formats import files
from frostline.tasks.formats.columns import FileColumns


@final
@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows with one role: train or dev."""

    path: Path
    """what messages call it"""
    read_header: Callable[[], tuple[str, ...]]
    """gives the names of its columns"""
    read: Callable[[Sequence[str]], FileColumns]
    """gives the wanted columns"""
    file: Path | None
    """the file that holds exactly these rows; None if they are not one file"""


@final
@dataclass(frozen=True, kw_only=True)
class Source:
    """Training rows, separate dev rows if there are any, and what users should know about the choice."""

    train: Part
    dev: Part | None
    warnings: tuple[str, ...] = ()


def part_of_file(path: Path) -> Part:
    """A file as a part; a UsageError if it does not exist or has an unknown format."""
    files.check_path(path)
    return Part(path=path, read_header=partial(files.read_header, path), read=partial(files.read, path), file=path)


def fingerprint(parts: Sequence[tuple[str, Part, FileColumns]]) -> str:
    """A key of the parts with their roles: the bytes of files, and what was read of anything else."""
    paths = [(role, part.file) for role, part, _ in parts if part.file is not None]
    if len(paths) == len(parts):
        return fingerprint_of_files(paths)
    return key_of([[role, _digest(table)] for role, _, table in parts])


def _digest(table: FileColumns) -> str:
    digest = hashlib.sha256(key_of({name: list(names) for name, names in table.classes.items()}).encode())
    for name, fields in table.columns.items():
        for field in (name, *fields):
            content = field.encode()
            digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
