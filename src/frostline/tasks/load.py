"""From what a user writes to rows: a spec, settled, then loaded.

The same spec and files give the same rows in every process.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from frostline.errors import UsageError, suggestion
from frostline.kinds import metrics
from frostline.records.specs import Kind, TaskSpec
from frostline.tasks import demo, find, glue, own, split
from frostline.tasks.formats import files
from frostline.tasks.formats.columns import Table, to_rows
from frostline.tasks.formats.sources import Part, Source, fingerprint
from frostline.tasks.task import Rows, Task, TaskData
from frostline.tasks.warnings import label_notices, row_notices

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
    """A task whose rows are found but, where that can wait, not yet read."""

    task: Task
    source: Source
    train: Table | None = None


def known() -> tuple[Task, ...]:
    """The tasks that go by a name."""
    return _KNOWN


def parse(task: str, **options: Unpack[TaskOptions]) -> TaskSpec:
    """The spec of a known task, of the user's file or folder, or of a data set on the Hub."""
    names = {glue.plain_name(one.name): one.name for one in _KNOWN}
    plain = glue.plain_name(task)
    if plain in names:
        return TaskSpec(name=names[plain], source=None, data=None, dev=None).replace(**options)
    if name := find.name_of(task):
        return TaskSpec(name=name, source=task, data=None, dev=None).replace(**options)
    if "/" in task or Path(task).suffix.lower() in files.SUFFIXES:
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
    source = opened.source
    train_table = opened.train or source.train.read(task.columns)
    train = to_rows(train_table, task)
    parts = [("train", source.train, train_table)]
    notices = [] if spec.source is None else label_notices(task)
    if source.dev is None:
        n_rows = len(train)
        train, dev = split.cut_dev(train, task.kind, spec.dev_share)
        notices.append(
            f"no dev file: {len(dev)} of {n_rows} rows ({100 * spec.dev_share:.3g}%) were cut off by a fixed seed"
        )
    else:
        dev_table = source.dev.read(task.columns)
        dev = to_rows(dev_table, task)
        parts.append(("dev", source.dev, dev_table))
    notices += [*source.notices, *_short_notices(parts)]
    train, dev = _sampled(spec, task, train, dev, notices)
    notices += row_notices(task, train, dev)
    return TaskData(
        task=task,
        train=train,
        dev=dev,
        label_names=task.label_names or (),
        fingerprint=fingerprint(parts),
        notices=tuple(notices),
    )


def _open(spec: TaskSpec) -> _Opened:
    faults = _plain_faults(spec)
    if spec.metric is not None:
        spec = spec.replace(metric=metrics.spelled(spec.metric))
    if spec.source is not None:
        return _open_own(spec, spec.source, faults)
    task = next((one for one in _KNOWN if one.name == spec.name), None)
    if task is None:
        raise UsageError.together([_unknown(spec.name), *faults])
    data = None if spec.data is None else Path(spec.data).expanduser()
    if task.layout is not None:
        task = glue.task_in(task, data)
    faults += _misfits(spec, task)
    if faults:
        raise UsageError.together(faults)
    task = _scored_by(task, spec.metric)
    return _Opened(task, demo.find_rows() if task.layout is None else glue.find_rows(task, data, spec.dev))


def _open_own(spec: TaskSpec, source: str, faults: list[str]) -> _Opened:
    if spec.data is not None:
        faults.append(f"--data is the folder of the GLUE tasks; {source} does not need it")
    faults += metrics.score_faults(spec.metric, metrics.METRICS)
    found = find.find(source, spec.dev)
    settled, column_faults = own.settle_columns(spec, found.train.read_header(), found.train.path)
    if faults or column_faults:
        raise UsageError.together([*faults, *column_faults])
    wanted = [name for name in (settled.text, settled.text_pair, settled.label) if name is not None]
    table = found.train.read(wanted)
    task = own.describe(settled, table)
    classes = "" if task.label_names is None else f" with {len(task.label_names)} classes"
    if misfits := metrics.score_faults(spec.metric, task.metrics, f" for {task.kind}{classes}"):
        raise UsageError.together(misfits)
    return _Opened(_scored_by(task, spec.metric), found, table)


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
        given, its = getattr(spec, name), getattr(task, name)
        if given not in (None, its):
            flag = f"--{name.replace('_', '-')}"
            faults.append(f"{flag} {given!r} is not for {task.name}, which has {'none' if its is None else repr(its)}")
    faults += metrics.score_faults(spec.metric, task.metrics, f" for {task.name}")
    if task.layout is None:
        given_files = [flag for flag, given in (("--data", spec.data), ("--dev", spec.dev)) if given is not None]
        faults += [f"{task.name} brings its own rows; {flag} is not for it" for flag in given_files]
    return faults


def _unknown(task: str) -> str:
    names = [one.name for one in _KNOWN]
    hint = suggestion(task, names)
    others = "Or give a file, a folder, or a Hub data set as owner/name"
    return f"unknown task {task!r}; known: {', '.join(names)}.{hint} {others}"


def _short_notices(parts: list[tuple[str, Part, Table]]) -> list[str]:
    return [
        f"rows left out because they have too few fields: {table.n_short} of {part.path}"
        for _, part, table in parts
        if table.n_short
    ]


def _scored_by(task: Task, metric: str | None) -> Task:
    if metric is None:
        return task
    return task.replace(metrics=(metric, *(name for name in task.metrics if name != metric)))


def _sampled(spec: TaskSpec, task: Task, train: Rows, dev: Rows, notices: list[str]) -> tuple[Rows, Rows]:
    for name, wanted, rows in (("max_train", spec.max_train, train), ("max_dev", spec.max_dev, dev)):
        if wanted is not None and wanted > len(rows):
            notices.append(f"{name} is {wanted}, but there are {len(rows)} rows; all are used")
    few = split.sample(train, task.kind, "train", spec.max_train)
    few_dev = split.sample(dev, task.kind, "dev", spec.max_dev)
    _check_labels(task, "train", spec.max_train, train, few)
    _check_labels(task, "dev", spec.max_dev, dev, few_dev)
    return few, few_dev


def _check_labels(task: Task, role: str, n_most: int | None, rows: Rows, few: Rows) -> None:
    """Raise where all labels are one: nothing can be learnt from such rows, and none of the metrics scored on them."""
    first = few.labels[0]
    if (few.labels != first).any():
        return
    what = f"label {first:g}" if task.label_names is None else f"class {task.label_names[int(first)]!r}"
    left = f"only the {what} is left in {role}"
    least = None if task.label_names is None else split.n_for_two_classes(rows, role)
    if least is not None:
        raise UsageError(f"max_{role} is {n_most}: {left}; give at least {least}")
    advice = "or dev rows of their own by --dev" if role == "train" else "a larger --dev-share, or others by --dev"
    raise UsageError(f"{left} (rows: {len(few)}); give more rows, {advice}")
