"""Chapters → Markdown, for a pull request, a notebook or a wiki."""

from __future__ import annotations

import re
from collections.abc import Sequence

from frostline.report.chapter import Chapter, arranged
from frostline.report.tables import Table

_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "\\`*_|~$#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
# Brackets alone are harmless, and intervals are full of them.
_LINK = re.compile(r"\](?=[(\[:])")


def markdown(chapters: Sequence[Chapter]) -> str:
    """One Markdown page per chapter: answer, tables, warnings, how it was run."""
    return "\n".join(_page(chapter) for chapter in arranged(chapters))


def escape(plain: str) -> str:
    """Text that Markdown and HTML show as it is."""
    return _LINK.sub(r"\]", plain.translate(_SPECIAL))


def _page(chapter: Chapter) -> str:
    first, *others = chapter.wide_tables
    sections = [f"# {escape(chapter.title)}", *(escape(said) for said in chapter.answer), _table(first)]
    if chapter.note:
        sections.append(escape(chapter.note))
    for table in others:
        sections += [f"## {escape(table.title)}", _table(table)]
    if chapter.warnings:
        sections += ["## Warnings", _list(chapter.warnings)]
    if chapter.how_run:
        sections += ["## How it was run", _list([f"{name}: {value}" for name, value in chapter.how_run])]
    return "\n\n".join(sections) + "\n"


def _table(table: Table) -> str:
    rules = [":--" if header in table.left else "--:" for header in table.headers]
    heads = [escape(header) for header in table.headers]
    rows = [[escape(cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items)
