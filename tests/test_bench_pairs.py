"""What `bench.pairs` makes of the answers of its commands; the runs themselves are no test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench import pairs
from bench.pairs import PAIRS, Compared, claim, compared, summary

FULL_RUNS = {"find-tuned/find": 6.0, "paper/find": 5.0, "paper/curve": 10.0}


def write(
    out: Path, pair: str, answer: int | None, plausible: list[int | None], repeats: list[int | None], own: float = 0.7
) -> None:
    """The answers of one pair: the full model scores 0.8, the depths that are 5 layers frozen `own`."""
    for name in ("find-tuned/find", "curve-tuned-1/curve", "curve-tuned-2/curve", "curve-tuned-3/curve", "paper/find"):
        record: dict[str, Any] = {"cost": {"full_runs": FULL_RUNS.get(name, 12.0)}}
        record["answer"] = {"n_frozen": answer, "decision": "open", "plausible": plausible}
        record["full"], record["points"] = {"mean": 0.8}, [{"n_frozen": 5, "mean": own}, {"n_frozen": 4, "mean": 0.8}]
        repeat = repeats[int(name[12]) - 1] if name.startswith("curve") else None
        record["operating_points"] = [{"keep": 0.9, "scale": "ratio", "n_frozen": repeat}]
        file = out / pair / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record))
    curve = record | {"cost": {"full_runs": FULL_RUNS["paper/curve"]}}
    (out / pair / "paper" / "curve.json").write_text(json.dumps(curve))


def found(out: Path, number: int) -> Compared:
    one = compared(PAIRS[number], out)
    assert one is not None
    return one


def test_a_pair_is_compared_when_all_its_commands_are_done(tmp_path: Path) -> None:
    write(tmp_path, PAIRS[0].name, 5, [4, 5], [5, 4, 5])
    one = found(tmp_path, 0)
    assert (one.mode, one.agrees, one.cost, one.paper_cost) == (5, True, 0.5, 0.5)
    assert one.loss == pytest.approx(0.9 * 0.8 - 0.7)
    (tmp_path / PAIRS[0].name / "paper" / "find.json").unlink()
    assert compared(PAIRS[0], tmp_path) is None


@pytest.mark.parametrize(
    ("answer", "plausible", "repeats", "agrees"),
    [
        (4, [4], [5, 5, 4], False),
        (4, [4, 5], [5, 5, 4], True),
        (None, [None], [None, None, 5], True),
        (4, [4], [3, 4, 5], None),
    ],
)
def test_an_answer_agrees_with_the_mode_or_not(
    tmp_path: Path, answer: int | None, plausible: list[int | None], repeats: list[int | None], agrees: bool | None
) -> None:
    write(tmp_path, PAIRS[0].name, answer, plausible, repeats)
    assert found(tmp_path, 0).agrees is agrees


def test_the_summary_counts_pairs_without_a_mode_apart(tmp_path: Path) -> None:
    write(tmp_path, PAIRS[0].name, 5, [5], [5, 5, 5])
    write(tmp_path, PAIRS[1].name, 4, [4], [5, 5, 4])
    write(tmp_path, PAIRS[2].name, 4, [4, 5], [3, 4, 5])
    rows = [found(tmp_path, number) for number in range(3)]
    said = " ".join(summary(rows).split())
    assert "3 of 9 pairs are complete" in said
    assert "in 1 of 2 pairs with a mode" in said
    assert f"without a mode: {PAIRS[2].name}." in said
    assert "MiniLM-L6, 3 pairs: the median plausible set has 1 of 5 answers (line: 3), the median cost is 50.0%" in said
    assert "bge" not in said, "none of its pairs is done"
    assert f"0.020 ({PAIRS[0].name})" in said
    assert "3 of 9 pairs done" in claim(rows)
    assert "most often in 1 of 2. Cost: 50.0% of a curve's work" in claim(rows)


def test_the_lines_are_those_of_all_pairs() -> None:
    assert {pair.model for pair in PAIRS} == {line.model for line in pairs.LINES}
    assert [(line.set_size, line.cost) for line in pairs.LINES] == [(3, 0.70), (5, 0.55)]
