"""The nine GLUE tasks as data, and where their rows are: in the original files, or in the data set on the Hub.

The original files are tab-separated without quoting: a quotation mark is ordinary text. On the Hub some columns have
other names, and labels are named classes. MNLI has two dev sets: `mnli` is scored on the matched one, `mnli-mm` on the
mismatched one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from frostline.errors import DataError, UsageError
from frostline.tasks import locate
from frostline.tasks.content import Content
from frostline.tasks.formats import hub
from frostline.tasks.formats.columns import FileColumns, Line, check_dev, check_header, collect
from frostline.tasks.formats.sources import Part, Source, part_of_file
from frostline.tasks.formats.text import read_text
from frostline.tasks.task import GlueFiles, Task

HUB_NAME = "nyu-mll/glue"


def _files(folder: str, *, dev: str = "dev.tsv", columns: tuple[str, ...] | None = None) -> GlueFiles:
    return GlueFiles(folder=folder, train_file="train.tsv", dev_file=dev, columns=columns)


_NINE: tuple[Task, ...] = (
    Task(
        name="cola",
        title="is the sentence acceptable English",
        kind="classification",
        text="sentence",
        label="label",
        label_names=("unacceptable", "acceptable"),
        label_values=("0", "1"),
        metrics=("mcc",),
        glue_files=_files("CoLA", columns=("source", "label", "mark", "sentence")),
    ),
    Task(
        name="sst2",
        title="is the review's sentiment positive",
        kind="classification",
        text="sentence",
        label="label",
        label_names=("negative", "positive"),
        label_values=("0", "1"),
        metrics=("accuracy",),
        glue_files=_files("SST-2"),
    ),
    Task(
        name="mrpc",
        title="do the sentences say the same",
        kind="classification",
        text="#1 String",
        text_pair="#2 String",
        label="Quality",
        label_names=("not_equivalent", "equivalent"),
        label_values=("0", "1"),
        metrics=("f1", "accuracy"),
        glue_files=_files("MRPC"),
    ),
    Task(
        name="stsb",
        title="how alike are the sentences, 0 to 5",
        kind="regression",
        text="sentence1",
        text_pair="sentence2",
        label="score",
        metrics=("pearson", "spearman"),
        glue_files=_files("STS-B"),
    ),
    Task(
        name="rte",
        title="does the second sentence follow from the first",
        kind="classification",
        text="sentence1",
        text_pair="sentence2",
        label="label",
        label_names=("entailment", "not_entailment"),
        metrics=("accuracy",),
        glue_files=_files("RTE"),
    ),
    Task(
        name="wnli",
        title="is the pronoun filled in rightly",
        kind="classification",
        text="sentence1",
        text_pair="sentence2",
        label="label",
        label_names=("not_entailment", "entailment"),
        label_values=("0", "1"),
        metrics=("accuracy",),
        glue_files=_files("WNLI"),
    ),
    Task(
        name="qnli",
        title="does the sentence answer the question",
        kind="classification",
        text="question",
        text_pair="sentence",
        label="label",
        label_names=("entailment", "not_entailment"),
        metrics=("accuracy",),
        glue_files=_files("QNLI"),
    ),
    Task(
        name="qqp",
        title="do the questions ask the same",
        kind="classification",
        text="question1",
        text_pair="question2",
        label="is_duplicate",
        label_names=("not_duplicate", "duplicate"),
        label_values=("0", "1"),
        metrics=("f1", "accuracy"),
        glue_files=_files("QQP"),
    ),
    Task(
        name="mnli",
        title="does the second sentence follow from the first, contradict it, or neither",
        kind="classification",
        text="sentence1",
        text_pair="sentence2",
        label="gold_label",
        label_names=("entailment", "neutral", "contradiction"),
        metrics=("accuracy",),
        glue_files=_files("MNLI", dev="dev_matched.tsv"),
    ),
)

_MISMATCHED = _NINE[-1].replace(
    name="mnli-mm",
    title="the same, scored on sentences of other genres than those in train",
    glue_files=_files("MNLI", dev="dev_mismatched.tsv"),
)

TASKS = (*_NINE, _MISMATCHED)

_HUB_COLUMNS = {
    "mrpc": {"text": "sentence1", "text_pair": "sentence2", "label": "label"},
    "stsb": {"label": "label"},
    "qqp": {"label": "label"},
    "mnli": {"text": "premise", "text_pair": "hypothesis", "label": "label"},
}
"""Columns with other names on the Hub than in the original files."""


def plain_name(name: str) -> str:
    """The name in lower case, without hyphens and underscores: `SST-2` and `sst2` are the same task."""
    return name.lower().replace("-", "").replace("_", "")


def task_in(task: Task, data: Path | None) -> Task:
    """The task with the columns that it has in this folder, or on the Hub if there is no folder."""
    is_saved = data is not None and hub.is_saved(data)
    folder = None if data is None or is_saved else _folder(task, data)
    if data is not None and not is_saved and (folder is None or not _parquet(folder, "train")):
        return task
    return task.replace(label_values=None, **_HUB_COLUMNS.get(config_of(task), {}))


def find_rows(task: Task, data: Path | None, dev: str | None) -> Source:
    """The rows of a task from `task_in`; the file `dev` replaces its own dev file.

    `data` may also be the task's data set from the Hub, saved to disk.
    """
    own_files = _files_of(task)
    if data is None:
        way_out = f"give --data DIR, the folder that holds {own_files.folder} and the others"
        splits = hub.open_named(HUB_NAME, config_of(task), way_out)
        return locate.choose(f"{HUB_NAME}:{config_of(task)}", splits, dev or _split(task))
    if hub.is_saved(data):
        return locate.choose(str(data), hub.open_saved(data), dev or _split(task))
    if not data.is_dir():
        raise UsageError(f"--data {data} is not a folder; give the folder that holds {own_files.folder} and the others")
    folder = _folder(task, data)
    if folder is None:
        raise UsageError(f"--data {data} holds no folder {own_files.folder}; give the folder that holds the GLUE tasks")
    if found := _parquet(folder, "train"):
        train, own = found, _parquet(folder, _split(task)) or folder / f"{_split(task)}.parquet"
    else:
        train, own = folder / own_files.train_file, folder / own_files.dev_file
    if dev is not None:
        check_dev(Path(dev).expanduser(), train)
    return Source(train=_part(task, train), dev=_part(task, own if dev is None else Path(dev).expanduser()))


def read(path: Path, task: Task) -> FileColumns:
    """The task's columns of one of its original files."""
    content = Content(path)
    lines = _lines(content)
    header = _files_of(task).columns
    if header is None:
        header = tuple(next(lines)[1])
        check_header(header, path, line=1)
    # The official train.tsv of QQP has a few rows that end too early.
    table = collect(path, header, lines, task.columns, skips_short=task.name == "qqp")
    return dataclasses.replace(table, sha256=content.sha256)


