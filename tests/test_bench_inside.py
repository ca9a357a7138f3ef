"""What `bench.inside` makes of the answers of its commands; the runs themselves are no test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench import inside

from frostline.analysis.inside.scout import RULES, Measurements


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Answers for three pairs; the curve of a fourth is not done."""
    for number, pair in enumerate(inside.PAIRS[:4]):
        folder = tmp_path / pair.name
        folder.mkdir()
        point: dict[str, Any] = {"keep": 0.9, "n_frozen": number or None, "established": {"n_frozen": number}}
        point |= {"trained_layers": 6, "plausible": [number]}
        points = [point | {"scale": "ratio", "n_frozen": 6}, point | {"scale": "ratio_above_chance"}]
        full = {"mean": 0.8, "scores": {"0": 0.8, "1": 0.8, "2": 0.8}, "n_failed": 1}
        curve = {"n_layers": 6, "chance": 0.5, "full": full, "operating_points": points, "points": [{}, {}]}
        scores = [{"name": rule.name, "named": 3} for rule in RULES]
        changed = {"strategy": "full", "begins": [{"by": "weights", "layer": 2}]}
        answers: dict[str, Any] = {"scout": {"scores": scores}, "change": {"strategies": [changed]}}
        answers |= {"curve": curve} if number < 3 else {}
        if pair.has_axes:
            along = {"keep": 0.9, "scale": "ratio", "value": 12, "established": {"value": 24}}
            answers["curve-heads"] = {"operating_points": [along]}
        for name, answer in answers.items():
            (folder / f"{name}.json").write_text(json.dumps(answer))
    return tmp_path


def test_eight_pairs_of_the_claim_are_measured() -> None:
    scouted = [pair for pair in inside.PAIRS if pair.is_scouted]
    assert {(pair.model, pair.task) for pair in scouted} == {
        (model, task) for model in (inside.MINILM, inside.BGE) for task in ("sst2", "cola", "mrpc", "rte")
    }
    assert all(pair.n_train == (4000 if pair.task == "cola" else 1000) for pair in scouted)
    assert {pair.name for pair in inside.PAIRS if pair.has_axes} == {"minilm-sst2", "minilm-mrpc"}


def test_finished_pairs_are_written_for_scouts(out: Path, tmp_path: Path) -> None:
    file = tmp_path / "scouted.json"
    assert inside.write_scouted(out, file) == 3
    known = Measurements.from_json(json.loads(file.read_text()))
    assert [pair.n_frozen for pair in known.pairs] == [0, 1, 2], "no depth that keeps the share counts as 0"
    assert inside.write_scouted(out / "nothing", file) == 0
    assert Measurements.from_json(json.loads(file.read_text())).pairs == ()


def test_a_line_says_what_a_pair_gave(out: Path) -> None:
    found = inside.found(inside.PAIRS[0], out)
    assert found is not None
    assert found.operating == "6 (established: 0)"
    assert found.above_chance == "full (established: 0)"
    assert found.begins == "weights 2"
    assert found.heads == "12 (kept: 24)"
    assert found.subspace == "–"
    assert inside.found(inside.PAIRS[3], out) is None


def test_commands_of_a_pair(tmp_path: Path) -> None:
    def names(task: str) -> list[list[str]]:
        pair = next(pair for pair in inside.PAIRS if pair.name == f"minilm-{task}")
        return [[name for name, _ in part(pair, tmp_path, tmp_path)] for part in inside.PARTS]

    depths = ["scout", "heads", "curve", "change"]
    assert names("sst2") == [depths, ["curve-heads", "curve-subspace"], ["few"]]
    assert names("rte") == [depths, [], []]
    assert names("rotten-tomatoes") == [[], [], ["few"]]


def test_pairs_that_say_nothing_about_depth_are_left_out(out: Path, tmp_path: Path) -> None:
    file = out / "minilm-sst2" / "curve.json"
    curve = json.loads(file.read_text())
    failed = curve | {"full": curve["full"] | {"n_failed": 2}}
    spread = curve | {"operating_points": [one | {"plausible": [None, 0, 1]} for one in curve["operating_points"]]}
    for silent, why in ((failed, "learned nothing"), (spread, "any depth is plausible")):
        file.write_text(json.dumps(silent))
        assert inside.write_scouted(out, tmp_path / "scouted.json") == 2
        found = inside.found(inside.PAIRS[0], out)
        assert found is not None
        assert found.above_chance == why
