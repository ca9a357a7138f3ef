"""`change` and `scout` as commands: files, JSON, nothing done twice, two given models; and `find --start scout`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frostline
from commands import Finished, Toy, check_one_line, run_files
from commands import frostline as command
from frostline.analysis.inside.change import Change
from frostline.analysis.inside.scout import RULES, ScoutReport
from frostline.cli import main
from frostline.storage.runs import Store
from frostline.studies.inside.change import ChangeStudy, measured_depth
from frostline.studies.inside.scout import ScoutStudy
from frostline.studies.registry import chapters
from frostline.testing.studies import check_study

pytestmark = pytest.mark.usefixtures("draws")

TRAINING = ("--seeds", "3", "--lrs", "1e-3,3e-3", "--epochs", "2", "--batch-size", "16", "--workers", "1")


def asked(name: str, toy: Toy, *more: str) -> tuple[str, ...]:
    return (name, str(toy.model), str(toy.train), "--dev", str(toy.dev), "--json", *more)


@pytest.fixture(scope="module")
def changed(toy: Toy, undisturbed: Finished, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """`change` in a copy of the folder of the shared curve."""
    out = Path(shutil.copytree(undisturbed.out, tmp_path_factory.mktemp("change") / "out"))
    return command(*asked("change", toy, *TRAINING), out=out)


@pytest.fixture(scope="module")
def scouted(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return command(*asked("scout", toy, "--workers", "1"), out=tmp_path_factory.mktemp("scout") / "out")


def test_change_measures_the_full_model_and_half_frozen_runs(changed: Finished, undisturbed: Finished) -> None:
    assert changed.code == 0, changed.stderr
    found = Change.from_json(changed.json)
    full, half = found.strategies
    assert (full.strategy, half.strategy, half.n_frozen) == ("full", "freeze:1", 1)
    assert full.seeds == half.seeds == (0, 1, 2)
    assert found.runs.done == 6, "the line search of the curve is used again"
    assert (half.embeddings, half.layers[0].weights, half.layers[0].attention, half.layers[0].states) == (0, 0, 0, 0)
    for layer in (*full.layers, *half.layers[1:]):
        assert layer.weights > 0
        assert layer.attention is not None
        assert layer.attention_ci is not None
        assert layer.attention_ci[0] < layer.attention < layer.attention_ci[1]
    begins = {one.by: one for one in half.begins}
    assert begins["weights"].layer in (2, 3)
    point = undisturbed.json["operating_points"][0]
    assert found.operating_point is not None
    assert found.operating_point.n_frozen == point["n_frozen"]


def test_change_is_not_done_twice_and_reports_show_it(changed: Finished, toy: Toy, rng: np.random.Generator) -> None:
    before = run_files(changed.out)
    again = command(*asked("change", toy, *TRAINING), out=changed.out)
    assert run_files(changed.out) == before
    first, second = (json.loads(one.stdout) for one in (changed, again))
    for one in (first, second):
        del one["cost"], one["runs"]
    assert first == second
    assert {"change.json", "change.md", "change.svg", "change.yaml"} <= {path.name for path in changed.out.iterdir()}
    names = {type(chapter).__name__ for chapter in chapters(changed.out)}
    assert names == {"CurveChapter", "ChangeChapter"}
    store = Store(changed.out)
    (resolved,) = ChangeStudy().stored(store)
    check_study(ChangeStudy(), resolved, store, rng)
    config = command("change", "--config", str(changed.out / "change.yaml"), "--json", out=changed.out)
    assert config.code == 0, config.stderr
    assert run_files(changed.out) == before


def test_the_operating_depth_is_found_behind_a_curve_along_another_axis(out_copy: Path) -> None:
    wanted = measured_depth(Store(out_copy))
    assert wanted is not None
    (out_copy / "curve.json").unlink()
    assert measured_depth(Store(out_copy)) == wanted, "from the stored request and runs"
    for path in (out_copy / "specs").glob("curve-*.json"):
        path.unlink()
    assert measured_depth(Store(out_copy)) is None


def test_two_given_models_need_no_training(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tuned = tmp_path / "tuned"
    frostline.train(
        str(toy.model), str(toy.train), frozen=2, lr=3e-3, epochs=1, save=tuned, out=tmp_path / "out", dev=str(toy.dev)
    )
    same = frostline.change(str(toy.model), tuned=str(toy.model))
    assert same.task is None
    assert all(layer.weights == 0 and layer.states is None for layer in same.strategies[0].layers)
    assert "changed nothing" in str(same)
    capfd.readouterr()
    code = main(["change", str(toy.model), str(tuned), str(toy.train), "--dev", str(toy.dev), "--json"])
    assert code == 0
    found = Change.from_json(json.loads(capfd.readouterr().out))
    layers = found.strategies[0].layers
    assert [layer.weights > 0 for layer in layers] == [False, False, True]
    assert [layer.attention == 0 for layer in layers] == [True, True, False]
    assert [layer.states == 0 for layer in layers] == [True, True, False]
    assert found.n_rows == 24


def test_mistakes_are_one_line(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from frostline.testing.models import make_model

    other = make_model(tmp_path / "other", n_layers=2)
    for given, words in (
        ([str(toy.train), "sst2"], ("not a model folder", "change MODEL TUNED TASK")),
        ([str(other)], ("was not fine-tuned from", "has shape")),
        ([str(toy.train), "--rows", "0"], ("rows is 0",)),
    ):
        code = main(["change", str(toy.model), *given, "--out", str(tmp_path / "out")])
        check_one_line(code, 2, words, capfd)
    check_one_line(main(["scout", str(toy.model), str(toy.train), "--rows", "1"]), 2, ("rows is 1",), capfd)


def test_scout_names_a_depth_for_each_score(scouted: Finished, toy: Toy, rng: np.random.Generator) -> None:
    assert scouted.code == 0, scouted.stderr
    found = ScoutReport.from_json(scouted.json)
    assert [one.name for one in found.scores] == [rule.name for rule in RULES]
    assert all(0 <= one.named <= 3 and 0 < one.cost < 1 for one in found.scores)
    costs = {one.name: one.cost for one in found.scores}
    assert costs["probe"] == costs["logme"] < costs["signal_to_noise"] <= costs["fisher"]
    before = run_files(scouted.out)
    command(*asked("scout", toy, "--workers", "1"), out=scouted.out)
    assert run_files(scouted.out) == before
    store = Store(scouted.out)
    (resolved,) = ScoutStudy().stored(store)
    check_study(ScoutStudy(), resolved, store, rng)


def answer_of(finding: Any) -> tuple[Any, ...]:
    return finding["answer"]["n_frozen"], finding["answer"]["decision"], finding["answer"]["plausible"]


def test_find_may_start_where_scout_says_and_decides_the_same(toy: Toy, tmp_path: Path) -> None:
    settings = ("--lr", "3e-3", "--epochs", "1", "--batch-size", "8", "--seeds", "4", "--workers", "1")
    plain = command(*asked("find", toy, *settings, "--frozen", "1-3"), out=tmp_path / "plain")
    scout = command(*asked("find", toy, *settings, "--frozen", "1-3", "--start", "scout"), out=tmp_path / "scout")
    assert scout.code == plain.code == 0, scout.stderr
    assert answer_of(scout.json) == answer_of(plain.json)
    assert (tmp_path / "scout" / "scout.json").is_file()
    assert "start: scout" in (tmp_path / "scout" / "find.yaml").read_text()
