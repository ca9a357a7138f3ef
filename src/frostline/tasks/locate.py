"""A user's own data, found by its name: a file, a folder, or a data set on the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from frostline.errors import UsageError, listed
from frostline.tasks.formats import files, hub, memory
from frostline.tasks.formats.columns import check_dev, no_dev_file
from frostline.tasks.formats.sources import Part, Source, part_of_file

_DEV_SPLITS = ("dev", "validation", "valid", "val")


def name_of(source: str) -> str | None:
    """The name of a task with this source; None if there is no such file or folder and it is not a Hub name."""
    path, config = located(source)
    if path is not None:
        stem = path.resolve().name if path.is_dir() else path.stem
    elif named := on_hub(source):
        stem, config = named[0].partition("/")[2], named[1]
    else:
        return None
    return f"{stem}-{config}" if config else stem


def find(source: str, dev: str | None) -> Source:
    """The training rows and the dev rows, if any; `dev`, a file or a split, replaces the source's own dev rows."""
    path, config = located(source)
    if path is not None and path.is_file():
        return choose(source, {"train": part_of_file(path)}, dev)
    if path is not None:
        return choose(source, _of_folder(path, config, dev), dev)
    if named := on_hub(source):
        way_out = f"there is no file or folder {source} either: give a file, or a folder that holds the data set"
        return choose(source, hub.open_named(*named, way_out), dev)
    raise UsageError(f"there is no file or folder {source}")


def choose(source: str, splits: Mapping[str, Part], dev: str | None) -> Source:
    """Which split trains and which is scored. A test split is scored only if it is named: choices must not see it."""
    if "train" not in splits:
        raise UsageError(f"{source} has no split 'train'; its splits: {listed(list(splits))}")
    if dev is not None:
        return Source(train=splits["train"], dev=_named_dev(splits, dev))
    found = [name for name in _DEV_SPLITS if name in splits]
    if len(found) > 1:
        raise UsageError(f"{source} has the splits {' and '.join(found)}; choose one of them with --dev")
    if found:
        return Source(train=splits["train"], dev=splits[found[0]])
    left = [name for name in splits if name != "train"]
    warning = f"splits not used: {listed(left)}; to score on one, give --dev NAME"
    return Source(train=splits["train"], dev=None, warnings=(warning,) if left else ())


def is_there(path: Path) -> bool:
    """Whether there is a file or folder at the path."""
    try:
        return path.is_dir() or path.is_file()
    except (OSError, ValueError):  # the name is too long for the system, or contains a NUL
        return False


def located(source: str) -> tuple[Path | None, str | None]:
    """The file or folder, if it exists, and the configuration after a folder's colon."""
    path = Path(source).expanduser()
    if is_there(path):
        return path, None
    folder, _, config = source.rpartition(":")
    if folder and config and is_there(Path(folder).expanduser()):
        return Path(folder).expanduser(), config
    return None, None


def on_hub(source: str) -> tuple[str, str | None] | None:
    """Name and configuration of a data set on the Hub; None if it cannot be the name of one."""
    found = hub.NAME.fullmatch(source)
    if found is None or Path(source).suffix.lower() in files.SUFFIXES or source.startswith("."):
        return None
    return found["name"], found["config"]


def _of_folder(folder: Path, config: str | None, dev: str | None) -> dict[str, Part]:
    if memory.is_written(folder):
        return memory.open_rows(folder)
    if hub.is_saved(folder):
        return hub.open_saved(folder)
    if config is None and (train := files.file_named(folder, ("train",))):
        stems = {*_DEV_SPLITS, "test", dev or "test"}
        named = {stem: files.file_named(folder, (stem,)) for stem in sorted(stems) if "/" not in stem}
        alike = {path.stem: path for path in sorted(folder.glob(f"[!.]*{train.suffix}")) if path.is_file()}
        return {stem: part_of_file(path) for stem, path in {**alike, **named, "train": train}.items() if path}
    if hub.is_laid_out(folder):
        return hub.open_folder(folder, config)
    known = ", ".join(f"train{suffix}" for suffix in files.SUFFIXES)
    raise UsageError(f"the folder {folder} holds no training file ({known}) and no data set saved by `datasets`")


def _named_dev(splits: Mapping[str, Part], dev: str) -> Part:
    path = Path(dev).expanduser()
    if is_there(path) and path.is_file():
        check_dev(path, splits["train"].path)
        return part_of_file(path)
    if dev == "train":
        raise UsageError("the dev split 'train' is the training split; give another, or none")
    if dev in splits:
        return splits[dev]
    others = [name for name in splits if name != "train"]
    raise UsageError(
        (no_dev_file(path) if is_there(path) else f"there is no dev file {dev}")
        + (f", and no split of that name; splits: {listed(others)}" if others else "")
    )
