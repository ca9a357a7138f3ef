"""Curves and comparisons → LaTeX: the paper's operating points, and the strategies, as booktabs tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from frostline.analysis import Comparison, Curve
from frostline.report import comparison_tables, summaries, text
from frostline.report.tables import Table

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
    # A bracket after a line's end would be taken for an argument.
    "[": "{[}",
    "]": "{]}",
}


def latex(curves: Sequence[Curve], comparisons: Sequence[Comparison] = ()) -> str:
    """A table of the curves' operating points, one of the strategies, for `\\input`; they need the package booktabs."""
    parts = ["% \\usepackage{booktabs}"]
    if curves:
        parts += _tabular(summaries.paper_table(curves), _caption(curves))
    if comparisons:
        parts += _tabular(comparison_tables.paper_table(comparisons), _STRATEGIES)
    return "\n".join(parts) + "\n"


_STRATEGIES = (
    "What each strategy reaches and costs. Means with 95% intervals over seeds (Student's t); seconds and peak memory "
    "of one run; front: no other strategy scores as high in less time, or higher in the same."
)


def _tabular(table: Table, caption: str) -> list[str]:
    columns = "".join("l" if header in table.left else "r" for header in table.headers)
    return [
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{escape(caption)}}}",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        _row(table.headers),
        *(line for rows in _by_request(table) for line in ("\\midrule", *rows)),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]


def escape(plain: str) -> str:
    """Text that LaTeX sets as it is."""
    return "".join(_SPECIAL.get(character, character) for character in plain)


def _caption(curves: Sequence[Curve]) -> str:
    keeps = dict.fromkeys(text.keep_share(point.keep) for curve in curves for point in curve.operating_points[:1])
    return (
        f"Nothing frozen, the fewest trained layers that keep {' or '.join(keeps) or 'the share'} of the full model's "
        "score, and everything frozen but the output. Means with 95% intervals over seeds (Student's t)."
    )


def _by_request(table: Table) -> list[list[str]]:
    """The rows of each curve or comparison; its names stand in the first of them."""
    groups = itertools.groupby(table.rows, key=lambda row: row[:2])
    return [[_row(row if number == 0 else ("", "", *row[2:])) for number, row in enumerate(rows)] for _, rows in groups]


def _row(cells: Sequence[str]) -> str:
    return " & ".join(escape(cell) for cell in cells) + r" \\"
