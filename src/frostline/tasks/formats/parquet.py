"""Parquet files, and Arrow tables in general: `datasets` uses them too.

pyarrow is imported inside functions, so that commands that read text files do not wait for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from frostline.errors import DataError, one_line
from frostline.tasks.content import Content, ContentStream
from frostline.tasks.formats.columns import FileColumns, check_header, places_of
from frostline.tasks.formats.values import typed_table


def read_header(path: Path, *, shown_as: Path | None = None) -> tuple[str, ...]:
    """The names of the columns; messages call the file `shown_as`, or by its path."""
    with _opened(path, path) as file:
        return _names(file, shown_as or path)


def read(path: Path, wanted: Sequence[str], *, any_value: bool = False, shown_as: Path | None = None) -> FileColumns:
    """The wanted columns of the file; messages call it `shown_as`, or by its path."""
    shown = shown_as or path
    content = Content(path)
    for _ in content.first_read():
        pass
    with _opened(ContentStream(content), path) as file:
        places_of(wanted, _names(file, shown), shown)
        table = file.read(columns=list(wanted)).select(list(wanted))
        return dataclasses.replace(from_arrow(shown, table, any_value=any_value), sha256=content.sha256)


def from_arrow(path: Path, table: Any, *, any_value: bool = False) -> FileColumns:
    """The table's columns as fields; classes that `datasets` declares for a column appear by their names."""
    columns = {str(name): _values(table.column(name)) for name in table.column_names}
    return typed_table(path, columns, classes=_declared_classes(table.schema.metadata), any_value=any_value)


def _names(file: Any, path: Path) -> tuple[str, ...]:
    names = tuple(str(name) for name in file.schema_arrow.names)
    check_header(names, path)
    return names


@contextlib.contextmanager
def _opened(source: Path | ContentStream, path: Path) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(source) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        message = f"is not a readable Parquet file; was it written or copied completely? ({one_line(error)})"
        raise DataError(message, path=path) from error


def _values(column: Any) -> list[object]:
    import pyarrow

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    # Arrow knows times that Python's dates cannot hold.
    elif pyarrow.types.is_temporal(kind):
        column = column.cast(pyarrow.string())
    values: list[object] = column.to_pylist()
    return values


def _declared_classes(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """The class names of columns of type ClassLabel, as `datasets` writes them into a schema."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {
            name: tuple(str(one).strip() for one in feature["names"])
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
        }
    except (KeyError, TypeError, AttributeError, ValueError):  # written by another program, or without metadata
        return {}
