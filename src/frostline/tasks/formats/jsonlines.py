"""JSON: one object per line, or one array of objects. The content decides, not the file name."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from frostline.errors import DataError, listed
from frostline.tasks.content import KEPT, Content
from frostline.tasks.formats.columns import FileColumns, Line, Table, fault_at, missing_column
from frostline.tasks.formats.text import IndexedFile, Lines, read_text
from frostline.tasks.formats.values import field_of, repaired, typed_table

Records = Iterator[tuple[int | None, dict[str, Any]]]
"""Each object with its line; objects in an array have no line."""

_LAYOUT = "write one object per line, or one array of objects"


def read_header(path: Path) -> tuple[str, ...]:
    """The keys of the first object."""
    return tuple(next(_records(Content(path)))[1])


def read(path: Path, wanted: Sequence[str], *, any_value: bool = False) -> FileColumns:
    """The wanted keys of all objects; a DataError with the line if an object lacks one."""
    content = Content(path)
    lines: list[int] = []
    columns: dict[str, list[object]] = {name: [] for name in wanted}
    for place, (line, record) in enumerate(_records(content)):
        if line is not None:
            lines.append(line)
        for name, values in columns.items():
            values.append(_value(path, record, name, line, place))
    table = typed_table(path, columns, lines=lines or None, any_value=any_value)
    return dataclasses.replace(table, sha256=content.sha256)


def index(path: Path, wanted: Sequence[str]) -> Table:
    """The wanted keys of all objects; an array is read whole, of lines only the last key, the label, is kept."""
    if _begins_array(path):
        return read(path, wanted)
    _check_layout(path)
    places = {name: place for place, name in enumerate(wanted)}
    with Lines(Content(path), newline="\n") as lines:
        return IndexedFile(lines, partial(_rows, path, wanted), places, wanted[-1])


def read_objects(path: Path) -> list[dict[str, Any]]:
    """All objects in a form that can be written as JSON again: without NaN and halves of surrogate pairs."""
    return [
        json.loads(repaired(json.dumps(record, ensure_ascii=False)), parse_constant=lambda _: None)
        for _, record in _records(Content(path))
    ]


def _records(content: Content) -> Records:
    path = content.path
    if not _begins_array(path):
        _check_layout(path)
        with Lines(content, newline="\n") as lines:
            yield from _of_lines(path, lines, 1)
        return
    records = _parsed(path, read_text(content, lines_are_short=False), None)
    if not records:
        raise DataError("has no rows", path=path)
    for place, record in enumerate(records):
        if not isinstance(record, dict):
            raise fault_at(path, None, place, _no_object(record))
        yield None, record


def _of_lines(path: Path, lines: Iterable[str], first_line: int) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=first_line):
        if line.strip():
            record = _parsed(path, line.removesuffix("\n"), number)
            if not isinstance(record, dict):
                raise DataError(_no_object(record), path=path, line=number)
            yield number, record


def _rows(path: Path, wanted: Sequence[str], lines: Iterable[str], first_line: int) -> Iterator[Line]:
    for number, record in _of_lines(path, lines, first_line):
        yield number, [_field(path, record, name, number) for name in wanted]


def _field(path: Path, record: dict[str, Any], name: str, line: int) -> str:
    try:
        return field_of(_value(path, record, name, line, 0), any_value=False)
    except ValueError as error:
        raise DataError(f"column {name!r} {error}", path=path, line=line) from error


def _value(path: Path, record: dict[str, Any], name: str, line: int | None, place: int) -> Any:
    if name not in record:
        raise fault_at(path, line, place, f"has {missing_column(name, record, 'key')}")
    return record[name]


def _no_object(record: object) -> str:
    return f"is not a JSON object but {type(record).__name__}; {_LAYOUT}"


def _begins_array(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(2**16).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    except OSError:  # reported when the whole file is read
        return False


def _check_layout(path: Path) -> None:
    """Raise if the whole file is one object that is not a row."""
    with Lines(Content(path), newline="\n") as lines:
        filled = (line for line in lines if line.strip())
        first, second = next(filled, ""), next(filled, "")
        whole = _plain(first)
        if second:
            # If the first line is a value by itself, the whole file is none. Of a large file, the beginning is enough.
            whole = None if whole is not None else _plain("".join([first, second, *_beginning(filled)]))
    parts = list(whole.values()) if isinstance(whole, dict) else []
    if not parts or (not second and not all(isinstance(part, dict | list) for part in parts)):
        return
    what = f"is one JSON object (keys: {listed(list(whole))})"
    arrays = [name for name, part in whole.items() if isinstance(part, list) and part and isinstance(part[0], dict)]
    if arrays:
        raise DataError(f"{what} with an array of objects in {arrays[0][:80]!r}; write that array alone", path=path)
    if all(isinstance(part, dict | list) for part in parts):
        advice = "with pandas: to_json(…, orient='records', lines=True)"
        raise DataError(f"{what}, each key with a whole column; {_LAYOUT} ({advice})", path=path)
    raise DataError(f"{what} over several lines; {_LAYOUT}", path=path)


def _beginning(lines: Iterable[str]) -> Iterator[str]:
    """The first few million characters."""
    n_characters = 0
    for line in lines:
        n_characters += len(line)
        if n_characters > KEPT:
            return
        yield line


def _plain(text: str) -> Any:
    """The value that the text writes; None if it writes none, or null."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _parsed(path: Path, text: str, line: int | None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        place = f"{error.msg} at column {error.colno}"
        raise DataError(f"is not JSON ({place}); {_LAYOUT}", path=path, line=line or error.lineno) from error
    except (ValueError, RecursionError) as error:  # numbers with thousands of digits, repeated keys, deep nesting
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)[:200]
        raise DataError(f"is not readable JSON ({reason}); {_LAYOUT}", path=path, line=line) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the key {twice[:80]!r} occurs more than once")
    return record
