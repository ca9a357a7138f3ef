"""Data that a Python program holds, kept as files: worker processes read by name, and nothing is pickled."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frostline.errors import UsageError
from frostline.tasks.find import TEST, dev_splits
from frostline.tasks.table import listed
from frostline.tasks.text import reason

_ALLOWED = "a pandas DataFrame, a datasets.Dataset, a DatasetDict, or a dict of train and dev"
_ROWS = 10_000
"""Rows hashed at a time: memory for no more than these is taken beside the data."""


def keep(data: object, folder: Path) -> Path:
    """The folder, below this one, that holds the data as `train.parquet`, `dev.parquet`, …; made unless it is there.

    It is named by its content, so that the same data is found again and other data never takes its place.
    """
    tables = {name: _arrow(part, name) for name, part in _splits(data).items()}
    kept = folder / _digest(tables)
    if not kept.is_dir():
        _write(tables, kept)
    return kept


def _splits(data: object) -> dict[str, object]:
    """The parts that are used, by name: train, and dev or, where there is none, test."""
    if not isinstance(data, Mapping):
        return {"train": data}
    if "train" not in data:
        raise UsageError(f"the data has no split 'train'; its splits: {listed([str(name) for name in data])}")
    others = dev_splits(data) or [name for name in (TEST,) if name in data]
    return {name: data[name] for name in ("train", *others)}


def _arrow(part: object, name: str) -> Any:
    import datasets
    import pandas
    import pyarrow

    try:
        if isinstance(part, pandas.DataFrame):
            table = pyarrow.Table.from_pandas(part, preserve_index=False)
            return table.replace_schema_metadata(None)
        if isinstance(part, datasets.Dataset):
            table = part.with_format("arrow")[:]
            return table.replace_schema_metadata(part.features.arrow_schema.metadata)
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        raise UsageError(f"the {name} rows cannot be kept as a table: {reason(error)}") from error
    raise UsageError(f"the data ({name}) is a {type(part).__module__}.{type(part).__qualname__}; give {_ALLOWED}")


def _digest(tables: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for split, table in tables.items():
        metadata = (table.schema.metadata or {}).get(b"huggingface", b"")
        digest.update(repr((split, table.num_rows, metadata)).encode())
        for name in table.column_names:
            column = table.column(name)
            digest.update(repr((name, str(column.type))).encode())
            for start in range(0, len(column), _ROWS):
                digest.update(repr(column.slice(start, _ROWS).to_pylist()).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _write(tables: Mapping[str, Any], kept: Path) -> None:
    """Writes the files; the folder appears when it is whole."""
    from pyarrow import parquet

    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=kept.parent) as name:
        unfinished = Path(name) / kept.name
        unfinished.mkdir()
        for split, table in tables.items():
            parquet.write_table(table, unfinished / f"{split}.parquet")
        if not kept.is_dir():  # another process may have been first
            unfinished.rename(kept)
