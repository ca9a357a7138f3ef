"""Which files of this machine the spec of a task names, so that another machine can be given the same content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from frostline.records.specs import TaskSpec
from frostline.tasks import demo, glue, locate
from frostline.tasks.formats import files, hub, memory
from frostline.tasks.task import Task

_OF_DATA_SETS = (*files.SUFFIXES, ".arrow", ".md")
"""endings of files in a folder of data: also those of a saved data set, and its card"""


@final
@dataclass(frozen=True)
class NamedFiles:
    """Files that belong to one field of a spec: on another machine, it names the folder that they are in there."""

    field: Literal["source", "data", "dev"]
    folder: Path
    paths: tuple[str, ...]
    """below the folder"""
    rest: str = ""
    """what follows the folder in the field: `/reviews.csv`, `:config`"""


def named_files(spec: TaskSpec) -> Iterator[NamedFiles]:
    """The files of a resolved spec, field by field; those of a data set on the Hub are not among them."""
    if spec.source is not None:
        path, config = locate.located(spec.source)
        if path is not None:
            yield _of_path("source", path, f":{config}" if config else "")
    elif spec.name == demo.ROTTEN_TOMATOES.name:
        path = demo.reviews_file(None if spec.data is None else Path(spec.data).expanduser())
        yield NamedFiles("data", path.parent, (path.name,))
    elif spec.data is not None:
        yield _of_glue(spec, Path(spec.data).expanduser())
    if spec.dev is not None and locate.is_there(Path(spec.dev).expanduser()):
        yield _of_path("dev", Path(spec.dev).expanduser(), "")


def hub_name(spec: TaskSpec) -> tuple[Literal["source", "data"], str, str | None] | None:
    """The field that a data set on the Hub belongs to, its name and its configuration; None if there is none.

    The data set can be saved to a folder, which the field then names.
    """
    if spec.source is not None:
        found = locate.on_hub(spec.source) if locate.located(spec.source)[0] is None else None
        return None if found is None else ("source", *found)
    if spec.data is not None or spec.name == demo.ROTTEN_TOMATOES.name:
        return None
    return "data", glue.HUB_NAME, glue.config_of(_glue_task(spec))


def _of_path(field: Literal["source", "dev"], path: Path, rest: str) -> NamedFiles:
    if path.is_file():
        return NamedFiles(field, path.parent, (path.name,), f"/{path.name}")
    below = (one.relative_to(path) for one in sorted(path.rglob("*")) if one.is_file())
    return NamedFiles(field, path, tuple(one.as_posix() for one in below if _is_data(one)), rest)


def _is_data(path: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.parts)
    return path.name == memory.MARK or (path.suffix.lower() in _OF_DATA_SETS and not is_hidden)


def _of_glue(spec: TaskSpec, data: Path) -> NamedFiles:
    """The files of a task that are read, without the others of its folder."""
    if hub.is_saved(data):
        found = _of_path("source", data, "")
        return NamedFiles("data", data, found.paths)
    source = glue.find_rows(glue.task_in(_glue_task(spec), data), data, spec.dev)
    parts = [part.path for part in (source.train, source.dev) if part is not None]
    inside = [path.relative_to(data).as_posix() for path in parts if path.is_relative_to(data)]
    return NamedFiles("data", data, tuple(inside))


def _glue_task(spec: TaskSpec) -> Task:
    return next(task for task in glue.TASKS if task.name == spec.name)
