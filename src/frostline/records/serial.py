"""A record: frozen plain data with a string under each field, and how it is written as JSON and read again.

`read_json` and `parse_json` read JSON that anyone may have written: whatever is wrong with it ends in one DataError.

`field_docs` reads those strings, so that the command line's help and the docs have no second copy of them.

Stored files outlive the code, so a record may change in three ways without orphaning them:
- a field is renamed in Python: `json_name` keeps its name in JSON;
- a field is added: `added_later` reads it as its default where a file has not got it, and leaves it out of keys while
  it has that default; `if_set` leaves it out of JSON too;
- a field is removed: its name goes into the class's `_removed`, and is ignored when an old file is read.

Knows no particular record.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import reprlib
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from frostline.errors import DataError
from frostline.records.depth import FULL

_MAX_DEPTH = 100
"""Deeper JSON is refused: printing it or writing it again would end in a RecursionError."""
MAX_JSON_BYTES = 64 * 2**20
"""The largest JSON file that is read, where the caller names no other limit."""


def not_in_key() -> Any:
    """A field that says where something is found, not what it is: it does not change a result."""
    return field(metadata={"in_key": False})


def hint(default: Any, *, is_quiet: bool = False) -> Any:
    """A field that older files do not have and that says how to find or compute a result, not what it is.

    With `is_quiet`, JSON has it only where it is not the default.
    """
    return field(default=default, metadata={"is_later": True, "in_key": False, "is_quiet": is_quiet})


def added_later(default: Any) -> Any:
    """A field that older files do not have: it is read as the default, and is not in a key while it has the default."""
    return field(default=default, metadata={"is_later": True})


def if_set(default: Any) -> Any:
    """A field that older files do not have, and that JSON has only where it is not the default."""
    return field(default=default, metadata={"is_later": True, "is_quiet": True})


def json_name(name: str, *, default: Any = dataclasses.MISSING) -> Any:
    """A field that has another name in JSON: the one it had when the first files were written."""
    return field(default=default, metadata={"json_name": name})


def not_stored(default: Any, *, is_compared: bool = True) -> Any:
    """A field that lives in memory only: it is neither written as JSON nor part of a key."""
    return field(default=default, repr=False, compare=is_compared, metadata={"is_stored": False})


RecordT = TypeVar("RecordT", bound="Record")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Base of all records."""

    _removed: ClassVar[frozenset[str]] = frozenset()
    """names of fields that older files have and that nobody reads any more"""

    def to_json(self) -> dict[str, Any]:
        """The record as JSON data: nested records become objects, tuples become lists."""
        values = ((f, getattr(self, f.name)) for f in _stored_fields(self))
        return {
            _json_name(f): _to_json(value)
            for f, value in values
            if not (f.metadata.get("is_quiet") and value == f.default)
        }

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The record a JSON object describes; a DataError where fields are missing, unknown or of another type."""
        record: Self = _from_json(cls, value, cls.__name__)
        return record

    @classmethod
    def _from_json_at(cls, value: object, place: str) -> Record:
        """The record that a part of a JSON object describes; `place` is where it is found."""
        return _record_from_json(cls, value, place)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """The value in a JSON file; a DataError with its path if it cannot be read, or is too large."""
    try:
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from error
    if len(content) > max_bytes:
        raise DataError(f"larger than {max_bytes:,} bytes, the most that is read here", path=path)
    return parse_json(content, path)


def read_record(kind: type[RecordT], path: Path) -> RecordT:
    """The record in a JSON file that has no checksum; a DataError with its path if there is none."""
    content = read_json(path)
    try:
        json.dumps(content, allow_nan=False)  # JSON has no infinity, but Python reads 1e999 as one
    except ValueError as error:
        raise DataError("it holds a number that is not finite", path=path) from error
    return kind.from_json(content)


def parse_json(text: str | bytes, path: Path | None = None) -> Any:
    """The value that a JSON text holds; a DataError, with the path of its file, if it holds none that can be used."""
    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} at column {error.colno}", path=path, line=error.lineno) from error
    except UnicodeDecodeError as error:
        raise DataError(f"not JSON: not UTF-8 at byte {error.start}", path=path) from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; too many brackets
        what = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise DataError(f"not readable JSON: {what}", path=path) from error
    check_depth(value, path)
    if "\\ud" in text or "\\uD" in text:
        _check_characters(value, path)
    return value


def check_depth(value: object, path: Path | None) -> None:
    """Raises a DataError if a value of dicts, lists and tuples is nested too deeply to be printed."""
    level: list[Any] = [value] if isinstance(value, dict | list | tuple) else []
    for _ in range(_MAX_DEPTH):
        inside = (item for node in level for item in (node.values() if isinstance(node, dict) else node))
        level = [item for item in inside if isinstance(item, dict | list | tuple)]
    if level:
        raise DataError(f"nested more than {_MAX_DEPTH} levels deep", path=path)


def _check_characters(value: object, path: Path | None) -> None:
    r"""Half a surrogate pair (`\ud800`) is a character for JSON, but no file and no terminal can hold it."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"it holds half a character: {error.object[error.start]!r}", path=path) from error


