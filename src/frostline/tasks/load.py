"""From what a user writes to rows: a spec, settled, then loaded.

The same spec and files give the same rows in every process.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np

from frostline.errors import UsageError, check_choice, suggestion
from frostline.keys import fingerprint_of_files
from frostline.records import Kind, TaskSpec
from frostline.tasks import demo, files, glue, split
from frostline.tasks.table import Table, listed, to_rows
from frostline.tasks.task import Rows, Task, TaskData

_KNOWN = (*glue.TASKS, demo.ROTTEN_TOMATOES)


class TaskOptions(TypedDict, total=False):
    """The fields of a TaskSpec a user may set beside the task itself."""

    data: str | None
    dev: str | None
    text: str | None
    text_pair: str | None
    label: str | None
    kind: Kind | None
    metric: str | None
    dev_share: float
    max_train: int | None
    max_dev: int | None


@dataclass(frozen=True)
class _Opened:
    """A task whose files are found but, where that can wait, not yet read."""

    task: Task
    train_file: Path
    dev_file: Path | None
    read: Callable[[Path], Table]
    train: Table | None = None


def known() -> tuple[Task, ...]:
    """The tasks that go by a name."""
    return _KNOWN


def parse(task: str, **options: Unpack[TaskOptions]) -> TaskSpec:
    """The spec of a known task, or of the user's file or folder."""
    names = {glue.plain_name(one.name): one.name for one in _KNOWN}
    plain = glue.plain_name(task)
    if plain in names:
        return TaskSpec(name=names[plain], source=None, data=None, dev=None).replace(**options)
    path = Path(task).expanduser()
    if _is_there(path):
        name = path.resolve().name if path.is_dir() else path.stem
        return TaskSpec(name=name, source=str(path), data=None, dev=None).replace(**options)
    if path.suffix.lower() in files.SUFFIXES or len(path.parts) > 1:
        raise UsageError(f"there is no file or folder {task}")
    raise UsageError(_unknown(task))


def resolve(spec: TaskSpec) -> TaskSpec:
    """The spec with columns, kind and metric settled; a UsageError that shows its faults together."""
    task = _open(spec).task
    return spec.replace(
        text=task.text,
        text_pair=task.text_pair,
        label=task.label,
        kind=task.kind,
        metric=task.metrics[0],
    )


def metrics_of(spec: TaskSpec) -> tuple[str, ...]:
    """What is measured, the score first."""
    return _open(spec).task.metrics


def load(spec: TaskSpec) -> TaskData:
    """The rows to train on and to be scored on."""
    opened = _open(spec)
    task = opened.task
    train = to_rows(opened.train or opened.read(opened.train_file), task)
    roles = [("train", opened.train_file)]
    notices = _label_notices(spec, task)
    if opened.dev_file is None:
        n_rows = len(train)
        train, dev = split.cut_dev(train, task.kind, spec.dev_share)
        notices.append(
            f"no dev file: {len(dev)} of {n_rows} rows ({100 * spec.dev_share:.3g}%) were cut off by a fixed seed"
        )
    else:
        dev = to_rows(opened.read(opened.dev_file), task)
        roles.append(("dev", opened.dev_file))
    train, dev = _sampled(spec, task, train, dev, notices)
    notices += _blank_notices("training", train) + _blank_notices("dev", dev)
    return TaskData(
        task=task,
        train=train,
        dev=dev,
        label_names=task.label_names or (),
        fingerprint=fingerprint_of_files(roles),
        notices=tuple(notices),
    )


def _open(spec: TaskSpec) -> _Opened:
    faults = _plain_faults(spec)
    if spec.source is not None:
        return _open_own(spec, _path(spec.source), faults)
    task = next((one for one in _KNOWN if one.name == spec.name), None)
    if task is None:
        raise UsageError.together([_unknown(spec.name), *faults])
    faults += _misfits(spec, task)
    if faults:
        raise UsageError.together(faults)
    task = _scored_by(task, spec.metric)
    if task.layout is None:
        return _Opened(task, demo.reviews_file(), None, demo.read)
    assert spec.data is not None
    train, dev = glue.find_files(task.layout, _path(spec.data), _dev(spec))
    return _Opened(task, train, dev, functools.partial(glue.read, task=task))


def _open_own(spec: TaskSpec, source: Path, faults: list[str]) -> _Opened:
    if spec.data is not None:
        faults.append(f"--data is the folder of the GLUE tasks; {source} does not need it")
    if spec.metric is not None and spec.metric not in files.METRICS:
        faults.append(f"unknown metric {spec.metric!r}; known: {', '.join(files.METRICS)}")
    train, dev = files.find_files(source, _dev(spec))
    settled, column_faults = files.settle_columns(spec, files.read_header(train), train)
    if faults or column_faults:
        raise UsageError.together([*faults, *column_faults])
    wanted = [name for name in (settled.text, settled.text_pair, settled.label) if name is not None]
    table = files.read(train, wanted)
    task = files.describe(settled, table)
    if spec.metric is not None:
        classes = "" if task.label_names is None else f" with {len(task.label_names)} classes"
        check_choice(f"metric for {task.kind}{classes}", spec.metric, task.metrics)
    return _Opened(_scored_by(task, spec.metric), train, dev, functools.partial(files.read, wanted=wanted), table)


