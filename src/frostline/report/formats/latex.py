"""Chapters → LaTeX: booktabs tables for a paper."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from frostline.report.chapter import Chapter, arranged, by_class
from frostline.report.tables import NAMES, Table

_SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "−": "$-$",
    "–": "--",
    "…": r"\dots{}",
    '"': "''",
    # LaTeX would take a bracket after the end of a line for an argument.
    "[": "{[}",
    "]": "{]}",
}


def latex(chapters: Sequence[Chapter]) -> str:
    """The tables of all chapters, for `\\input`; they need the package booktabs."""
    parts = ["% \\usepackage{booktabs}"]
    for kind, group in by_class(arranged(chapters)).items():
        for table, caption in kind.paper_tables(group):
            parts += _tabular(table, caption)
    return "\n".join(parts) + "\n"


def _tabular(table: Table, caption: str) -> list[str]:
    columns = "".join("l" if header in table.left else "r" for header in table.headers)
    return [
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{escape(caption)}}}",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        _row(table.headers),
        *(line for rows in _by_result(table) for line in ("\\midrule", *rows)),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]


def escape(plain: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_SPECIAL.get(character, character) for character in plain)


def _by_result(table: Table) -> list[list[str]]:
    """The rows of each result; only its first row names task and model."""
    if table.headers[: len(NAMES)] != NAMES:
        return [[_row(row) for row in table.rows]]
    groups = itertools.groupby(table.rows, key=lambda row: row[:2])
    return [[_row(row if number == 0 else ("", "", *row[2:])) for number, row in enumerate(rows)] for _, rows in groups]


def _row(cells: Sequence[str]) -> str:
    return " & ".join(escape(cell) for cell in cells) + r" \\"