def _part(task: Task, path: Path) -> Part:
    if not path.is_file():
        raise DataError(f"does not exist, but {task.name} needs it", path=path)
    if path.suffix.lower() != ".tsv":
        return part_of_file(path)
    return Part(path=path, read_header=lambda: task.columns, read=partial(_read_wanted, path, task))


def _read_wanted(path: Path, task: Task, _: object) -> FileColumns:
    return read(path, task)


def _folder(task: Task, data: Path) -> Path | None:
    """The task's folder below `data`, ignoring case and hyphens."""
    wanted = _files_of(task).folder
    if not data.is_dir():
        return None
    alike = sorted(path for path in data.iterdir() if path.is_dir() and plain_name(path.name) == plain_name(wanted))
    return next((path for path in alike if path.name == wanted), alike[0] if alike else None)


def _parquet(folder: Path, split: str) -> Path | None:
    """A split of a copy of the Hub data set, in which every split is one file."""
    return next(iter(sorted(folder.glob(f"{split}-*-of-00001.parquet"))), None)


def config_of(task: Task) -> str:
    """What the Hub calls the task."""
    return plain_name(_files_of(task).folder)


def _split(task: Task) -> str:
    """What the Hub calls the split that the task is scored on."""
    return Path(_files_of(task).dev_file).stem.replace("dev", "validation")


def _files_of(task: Task) -> GlueFiles:
    assert task.glue_files is not None
    return task.glue_files


def _lines(content: Content) -> Iterator[Line]:
    # Not str.splitlines: it would also split at U+0085 and U+2028, which occur inside sentences.
    lines = read_text(content, lines_are_short=True).rstrip("\r\n").split("\n")
    return ((number, line.removesuffix("\r").split("\t")) for number, line in enumerate(lines, start=1))
