"""JSON: one object per line, or one array of objects. The content decides, not the file name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from frostline.errors import DataError, listed
from frostline.tasks.formats.columns import FileColumns, fault_at, missing_column
from frostline.tasks.formats.text import read_utf8
from frostline.tasks.formats.values import repaired, typed_table

Records = Iterator[tuple[int | None, dict[str, Any]]]
"""Each object with its line; objects in an array have no line."""

_LAYOUT = "write one object per line, or one array of objects"


def read_header(path: Path) -> tuple[str, ...]:
    """The keys of the first object."""
    return tuple(next(_records(path))[1])


def read(path: Path, wanted: Sequence[str], *, any_value: bool = False) -> FileColumns:
    """The wanted keys of all objects; a DataError with the line if an object lacks one."""
    lines: list[int] = []
    columns: dict[str, list[object]] = {name: [] for name in wanted}
    for place, (line, record) in enumerate(_records(path)):
        if line is not None:
            lines.append(line)
        for name, values in columns.items():
            if name not in record:
                raise fault_at(path, lines or None, place, f"has {missing_column(name, record, 'key')}")
            values.append(record[name])
    return typed_table(path, columns, lines=lines or None, any_value=any_value)


def read_objects(path: Path) -> list[dict[str, Any]]:
    """All objects in a form that can be written as JSON again: without NaN and halves of surrogate pairs."""
    return [
        json.loads(repaired(json.dumps(record, ensure_ascii=False)), parse_constant=lambda _: None)
        for _, record in _records(path)
    ]


def _records(path: Path) -> Records:
    is_array = _begins_array(path)
    text = read_utf8(path, lines_are_short=not is_array)
    if not is_array:
        _check_layout(path, text)
    records = _of_array(path, text) if is_array else _of_lines(path, text)
    n_rows = 0
    for line, record in records:
        n_rows += 1
        if not isinstance(record, dict):
            what = f"is not a JSON object but {type(record).__name__}; {_LAYOUT}"
            raise DataError(what if line else f"row {n_rows}: {what}", path=path, line=line)
        yield line, record
    if not n_rows:
        raise DataError("has no rows", path=path)


def _begins_array(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(2**16).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    except OSError:  # reported when the whole file is read
        return False


def _check_layout(path: Path, text: str) -> None:
    """Raise if the whole file is one object that is not a row."""
    try:
        whole = json.loads(text)  # raises "extra data" for a file with one object per line
    except (ValueError, RecursionError):
        return
    parts = list(whole.values()) if isinstance(whole, dict) else []
    if not parts or ("\n" not in text.strip() and not all(isinstance(part, dict | list) for part in parts)):
        return
    what = f"is one JSON object (keys: {listed(list(whole))})"
    arrays = [name for name, part in whole.items() if isinstance(part, list) and part and isinstance(part[0], dict)]
    if arrays:
        raise DataError(f"{what} with an array of objects in {arrays[0][:80]!r}; write that array alone", path=path)
    if all(isinstance(part, dict | list) for part in parts):
        advice = "with pandas: to_json(…, orient='records', lines=True)"
        raise DataError(f"{what}, each key with a whole column; {_LAYOUT} ({advice})", path=path)
    raise DataError(f"{what} over several lines; {_LAYOUT}", path=path)


def _of_lines(path: Path, text: str) -> Iterator[tuple[int | None, Any]]:
    # Not str.splitlines: it would also split at U+0085 and U+2028, which occur inside texts.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _parsed(path, line, number)


def _of_array(path: Path, text: str) -> Iterator[tuple[int | None, Any]]:
    for record in _parsed(path, text, None):
        yield None, record


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
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:80]!r} occurs more than once")
    return record
