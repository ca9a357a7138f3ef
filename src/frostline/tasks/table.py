"""The wanted columns of a text file, and the rows a task makes of them.

Every fault of a file is told with its path and, where there is one, its line. Knows no particular format.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from frostline.errors import DataError, UsageError, suggestion
from frostline.tasks.task import Labels, Rows, Task

_SHOWN = 10
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

Line = tuple[int, list[str]]
"""A line number, counted from 1, and the fields that begin there."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Some columns of a file."""

    path: Path
    """the file"""
    numbers: list[int]
    """row numbers, the first row below the header is 0"""
    lines: list[int]
    """line each row begins on, counted from 1"""
    columns: dict[str, list[str]]
    """the fields of each wanted column"""


def read_utf8(path: Path) -> str:
    """The file's text without a byte order mark; a DataError where it is missing, empty or not UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path=path) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError("is not UTF-8 text; save it as UTF-8", path=path, line=line) from error
    if not text.strip():
        raise DataError("is empty", path=path)
    return text


def check_dev(dev: Path, train: Path) -> None:
    """Raise where the dev file is not there, or is the training file: that would score what was learnt by heart."""
    if not dev.is_file():
        raise UsageError(f"there is no dev file {dev}")
    if train.is_file() and dev.samefile(train):
        raise UsageError(f"the dev file {dev} is the training file; give another, or none")


def check_header(header: Sequence[str], path: Path) -> None:
    """Raise where two columns have one name: which is meant could only be guessed."""
    twice = [name for name, count in Counter(header).items() if count > 1 and name]
    if twice:
        raise DataError(f"the header names {listed(twice)} more than once", path=path, line=1)


def missing_column(column: str, header: Iterable[str]) -> str:
    """`no column 'txt'; its columns: text, label. Did you mean 'text'?`"""
    names = [name for name in header if name]
    return f"no column {column!r}; its columns: {listed(names)}.{suggestion(column, names)}"


def collect(path: Path, header: Sequence[str], records: Iterable[Line], wanted: Sequence[str]) -> Table:
    """The wanted columns; a DataError where one is missing, a row is short, or there is no row."""
    for name in wanted:
        if name not in header:
            raise DataError(f"has {missing_column(name, header)}", path=path)
    places = {name: header.index(name) for name in wanted}
    lines: list[int] = []
    columns: dict[str, list[str]] = {name: [] for name in wanted}
    for line, fields in records:
        if len(fields) < len(header):
            raise DataError(f"too few fields: {len(fields)} instead of {len(header)}", path=path, line=line)
        lines.append(line)
        for name, place in places.items():
            columns[name].append(fields[place])
    if not lines:
        raise DataError("has a header but no rows", path=path)
    return Table(path=path, numbers=list(range(len(lines))), lines=lines, columns=columns)


def to_rows(table: Table, task: Task) -> Rows:
    """The table as the task sees it; a DataError where a label is unknown or not a number."""
    return Rows(
        ids=np.array(table.numbers, dtype=np.int64),
        texts=table.columns[task.text],
        pairs=None if task.text_pair is None else table.columns[task.text_pair],
        labels=_classes(table, task) if task.kind == "classification" else _values(table, task),
    )


def as_number(label: str) -> float | None:
    """The finite number a label writes, or None."""
    value = float(label) if _NUMBER.fullmatch(label) else math.nan
    return value if math.isfinite(value) else None


def listed(names: Sequence[str]) -> str:
    """The names in one line; of many, the first few and how many there are."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, … ({len(names)} in all)"


def labels_of(table: Table, column: str) -> list[str]:
    """The labels without the white space around them; a DataError where one is empty."""
    labels = [field.strip() for field in table.columns[column]]
    if "" in labels:
        line = table.lines[labels.index("")]
        raise DataError(f"the label (column {column!r}) is empty", path=table.path, line=line)
    return labels


def _classes(table: Table, task: Task) -> Labels:
    numbers = {written: number for number, written in enumerate(task.written_labels)}
    labels = labels_of(table, task.label)
    for line, label in zip(table.lines, labels, strict=True):
        if label not in numbers:
            known = listed(task.written_labels)
            raise DataError(f"unknown label {label[:80]!r}; known: {known}", path=table.path, line=line)
    return np.array([numbers[label] for label in labels], dtype=np.int64)


def _values(table: Table, task: Task) -> Labels:
    values: list[float] = []
    for line, label in zip(table.lines, labels_of(table, task.label), strict=True):
        value = as_number(label)
        if value is None:
            raise DataError(f"the label {label[:80]!r} is not a finite number", path=table.path, line=line)
        values.append(value)
    return np.array(values, dtype=np.float64)
