"""Comparisons on few examples: balanced subsets, the same rows for all strategies, one table, chart and page."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import frostline as public
from commands import Finished, Toy, check_one_line, frostline, run_files, runs_in
from frostline import tasks
from frostline.cli import main
from frostline.kinds import CLASSIFICATION
from frostline.records.requests import StudyRequest
from frostline.records.results import RunResult
from frostline.studies.inside.few import FewRequest, FewStudy
from frostline.studies.requests.resolve import Resolver
from frostline.testing.models import make_task
from frostline.training.prefix import Prefixes
from frostline.training.prepare import Preparer

pytestmark = pytest.mark.usefixtures("draws")

PER_CLASS = (2, 5)
NAMES = ("full", "features")
SETTINGS = ("--seeds", "3", "--lr", "1e-2", "--steps", "6", "--epochs", "2", "--batch-size", "4", "--json")


def command(toy: Toy) -> tuple[str, ...]:
    """The shared comparison."""
    task = (str(toy.model), str(toy.train), "--dev", str(toy.dev), "--per-class", "5,2")
    return ("compare", *task, "--strategies", ",".join(NAMES), *SETTINGS)


@pytest.fixture(scope="module")
def done(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Three strategies at two sizes, three subsets each."""
    return frostline(*command(toy), out=tmp_path_factory.mktemp("few") / "out")


def test_there_is_a_comparison_for_every_size(done: Finished) -> None:
    assert done.code == 0, done.stderr
    found = done.json
    assert [one["per_class"] for one in found["sizes"]] == list(PER_CLASS)
    for one in found["sizes"]:
        compared = one["comparison"]
        assert compared["per_class"] == one["per_class"]
        assert compared["protocol"] == "paper"
        assert [point["name"] for point in compared["strategies"]] == list(NAMES)
        for point in compared["strategies"]:
            assert len(point["scores"]) == 3
            assert bool(point["ci"]) == (len(set(point["scores"])) > 1), "an interval, unless all scores are equal"
        assert all(point["difference_ci_adjusted"] for point in compared["strategies"][1:])
    assert json.loads((done.out / "few.json").read_text()) == found
    assert len(runs_in(done.out)) == len(PER_CLASS) * len(NAMES) * 3


def _rows(run: RunResult) -> frozenset[int]:
    """The row numbers that a run trained on."""
    return frozenset(Preparer(Prefixes(0)).prepare(run.spec.replace(strategy="full", is_cached=False)).train.row_ids)


