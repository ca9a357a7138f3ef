"""The wanted columns of a file, and the rows a task makes of them.

Every fault of a file is told with its path and its line, or its row where the format has no lines. Knows no particular
format.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np

from frostline.errors import DataError, UsageError, suggestion
from frostline.tasks.task import Labels, Rows, Task

_SHOWN = 10
_LONGEST_NAME = 80
_LARGEST = float(np.finfo(np.float32).max)
# No longer exponents: Python's exact numbers, by which classes are ordered, end somewhere too.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)

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
    lines: list[int] | None
    """line each row begins on, counted from 1; None: the format has no lines"""
    columns: dict[str, list[str]]
    """the fields of each wanted column"""
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """names of the classes, in their order, of the columns that declare them"""
    n_short: int = 0
    """rows left out because they have too few fields"""

    def fault(self, place: int, message: str) -> DataError:
        """What is wrong with the row at this place."""
        return fault_at(self.path, self.lines, place, message)


def fault_at(path: Path, lines: Sequence[int] | None, place: int, message: str) -> DataError:
    """What is wrong with the row at this place, named by its line where there are lines."""
    if lines is None:
        return DataError(f"row {place + 1}: {message}", path=path)
    return DataError(message, path=path, line=lines[place])


def check_dev(dev: Path, train: Path) -> None:
    """Raise where the dev file is not there, or is the training file: that would score what was learnt by heart."""
    if not dev.is_file():
        raise UsageError(no_dev_file(dev))
    if train.is_file() and dev.samefile(train):
        raise UsageError(f"the dev file {dev} is the training file; give another, or none")


def no_dev_file(dev: Path) -> str:
    """What is told of a dev file that is none."""
    return f"--dev {dev} is a folder; a file is wanted" if dev.is_dir() else f"there is no dev file {dev}"


def check_header(header: Sequence[str], path: Path, line: int | None = None) -> None:
    """Raise where two columns have one name: which is meant could only be guessed."""
    twice = [name for name, count in Counter(header).items() if count > 1 and name]
    if twice:
        raise DataError(f"the header names {listed(twice)} more than once", path=path, line=line)


def missing_column(column: str, header: Iterable[str], what: str = "column") -> str:
    """`no column 'txt'; its columns: text, label. Did you mean 'text'?`"""
    names = [name for name in header if name]
    # What looks for the nearest takes minutes over names as long as lines, or over thousands of them.
    near = suggestion(column, [name for name in names[:1000] if len(name) <= _LONGEST_NAME])
    return f"no {what} {column[:_LONGEST_NAME]!r}; its {what}s: {listed(names)}.{near}"


def collect(
    path: Path, header: Sequence[str], records: Iterable[Line], wanted: Sequence[str], *, skips_short: bool = False
) -> Table:
    """The wanted columns; a DataError where one is missing, a row is short (unless such are skipped), or none is there.

    Skipped rows keep their numbers.
    """
    for name in wanted:
        if name not in header:
            raise DataError(f"has {missing_column(name, header)}", path=path)
    places = {name: header.index(name) for name in wanted}
    lines: list[int] = []
    numbers: list[int] = []
    columns: dict[str, list[str]] = {name: [] for name in wanted}
    n_rows = 0
    for n_rows, (line, fields) in enumerate(records, start=1):
        if len(fields) < len(header):
            if skips_short:
                continue
            raise DataError(f"too few fields: {len(fields)} instead of {len(header)}", path=path, line=line)
        lines.append(line)
        numbers.append(n_rows - 1)
        for name, place in places.items():
            columns[name].append(fields[place])
    if not lines:
        raise DataError("has a header but no rows", path=path)
    return Table(path=path, numbers=numbers, lines=lines, columns=columns, n_short=n_rows - len(lines))


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
    """The names in one line; of many, the first few and how many there are, and of a long one its beginning."""
    short = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in names[:_SHOWN]]
    shown = ", ".join(name if name.isprintable() else repr(name) for name in short)
    return shown if len(names) <= _SHOWN else f"{shown}, … ({len(names)} in all)"


def labels_of(table: Table, column: str) -> list[str]:
    """The labels without the white space around them; a DataError where one is empty."""
    labels = [field.strip() for field in table.columns[column]]
    if "" in labels:
        raise table.fault(labels.index(""), f"the label (column {column!r}) is empty or missing")
    return labels


def _classes(table: Table, task: Task) -> Labels:
    numbers = {written: number for number, written in enumerate(task.written_labels)}
    labels = labels_of(table, task.label)
    for place, label in enumerate(labels):
        if label not in numbers:
            raise table.fault(place, f"unknown label {label[:80]!r}; known: {listed(task.written_labels)}")
    return np.array([numbers[label] for label in labels], dtype=np.int64)


def _values(table: Table, task: Task) -> Labels:
    values: list[float] = []
    for place, label in enumerate(labels_of(table, task.label)):
        value = as_number(label)
        if value is None:
            raise table.fault(place, f"the label {label[:80]!r} is not a finite number")
        if abs(value) > _LARGEST:
            raise table.fault(place, f"the label {label[:80]} is larger than {_LARGEST:.2g}, too large to train on")
        values.append(value)
    return np.array(values, dtype=np.float64)
