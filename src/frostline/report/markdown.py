"""Curve → Markdown, for a pull request, a notebook or a wiki."""

from __future__ import annotations

import re

from frostline.analysis import Curve, Finding
from frostline.report import sentences, tables

_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "\\`*_|~$#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
# Brackets alone are harmless, and intervals are full of them.
_LINK = re.compile(r"\](?=[(\[:])")


def markdown(curve: Curve) -> str:
    """The curve as a Markdown page: answer, table, operating points, line search, remarks, how it was run."""
    sections = [
        f"# {escape(sentences.title(curve))}",
        escape(sentences.answer(curve)),
        *([escape(sentences.decision(curve))] if isinstance(curve, Finding) else []),
        _table(tables.wide_table(curve)),
    ]
    sections.append(escape(sentences.INTERVALS_NOTE))
    if curve.operating_points:
        sections += _titled(tables.operating_table(curve))
    if curve.line_search:
        sections += _titled(tables.line_search_table(curve))
    if remarks := sentences.remarks(curve):
        sections += ["## Take care", _list(remarks)]
    said = [f"{name}: {what}" for name, what in sentences.how_run(curve)]
    sections += ["## How it was run", _list(said)]
    return "\n\n".join(sections) + "\n"


def escape(plain: str) -> str:
    """Text that Markdown and HTML show as it is."""
    return _LINK.sub(r"\]", plain.translate(_SPECIAL))


def _titled(table: tables.Table) -> list[str]:
    return [f"## {escape(table.title)}", _table(table)]


def _table(table: tables.Table) -> str:
    rules = [":--" if header in table.left else "--:" for header in table.headers]
    heads = [escape(header) for header in table.headers]
    rows = [[escape(cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _list(items: list[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items)
