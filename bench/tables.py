"""Tables of what was found."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def show(rows: Sequence[Any], columns: Mapping[str, Callable[[Any], str]], *, as_json: bool = False) -> None:
    """Prints rows, which are dataclasses: a Markdown table, or JSON."""
    if as_json:
        json.dump([dataclasses.asdict(row) for row in rows], sys.stdout, indent=2)
        return
    print(table(rows, columns))


def table(rows: Sequence[Any], columns: Mapping[str, Callable[[Any], str]]) -> str:
    """A Markdown table with a line for each row."""
    cells = (list(columns), ["---"] * len(columns), *([cell(row) for cell in columns.values()] for row in rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def percent(share: float | None) -> str:
    """A share in a cell."""
    return "–" if share is None else f"{share:.1%}"
