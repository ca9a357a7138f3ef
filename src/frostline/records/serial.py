"""A record: frozen plain data with a string under each field, and how it is written as JSON and read again.

`field_docs` reads those strings, so that the command line's help and the docs have no second copy of them.

Stored files outlive the code, so a record may change in three ways without orphaning them:
- a field is renamed in Python: `json_name` keeps its name in JSON;
- a field is added: `added_later` reads it as its default where a file has not got it, and leaves it out of keys while
  it has that default;
- a field is removed: its name goes into the class's `_removed`, and is ignored when an old file is read.

Knows no particular record.
"""

from __future__ import annotations

import ast
import base64
import dataclasses
import functools
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError
from frostline.records.depth import FULL


def not_in_key() -> Any:
    """A field that says where something is found, not what it is: it does not change a result."""
    return field(metadata={"in_key": False})


def hint(default: Any) -> Any:
    """A field that older files do not have and that says how to compute a result faster, not what it is."""
    return field(default=default, metadata={"is_later": True, "in_key": False})


def added_later(default: Any) -> Any:
    """A field that older files do not have: it is read as the default, and is not in a key while it has the default."""
    return field(default=default, metadata={"is_later": True})


def json_name(name: str, *, default: Any = dataclasses.MISSING) -> Any:
    """A field that has another name in JSON: the one it had when the first files were written."""
    return field(default=default, metadata={"json_name": name})


def not_stored(default: Any) -> Any:
    """A field that lives in memory only: it is neither written as JSON nor part of a key."""
    return field(default=default, repr=False, metadata={"is_stored": False})


@dataclass(frozen=True, kw_only=True)
class Record:
    """Base of all records."""

    _removed: ClassVar[frozenset[str]] = frozenset()
    """names of fields that older files have and that nobody reads any more"""

    def to_json(self) -> dict[str, Any]:
        """The record as JSON data: nested records become objects, tuples become lists."""
        return {_json_name(f): _to_json(getattr(self, f.name)) for f in _stored_fields(self)}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The record a JSON object describes; a DataError where fields are missing, unknown or of another type."""
        record: Self = _from_json(cls, value, cls.__name__)
        return record

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class StoredArray(Record):
    """A numeric array as compact text: little-endian bytes in base64."""

    dtype: str
    """numpy's name of the element type, e.g. `<f4`"""
    shape: tuple[int, ...]
    """its shape"""
    base64: str
    """its bytes, row by row"""

    @classmethod
    def of(cls, array: NDArray[Any]) -> StoredArray:
        """The array, ready for JSON."""
        flat = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        return cls(dtype=flat.dtype.str, shape=flat.shape, base64=base64.b64encode(flat.tobytes()).decode())

    def array(self) -> NDArray[Any]:
        """The array again, to the bit."""
        return np.frombuffer(base64.b64decode(self.base64), dtype=self.dtype).reshape(self.shape)


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


@functools.cache
def _hints(record: Any) -> dict[str, Any]:
    return typing.get_type_hints(record)


def _from_json(kind: Any, value: object, place: str) -> Any:
    if type(value) is kind and kind in _PLAIN:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Record):
        return _record_from_json(kind, value, place)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return FULL if Literal[FULL] in arguments else None
        inner = [argument for argument in arguments if argument is not type(None)]
        return _from_json(inner[0], value, place)
    if origin is Literal:
        return _checked(value in arguments, value, f"one of {arguments}", place)
    if origin is tuple:
        _checked(isinstance(value, list | tuple), value, "a list", place)
        return tuple(_from_json(arguments[0], item, f"{place}[]") for item in typing.cast(list[object], value))
    if origin is dict:
        _checked(isinstance(value, dict), value, "an object", place)
        pairs = typing.cast(dict[str, object], value).items()
        return {name: _from_json(arguments[1], item, f"{place}.{name}") for name, item in pairs}
    if kind is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(_checked(is_number, value, "a number", place))
    is_right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    return _checked(is_right, value, kind.__name__, place)


def _record_from_json(kind: type[Record], value: object, place: str) -> Record:
    _checked(isinstance(value, dict), value, "an object", place)
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


def _checked(is_right: bool, value: object, wanted: str, place: str) -> Any:
    if not is_right:
        raise DataError(f"{place} is {value!r:.80}; it should be {wanted}")
    return value
