"""Chapters → CSV: one row per depth or strategy, every number unrounded.

A spreadsheet takes a cell that begins with one of `= + - @`, a tab or a carriage return for a formula, and a formula in
foreign text may send data away. `as_csv` puts an apostrophe before such text, as spreadsheets themselves do; numbers
stay numbers. Text that begins with apostrophes and then such a character gets one more, so the way back is exact:
`re.sub(r"^'(?='*[=+@\\t\\r-])", "", cell)`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from frostline.report.chapter import Chapter, arranged, by_class

_FORMULA = re.compile(r"'*[=+@\t\r-]")
_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
_NUMBERS = re.compile(f"{_NUMBER}( {_NUMBER})*")


def spreadsheet(chapters: Sequence[Chapter]) -> str:
    """All chapters as CSV under one header; a missing value is an empty cell."""
    groups = by_class(arranged(chapters))
    rows = [row for kind, group in groups.items() for row in kind.rows(group)]
    return as_csv(list(dict.fromkeys(name for row in rows for name in row)), rows)


def as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Rows as CSV in which no cell is a formula; a value that a row does not have is an empty cell."""
    lines = [columns, *([row.get(name) for name in columns] for row in rows)]
    return "".join(_line([_safe(cell) for cell in cells]) for cells in lines)


def _line(cells: Sequence[object]) -> str:
    # With a line end of its own, csv would not quote a carriage return inside a cell, and a reader would end the row.
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\r\n").writerow(cells)
    return stream.getvalue().removesuffix("\r\n") + "\n"


def _safe(value: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBERS.fullmatch(value):
        return f"'{value}"
    return value
