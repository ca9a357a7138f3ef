"""Data sets of the `datasets` library: from the Hub, from a folder with the same layout, or saved to disk.

The library is imported inside functions, because it is slow to import, and its log lines and bars are switched off.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from frostline.errors import DataError, UsageError, listed, one_line
from frostline.tasks.formats.columns import FileColumns
from frostline.tasks.formats.files import SUFFIXES
from frostline.tasks.formats.parquet import from_arrow
from frostline.tasks.formats.sources import Part

NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(:(?P<config>[\w.-]+))?", re.ASCII)
"""A data set on the Hub: `owner/name`, or one configuration of it: `owner/name:config`."""
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<n_shards>\d{5})(-\w+)?\.\w+", re.ASCII)


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote the folder."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def is_laid_out(folder: Path) -> bool:
    """Whether the folder looks like a data set of the Hub: with training files, directly or one folder below."""
    patterns = ("train*", "*/train*", "train/*")
    return any(path.suffix.lower() in SUFFIXES for pattern in patterns for path in folder.glob(pattern))


def open_saved(folder: Path) -> dict[str, Part]:
    """The splits that `save_to_disk` wrote; a data set without splits counts as `train`."""
    import datasets

    try:
        with _quiet():
            found = datasets.load_from_disk(str(folder))
    except _errors() as error:
        raise DataError(f"is not a readable data set ({_reason(error)}); save it again", path=folder) from error
    return _parts(str(folder), found if isinstance(found, dict) else {"train": found})


def open_folder(folder: Path, config: str | None) -> dict[str, Part]:
    """The splits of a folder with the layout of the Hub; a DataError if one of its files is missing."""
    import datasets

    place, config = _place(folder, config)
    _check_shards(folder / config if config and (folder / config).is_dir() else place)
    try:
        with _quiet():
            found = datasets.load_dataset(str(place), config)
    except _errors() as error:
        raise DataError(f"is not a readable data set ({_reason(error)})", path=folder) from error
    return _parts(str(place), found)


def _place(folder: Path, config: str | None) -> tuple[Path, str | None]:
    """The folder and the configuration to pass to the library.

    Without a card (README.md) that names the configurations, the library would merge all of them into one data set.
    """
    card = folder / "README.md"
    if card.is_file() and b"config_name" in card.read_bytes():
        return folder, config
    configs = sorted({path.parent.name for path in folder.glob("*/train*") if path.suffix.lower() in SUFFIXES})
    if config in configs:
        return folder / config, None
    if len(configs) > 1:
        what = f"the folder {folder} contains several data sets: {listed(configs)}"
        raise UsageError(f"{what}; give one of them as {folder}:{configs[0]}")
    return folder, config


def _check_shards(folder: Path) -> None:
    shards: dict[tuple[Path, str, int], set[int]] = {}
    for path in sorted(folder.rglob("*-of-*")):
        if (named := _SHARD.fullmatch(path.name)) and path.suffix.lower() in SUFFIXES:
            split = (path.with_name(named["stem"]), f"-of-{named['n_shards']}{path.suffix}", int(named["n_shards"]))
            shards.setdefault(split, set()).add(int(named["number"]))
    for (stem, ending, n_shards), found in shards.items():
        missing = sorted(set(range(n_shards)) - found)
        if missing:
            what = f"does not exist; {len(missing)} of {n_shards} files are missing"
            raise DataError(f"{what}: copy the whole data set again", path=f"{stem}-{missing[0]:05}{ending}")


def open_named(name: str, config: str | None, way_out: str) -> dict[str, Part]:
    """The splits of a data set on the Hub; if it cannot be read, a UsageError ends with the advice `way_out`."""
    return _parts(_full_name(name, config), _load_named(name, config, way_out))


def save_named(name: str, config: str | None, folder: Path) -> None:
    """Saves a data set on the Hub in a folder, which has the same rows and classes when it is opened."""
    with _quiet():
        _load_named(name, config, "check the connection and run the command again").save_to_disk(str(folder))


def _full_name(name: str, config: str | None) -> str:
    return f"{name}:{config}" if config else name


def _load_named(name: str, config: str | None, way_out: str) -> Any:
    import datasets

    try:
        with _quiet():
            return datasets.load_dataset(name, config)
    except _errors() as error:
        what = f"the Hub data set {_full_name(name, config)} could not be read ({_reason(error)})"
        raise UsageError(f"{what}; {way_out}") from error


def _parts(source: str, splits: Any) -> dict[str, Part]:
    return {
        str(name): Part(
            path=Path(f"{source} ({name})"),
            read_header=functools.partial(tuple, split.column_names),
            read=functools.partial(_read, Path(f"{source} ({name})"), split),
        )
        for name, split in splits.items()
    }


def _read(path: Path, split: Any, wanted: Sequence[str]) -> FileColumns:
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
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # broken values show only when they are read
        raise DataError(f"cannot be read ({_reason(error)})", path=path) from error


def _errors() -> tuple[type[Exception], ...]:
    """The exceptions that the library and its dependencies raise for a data set."""
    import pyarrow
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    # Its base classes are OSError and the error of the HTTP client, which differs between versions.
    network_errors = HfHubHTTPError.__bases__
    file_errors = (pyarrow.ArrowException, ValueError, RuntimeError, KeyError, TypeError, AttributeError)
    return (DatasetsError, *network_errors, *file_errors)


def _reason(error: Exception) -> str:
    # "An error occurred while generating the dataset" says nothing; its cause does.
    reason = one_line(error.__cause__ if error.__cause__ is not None and "generating" in str(error) else error)
    return f"{reason}; write a configuration as owner/name:config" if "Config name" in reason else reason


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without progress bars and log lines."""
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
