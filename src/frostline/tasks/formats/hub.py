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

from frostline.errors import DataError, UsageError, one_line
from frostline.tasks.formats.columns import Table, listed
from frostline.tasks.formats.files import SUFFIXES
from frostline.tasks.formats.parquet import from_arrow
from frostline.tasks.formats.sources import Part

NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(:(?P<config>[\w.-]+))?", re.ASCII)
"""A data set on the Hub: `owner/name`, or one configuration of it: `owner/name:config`."""
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<n_shards>\d{5})(-\w+)?\.\w+", re.ASCII)


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
    """The splits of a folder laid out as on the Hub; a DataError where one of its files is missing."""
    import datasets

    place, config = _place(folder, config)
    _check_shards(folder / config if config and (folder / config).is_dir() else place)
    try:
        with _quiet():
            found = datasets.load_dataset(str(place), config)
    except _errors() as error:
        raise DataError(f"is no data set that can be read ({_reason(error)})", path=folder) from error
    return _parts(str(place), found)


def _place(folder: Path, config: str | None) -> tuple[Path, str | None]:
    """The folder and the configuration that the library is asked for.

    Without a card that names the configurations it would take the files of all of them for one data set.
    """
    card = folder / "README.md"
    if card.is_file() and b"config_name" in card.read_bytes():
        return folder, config
    configs = sorted({path.parent.name for path in folder.glob("*/train*") if path.suffix.lower() in SUFFIXES})
    if config in configs:
        return folder / config, None
    if len(configs) > 1:
        what = f"the folder {folder} holds several data sets: {listed(configs)}"
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
            what = f"there is no such file, one of {len(missing)} missing out of {n_shards}"
            raise DataError(f"{what}; copy the data set anew, all of it", path=f"{stem}-{missing[0]:05}{ending}")


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
    said = one_line(error.__cause__ if error.__cause__ is not None and "generating" in str(error) else error)
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
