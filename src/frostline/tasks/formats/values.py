"""Typed values from JSON, Parquet or memory, converted to the text that a CSV file would hold.

So labels and texts mean the same in every format: a missing value is empty, true is `true`, 1.0 is `1`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np

from frostline.errors import DataError
from frostline.kinds.labels import unsupported
from frostline.tasks.formats.columns import FileColumns, fault_at
from frostline.tasks.formats.text import MOST_CHARACTERS, too_long

_UNLABELLED = -1
"""What `datasets` writes for an unknown class, as in GLUE's test splits."""


def typed_table(
    path: Path,
    columns: Mapping[str, Sequence[object]],
    *,
    lines: list[int] | None = None,
    classes: Mapping[str, tuple[str, ...]] | None = None,
    any_value: bool = False,
) -> FileColumns:
    """The columns as text; a DataError if there are no rows, or a value can be neither a text nor a label.

    Args:
        path: what messages call the file.
        columns: the values by column.
        lines: the line of each row, if the format has lines.
        classes: class names of the columns that hold class numbers.
        any_value: allow lists and objects, as JSON text.
    """
    n_rows = len(next(iter(columns.values()), ()))
    if not n_rows:
        raise DataError("has no rows", path=path)
    named = {name: names for name, names in (classes or {}).items() if name in columns}
    fields: dict[str, list[str]] = {name: [] for name in columns}
    for name, values in columns.items():
        for place, value in enumerate(values):
            try:
                fields[name].append(
                    _class_name(value, named[name], any_value) if name in named else field_of(value, any_value)
                )
            except ValueError as error:
                line = None if lines is None else lines[place]
                raise fault_at(path, line, place, f"column {name!r} {error}") from error
    return FileColumns(path=path, numbers=np.arange(n_rows), lines=lines, columns=fields, classes=named)


def _class_name(value: object, names: Sequence[str], any_value: bool) -> str:
    if value is None or (any_value and value == _UNLABELLED):
        return ""
    if value == _UNLABELLED:
        raise ValueError("is -1, which means unlabelled; leave such rows out")
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise ValueError(f"is {value!r:.80}; it declares the classes 0 to {len(names) - 1}")
    return names[value]


def field_of(value: object, any_value: bool) -> str:
    """The text of a value; a ValueError if it can be neither a text nor a label, unless `any_value`."""
    match value:
        case None:
            return ""
        case str():
            return repaired(value) if any_value else _checked(value)
        case bool():
            return "true" if value else "false"
        case float():
            is_plain = value.is_integer() and abs(value) < 2**53
            return "" if math.isnan(value) else str(int(value)) if is_plain else repr(value)
        case int() | Decimal():
            return str(value)
    if any_value:
        return repaired(json.dumps(value, ensure_ascii=False, default=str))
    raise ValueError(unsupported(_type_of(value)))


def repaired(text: str) -> str:
    """The text with U+FFFD in place of halves of surrogate pairs, which cannot be written to a file."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _type_of(value: object) -> str:
    kinds = (("a list", list | tuple), ("an object", Mapping), ("bytes", bytes))
    return next((name for name, kind in kinds if isinstance(value, kind)), f"a {type(value).__name__}")


def _checked(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"holds a text that is too long: {too_long('it')}")
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        broken = text[error.start]
        raise ValueError(
            f"holds {broken!r}, half of a surrogate pair, which is not a character; correct the text"
        ) from error
    return text
