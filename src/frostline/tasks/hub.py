"""Data sets of the `datasets` library: from the Hub, from a folder laid out like one there, or saved to disk.

The library is imported inside, and kept quiet.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from frostline.errors import DataError, UsageError
from frostline.tasks.files import SUFFIXES
from frostline.tasks.parquet import from_arrow
from frostline.tasks.source import Part
from frostline.tasks.table import Table
from frostline.tasks.text import reason

NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(:(?P<config>[\w.-]+))?", re.ASCII)
"""A data set on the Hub: `owner/name`, or one configuration of it: `owner/name:config`."""


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` made the folder."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def is_laid_out(folder: Path) -> bool:
    """Whether the folder looks like a data set of the Hub: it has training files, in it or one folder below."""
    patterns = ("train*", "*/train*", "train/*")
    return any(path.suffix.lower() in SUFFIXES for pattern in patterns for path in folder.glob(pattern))


def open_saved(folder: Path) -> dict[str, Part]:
    """The splits that `save_to_disk` wrote; a data set without splits is all `train`."""
    import datasets

    try:
        with _quiet():
            found = datasets.load_from_disk(str(folder))
    except _errors() as error:
        raise DataError(f"is no data set that can be read ({_reason(error)}); save it again", path=folder) from error
    return _parts(str(folder), found if isinstance(found, dict) else {"train": found})


def open_folder(folder: Path, config: str | None) -> dict[str, Part]:
    """The splits of a folder laid out as on the Hub."""
    import datasets

    try:
        with _quiet():
            found = datasets.load_dataset(str(folder), config)
    except _errors() as error:
        raise DataError(f"is no data set that can be read ({_reason(error)})", path=folder) from error
    return _parts(str(folder), found)


def open_named(name: str, config: str | None, way_out: str) -> dict[str, Part]:
    """The splits of a data set on the Hub; without a network and a copy of it, a UsageError that names the way out."""
    import datasets

    asked = f"{name}:{config}" if config else name
    try:
        with _quiet():
            found = datasets.load_dataset(name, config)
    except _errors() as error:
        raise UsageError(f"the Hub data set {asked} could not be read ({_reason(error)}); {way_out}") from error
    return _parts(asked, found)


def _parts(source: str, splits: Any) -> dict[str, Part]:
    return {
        str(name): Part(
            path=Path(f"{source} ({name})"),
            read_header=functools.partial(tuple, split.column_names),
            read=functools.partial(_read, Path(f"{source} ({name})"), split),
            is_file=False,
        )
        for name, split in splits.items()
    }


def _read(path: Path, split: Any, wanted: Sequence[str]) -> Table:
    import pyarrow

    try:
        with _quiet():
            chosen = split.select_columns(list(wanted))
            table = chosen.with_format("arrow")[:]
            table = table.replace_schema_metadata(chosen.features.arrow_schema.metadata)
    except _errors() as error:
        raise DataError(f"cannot be read ({_reason(error)})", path=path) from error
    try:
        return from_arrow(path, table)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # only the values show whether they are sound
        raise DataError(f"cannot be read ({_reason(error)})", path=path) from error


def _errors() -> tuple[type[Exception], ...]:
    """What the library and those it stands on raise about a data set."""
    import pyarrow
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    # Its bases are the error of the HTTP client, which changes from version to version, and OSError.
    of_the_network = HfHubHTTPError.__bases__
    of_damaged_files = (pyarrow.ArrowException, ValueError, RuntimeError, KeyError, TypeError, AttributeError)
    return (DatasetsError, *of_the_network, *of_damaged_files)


def _reason(error: Exception) -> str:
    # That the data set could not be generated says nothing; what it was raised from does.
    said = reason(error.__cause__ if error.__cause__ is not None and "generating" in str(error) else error)
    return f"{said}; a configuration is given as owner/name:config" if "Config name" in said else said


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no log lines while this lasts."""
    import datasets
    import huggingface_hub.utils as hub

    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    with contextlib.ExitStack() as afterwards:
        libraries: tuple[Any, ...] = (datasets, hub)
        for library in libraries:
            if not library.are_progress_bars_disabled():
                library.disable_progress_bars()
                afterwards.callback(library.enable_progress_bars)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(logging.CRITICAL)
            afterwards.callback(logger.setLevel, level)
        yield
