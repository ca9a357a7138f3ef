"""Some columns of a file, and the rows that a task makes of them.

Every fault names the file and the line, or the row if the format has no lines. This module knows no particular format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np

from frostline.errors import DataError, UsageError, listed, suggestion
from frostline.kinds import LabelError, kind_named
from frostline.tasks.task import Rows, Task

_LONGEST_NAME = 80

Line = tuple[int, list[str]]
"""A line number, counted from 1, and the fields of the row that begins there."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class FileColumns:
    """Some columns of a file."""

    path: Path
    """the file"""
    numbers: list[int]
    """row numbers, 0 for the first row below the header"""
    lines: list[int] | None
    """the line on which each row begins, counted from 1; None: the format has no lines"""
    columns: dict[str, list[str]]
    """the fields of each column"""
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """class names in order, for columns that declare them"""
    n_short: int = 0
    """rows skipped because they have too few fields"""

    def fault(self, place: int, message: str) -> DataError:
        """The error for the row at this place."""
        return fault_at(self.path, self.lines, place, message)

    def label_fault(self, error: LabelError) -> DataError:
        """The error for a label that the kind of task cannot read."""
        return DataError(str(error), path=self.path) if error.place is None else self.fault(error.place, str(error))


def fault_at(path: Path, lines: Sequence[int] | None, place: int, message: str) -> DataError:
    """The error for the row at this place, with its line if the format has lines."""
    if lines is None:
        return DataError(f"row {place + 1}: {message}", path=path)
    return DataError(message, path=path, line=lines[place])


def check_dev(dev: Path, train: Path) -> None:
    """Raise if the dev file does not exist, or is the training file: that would score what was memorised."""
    if not dev.is_file():
        raise UsageError(no_dev_file(dev))
    if train.is_file() and dev.samefile(train):
        raise UsageError(f"the dev file {dev} is the training file; give another, or none")


def no_dev_file(dev: Path) -> str:
    """The message for a dev file that does not exist."""
    return f"--dev {dev} is a folder; give a file" if dev.is_dir() else f"there is no dev file {dev}"


def check_header(header: Sequence[str], path: Path, line: int | None = None) -> None:
    """Raise if two columns have the same name: nobody can tell which is meant."""
    twice = [name for name, count in Counter(header).items() if count > 1 and name]
    if twice:
        raise DataError(f"the header names {listed(twice)} more than once", path=path, line=line)


def missing_column(column: str, header: Iterable[str], what: str = "column") -> str:
    """`no column 'txt'; its columns: text, label. Did you mean 'text'?`"""
    names = [name for name in header if name]
    # Finding the nearest name takes minutes if there are thousands of names, or if they are as long as whole lines.
    near = suggestion(column, [name for name in names[:1000] if len(name) <= _LONGEST_NAME])
    return f"no {what} {column[:_LONGEST_NAME]!r}; its {what}s: {listed(names)}.{near}"


def collect(
    path: Path, header: Sequence[str], records: Iterable[Line], wanted: Sequence[str], *, skips_short: bool = False
) -> FileColumns:
    """The wanted columns; a DataError if one is missing, a row is short (unless `skips_short`), or there are no rows.

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
    return FileColumns(path=path, numbers=numbers, lines=lines, columns=columns, n_short=n_rows - len(lines))


def to_rows(table: FileColumns, task: Task) -> Rows:
    """The rows of a task; a DataError if its kind cannot read a label."""
    try:
        labels = kind_named(task.kind).encode(labels_of(table, task.label), task.written_labels)
    except LabelError as error:
        raise table.label_fault(error) from error
    return Rows(
        ids=np.array(table.numbers, dtype=np.int64),
        texts=table.columns[task.text],
        pairs=None if task.text_pair is None else table.columns[task.text_pair],
        labels=labels,
    )


def labels_of(table: FileColumns, column: str) -> list[str]:
    """The labels without the white space around them; a DataError if one is empty."""
    labels = [field.strip() for field in table.columns[column]]
    if "" in labels:
        raise table.fault(labels.index(""), f"the label (column {column!r}) is empty or missing")
    return labels
