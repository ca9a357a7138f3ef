"""Curves at several numbers of training rows: nested subsets, equal epochs or steps, one page with a heat map."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import frostline as public
from commands import Finished, Toy, check_one_line, frostline, runs_in
from frostline import tasks
from frostline.analysis import Equal
from frostline.cli import main
from frostline.records.requests import StudyRequest
from frostline.studies.grids import SizesRequest, SizesStudy
from frostline.studies.requests.resolve import Resolver

pytestmark = pytest.mark.usefixtures("draws")

SIZES = (16, 32, 64)
SETTINGS = ("--seeds", "2", "--lr", "1e-2", "--epochs", "1", "--batch-size", "8", "--frozen", "2,3", "--json")


@pytest.fixture(scope="module")
def grid(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A curve at three sizes."""
    sizes = ",".join(map(str, reversed(SIZES)))
    task = (str(toy.model), str(toy.train), "--dev", str(toy.dev), "--train-sizes", sizes)
    return frostline("curve", *task, *SETTINGS, out=tmp_path_factory.mktemp("sizes") / "out")


def test_there_is_a_curve_for_every_size(grid: Finished) -> None:
    assert grid.code == 0, grid.stderr
    found = grid.json
    assert found["equal"] == "steps"
    runs = runs_in(grid.out).values()
    assert {sum(epoch.n_steps for epoch in run.epochs) for run in runs} == {8}, "exactly as many steps at every size"
    assert {run.spec.subset_seed == run.spec.seed for run in runs} == {True}, "each seed draws its own rows"
    assert [sized["train_size"] for sized in found["train_sizes"]] == list(SIZES)
    for sized in found["train_sizes"]:
        points = [sized["curve"]["full"], *sized["curve"]["points"]]
        assert [point["n_frozen"] for point in points] == [None, 2, 3]
        assert all(len(point["train_scores"]) == 2 for point in points), "training scores beside dev scores"
    assert json.loads((grid.out / "grid.json").read_text()) == found
    assert len(runs_in(grid.out)) == len(SIZES) * 3 * 2
    page = (grid.out / "report.html").read_text()
    assert "Training rows" in page
    assert all(f"({size} rows)" in page for size in SIZES), "curves are told apart by their rows"


def test_a_report_of_the_folder_has_the_heat_map_too(grid: Finished, tmp_path: Path) -> None:
    assert main(["report", str(grid.out), "--format", "html", "--to", str(tmp_path)]) == 0
    assert "Training rows" in (tmp_path / "report.html").read_text()


def test_subsets_are_nested_and_stratified(toy: Toy) -> None:
    spec = tasks.parse(str(toy.train), dev=str(toy.dev))
    loaded = [tasks.load(tasks.resolve(spec.replace(max_train=size))).train for size in SIZES]
    ids = [set(rows.ids.tolist()) for rows in loaded]
    assert ids[0] < ids[1] < ids[2]
    for rows in loaded:
        assert abs(float(np.mean(rows.labels)) - 0.5) <= 0.5 / len(rows)


@pytest.mark.parametrize(
    ("sizes", "batch_size", "equal", "wanted"),
    [
        (SIZES, 8, "epochs", {16: 2, 32: 2, 64: 2}),
        (SIZES, 8, "steps", {16: 8, 32: 4, 64: 2}),  # as many steps as at the largest
        ((20, 64), 16, "steps", {20: 4, 64: 2}),  # 20 rows are two steps of 16
    ],
)
def test_steps_can_be_held_equal(
    sizes: tuple[int, ...], batch_size: int, equal: Equal, wanted: dict[int, int], toy: Toy, tmp_path: Path
) -> None:
    task = tasks.parse(str(toy.train))
    request = StudyRequest(model=str(toy.model), task=task, epochs=2, batch_size=batch_size)
    asked = SizesRequest(request=request, train_sizes=sizes, equal=equal)
    resolved = SizesStudy().resolve(asked, Resolver(tmp_path / "out", max_cache_bytes=0))
    assert {size: curve.base.epochs for size, curve in resolved.curves} == wanted
    assert [curve.base.task.max_train for _, curve in resolved.curves] == list(sizes)


def test_from_python(grid: Finished, toy: Toy, tmp_path: Path) -> None:
    found = public.sizes(
        toy.model, toy.train, dev=str(toy.dev), train_sizes=SIZES, out=grid.out, seeds=2, lr=1e-2, epochs=1,
        batch_size=8, frozen="2,3", rerun="never",
    )  # fmt: skip
    assert [sized.train_size for sized in found.train_sizes] == list(SIZES)
    assert found.report(tmp_path / "page.html").is_file()
    with pytest.raises(public.UsageError, match=r"call frostline\.sizes"):
        public.curve(toy.model, toy.train, train_sizes=SIZES, out=tmp_path / "out")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--train-sizes", "0,16"), ("train sizes are 0, 16",)),
        (("--train-sizes", "16,16"), ("each once",)),
        (("--train-sizes", "a"), ("train sizes is 'a'",)),
        (("--train-sizes", "16,5000"), ("train size 5000: there are",)),
        (("--train-sizes", "16", "--max-train", "8"), ("max_train and train sizes are both given",)),
        (("--equal", "steps"), ("--equal is for --train-sizes",)),
    ],
)
def test_mistakes_are_told_in_one_line(
    flags: tuple[str, ...], words: tuple[str, ...], toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = (str(toy.model), str(toy.train), "--out", str(tmp_path / "out"))
    check_one_line(main(["curve", *task, *flags]), 2, words, capfd)


def test_the_line_search_of_each_size_may_be_a_race(toy: Toy, tmp_path: Path) -> None:
    task = (str(toy.model), str(toy.train), "--dev", str(toy.dev), "--train-sizes", "16,32")
    raced = ("--lrs", "1e-3,1e-2,3e-2", "--line-search", "race", "--seeds", "2", "--batch-size", "4", "--frozen", "3")
    found = frostline("curve", *task, *raced, "--epochs", "3", "--json", out=tmp_path / "out")
    assert found.code == 0, found.stderr
    curves = [sized["curve"] for sized in found.json["train_sizes"]]
    assert all(len(curve["line_search"]) == 3 and curve["learning_rate"] for curve in curves)
