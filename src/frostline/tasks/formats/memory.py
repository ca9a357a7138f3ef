"""Data that a Python program holds, kept as files: worker processes read by name, and nothing is pickled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frostline.errors import UsageError, one_line
from frostline.storage import atomic
from frostline.tasks.formats.columns import listed

_ALLOWED = "a pandas DataFrame, a datasets.Dataset, a DatasetDict, or a dict of train and dev"
_ROWS = 10_000
"""Rows hashed at a time: memory for no more than these is taken beside the data."""


def write_rows(data: object, folder: Path, name: str) -> Path:
    """The folder `<digest>/<name>`, below this one, with `train.parquet`, `dev.parquet`, …; made unless it is there.

    The digest is of the content, so that the same data is found again and other data never takes its place; the name
    is what a task of that folder is called.
    """
    from pyarrow import parquet

    _check_file_name("name", name)
    tables = {split: _arrow(part, split) for split, part in _splits(data).items()}
    kept = folder / _digest(tables) / name
    if not kept.is_dir():
        with atomic.new_folder(kept) as unfinished:
            for split, table in tables.items():
                parquet.write_table(table, unfinished / f"{split}.parquet")
    return kept


def _splits(data: object) -> dict[str, object]:
    """The parts by name, in an order that is theirs."""
    if not isinstance(data, Mapping):
        return {"train": data}
    if "train" not in data:
        raise UsageError(f"the data has no split 'train'; its splits: {listed([str(name) for name in data])}")
    splits = {_check_file_name("split", str(name)): part for name, part in data.items()}
    return dict(sorted(splits.items()))


def _check_file_name(what: str, name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise UsageError(f"the {what} {name!r:.80} cannot be that of a file; give a plain word")
    return name


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
        raise UsageError(f"the {name} rows cannot be kept as a table: {one_line(error)}") from error
    raise UsageError(f"the data ({name}) is a {type(part).__module__}.{type(part).__qualname__}; give {_ALLOWED}")


def _digest(tables: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for split, table in tables.items():
        metadata = (table.schema.metadata or {}).get(b"huggingface", b"")
        digest.update(repr((split, table.num_rows, metadata)).encode())
        for name in table.column_names:
            column = table.column(name)
            digest.update(repr((name, str(column.type))).encode())
            try:
                for start in range(0, len(column), _ROWS):
                    digest.update(repr(column.slice(start, _ROWS).to_pylist()).encode("utf-8", "surrogatepass"))
            except UnicodeDecodeError as error:  # only the values show whether they are sound
                message = f"the {split} rows cannot be kept: the column {name!r:.80} holds text that is not UTF-8"
                raise UsageError(f"{message}; decode it as what it is") from error
    return digest.hexdigest()