def test_all_strategies_train_on_the_rows_that_the_seed_drew(done: Finished, toy: Toy) -> None:
    runs = list(runs_in(done.out).values())
    labels = dict(enumerate(tasks.load(tasks.resolve(tasks.parse(str(toy.train), dev=str(toy.dev)))).train.labels))
    drawn: dict[tuple[int, int], set[frozenset[int]]] = {}
    for run in runs:
        rows = _rows(run)
        assert Counter(labels[row] for row in rows) == dict.fromkeys((0, 1), run.n_train // 2), "equally many of each"
        drawn.setdefault((run.n_train, run.spec.seed), set()).add(rows)
    assert drawn.keys() == {(2 * size, seed) for size in PER_CLASS for seed in range(3)}
    assert all(len(rows) == 1 for rows in drawn.values()), "the same for all strategies"
    by_size = {(size, seed): next(iter(rows)) for (size, seed), rows in drawn.items()}
    assert all(by_size[4, seed] < by_size[10, seed] for seed in range(3)), "the larger subset holds the smaller"
    assert len({by_size[4, seed] for seed in range(3)}) == 3, "each seed draws its own"


def test_steps_are_the_same_at_every_size_and_dev_is_scored_a_few_times(done: Finished) -> None:
    stepped = [run for run in runs_in(done.out).values() if run.spec.learning_rate]
    assert {sum(epoch.n_steps for epoch in run.epochs) for run in stepped} == {6}
    assert {(run.n_train, run.spec.passes, len(run.epochs)) for run in stepped} == {(4, 3, 2), (10, 1, 2)}


def test_the_page_and_the_report_show_scores_against_rows_per_class(done: Finished, tmp_path: Path) -> None:
    page = (done.out / "report.html").read_text()
    assert "Few examples" in page
    assert "training rows per class" in page
    assert main(["report", str(done.out), "--format", "html", "--to", str(tmp_path)]) == 0
    again = (tmp_path / "report.html").read_text()
    assert "Few examples" in again, "a report of the folder puts the comparisons together"
    assert all(f"({2 * size} rows)" in again for size in PER_CLASS)
    shown = (done.out / "few.md").read_text()
    assert "With 2 rows per class" in shown
    assert "| 2 per class | 5 per class |" in shown


def test_the_config_file_asks_for_the_same_runs_and_nothing_is_done_twice(done: Finished, toy: Toy) -> None:
    before = run_files(done.out)
    settings = ("--config", str(done.out / "few.yaml"), "--json")
    again = frostline("compare", str(toy.model), str(toy.train), *settings, out=done.out)
    assert again.code == 0, again.stderr
    assert run_files(done.out) == before
    assert [one["comparison"]["runs"]["done"] for one in again.json["sizes"]] == [0, 0]


def test_from_python(done: Finished, toy: Toy, tmp_path: Path) -> None:
    found = public.few(
        toy.model, toy.train, dev=str(toy.dev), per_class=PER_CLASS, strategies=NAMES, out=done.out, seeds=3, lr=1e-2,
        steps=6, epochs=2, batch_size=4, rerun="never",
    )  # fmt: skip
    assert [one.per_class for one in found.sizes] == list(PER_CLASS)
    assert "per class" in str(found)
    assert found.report(tmp_path / "page.html").is_file()


def test_balanced_subsets_are_balanced_where_the_classes_are_not() -> None:
    labels = np.array([0] * 70 + [1] * 20 + [2] * 10)
    order = tasks.balanced_order(labels, CLASSIFICATION, seed=4)
    assert sorted(order) == list(range(100))
    for k in (1, 4, 10):
        assert np.bincount(labels[order[: 3 * k]]).tolist() == [k, k, k]
    assert not np.array_equal(order, tasks.balanced_order(labels, CLASSIFICATION, seed=5))
    fair = np.bincount(labels[tasks.subset_order(labels, CLASSIFICATION, seed=4)[:12]], minlength=3)
    assert fair.tolist() != [4, 4, 4], "twin: the ordinary order keeps the classes' shares"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--per-class", "0,16"), ("per_class are 0, 16",)),
        (("--per-class", "2", "--max-train", "8"), ("max_train and per_class are both given",)),
        (("--per-class", "2", "--steps", "0"), ("steps is 0",)),
        (("--steps", "5"), ("--steps is for --per-class",)),
    ],
)
def test_mistakes_are_told_in_one_line(
    flags: tuple[str, ...], words: tuple[str, ...], toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = (str(toy.model), str(toy.train), "--out", str(tmp_path / "out"), "--strategies", "full")
    check_one_line(main(["compare", *task, *flags]), 2, words, capfd)


@pytest.mark.parametrize(
    ("kind", "per_class", "words"),
    [
        ("classification", 5000, "per_class is 5000: class 'bad' has 2[0-9] training rows; use at most 2[0-9]"),
        ("regression", 2, "per_class is for tasks with classes; task has none: use curve --train-sizes"),
    ],
)
def test_rows_that_there_are_not(kind: str, per_class: int, words: str, toy: Toy, tmp_path: Path) -> None:
    task = tasks.parse(str(make_task(tmp_path / "task.csv", kind=kind)), kind=kind)
    request = StudyRequest(model=str(toy.model), task=task)
    asked = FewRequest(request=request, strategies=("full",), per_class=(per_class,))
    with pytest.raises(public.UsageError, match=words):
        FewStudy().resolve(asked, Resolver(tmp_path / "out", max_cache_bytes=0))
