"""From a user's words to rows: a spec is parsed, resolved, then loaded.

The same spec and files give the same rows in every process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack, final

from frostline.errors import UsageError, suggestion
from frostline.kinds import Kind, Metric, kind_named, metrics_for
from frostline.kinds.metrics import score_faults, spelled
from frostline.records.specs import TaskSpec
from frostline.tasks import demo, glue, locate, own, split
from frostline.tasks.formats import files
from frostline.tasks.formats.columns import Labelled, Table, labelled, read_rows
from frostline.tasks.formats.sources import Source, fingerprint
from frostline.tasks.task import Task, TaskData
from frostline.tasks.warnings import class_warnings, row_warnings

_KNOWN = (*glue.TASKS, demo.ROTTEN_TOMATOES)


class TaskOptions(TypedDict, total=False):
    """The fields of a TaskSpec that a user may set beside the task itself."""

    data: str | None
    dev: str | None
    text: str | None
    text_pair: str | None
    label: str | None
    kind: str | None
    metric: str | None
    dev_share: float
    max_train: int | None
    max_dev: int | None


@final
@dataclass(frozen=True)
class OpenedTask:
    """A task whose source is found and whose columns and classes are known; it can be loaded once or more."""

    spec: TaskSpec
    """the spec with columns, kind and metric filled in"""
    task: Task
    source: Source
    train: Table | None = None
    """the training rows, if they were needed to find the classes"""

    def load(self) -> TaskData:
        """The rows to train on and the rows to score."""
        spec, task, kind = self.spec, self.task, kind_named(self.task.kind)
        tables = {"train": self.train or self.source.train.read(task.columns)}
        train = labelled(tables["train"], task)
        warnings = [] if spec.source is None else class_warnings(task)
        if self.source.dev is None:
            n_rows = len(train)
            train, dev = split.cut_dev(train, kind, spec.dev_share)
            cut = f"{len(dev)} of {n_rows} rows ({100 * spec.dev_share:.3g}%)"
            warnings.append(f"no dev file: {cut} were set aside as dev with a fixed seed")
        else:
            tables["dev"] = self.source.dev.read(task.columns)
            dev = labelled(tables["dev"], task)
        warnings += [*self.source.warnings, *_short_row_warnings(tables), *_sample_warnings(spec, train, dev)]
        train_rows, dev_rows = read_rows(task, *_sampled(spec, task, train, dev))
        return TaskData(
            task=task,
            train=train_rows,
            dev=dev_rows,
            label_names=task.label_names or (),
            fingerprint=fingerprint(tables, task.columns),
            warnings=(*warnings, *row_warnings(task, train_rows, dev_rows)),
        )


def known() -> tuple[Task, ...]:
    """The tasks that have a name."""
    return _KNOWN


def parse(task: str, **options: Unpack[TaskOptions]) -> TaskSpec:
    """The spec of a known task, of the user's file or folder, or of a data set on the Hub."""
    names = {glue.plain_name(one.name): one.name for one in _KNOWN}
    plain = glue.plain_name(task)
    if plain in names:
        return TaskSpec(name=names[plain], source=None, data=None, dev=None).replace(**options)
    if name := locate.name_of(task):
        return TaskSpec(name=name, source=task, data=None, dev=None).replace(**options)
    if "/" in task or Path(task).suffix.lower() in files.SUFFIXES:
        raise UsageError(f"there is no file or folder {task}")
    raise UsageError(_unknown(task))


def resolve(spec: TaskSpec) -> TaskSpec:
    """The spec with columns, kind and metric filled in; a UsageError that shows all its faults together."""
    return open_task(spec).spec


def metrics_of(spec: TaskSpec) -> tuple[str, ...]:
    """What is measured, the score first."""
    return open_task(spec).task.metrics


def load(spec: TaskSpec) -> TaskData:
    """The rows to train on and the rows to score."""
    return open_task(spec).load()


def open_task(spec: TaskSpec) -> OpenedTask:
    """The task of a spec; `resolve` and `load` together read the data twice, an opened task reads it once."""
    faults = _option_faults(spec)
    kind, kind_faults = _read_kind(spec.kind)
    faults += kind_faults
    if spec.metric is not None:
        spec = spec.replace(metric=spelled(spec.metric, metrics_for(kind)))
    if spec.source is not None:
        return _open_own(spec, spec.source, [*faults, *score_faults(spec.metric, metrics_for(kind))])
    task = next((one for one in _KNOWN if one.name == spec.name), None)
    if task is None:
        raise UsageError.together([_unknown(spec.name), *faults])
    data = None if spec.data is None else Path(spec.data).expanduser()
    if task.glue_files is not None:
        task = glue.task_in(task, data)
    faults += _misfits(spec, task)
    if faults:
        raise UsageError.together(faults)
    source = demo.find_rows(data) if task.glue_files is None else glue.find_rows(task, data, spec.dev)
    return _opened(spec, task, source)


