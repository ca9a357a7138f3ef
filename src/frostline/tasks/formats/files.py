"""Files in any format that can be read: their columns, and which file of a folder holds which rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from frostline.errors import UsageError, suggestion
from frostline.tasks.formats import delimited, jsonlines, parquet
from frostline.tasks.formats.columns import FileColumns, Table
from frostline.tasks.formats.values import typed_table

_DELIMITED = (".csv", ".tsv")
_JSON = (".jsonl", ".ndjson", ".json")
_PARQUET = (".parquet",)
SUFFIXES = (*_DELIMITED, *_JSON, *_PARQUET)


def read_header(path: Path) -> tuple[str, ...]:
    """The names of the columns."""
    suffix = _suffix(path)
    if suffix in _DELIMITED:
        return delimited.read_header(path)
    return jsonlines.read_header(path) if suffix in _JSON else parquet.read_header(path)


def read(path: Path, wanted: Sequence[str], *, any_value: bool = False) -> FileColumns:
    """The wanted columns of the file; with `any_value` lists and objects are allowed and become JSON text."""
    suffix = _suffix(path)
    if suffix in _DELIMITED:
        return delimited.read(path, wanted)
    read_typed = jsonlines.read if suffix in _JSON else parquet.read
    return read_typed(path, wanted, any_value=any_value)


def index(path: Path, wanted: Sequence[str]) -> Table:
    """The wanted columns of the file, of which the last one is the label; texts may be read only when they are used."""
    suffix = _suffix(path)
    if suffix in _DELIMITED:
        return delimited.index(path, wanted)
    return jsonlines.index(path, wanted) if suffix in _JSON else parquet.read(path, wanted)


def read_columns(path: Path) -> dict[str, list[str]]:
    """All columns of the file by name, in order, with any values; for JSON, all keys of all objects."""
    check_path(path)
    if _suffix(path) in _JSON:
        objects = jsonlines.read_objects(path)
        names = dict.fromkeys(name for one in objects for name in one)
        columns = {name: [one.get(name) for one in objects] for name in names}
        return typed_table(path, columns, any_value=True).columns
    header = read_header(path)
    # pandas writes its index as a column without a name. One such column can be kept; two could not be told apart.
    keeps_unnamed = header.count("") == 1
    wanted = [name for name in header if name or keeps_unnamed]
    return read(path, wanted, any_value=True).columns


def read_objects(path: Path) -> list[dict[str, Any]]:
    """The rows one by one: the objects of a JSON file unchanged, otherwise a dict of fields by column."""
    check_path(path)
    if _suffix(path) in _JSON:
        return jsonlines.read_objects(path)
    columns = read_columns(path)
    return [dict(zip(columns, fields, strict=True)) for fields in zip(*columns.values(), strict=True)]


def file_named(folder: Path, stems: Sequence[str]) -> Path | None:
    """The folder's file with one of these stems; None if there is none, a UsageError if there are several."""
    paths = [folder / f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES]
    found = [path for path in paths if path.is_file()]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise UsageError(f"the folder {folder} contains {names}; keep one of them, or name the files")
    return found[0] if found else None


def check_path(path: Path) -> None:
    """Raise a UsageError if there is no such file or its format is unknown."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    if _suffix(path) not in SUFFIXES:
        known = f"own data is read from {', '.join(SUFFIXES[:-1])} and {SUFFIXES[-1]}"
        raise UsageError(f"{path} ends in {path.suffix or 'nothing'!r}; {known}.{suggestion(_suffix(path), SUFFIXES)}")


def _suffix(path: Path) -> str:
    return path.suffix.lower()
