"""Curve or comparison → Markdown, for a pull request, a notebook or a wiki."""

from __future__ import annotations

import re
from collections.abc import Sequence

from frostline.analysis import Comparison, Curve, Finding, ProbePoint
from frostline.report import comparison_tables, comparison_wording, tables, wording

_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "\\`*_|~$#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
# Brackets alone are harmless, and intervals are full of them.
_LINK = re.compile(r"\](?=[(\[:])")


def markdown(curve: Curve, probes: Sequence[ProbePoint] = ()) -> str:
    """The curve as a Markdown page: answer, table, operating points, line search, remarks, how it was run."""
    sections = [
        f"# {escape(wording.title(curve))}",
        escape(wording.answer(curve)),
        *([escape(wording.decision(curve))] if isinstance(curve, Finding) else []),
        _table(tables.wide_table(curve)),
    ]
    sections.append(escape(wording.INTERVALS_NOTE))
    if curve.operating_points:
        sections += _titled(tables.operating_table(curve))
    if curve.line_search:
        sections += _titled(tables.line_search_table(curve))
    if probes:
        sections += _titled(comparison_tables.probe_table(probes))
    sections += _ending(wording.remarks(curve), wording.how_run(curve))
    return "\n\n".join(sections) + "\n"


def comparison_markdown(comparison: Comparison) -> str:
    """The comparison as a Markdown page: answer, table, rates, layer by layer, remarks, how it was run."""
    sections = [
        f"# {escape(wording.title_of(comparison))}",
        escape(comparison_wording.answer(comparison)),
        _table(comparison_tables.main_table(comparison)),
        escape(comparison_wording.NOTE),
    ]
    if comparison.line_search:
        sections += _titled(comparison_tables.rates_table(comparison))
    if comparison.probes:
        sections += _titled(comparison_tables.probe_table(comparison.probes))
    sections += _ending(wording.remarks(comparison), comparison_wording.how_run(comparison))
    return "\n\n".join(sections) + "\n"


def escape(plain: str) -> str:
    """Text that Markdown and HTML show as it is."""
    return _LINK.sub(r"\]", plain.translate(_SPECIAL))


def _ending(remarks: list[str], how_run: list[tuple[str, str]]) -> list[str]:
    """What to be careful about, and how it was run."""
    care = ["## Take care", _list(remarks)] if remarks else []
    return [*care, "## How it was run", _list([f"{name}: {what}" for name, what in how_run])]


def _titled(table: tables.Table) -> list[str]:
    return [f"## {escape(table.title)}", _table(table)]


def _table(table: tables.Table) -> str:
    rules = [":--" if header in table.left else "--:" for header in table.headers]
    heads = [escape(header) for header in table.headers]
    rows = [[escape(cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _list(items: list[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items)
