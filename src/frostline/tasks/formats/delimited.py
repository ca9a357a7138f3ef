"""CSV and TSV files. Both use the quoting rules of Python's csv module."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from frostline.errors import DataError, one_line
from frostline.tasks.content import Content
from frostline.tasks.formats.columns import FileColumns, Line, check_header, check_length, collect, places_of
from frostline.tasks.formats.text import MOST_CHARACTERS, IndexedFile, Lines, too_long


def read_header(path: Path) -> tuple[str, ...]:
    """The names of the columns, without the white space around them."""
    with _opened(path) as lines:
        return _header(lines)


def read(path: Path, wanted: Sequence[str]) -> FileColumns:
    """The wanted columns of the file."""
    with _opened(path) as lines:
        header = _header(lines)
        table = collect(path, header, _rows(path, header, lines, lines.number), wanted)
    return dataclasses.replace(table, sha256=lines.content.sha256)


def index(path: Path, wanted: Sequence[str]) -> IndexedFile:
    """The wanted columns of the file; the last one, the label, stays in memory."""
    with _opened(path) as lines:
        header = _header(lines)
        places = places_of(wanted, header, path)
        return IndexedFile(lines, partial(_rows, path, header), places, wanted[-1], parsing=_limited_fields)


def _header(lines: Lines) -> tuple[str, ...]:
    path = lines.content.path
    header = [name.strip() for name in next(_records(path, lines, 1))[1]]
    while header and not header[-1]:
        header.pop()
    check_header(header, path, line=1)
    return tuple(header)


def _rows(path: Path, header: Sequence[str], lines: Iterable[str], first_line: int) -> Iterator[Line]:
    """The rows below a header; a DataError if one has too few or too many fields."""
    # With one column, a blank line is a row with an empty text. With several, it separates nothing and is skipped.
    for line, fields in _records(path, lines, first_line, keeps_blank=len(header) == 1):
        if len(fields) != len(header):
            check_length(fields, header, path, line)
            if any(fields[len(header) :]):
                what = f"too many fields: {len(fields)} instead of {len(header)}"
                raise DataError(f"{what}; quote fields that contain the separator", path=path, line=line)
        yield line, fields


def _records(path: Path, lines: Iterable[str], first_line: int, *, keeps_blank: bool = False) -> Iterator[Line]:
    dialect = "excel-tab" if path.suffix.lower() == ".tsv" else "excel"
    # Strict: otherwise a quotation mark that is never closed silently swallows the rows up to the next one.
    reader = csv.reader(lines, dialect, strict=True)
    line = first_line
    try:
        for fields in reader:
            if fields or keeps_blank:
                yield line, fields or [""]
            line = first_line + reader.line_num
    except csv.Error as error:
        if "field limit" in str(error):
            advice = "is there a quotation mark that is never closed?"
            raise DataError(f"{too_long('a field')} Or {advice}", path=path, line=line) from error
        advice = "a field that begins with a quotation mark must end with one, and marks inside it must be doubled"
        raise DataError(f"bad quoting ({one_line(error)}); {advice}", path=path, line=line) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Lines]:
    with Lines(Content(path), newline="") as lines, _limited_fields():
        yield lines


@contextlib.contextmanager
def _limited_fields() -> Iterator[None]:
    # Around calls, never inside a generator: the limit belongs to the whole process, and a generator that is left
    # half-way would set it back in the middle of another file.
    before = csv.field_size_limit(MOST_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(before)
