"""`--axis`: curves and searches along other axes than depth, from the command to the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import Finished, Toy, check_one_line, differences, frostline, run_files
from frostline.analysis import Curve, value_of
from frostline.cli import main
from frostline.records.requests import ResolvedRequest
from frostline.report.curve_chapter import CurveChapter
from frostline.storage.runs import Store
from frostline.studies.curve import CurveStudy
from frostline.studies.planning.axis import axis_of
from frostline.studies.registry import chapters

SETTINGS = ("--lr", "3e-3", "--epochs", "1", "--batch-size", "8")


def _curve(toy: Toy, out: Path, *more: str) -> Finished:
    task = (str(toy.model), str(toy.train), "--dev", str(toy.dev))
    done = frostline("curve", *task, *SETTINGS, *more, "--json", out=out)
    assert done.code == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a curve of depth."""
    out = tmp_path_factory.mktemp("axes") / "out"
    _curve(toy, out, "--frozen", "0,3", "--seeds", "3")
    return out


@pytest.mark.parametrize(
    ("axis", "more", "values", "strategies"),
    [
        ("transfer", (), [3, 2, 1, 0], ["transfer:3", "transfer:2", "transfer:1", "transfer:0"]),
        ("reinit", ("--axis-values", "2,0"), [0, 2], ["reinit:0", "reinit:2"]),
        ("heads", ("--axis-values", "1,3", "--rank", "top"), [3, 1], ["heads:2.0+3.0+3.1", "heads:3.0"]),
        ("subspace", ("--axis-values", "5,0"), [5, 0], ["subspace:5", "subspace:0"]),
    ],
)
def test_a_curve_along_each_axis(
    axis: str, more: tuple[str, ...], values: list[int], strategies: list[str], toy: Toy, folder: Path
) -> None:
    before = run_files(folder)
    done = _curve(toy, folder, "--axis", axis, *more, "--seeds", "1")
    found = done.json
    assert (found["axis"]["name"], found["axis"]["values"], found["axis"]["strategies"]) == (axis, values, strategies)
    assert [(point["n_frozen"], point["value"]) for point in found["points"]] == [(None, value) for value in values]
    assert ("d90" in found) == (axis == "subspace")
    assert found["runs"] == {"done": len(values), "reused": 1, "crashed": 0}, "the full model is shared"
    assert before.items() <= run_files(folder).items()
    assert json.loads((folder / "curve.json").read_text()) == found
    again = frostline("curve", "--config", str(folder / "curve.yaml"), "--json", out=folder)
    assert again.code == 0, again.stderr
    assert again.json["runs"] == {"done": 0, "reused": 1 + len(values), "crashed": 0}
    assert again.json["points"] == found["points"]


def test_reports_find_every_axis_without_a_model(folder: Path) -> None:
    store = Store(folder)
    stored = CurveStudy().stored(store)
    named = {"depth" if one.axis is None else one.axis.name for one in stored}
    assert {"depth", "transfer", "subspace"} <= named, "the tests above were here"
    told = [chapter for chapter in chapters(folder) if isinstance(chapter, CurveChapter)]
    assert {chapter.about for chapter in told} == named
    for chapter in told:
        assert [at for at, _ in chapter.learning] == [value_of(p) for p in (chapter.curve.full, *chapter.curve.points)]


def test_the_intrinsic_dimension_stands_beside_the_depth_curve_of_the_folder(toy: Toy, folder: Path) -> None:
    found = _curve(toy, folder, "--axis", "subspace", "--axis-values", "5,0", "--seeds", "3").json
    depth = next(one.curve for one in chapters(folder) if isinstance(one, CurveChapter) and one.curve.axis is None)
    asked = depth.operating_points[0].to_json()
    sure = found["operating_points"][0]["established"]
    assert found["d90"] == {
        "value": sure.get("value"),
        "scale": "ratio",
        "beside": {"n_frozen": asked["n_frozen"], "trained_layers": asked["trained_layers"]},
    }


def test_heads_are_ranked_on_training_rows_before_the_runs(toy: Toy, folder: Path) -> None:
    found = _curve(toy, folder, "--axis", "heads", "--axis-values", "2", "--seeds", "1").json
    (strategy,) = found["axis"]["strategies"]
    assert strategy.startswith("heads:")
    assert len(strategy.split("+")) == 2
    assert found["axis"]["total"] == 6
    assert {run.spec.strategy for run in Store(folder).results()} >= {strategy, "full"}


def test_a_search_along_an_axis(toy: Toy, tmp_path: Path) -> None:
    task = (str(toy.model), str(toy.train), "--dev", str(toy.dev))
    values = ("--axis", "subspace", "--axis-values", "0,4", "--seeds", "4")
    save = ("--save", str(tmp_path / "model"))
    done = frostline("find", *task, *SETTINGS, *values, *save, "--json", out=tmp_path / "out")
    found = json.loads((tmp_path / "out" / "find.json").read_text())
    answer = found["answer"]
    assert answer["n_frozen"] is None
    assert set(answer["plausible"]) <= {None, 0, 4}
    if done.code == 2:  # the tiny model may not learn in one epoch; then nothing is saved, and the line says so
        assert "no model is saved" in done.stderr
    else:
        strategy = json.loads((tmp_path / "model" / "frostline.json").read_text())["strategy"]
        assert strategy == ("full" if answer.get("value") is None else f"subspace:{answer['value']}")
    (chapter,) = [one for one in chapters(tmp_path / "out") if isinstance(one, CurveChapter)]
    assert chapter.curve.axis is not None
    assert len(chapter.runs) == sum(len(point["seeds"]) for point in (found["full"], *found["points"]))