def key_fields(record: Record) -> dict[str, Any]:
    """The record's JSON with only what identifies a result: no places, no later fields at their defaults."""
    return _identifying(record, lambda f: bool(f.metadata.get("in_key", True)))


def request_fields(record: Record) -> dict[str, Any]:
    """The record's JSON with all that a user asked for; only later fields at their defaults are left out."""
    return _identifying(record, lambda _: True)


def _identifying(record: Record, is_kept: Callable[[dataclasses.Field[Any]], bool]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for f in _stored_fields(record):
        value = getattr(record, f.name)
        if not is_kept(f) or (f.metadata.get("is_later") and value == f.default):
            continue
        kept[_json_name(f)] = _identifying(value, is_kept) if isinstance(value, Record) else _to_json(value)
    return kept


def _stored_fields(record: Record | type[Record]) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(record) if f.metadata.get("is_stored", True)]


def _json_name(f: dataclasses.Field[Any]) -> str:
    return str(f.metadata.get("json_name", f.name))


@functools.cache
def field_docs(record: type) -> Mapping[str, str]:
    """The string under each field of a record class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(record)))
    docs: dict[str, str] = {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    for above, below in itertools.pairwise(body):
        match above, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = text
    return types.MappingProxyType(docs)


def value_from_json(kind: Any, value: object, place: str) -> Any:
    """A JSON value as one of this type; a DataError that names the place where it is of another."""
    return _from_json(kind, value, place)


def _to_json(value: object) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if value is FULL:
        return None
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _to_json(item) for name, item in value.items()}
    return value


_PLAIN = (str, int, float, bool)
_LARGEST = sys.float_info.max
_SHORT = reprlib.Repr()
"""shows any value in few characters, however large or deeply nested it is"""
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 20


@functools.cache
def _hints(record: Any) -> dict[str, Any]:
    return typing.get_type_hints(record)


def _from_json(kind: Any, value: object, place: str) -> Any:
    if type(value) is kind and kind in _PLAIN:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind._from_json_at(value, place)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return FULL if Literal[FULL] in arguments else None
        inner = [argument for argument in arguments if argument is not type(None)]
        return _from_json(inner[0], value, place)
    if origin is Literal:
        return checked(value in arguments, value, f"one of {arguments}", place)
    if origin is tuple:
        checked(isinstance(value, list | tuple), value, "a list", place)
        return tuple(_from_json(arguments[0], item, f"{place}[]") for item in typing.cast(list[object], value))
    if origin is dict:
        checked(isinstance(value, dict), value, "an object", place)
        pairs = typing.cast(dict[str, object], value).items()
        return {name: _from_json(arguments[1], item, f"{place}.{name}") for name, item in pairs}
    if kind is float:
        is_number = isinstance(value, float) or (isinstance(value, int) and abs(value) <= _LARGEST)
        is_number &= not isinstance(value, bool)
        return float(checked(is_number, value, "a number", place))
    is_right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    return checked(is_right, value, kind.__name__, place)


def _record_from_json(kind: type[Record], value: object, place: str) -> Record:
    checked(isinstance(value, dict), value, "an object", place)
    given = typing.cast(dict[str, object], value)
    fields = {_json_name(f): f for f in _stored_fields(kind)}
    missing = [name for name, f in fields.items() if name not in given and not f.metadata.get("is_later")]
    unknown = set(given) - fields.keys() - kind._removed
    if missing or unknown:
        raise DataError(f"{place}: missing fields {sorted(missing)}, unknown {sorted(unknown)}")
    hints = _hints(typing.cast(Any, kind))
    read = {
        f.name: _from_json(hints[f.name], given[name], f"{place}.{name}") for name, f in fields.items() if name in given
    }
    return kind(**read)


def checked(is_right: object, value: object, wanted: str, place: str) -> Any:
    """The value, if it is right; otherwise a DataError that names the place in the file."""
    if not is_right:
        raise DataError(f"{place} is {_SHORT.repr(value):.80}; it should be {wanted}")
    return value
