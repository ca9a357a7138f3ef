"""Some columns of a file, and the rows that a task makes of them.

Every fault names the file and the line, or the row if the format has no lines. This module knows no particular format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import final

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError, UsageError, listed, suggestion
from frostline.kinds import LabelError, Labels, kind_named
from frostline.tasks.task import Rows, Task

_LONGEST_NAME = 80
_MOST_SHARED = 2**20
"""Distinct labels above this are measured numbers: they seldom repeat, and finding them again costs memory."""

Line = tuple[int, list[str]]
"""A line number, counted from 1, and the fields of the row that begins there."""


class Table(ABC):
    """Some columns of a file or a data set, in memory or not."""

    path: Path
    """what messages call it"""
    classes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """class names in order, for columns that declare them"""
    n_short: int = 0
    """rows skipped because they have too few fields"""
    sha256: str | None = None
    """digest of the bytes that the rows were read from; None if they are not one file"""

    @abstractmethod
    def column(self, name: str) -> list[str]:
        """All fields of a column."""

    @abstractmethod
    def fields_at(self, names: Sequence[str], places: NDArray[np.int64]) -> dict[str, list[str]]:
        """The fields of some columns at these places, which ascend."""

    @abstractmethod
    def numbers_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row numbers at these places, 0 for the first row below the header."""

    @abstractmethod
    def line(self, place: int) -> int | None:
        """The line on which a row begins, counted from 1; None: the format has no lines."""

    def fault(self, place: int, message: str) -> DataError:
        """The error for the row at this place."""
        return fault_at(self.path, self.line(place), place, message)

    def label_fault(self, error: LabelError) -> DataError:
        """The error for a label that the kind of task cannot read."""
        return DataError(str(error), path=self.path) if error.place is None else self.fault(error.place, str(error))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class FileColumns(Table):
    """Columns in memory."""

    path: Path
    numbers: NDArray[np.int64]
    """row numbers, 0 for the first row below the header (rows,)"""
    lines: list[int] | None
    """the line on which each row begins, counted from 1; None: the format has no lines"""
    columns: dict[str, list[str]]
    """the fields of each column"""
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    n_short: int = 0
    sha256: str | None = None

    def column(self, name: str) -> list[str]:
        """All fields of a column."""
        return self.columns[name]

    def fields_at(self, names: Sequence[str], places: NDArray[np.int64]) -> dict[str, list[str]]:
        """The fields of some columns at these places."""
        return {name: [self.columns[name][place] for place in places] for name in names}

    def numbers_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row numbers at these places; skipped rows have numbers too."""
        return self.numbers[places]

    def line(self, place: int) -> int | None:
        """The line on which a row begins; None: the format has no lines."""
        return None if self.lines is None else self.lines[place]


def fault_at(path: Path, line: int | None, place: int, message: str) -> DataError:
    """The error for the row at this place, with its line if the format has lines."""
    return DataError(message if line is not None else f"row {place + 1}: {message}", path=path, line=line)


def no_rows(path: Path) -> DataError:
    """The error for a header without rows."""
    return DataError("has a header but no rows", path=path)


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


def places_of(wanted: Sequence[str], header: Sequence[str], path: Path) -> dict[str, int]:
    """Where a row holds each of the wanted columns; a DataError if one is missing."""
    for name in wanted:
        if name not in header:
            raise DataError(f"has {missing_column(name, header)}", path=path)
    return {name: header.index(name) for name in wanted}


def collect(
    path: Path, header: Sequence[str], records: Iterable[Line], wanted: Sequence[str], *, skips_short: bool = False
) -> FileColumns:
    """The wanted columns; a DataError if one is missing, a row is short (unless `skips_short`), or there are no rows.

    Skipped rows keep their numbers.
    """
    places = places_of(wanted, header, path)
    lines: list[int] = []
    numbers: list[int] = []
    columns: dict[str, list[str]] = {name: [] for name in wanted}
    n_rows = 0
    for n_rows, (line, fields) in enumerate(records, start=1):
        if skips_short and len(fields) < len(header):
            continue
        check_length(fields, header, path, line)
        lines.append(line)
        numbers.append(n_rows - 1)
        for name, place in places.items():
            columns[name].append(fields[place])
    if not lines:
        raise no_rows(path)
    return FileColumns(
        path=path,
        numbers=np.array(numbers, dtype=np.int64),
        lines=lines,
        columns=columns,
        n_short=n_rows - len(lines),
    )


def check_length(fields: Sequence[str], header: Sequence[str], path: Path, line: int) -> None:
    """Raise if a row has fewer fields than the header."""
    if len(fields) < len(header):
        raise DataError(f"too few fields: {len(fields)} instead of {len(header)}", path=path, line=line)


def shared(fields: Iterable[str]) -> list[str]:
    """The fields as a list in which equal fields are one object: millions of labels take 8 bytes each."""
    known: dict[str, str] = {}
    return [
        known.setdefault(field, field) if len(known) < _MOST_SHARED else known.get(field, field) for field in fields
    ]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """Rows of a table of which only the labels are read: which of them are used is decided before texts are."""

    table: Table
    places: NDArray[np.int64]
    """where the rows are in the table, ascending (rows,)"""
    labels: Labels
    """class numbers (int64) or values (float64) (rows,)"""

    def __len__(self) -> int:
        return len(self.places)

    def take(self, positions: NDArray[np.int64]) -> Labelled:
        """The rows at these positions, in the order of the table."""
        kept = np.sort(positions)
        return Labelled(table=self.table, places=self.places[kept], labels=self.labels[kept])


def read_rows(task: Task, train: Labelled, dev: Labelled) -> tuple[Rows, Rows]:
    """The training and dev rows with their texts; a table that holds both is read once."""
    if train.table is not dev.table:
        return _with_texts(task, train), _with_texts(task, dev)
    places = np.concatenate([train.places, dev.places])
    order = np.argsort(places)
    labels = np.concatenate([train.labels, dev.labels])
    both = _with_texts(task, Labelled(table=train.table, places=places[order], labels=labels[order]))
    in_train = order < len(train)
    return both.take(np.flatnonzero(in_train)), both.take(np.flatnonzero(~in_train))


def _with_texts(task: Task, rows: Labelled) -> Rows:
    texts = rows.table.fields_at(task.columns[:-1], rows.places)
    return Rows(
        ids=rows.table.numbers_at(rows.places),
        texts=texts[task.text],
        pairs=None if task.text_pair is None else texts[task.text_pair],
        labels=rows.labels,
    )


def labelled(table: Table, task: Task) -> Labelled:
    """All rows of a table with the labels of a task; a DataError if its kind cannot read a label."""
    try:
        labels = kind_named(task.kind).encode(labels_of(table, task.label), task.written_labels)
    except LabelError as error:
        raise table.label_fault(error) from error
    return Labelled(table=table, places=np.arange(len(labels), dtype=np.int64), labels=labels)


def labels_of(table: Table, column: str) -> list[str]:
    """The labels without the white space around them; a DataError if one is empty."""
    fields = table.column(column)
    stripped = {field: field.strip() for field in set(fields)}
    is_plain = all(field == label for field, label in stripped.items())
    labels = fields if is_plain else [stripped[field] for field in fields]
    if "" in stripped.values():
        raise table.fault(labels.index(""), f"the label (column {column!r}) is empty or missing")
    return labels