def test_open_values_get_more_seeds(toy: Toy, folder: Path) -> None:
    found = _curve(
        toy, folder, "--axis", "transfer", "--axis-values", "3,0", "--seeds", "2", "--until-settled", "--max-seeds", "3"
    ).json
    seeds = {len(point["seeds"]) for point in (found["full"], *found["points"])}
    assert seeds <= {2, 3}
    assert all(point["verdict"] in ("kept", "short", "open") for point in found["points"])


WRONG = [
    (("curve", "--axis", "transfer", "--axis-values", "4"), ("--axis-values 4: the model has 3 layers; use 0 to 3",)),
    (("curve", "--axis", "heads", "--axis-values", "0,7"), ("the model has 6 attention heads; use 1 to 6",)),
    (("curve", "--axis", "subspace", "--axis-values", "99999999"), ("the subspace has more dimensions than the",)),
    (("curve", "--axis", "transfer", "--frozen", "2"), ("frozen is for the axis depth; axis is transfer",)),
    (("curve", "--axis-values", "2"), ("axis values are for another axis than depth",)),
    (("curve", "--axis", "transfer", "--rank", "top"), ("rank is for the axis heads",)),
    (("curve", "--axis", "transfer", "--probe"), ("probe shows every layer beside its depth",)),
    (("curve", "--axis", "transfer", "--train-sizes", "8,16"), ("train sizes are a grid against depth",)),
    (("curve", "--axis", "transfer", "--lrs", "1e-3,2e-3", "--rates-at-depths"), ("rates at depths are a grid",)),
    (("curve", "--axis", "reinit", "--axis-values", "1,1"), ("axis values are 1, 1; give whole numbers, each once",)),
    (("find", "--axis", "transfer"), ("find searches along depth, heads and subspace", "`curve --axis transfer`")),
]


@pytest.mark.parametrize(("given", "words"), WRONG, ids=[" ".join(given) for given, _ in WRONG])
def test_what_does_not_fit_is_one_line(
    given: tuple[str, ...], words: tuple[str, ...], toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command, *flags = given
    task = [str(toy.model), str(toy.train), "--dev", str(toy.dev), "--out", str(tmp_path / "out"), "--epochs", "1"]
    rate = [] if "--lrs" in flags else ["--lr", "1e-3"]
    check_one_line(main([command, *task, *rate, *flags]), 2, words, capfd)


def test_ranked_heads_are_named_in_a_comparison(toy: Toy, tmp_path: Path) -> None:
    task = (str(toy.model), str(toy.train), "--dev", str(toy.dev))
    names = ("--strategies", "full,heads:2@top,attention@2", "--seeds", "1")
    done = frostline("compare", *task, *SETTINGS, *names, "--json", out=tmp_path / "out")
    assert done.code == 0, done.stderr
    assert [point["name"] for point in done.json["strategies"]] == ["full", "heads:2@top", "attention@2"]
    trained = {run.spec.strategy for run in Store(tmp_path / "out").results()}
    assert trained == {"full", "heads:3.0+3.1", "attention@2"}
    assert "heads:2@top: trains" in done.stderr


def test_the_cheapest_places_come_last() -> None:
    """Searches begin at the end of an axis, because it is cheap there."""
    release = Path(__file__).parent.parent / "data" / "release-0.1" / "out"
    resolved: ResolvedRequest = CurveStudy().stored(Store(release))[0]
    axis = axis_of(resolved)
    costs = [axis.costs[place] for place in axis.places]
    assert costs == sorted(costs, reverse=True)
    assert [axis.strategy_of(one.value).name for one in axis.values] == [f"freeze:{n}" for n in resolved.depths]


def _without_call(value: Any) -> Any:
    """Without what the call took and what came later; the expected best of several runs changed on purpose."""
    kept = {name: item for name, item in value.items() if name not in ("cost", "runs", "gains")}
    points = [point | {"expected_best": None} for point in (kept["full"], *kept["points"])]
    return kept | {"full": points[0], "points": points[1:]}


def test_curves_of_depth_are_written_as_before() -> None:
    """The JSON of stored curves, as the code before other axes wrote it, in the same order; gains came with them."""
    written = json.loads((Path(__file__).parent.parent / "data" / "depth_curves.json").read_text(encoding="utf-8"))
    release = Path(__file__).parent.parent / "data" / "release-0.1" / "out"
    found = [one.curve for one in chapters(release) if isinstance(one, CurveChapter)]
    again = json.loads(json.dumps([_without_call(curve.to_json()) for curve in found]))
    assert differences(again, [_without_call(one) for one in written]) == []
    assert all(Curve.from_json(curve.to_json()) == curve for curve in found)
