"""What the speed benches write into docs/speed.md; the measuring itself is no test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.readme import replaced
from bench.shapes import WORKS, rows_of, shapes_table
from bench.speed_page import speed_parts
from bench.workload import KINDS

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
STEPS = dict.fromkeys(KINDS, 0.1)
ONE = {"trainer": 0.8, "frostline": 0.81, "difference": 0.01, "interval": [-0.01, 0.03], "as_good": True}
MEMORY = [
    {"kind": kind, "n_train": n_train, "above_imports_bytes": 2.5e8}
    for kind, n_train in (("full", 40), ("freeze:3", 50))
]
FOUND: dict[str, Any] = {
    "asked": dict.fromkeys(("whole", "race", "small"), "30 runs"),
    "seconds": {"whole": {"trainer": 500.0, "bare": 400.0, "padded": 1800.0, "frostline": 100.0}},
    "ratios": {"whole": {"trainer": 5.0, "bare": 4.0, "padded": 18.0}, "step": dict.fromkeys(KINDS, 3.25)},
    "step_seconds": {"others": dict.fromkeys(("trainer", "bare", "padded"), STEPS), "frostline": STEPS},
    "machine": {"share_reached": dict.fromkeys(KINDS, 0.44), "operations_per_second": 1.5e11},
    "memory": {"trainer": MEMORY, "frostline": MEMORY},
    "scores": {"as written": {"full": ONE}},
}


def test_every_part_has_its_place_in_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    parts = dict(speed_parts(FOUND))
    assert set(parts) == {"curves", "steps", "memory", "scores"}
    for name, said in {**parts, "shapes": "a table"}.items():
        assert said in replaced(page, name, f"\n{said}\n")


def test_what_was_extrapolated_is_marked_and_what_was_measured_too() -> None:
    head, _, row = dict(speed_parts(FOUND))["curves"].splitlines()
    assert [name.strip() for name in head.strip("|").split("|")] == [
        "", "frostline (measured)", "Trainer (extrapolated)", "a bare loop (extrapolated)",
        "Trainer, padded to 128 (extrapolated)",
    ]  # fmt: skip
    assert "**18.0×**" in row


@pytest.mark.parametrize(("theirs", "is_reached"), [(0.36, True), (0.34, False)])
def test_a_line_is_reached_against_the_bare_loop(theirs: float, is_reached: bool) -> None:
    work = WORKS[0]
    seconds = {kind: {"bare": [theirs * line / 3.5] * 3, "trainer": [9.0] * 3, "frostline": [0.1] * 3}
               for kind, line in work.lines.items()}  # fmt: skip
    found = {"works": [{"work": work.text, "lines": dict(work.lines), "seconds": seconds}]}
    assert [row["is_reached"] for row in rows_of(found)] == [is_reached] * len(work.lines)
    assert ("NO" in shapes_table(found)) is not is_reached


def test_the_lines_are_those_of_the_claim() -> None:
    assert {(work.shape, work.task): list(work.lines.values()) for work in WORKS} == {
        ("BERT-base", "sst2"): [3.5, 5.0],
        ("BERT-base", "rte"): [2.0, 3.0],
        ("DeBERTa-v3-small", "sst2"): [2.0, 3.0],
        ("MPNet-base", "sst2"): [2.0, 3.0],
    }
