"""Where rows are found: the parts of a source by role, opened but not read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

from frostline.records.keys import fingerprint_of_digests, key_of
from frostline.tasks.formats import files
from frostline.tasks.formats.columns import Table


@final
@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows with one role: train or dev."""

    path: Path
    """what messages call it"""
    read_header: Callable[[], tuple[str, ...]]
    """gives the names of its columns"""
    read: Callable[[Sequence[str]], Table]
    """gives the wanted columns, of which the last one is the label"""


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
    return Part(path=path, read_header=partial(files.read_header, path), read=partial(files.index, path))


def fingerprint(tables: Mapping[str, Table], columns: Sequence[str]) -> str:
    """A key of the tables by role: of the bytes of files, and of the fields that were read of anything else."""
    digests = [(role, table.sha256) for role, table in tables.items() if table.sha256 is not None]
    if len(digests) == len(tables):
        return fingerprint_of_digests(digests)
    return key_of([[role, _digest(table, columns)] for role, table in tables.items()])


def _digest(table: Table, columns: Sequence[str]) -> str:
    digest = hashlib.sha256(key_of({name: list(names) for name, names in table.classes.items()}).encode())
    for name in columns:
        for field in (name, *table.column(name)):
            content = field.encode()
            digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
