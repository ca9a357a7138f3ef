"""The nine GLUE tasks as data, and their files in the original layout.

The files are tab-separated without any quoting: a quotation mark is text like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from frostline.errors import DataError, UsageError
from frostline.tasks.table import Line, Table, check_dev, check_header, collect, read_utf8
from frostline.tasks.task import Layout, Task


def _layout(folder: str, *, dev: str = "dev.tsv", columns: tuple[str, ...] | None = None) -> Layout:
    return Layout(folder=folder, train_file="train.tsv", dev_file=dev, columns=columns)


TASKS: tuple[Task, ...] = (
    Task(
        name="cola",
        title="is the sentence acceptable English",
        kind="classification",
        text="sentence",
        label="label",
        label_names=("unacceptable", "acceptable"),
        label_values=("0", "1"),
        metrics=("mcc",),
        layout=_layout("CoLA", columns=("source", "label", "mark", "sentence")),
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
        layout=_layout("SST-2"),
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
        layout=_layout("MRPC"),
    ),
    Task(
        name="stsb",
        title="how alike are the sentences, 0 to 5",
        kind="regression",
        text="sentence1",
        text_pair="sentence2",
        label="score",
        metrics=("pearson", "spearman"),
        layout=_layout("STS-B"),
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
        layout=_layout("RTE"),
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
        layout=_layout("WNLI"),
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
        layout=_layout("QNLI"),
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
        layout=_layout("QQP"),
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
        layout=_layout("MNLI", dev="dev_matched.tsv"),
    ),
)


def plain_name(name: str) -> str:
    """The name without case, hyphens and underscores: `SST-2` and `sst2` are one."""
    return name.lower().replace("-", "").replace("_", "")


def find_files(layout: Layout, data: Path, dev: Path | None) -> tuple[Path, Path]:
    """The task's training and dev files below `data`; `dev`, where given, takes the dev file's place."""
    if not data.is_dir():
        raise UsageError(f"--data {data} is not a folder; give the folder that holds {layout.folder} and the others")
    alike = sorted(path for path in data.iterdir() if path.is_dir() and plain_name(path.name) == _plain(layout))
    if not alike:
        raise UsageError(f"--data {data} holds no folder {layout.folder}; give the folder that holds the GLUE tasks")
    folder = next((path for path in alike if path.name == layout.folder), alike[0])
    train = folder / layout.train_file
    if dev is not None:
        check_dev(dev, train)
    files = (train, dev or folder / layout.dev_file)
    for path in files:
        if not path.is_file():
            raise DataError("there is no such file", path=path)
    return files


def read(path: Path, task: Task) -> Table:
    """The task's columns of one of its files."""
    assert task.layout is not None
    lines = _lines(path)
    header = task.layout.columns
    if header is None:
        header = tuple(next(lines)[1])
        check_header(header, path)
    return collect(path, header, lines, task.columns)


def _plain(layout: Layout) -> str:
    return plain_name(layout.folder)


def _lines(path: Path) -> Iterator[Line]:
    # Not str.splitlines: sentences hold U+0085 and U+2028, which it takes for line ends.
    lines = read_utf8(path).rstrip("\r\n").split("\n")
    return ((number, line.removesuffix("\r").split("\t")) for number, line in enumerate(lines, start=1))
