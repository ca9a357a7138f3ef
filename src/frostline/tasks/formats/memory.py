"""Data that a Python program holds, written to files: worker processes find it by name, and nothing is pickled.

The files are an internal matter. Messages about such data say "the data (train)", never the name of a file that the
user has not made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from frostline.errors import UsageError, listed, one_line
from frostline.records.keys import fingerprint_of_files
from frostline.storage import atomic
from frostline.tasks.formats import parquet
from frostline.tasks.formats.sources import Part

_ALLOWED = "a pandas DataFrame, a datasets.Dataset, a DatasetDict, or a dict of train and dev"
_ROWS = 10_000
"""rows hashed at a time: only these are converted to Python objects at once"""
MARK = ".written-by-frostline"
"""a file that tells a folder written here from a user's own folder; it holds the fingerprint of the others"""


def write_rows(data: object, folder: Path, name: str) -> Path:
    """The folder `<digest>/<name>` below `folder`, with `train.parquet`, `dev.parquet`, …; written if it is new.

    The digest is computed from the content, so the same data is found again and other data gets another folder. The
    last part is the name of the task.
    """
    from pyarrow import parquet as arrow_parquet

    _check_file_name("name", name)
    tables = {split: _arrow(part, split) for split, part in _splits(data).items()}
    kept = folder / _digest(tables) / name
    if kept.is_dir() and not _is_whole(kept):
        atomic.remove_folder(kept)
    if not kept.is_dir():
        with atomic.new_folder(kept, mode=0o700) as unfinished:  # a copy of the user's data, for the user alone
            for split, table in tables.items():
                arrow_parquet.write_table(table, unfinished / f"{split}.parquet")
                (unfinished / f"{split}.parquet").chmod(0o600)
            (unfinished / MARK).touch(mode=0o600)
            (unfinished / MARK).write_text(_fingerprint(unfinished), encoding="utf-8")
    return kept


def is_written(folder: Path) -> bool:
    """Whether `write_rows` wrote the folder."""
    return (folder / MARK).is_file()


def _is_whole(folder: Path) -> bool:
    """Whether the files of a folder are those that were written; release 0.1 wrote no fingerprint to compare with."""
    return is_written(folder) and (folder / MARK).read_bytes() in (b"", _fingerprint(folder).encode())


def _fingerprint(folder: Path) -> str:
    return fingerprint_of_files((path.name, path) for path in sorted(folder.glob("*.parquet")))


def open_rows(folder: Path) -> dict[str, Part]:
    """The splits that `write_rows` wrote."""
    return {path.stem: _part(path) for path in sorted(folder.glob("*.parquet"))}


def _part(path: Path) -> Part:
    shown = Path(f"the data ({path.stem})")
    return Part(
        path=shown,
        read_header=partial(parquet.read_header, path, shown_as=shown),
        read=partial(parquet.read, path, shown_as=shown),
    )


def _splits(data: object) -> dict[str, object]:
    """The parts by name, sorted by name."""
    if not isinstance(data, Mapping):
        return {"train": data}
    if "train" not in data:
        raise UsageError(f"the data has no split 'train'; its splits: {listed([str(name) for name in data])}")
    splits = {_check_file_name("split", str(name)): part for name, part in data.items()}
    return dict(sorted(splits.items()))


def _check_file_name(what: str, name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise UsageError(f"the {what} {name!r:.80} cannot be the name of a file; give a plain word")
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
            except UnicodeDecodeError as error:  # broken values show only when they are read
                message = f"the {split} rows cannot be kept: the column {name!r:.80} holds text that is not UTF-8"
                raise UsageError(f"{message}; decode it with its real encoding") from error
    return digest.hexdigest()
