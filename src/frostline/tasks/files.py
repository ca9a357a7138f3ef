"""A user's own CSV or TSV, and the task its header and labels make.

Quoting is the csv module's, for both. JSONL, Parquet and the Hub are not read here.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from frostline.errors import DataError, UsageError
from frostline.records import Kind, TaskSpec
from frostline.tasks.table import (
    Line,
    Table,
    as_number,
    check_dev,
    check_header,
    collect,
    labels_of,
    listed,
    missing_column,
    read_utf8,
)
from frostline.tasks.task import Task

SUFFIXES = (".csv", ".tsv")

_TEXTS = (("text", "text_pair"), ("sentence1", "sentence2"), ("text", None), ("sentence", None))
"""Columns taken for the texts where none is named, the first pair that is there."""
_FIRST_TEXTS = ("text", "sentence1", "sentence")
"""Columns taken for the first text where only the second is named."""
_LABEL = "label"
_TWO_CLASSES = ("accuracy", "f1", "mcc")
_MORE_CLASSES = ("accuracy", "mcc")
_REGRESSION = ("pearson", "spearman")

METRICS = (*_TWO_CLASSES, *_REGRESSION)
"""All metrics some data of one's own can be scored by."""


def find_files(source: Path, dev: Path | None) -> tuple[Path, Path | None]:
    """The training file and the dev file, if there is one, of a file or folder; `dev` comes before the folder's own."""
    if source.is_dir():
        train = _one_of(source, ("train",))
        if train is None:
            raise UsageError(f"the folder {source} holds neither train.csv nor train.tsv")
        found = dev or _one_of(source, ("dev", "validation"))
    else:
        train, found = source, dev
    _check_path(train)
    if found is not None:
        check_dev(found, train)
        _check_path(found)
    return train, found


def read_header(path: Path) -> tuple[str, ...]:
    """The names of the columns, without the white space around them."""
    with _any_field_size():
        header = [name.strip() for name in next(_records(path))[1]]
    while header and not header[-1]:
        header.pop()
    check_header(header, path)
    return tuple(header)


def read(path: Path, wanted: Sequence[str]) -> Table:
    """The wanted columns of the file."""
    header = read_header(path)
    with _any_field_size():
        records = _records(path)
        next(records)
        return collect(path, header, _without_overflow(path, header, records), wanted)


def read_columns(path: Path) -> dict[str, list[str]]:
    """All columns of the file by name, in its order."""
    _check_path(path)
    header = read_header(path)
    # One column without a name, as pandas writes its index, can be kept apart; two could not.
    return read(path, [name for name in header if name or header.count("") == 1]).columns


def settle_columns(spec: TaskSpec, header: Sequence[str], path: Path) -> tuple[TaskSpec, list[str]]:
    """The spec with its columns named, by the user or by convention, and what is wrong with them."""
    settled = spec.replace(label=spec.label or _LABEL, **_texts(spec, header))
    named = [name for name in (settled.text, settled.text_pair, settled.label) if name is not None]
    if settled.text is None:
        known = "text, sentence, text and text_pair, sentence1 and sentence2"
        fault = f"{path} has no column of a usual name ({known}); its columns: {listed(list(header))}. Give --text"
        named, faults = [settled.label or _LABEL], [fault]
    else:
        faults = []
    faults += [f"{path} has {missing_column(name, header)}" for name in named if name not in header]
    if len(set(named)) < len(named):
        faults.append(f"--text, --text-pair and --label must be different columns; given: {', '.join(named)}")
    return settled, faults


def describe(spec: TaskSpec, table: Table) -> Task:
    """The task that a spec with settled columns and its training rows make."""
    assert spec.text is not None
    assert spec.label is not None
    labels = labels_of(table, spec.label)
    kind = spec.kind or _kind_of(labels, table.path)
    if len(set(labels)) == 1:
        raise DataError(f"all labels (column {spec.label!r}) are {labels[0][:80]!r}; nothing to learn", path=table.path)
    names = _class_names(labels, table.path) if kind == "classification" else None
    return Task(
        name=spec.name,
        title=str(spec.source),
        kind=kind,
        text=spec.text,
        text_pair=spec.text_pair,
        label=spec.label,
        label_names=names,
        metrics=_REGRESSION if names is None else _TWO_CLASSES if len(names) == 2 else _MORE_CLASSES,
    )


def _texts(spec: TaskSpec, header: Sequence[str]) -> dict[str, str | None]:
    if spec.text is not None:
        return {"text": spec.text, "text_pair": spec.text_pair}
    if spec.text_pair is not None:
        first = next((name for name in _FIRST_TEXTS if name in header and name != spec.text_pair), None)
        return {"text": first, "text_pair": spec.text_pair}
    for text, pair in _TEXTS:
        if text in header and (pair is None or pair in header):
            return {"text": text, "text_pair": pair}
    return {"text": None, "text_pair": None}


def _kind_of(labels: Sequence[str], path: Path) -> Kind:
    values = [as_number(label) for label in labels]
    numbers = [value for value in values if value is not None]
    if len(numbers) == len(values) and not all(value.is_integer() for value in numbers):
        example = next(label for label, value in zip(labels, numbers, strict=True) if not value.is_integer())
        raise UsageError(
            f"the labels of {path} are numbers such as {example}; pass --kind regression to predict them, "
            f"or --kind classification to take each for a class"
        )
    return "classification"


def _class_names(labels: Sequence[str], path: Path) -> tuple[str, ...]:
    names = sorted(set(labels))
    if any(as_number(name) is None for name in names):
        return tuple(names)
    names.sort(key=Decimal)
    for name, other in itertools.pairwise(names):
        if Decimal(name) == Decimal(other):
            raise DataError(f"the labels {name!r} and {other!r} are one number; write it in one way", path=path)
    return tuple(names)


def _one_of(folder: Path, stems: Sequence[str]) -> Path | None:
    paths = [folder / f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES]
    found = [path for path in paths if path.is_file()]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise UsageError(f"the folder {folder} holds {names}; keep one of them, or name the files")
    return found[0] if found else None


def _check_path(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} ends in {path.suffix or 'nothing'!r}; own data is read from {' and '.join(SUFFIXES)}")


def _records(path: Path) -> Iterator[Line]:
    dialect = "excel-tab" if path.suffix.lower() == ".tsv" else "excel"
    # Strict: without it, a quotation mark that is never closed swallows the rows up to the next one in silence.
    reader = csv.reader(io.StringIO(read_utf8(path), newline=""), dialect, strict=True)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        advice = "a field that begins with a quotation mark must end with one, and those inside it be doubled"
        raise DataError(f"bad quoting ({error}); {advice}", path=path, line=line) from error


def _without_overflow(path: Path, header: Sequence[str], records: Iterator[Line]) -> Iterator[Line]:
    for line, fields in records:
        if any(fields[len(header) :]):
            message = f"too many fields: {len(fields)} instead of {len(header)}; quote those that hold the separator"
            raise DataError(message, path=path, line=line)
        yield line, fields


@contextlib.contextmanager
def _any_field_size() -> Iterator[None]:
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)