def _is_there(path: Path) -> bool:
    try:
        return path.is_dir() or path.is_file()
    except OSError:  # a name longer than the system takes
        return False


def _path(given: str) -> Path:
    return Path(given).expanduser()


def _dev(spec: TaskSpec) -> Path | None:
    return None if spec.dev is None else _path(spec.dev)


def _plain_faults(spec: TaskSpec) -> list[str]:
    faults = []
    if not 0 < spec.dev_share < 1:
        faults.append(f"dev_share is {spec.dev_share}; it must lie between 0 and 1, both excluded")
    for name, given in (("max_train", spec.max_train), ("max_dev", spec.max_dev)):
        if given is not None and given < 1:
            faults.append(f"{name} is {given}; it must be at least 1")
    kinds = typing.get_args(Kind)
    if spec.kind is not None and spec.kind not in kinds:
        faults.append(f"unknown kind {spec.kind!r}; known: {', '.join(kinds)}")
    return faults


def _misfits(spec: TaskSpec, task: Task) -> list[str]:
    """What a spec asks of a known task that it is not."""
    faults = []
    for name in ("text", "text_pair", "label", "kind"):
        given, own = getattr(spec, name), getattr(task, name)
        if given not in (None, own):
            flag = f"--{name.replace('_', '-')}"
            faults.append(f"{flag} {given!r} is not for {task.name}, which has {'none' if own is None else repr(own)}")
    if spec.metric is not None and spec.metric not in task.metrics:
        faults.append(f"unknown metric {spec.metric!r} for {task.name}; known: {', '.join(task.metrics)}")
    if task.layout is not None and spec.data is None:
        faults.append(f"{task.name} is read from a folder; give --data DIR, which holds {task.layout.folder}")
    if task.layout is None:
        given_files = [flag for flag, given in (("--data", spec.data), ("--dev", spec.dev)) if given is not None]
        faults += [f"{task.name} brings its own rows; {flag} is not for it" for flag in given_files]
    return faults


def _unknown(task: str) -> str:
    names = [one.name for one in _KNOWN]
    hint = suggestion(task, names)
    return f"unknown task {task!r}; known: {', '.join(names)}.{hint} Or give a file or folder with --text and --label"


def _scored_by(task: Task, metric: str | None) -> Task:
    if metric is None:
        return task
    return task.replace(metrics=(metric, *(name for name in task.metrics if name != metric)))


def _label_notices(spec: TaskSpec, task: Task) -> list[str]:
    if spec.source is None or task.label_names is None:
        return []
    mapping = listed([f"{name} = {number}" for number, name in enumerate(task.label_names)])
    positive = f"; f1 is that of {task.label_names[1]}" if "f1" in task.metrics else ""
    return [f"classes: {mapping}{positive}"]


def _blank_notices(what: str, rows: Rows) -> list[str]:
    columns = [rows.texts] if rows.pairs is None else [rows.texts, rows.pairs]
    n_blank = sum(any(not text.strip() for text in texts) for texts in zip(*columns, strict=True))
    return [f"{n_blank} of {len(rows)} {what} rows have an empty text"] if n_blank else []


def _sampled(spec: TaskSpec, task: Task, train: Rows, dev: Rows, notices: list[str]) -> tuple[Rows, Rows]:
    for name, wanted, rows in (("max_train", spec.max_train, train), ("max_dev", spec.max_dev, dev)):
        if wanted is not None and wanted > len(rows):
            notices.append(f"{name} is {wanted}, but there are {len(rows)} rows; all are used")
    few = split.sample(train, task.kind, "train", spec.max_train)
    if task.kind == "classification":
        _check_classes(spec, task, train, few, notices)
    return few, split.sample(dev, task.kind, "dev", spec.max_dev)


def _check_classes(spec: TaskSpec, task: Task, train: Rows, few: Rows, notices: list[str]) -> None:
    present = np.unique(few.labels)
    names = task.label_names or ()
    if len(present) < 2:
        least = split.n_for_two_classes(train, "train")
        left = f"only the class {names[int(present[0])]!r} is left in train"
        if least is None:
            raise UsageError(f"{left} ({len(few)} rows); give more rows, or dev rows of their own by --dev")
        raise UsageError(f"max_train is {spec.max_train}: {left}; give at least {least}")
    if len(present) < len(names):
        absent = [name for number, name in enumerate(names) if number not in present]
        notices.append(f"classes without a training row: {listed(absent)}")
