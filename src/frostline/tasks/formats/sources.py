"""Where rows are found: the parts of a source, by role, named but not read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

from frostline.records.keys import fingerprint_of_files, key_of
from frostline.tasks.formats import files
from frostline.tasks.formats.columns import Table


@final
@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows that have one role."""

    path: Path
    """what messages call it"""
    read_header: Callable[[], tuple[str, ...]]
    """the names of its columns"""
    read: Callable[[Sequence[str]], Table]
    """the wanted columns"""
    is_file: bool = True
    """all of it is the file at the path"""


@final
@dataclass(frozen=True, kw_only=True)
class Source:
    """Training rows, dev rows where they are apart, and what is to be told of the two."""

    train: Part
    dev: Part | None
    notices: tuple[str, ...] = ()


def part_of_file(path: Path) -> Part:
    """A file of one's own; a UsageError where it is not there or of a format that is not read."""
    files.check_path(path)
    return Part(path=path, read_header=partial(files.read_header, path), read=partial(files.read, path))


def fingerprint(parts: Sequence[tuple[str, Part, Table]]) -> str:
    """A key of the parts, each with the role it plays: of files their bytes, of anything else what was read of it."""
    if all(part.is_file for _, part, _ in parts):
        return fingerprint_of_files((role, part.path) for role, part, _ in parts)
    return key_of([[role, _digest(table)] for role, _, table in parts])


def _digest(table: Table) -> str:
    digest = hashlib.sha256(key_of({name: list(names) for name, names in table.classes.items()}).encode())
    for name, fields in table.columns.items():
        for field in (name, *fields):
            content = field.encode()
            digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
