"""Parquet, and Arrow tables in general: those of `datasets` are read the same way.

pyarrow is imported inside: it costs a command that reads text files time it does not need.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from frostline.errors import DataError, one_line
from frostline.tasks.formats.columns import Table, check_header, missing_column
from frostline.tasks.formats.values import typed_table


def read_header(path: Path) -> tuple[str, ...]:
    """The names of the columns."""
    with _opened(path) as file:
        names = tuple(str(name) for name in file.schema_arrow.names)
    check_header(names, path)
    return names


def read(path: Path, wanted: Sequence[str], *, any_value: bool = False) -> Table:
    """The wanted columns of the file."""
    header = read_header(path)
    for name in wanted:
        if name not in header:
            raise DataError(f"has {missing_column(name, header)}", path=path)
    with _opened(path) as file:
        return from_arrow(path, file.read(columns=list(wanted)).select(list(wanted)), any_value=any_value)


def from_arrow(path: Path, table: Any, *, any_value: bool = False) -> Table:
    """The table's columns as fields; where `datasets` declared a column's classes, by their names."""
    columns = {str(name): _values(table.column(name)) for name in table.column_names}
    return typed_table(path, columns, classes=_declared_classes(table.schema.metadata), any_value=any_value)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        message = f"is not Parquet that can be read; was it written or copied to the end? ({one_line(error)})"
        raise DataError(message, path=path) from error


def _values(column: Any) -> list[object]:
    import pyarrow

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    # A moment may lie outside what Python's dates hold.
    elif pyarrow.types.is_temporal(kind):
        column = column.cast(pyarrow.string())
    values: list[object] = column.to_pylist()
    return values


def _declared_classes(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """The class names of columns of the type ClassLabel, as `datasets` writes them into a schema."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {
            name: tuple(str(one).strip() for one in feature["names"])
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
        }
    except (KeyError, TypeError, AttributeError, ValueError):  # of another writer, or of none
        return {}