def _opened(spec: TaskSpec, task: Task, source: Source, train: Table | None = None) -> OpenedTask:
    task = _scored_by(task, spec.metric)
    resolved = spec.replace(
        text=task.text,
        text_pair=task.text_pair,
        label=task.label,
        kind=task.kind,
        metric=task.metrics[0],
    )
    return OpenedTask(resolved, task, source, train)


def _open_own(spec: TaskSpec, source: str, faults: list[str]) -> OpenedTask:
    if spec.data is not None:
        faults.append(f"--data is the folder of the GLUE tasks; {source} does not need it")
    found = locate.find(source, spec.dev)
    resolved, column_faults = own.resolve_columns(spec, found.train.read_header(), found.train.path)
    if faults or column_faults:
        raise UsageError.together([*faults, *column_faults])
    wanted = [name for name in (resolved.text, resolved.text_pair, resolved.label) if name is not None]
    table = found.train.read(wanted)
    task = own.describe(resolved, table)
    kind = kind_named(task.kind)
    classes = f" with {len(task.label_names)} classes" if task.label_names else ""
    if misfits := score_faults(spec.metric, _measured(task), f" for {kind.name}{classes}"):
        raise UsageError.together(misfits)
    return _opened(spec, task, found, table)


def _option_faults(spec: TaskSpec) -> list[str]:
    faults = []
    if not 0 < spec.dev_share < 1:
        faults.append(f"dev_share is {spec.dev_share}; it must be greater than 0 and less than 1")
    for name, given in (("max_train", spec.max_train), ("max_dev", spec.max_dev)):
        if given is not None and given < 1:
            faults.append(f"{name} is {given}; it must be at least 1")
    return faults


def _read_kind(name: str | None) -> tuple[Kind | None, list[str]]:
    """The kind that a user asks for, if any, and what is wrong with its name."""
    try:
        return (None if name is None else kind_named(name)), []
    except UsageError as error:
        return None, [str(error)]


def _misfits(spec: TaskSpec, task: Task) -> list[str]:
    """Options that contradict a known task."""
    faults = []
    for name in ("text", "text_pair", "label", "kind"):
        given, its = getattr(spec, name), getattr(task, name)
        if given not in (None, its):
            flag = f"--{name.replace('_', '-')}"
            faults.append(f"{flag} {given!r} is not for {task.name}, which has {'none' if its is None else repr(its)}")
    faults += score_faults(spec.metric, _measured(task), f" for {task.name}")
    if task.glue_files is None:
        is_other = spec.data is not None and not demo.has_reviews(Path(spec.data).expanduser())
        given_files = [flag for flag, is_given in (("--data", is_other), ("--dev", spec.dev is not None)) if is_given]
        faults += [f"{task.name} has its own rows; {flag} is not for it" for flag in given_files]
    return faults


def _measured(task: Task) -> dict[str, Metric]:
    kind = kind_named(task.kind)
    return {name: kind.metric(name) for name in task.metrics}


def _unknown(task: str) -> str:
    names = [one.name for one in _KNOWN]
    hint = suggestion(task, names)
    others = "Or give a file, a folder, or a Hub data set as owner/name"
    return f"unknown task {task!r}; known: {', '.join(names)}.{hint} {others}"


def _short_row_warnings(tables: Mapping[str, Table]) -> list[str]:
    return [
        f"rows skipped because they have too few fields: {table.n_short} of {table.path}"
        for table in tables.values()
        if table.n_short
    ]


def _scored_by(task: Task, metric: str | None) -> Task:
    if metric is None:
        return task
    return task.replace(metrics=(metric, *(name for name in task.metrics if name != metric)))


def _sample_warnings(spec: TaskSpec, train: Labelled, dev: Labelled) -> list[str]:
    limits = (("max_train", spec.max_train, train), ("max_dev", spec.max_dev, dev))
    return [
        f"{name} is {n_most}, but there are {len(rows)} rows; all are used"
        for name, n_most, rows in limits
        if n_most is not None and n_most > len(rows)
    ]


def _sampled(spec: TaskSpec, task: Task, train: Labelled, dev: Labelled) -> tuple[Labelled, Labelled]:
    kind = kind_named(task.kind)
    few, few_dev = split.sample(train, kind, "train", spec.max_train), split.sample(dev, kind, "dev", spec.max_dev)
    _check_labels(task, "train", spec.max_train, train, few)
    _check_labels(task, "dev", spec.max_dev, dev, few_dev)
    return few, few_dev


def _check_labels(task: Task, role: str, n_most: int | None, rows: Labelled, few: Labelled) -> None:
    """Raise if all labels are equal: nothing can be learnt from such rows, and no metric can score them."""
    if (few.labels != few.labels[0]).any():
        return
    kind = kind_named(task.kind)
    left = f"only the label {kind.decode(few.labels[0], task.label_names or ())!r} is left in {role}"
    least = split.n_for_two_labels(rows, kind, role)
    if least is not None:
        raise UsageError(f"max_{role} is {n_most}: {left}; use at least {least}")
    advice = "or separate dev rows with --dev" if role == "train" else "a larger --dev-share, or others with --dev"
    raise UsageError(f"{left} (rows: {len(few)}); give more rows, {advice}")
