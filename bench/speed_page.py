"""Writes the tables of docs/speed.md from what the speed benches measured.

    python -m bench.speed_page --speed runs/bench-speed/speed.json --shapes runs/bench-shapes/shapes.json

Text between `<!-- name -->` and `<!-- /name -->` is replaced; parts that were not measured stay. Times that are
extrapolated from a few steps are marked.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.readme import replaced
from bench.shapes import shapes_table
from bench.tables import table
from bench.workload import FULL, KINDS
from frostline.report import numbers
from frostline.storage import atomic

Found = dict[str, Any]

PAGE = Path("docs/speed.md")
_OTHERS = {"trainer": "Trainer", "bare": "a bare loop", "padded": "Trainer, padded to 128"}
_COMMANDS = {"whole": "", "race": ", `--line-search race`", "small": ""}
"""curves that are measured, and what their command has besides"""


def main() -> None:
    """Fills the page with what is there."""
    parser = argparse.ArgumentParser(description="The tables of docs/speed.md.")
    parser.add_argument("--speed", type=Path, default=Path("runs/bench-speed/speed.json"))
    parser.add_argument("--shapes", type=Path, default=Path("runs/bench-shapes/shapes.json"))
    asked = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if asked.speed.is_file():
        for name, said in speed_parts(json.loads(asked.speed.read_text(encoding="utf-8"))):
            page = replaced(page, name, f"\n{said}\n")
    if asked.shapes.is_file():
        page = replaced(page, "shapes", f"\n{shapes_table(json.loads(asked.shapes.read_text(encoding='utf-8')))}\n")
    atomic.write(PAGE, page)


def speed_parts(found: Found) -> Iterator[tuple[str, str]]:
    """The names and texts of the places that `bench.speed` fills."""
    yield "curves", curves_part(found)
    yield "steps", steps_part(found)
    if "memory" in found:
        yield "memory", memory_part(found["memory"])
    if "scores" in found:
        yield "scores", scores_part(found["scores"])


def curves_part(found: Found) -> str:
    """Whole curves."""
    rows = [(name, found["seconds"][name], found["ratios"][name]) for name in _COMMANDS if name in found["seconds"]]
    cells = {"": lambda row: f"{found['asked'][row[0]]}{_COMMANDS[row[0]]}"}
    cells["frostline (measured)"] = lambda row: numbers.duration(row[1]["frostline"])
    for way, name in _OTHERS.items():
        cells[f"{name} (extrapolated)"] = lambda row, way=way: (  # type: ignore[misc]
            f"{numbers.duration(row[1][way])}: **{row[2][way]:.1f}×**"
        )
    return table(rows, cells)


def steps_part(found: Found) -> str:
    """Steps of each kind, and the share of the machine's own rate."""
    others, ours = found["step_seconds"]["others"], found["step_seconds"]["frostline"]
    ratios, machine = found["ratios"]["step"], found["machine"]
    cells = {
        "": _kind,
        "Trainer": lambda kind: _ms(others["trainer"][kind]),
        "bare loop": lambda kind: _ms(others["bare"][kind]),
        "Trainer, padded to 128": lambda kind: _ms(others["padded"][kind]),
        "frostline": lambda kind: _ms(ours[kind]),
        "faster than Trainer": lambda kind: f"{ratios[kind]:.1f}×",
        "of the multiply rate": lambda kind: numbers.rough_share(machine["share_reached"][kind]),
    }
    rate = machine["operations_per_second"] / 1e9
    return (
        f"{table(KINDS, cells)}\n\nThe last column counts only useful arithmetic (matrix products over real tokens), "
        f"relative to the rate of one thread in the same call, {rate:.0f} GFLOP/s."
    )


def memory_part(memory: Found) -> str:
    """Peaks of one run, half of the layers frozen and full."""
    half = {way: [one for one in memory[way] if one["kind"] != FULL] for way in ("frostline", "trainer")}
    cells = {"training rows": lambda way: {"frostline": "frostline", "trainer": "Trainer"}[way]}
    for place, one in enumerate(half["frostline"]):
        cells[f"{one['n_train']:,}"] = lambda way, place=place: _mb(half[way][place])  # type: ignore[misc]
    full = {way: next(one for one in memory[way] if one["kind"] == FULL) for way in half}
    return (
        f"{table(list(half), cells)}\n\nFull model, {full['frostline']['n_train']:,} rows: {_mb(full['frostline'])} "
        f"against {_mb(full['trainer'])}."
    )


def scores_part(scores: Found) -> str:
    """Scores beside Trainer's."""
    rows = [(way, kind, one) for way, by_kind in scores.items() for kind, one in by_kind.items()]
    return table(
        rows,
        {
            "": lambda row: row[0],
            "run": lambda row: _kind(row[1]),
            "Trainer": lambda row: numbers.score(row[2]["trainer"]),
            "frostline": lambda row: numbers.score(row[2]["frostline"]),
            "ours − theirs": lambda row: (
                f"{numbers.difference(row[2]['difference'])} {numbers.difference_interval(row[2]['interval'])}"
            ),
        },
    )


def _kind(kind: str) -> str:
    return kind if kind == FULL else f"{kind.removeprefix('freeze:')} of 6 frozen"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}" if seconds < 0.01 else f"{1000 * seconds:.1f}"


def _mb(one: Found) -> str:
    return f"{one['above_imports_bytes'] / 1e6:.0f}"


if __name__ == "__main__":
    main()
