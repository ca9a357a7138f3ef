"""Chapters → CSV: one row per depth or strategy, every number unrounded."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from frostline.report.chapter import Chapter, arranged, by_class

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBERS = re.compile(r"[-+0-9.e ]+")


def spreadsheet(chapters: Sequence[Chapter]) -> str:
    """All chapters as CSV under one header; a missing value is an empty cell."""
    groups = by_class(arranged(chapters))
    rows = [row for kind, group in groups.items() for row in kind.rows(group)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _safe(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def _safe(value: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    said = str(value)
    is_words = value is said and not _NUMBERS.fullmatch(said)
    return f"'{said}" if is_words and said.startswith(_FORMULA) else value
