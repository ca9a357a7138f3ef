"""CSV and TSV files. Both use the quoting rules of Python's csv module."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from frostline.errors import DataError, one_line
from frostline.tasks.formats.columns import FileColumns, Line, check_header, collect
from frostline.tasks.formats.text import MOST_CHARACTERS, read_utf8, too_long


def read_header(path: Path) -> tuple[str, ...]:
    """The names of the columns, without the white space around them."""
    with _limited_fields():
        header = [name.strip() for name in next(_records(path))[1]]
    while header and not header[-1]:
        header.pop()
    check_header(header, path, line=1)
    return tuple(header)


def read(path: Path, wanted: Sequence[str]) -> FileColumns:
    """The wanted columns of the file."""
    header = read_header(path)
    with _limited_fields():
        # With one column, a blank line is a row with an empty text. With several, it separates nothing and is skipped.
        records = _records(path, keeps_blank=len(header) == 1)
        next(record for record in records if record[1] != [""])
        return collect(path, header, _without_overflow(path, header, records), wanted)


def _records(path: Path, *, keeps_blank: bool = False) -> Iterator[Line]:
    dialect = "excel-tab" if path.suffix.lower() == ".tsv" else "excel"
    # Strict: otherwise a quotation mark that is never closed silently swallows the rows up to the next one.
    reader = csv.reader(io.StringIO(read_utf8(path), newline=""), dialect, strict=True)
    line = 1
    try:
        for fields in reader:
            if fields or keeps_blank:
                yield line, fields or [""]
            line = reader.line_num + 1
    except csv.Error as error:
        if "field limit" in str(error):
            advice = "is there a quotation mark that is never closed?"
            raise DataError(f"{too_long('a field')} Or {advice}", path=path, line=line) from error
        advice = "a field that begins with a quotation mark must end with one, and marks inside it must be doubled"
        raise DataError(f"bad quoting ({one_line(error)}); {advice}", path=path, line=line) from error


def _without_overflow(path: Path, header: Sequence[str], records: Iterator[Line]) -> Iterator[Line]:
    for line, fields in records:
        if any(fields[len(header) :]):
            message = (
                f"too many fields: {len(fields)} instead of {len(header)}; quote fields that contain the separator"
            )
            raise DataError(message, path=path, line=line)
        yield line, fields


@contextlib.contextmanager
def _limited_fields() -> Iterator[None]:
    before = csv.field_size_limit(MOST_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(before)
