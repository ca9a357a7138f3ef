"""`find` from the command line: the answer, what it used and left in the store, killed and resumed."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import frostline as public
from commands import Finished, Toy, announced_rng, curve_numbers, frostline, numbers, run_files, runs_in, start
from frostline.errors import UsageError
from frostline.records.depth import FULL, depth_words
from frostline.serving.bundle import open_bundle
from frostline.studies.registry import chapters
from frostline.testing.models import make_task

RATES = ("--lrs", "1e-3,3e-3,1e-2", "--epochs", "3", "--batch-size", "32")


@pytest.fixture(scope="module")
def toy(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """The tiny model on more rows, so that it learns something."""
    folder = tmp_path_factory.mktemp("rows")
    train, dev = make_task(folder / "reviews.csv", n_rows=176), make_task(folder / "dev.csv", n_rows=96, seed=1)
    return Toy(model=toy.model, train=train, dev=dev)


def find_of(toy: Toy, *more: str) -> tuple[str, ...]:
    """The command of a search on the toy task."""
    return ("find", str(toy.model), str(toy.train), "--dev", str(toy.dev), *RATES, "--json", *more)


def found_numbers(found: Any) -> dict[str, Any]:
    """What was found, without times and memory."""
    numbers = curve_numbers(found)
    points = [numbers.pop("full"), *numbers.pop("points")]
    return numbers | {"all": [{**point, "seconds": None, "peak_bytes": None} for point in points]}


@pytest.fixture(scope="module")
def found(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A search that was left alone."""
    return frostline(*find_of(toy, "--workers", "2"), out=tmp_path_factory.mktemp("found") / "out")


def test_the_answer_is_given_with_what_it_took(found: Finished) -> None:
    assert found.code == 0, found.stderr
    answer = found.json["answer"]
    assert answer.keys() == {
        "keep", "scale", "n_frozen", "trained_layers", "confidence", "decision", "stopped_because", "plausible",
        "established",
    }  # fmt: skip
    assert answer["decision"] in ("decided", "open")
    assert answer["trained_layers"] == 3 - (answer["n_frozen"] or 0)
    assert found.json["runs_spent"] > 0
    assert [tried["share"] for tried in found.json["line_search"]].count(1.0) >= 2, "two or more raced on"
    assert (answer["decision"] == "decided") == (answer["plausible"] == [answer["n_frozen"]])
    assert {path.name for path in found.out.iterdir()} >= {"find.json", "find.md", "find.svg", "find.yaml"}
    assert found.json["protocol"] == "tuned"


def test_the_verdicts_of_a_search_are_in_its_curve(found: Finished) -> None:
    answer: dict[str, Any] = found.json["answer"]
    asked, other = found.json["operating_points"]
    assert (asked["plausible"], asked["established"]) == (answer["plausible"], answer["established"])
    said = {one["n_frozen"]: one["verdict"] for one in asked["verdicts"]}
    assert all(point["verdict"] == said[point["n_frozen"]] for point in found.json["points"])
    assert [(point["is_better"], point["seeds_to_settle"]) for point in found.json["points"]] == [(None, None)] * len(
        found.json["points"]
    )
    assert (other["verdicts"], other["established"], other["plausible"]) == ([], None, []), "of a scale not asked for"
    assert [one["distribution"] for one in found.json["operating_points"]] == [[], []]


def test_no_run_of_a_race_enters_a_mean(found: Finished) -> None:
    runs = runs_in(found.out).values()
    assert {result.spec.role for result in runs} == {"replicate", "tuning"}
    for point in (found.json["full"], *found.json["points"]):
        strategy = "full" if point["n_frozen"] is None else f"freeze:{point['n_frozen']}"
        own = [r for r in runs if r.spec.role == "replicate" and r.spec.strategy == strategy and r.spec.seed < 5]
        assert sorted(point["scores"]) == sorted(result.score for result in own)


def test_again_nothing_is_run_and_the_answer_is_the_same(toy: Toy, found: Finished) -> None:
    again = frostline(*find_of(toy, "--rerun", "never"), out=found.out)
    assert again.code == 0, again.stderr
    assert again.json["runs"] == {"done": 0, "reused": found.json["runs"]["done"], "crashed": 0}
    assert curve_numbers(again.json) == curve_numbers(found.json)


@pytest.mark.thorough
def test_one_worker_finds_the_same_with_the_same_runs(toy: Toy, found: Finished, tmp_path: Path) -> None:
    alone = frostline(*find_of(toy, "--workers", "1"), out=tmp_path / "out")
    assert found_numbers(alone.json) == found_numbers(found.json)
    ours, others = runs_in(alone.out), runs_in(found.out)
    assert {key: numbers(result) for key, result in ours.items()} == {
        key: numbers(result) for key, result in others.items()
    }


@pytest.mark.parametrize("attempt", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_killed_at_a_random_moment_and_resumed(toy: Toy, found: Finished, tmp_path: Path, attempt: int) -> None:
    rng, out = announced_rng(), tmp_path / "out"
    for _ in range(1 + attempt):
        process = start(*find_of(toy, "--workers", "2"), "--out", str(out), cwd=tmp_path, own_group=True)
        n_before, deadline = len(run_files(out)), time.monotonic() + 60
        while len(run_files(out)) <= n_before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 1.5) + attempt)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    resumed = frostline(*find_of(toy, "--workers", "2"), out=out)
    assert resumed.code == 0, resumed.stderr
    assert found_numbers(resumed.json) == found_numbers(found.json)
    assert runs_in(out).keys() == runs_in(found.out).keys()


@pytest.mark.thorough
def test_a_curve_after_it_does_only_what_is_missing(toy: Toy, found: Finished, tmp_path: Path) -> None:
    command = ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *RATES, "--protocol", "tuned", "--json")
    curve = frostline(*command, out=found.out)
    n_replaced = sum(result.spec.seed > 4 for result in runs_in(found.out).values())
    assert curve.json["runs"]["reused"] == found.json["runs"]["done"] - n_replaced
    rates = {point["n_frozen"]: point["learning_rate"] for point in curve.json["points"]}
    assert all(rates[point["n_frozen"]] == point["learning_rate"] for point in found.json["points"])


def test_under_paper_the_rate_is_the_curves(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "out"
    searched = ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *RATES, "--seeds", "2", "--json")
    curve = frostline(*searched, "--frozen", "3", out=out)
    after = frostline(*find_of(toy, "--protocol", "paper"), out=out)
    assert after.json["learning_rate"] == curve.json["learning_rate"]
    assert after.json["line_search"] == curve.json["line_search"]
    assert after.json["runs"]["reused"] >= 3 + 2
    assert {result.spec.role for result in runs_in(out).values()} == {"replicate", "line_search"}


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task of one-word texts, which the full model learns; with the settings `LOW`, the head alone does not."""
    path = tmp_path_factory.mktemp("easy") / "easy.csv"
    path.write_text("text,label\n" + "good,good\nbad,bad\n" * 80)
    return path


LOW: dict[str, Any] = {"lr": 6e-4, "epochs": 10, "batch_size": 8, "seeds": 4}


def test_the_answers_model_is_handed_over(toy: Toy, easy: Path, tmp_path: Path) -> None:
    flags = ("--lr", "3e-3", "--epochs", "6", "--batch-size", "8", "--seeds", "4")
    places = ("--save", str(tmp_path / "model"), "--bundle", str(tmp_path / "bundle"))
    saved = frostline("find", str(toy.model), str(easy), *flags, *places, out=tmp_path / "out")
    assert saved.code == 0, saved.stderr
    found = json.loads((tmp_path / "out" / "find.json").read_text())
    depth = found["answer"]["n_frozen"]
    (point,) = [one for one in (found["full"], *found["points"]) if one["n_frozen"] == depth]
    said = f"{depth_words(FULL if depth is None else depth)}, learning rate {point['learning_rate']:g}, accuracy "
    where = f"{tmp_path / 'model'} and {tmp_path / 'bundle'}"
    assert f"Saved in {where}: {said}{point['mean']:.4f} on average\n" in saved.stdout
    assert json.loads((tmp_path / "model" / "frostline.json").read_text())["score"] in point["scores"]
    from transformers import AutoModelForSequenceClassification

    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").config.num_labels == 2
    manifest = open_bundle(tmp_path / "bundle").manifest
    assert (manifest.strategy, manifest.depth) == ("full" if depth is None else f"freeze:{depth}", depth)


def test_a_model_that_learned_nothing_is_not_handed_over(toy: Toy, tmp_path: Path) -> None:
    nothing = ("--lr", "1e-12", "--epochs", "1", "--seeds", "4", "--frozen", "3", "--save", str(tmp_path / "model"))
    done = frostline("find", str(toy.model), str(toy.train), "--dev", str(toy.dev), *nothing, out=tmp_path / "out")
    assert done.code == 2
    learned_nothing = "The full model did not learn: accuracy 0."
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"frostline: no model is saved. {learned_nothing}")
    assert "train longer (--epochs), use a higher learning rate (--lr)" in last
    assert last.endswith(f"`frostline report {tmp_path / 'out'}` shows the result")
    assert not (tmp_path / "model").exists()
    assert chapters(tmp_path / "out")[0].answer[0].startswith(learned_nothing)


def test_a_depth_that_is_no_better_than_a_constant_is_not_handed_over(toy: Toy, easy: Path, tmp_path: Path) -> None:
    constant = r"Training the head alone does no better than a constant answer \((\d) of \1 runs failed\), although"
    out, save = tmp_path / "out", tmp_path / "model"
    with pytest.raises(UsageError, match=rf"^no model is saved\. {constant}.* --scale ratio_above_chance"):
        public.find(toy.model, easy, **LOW, frozen="3", keep=0.4, save=save, out=out)
    assert not save.exists()
    (chapter,) = chapters(out)
    assert re.match(constant, chapter.answer[0])


def test_the_budget_that_a_refusal_asks_for_is_enough_and_untried_depths_are_named(
    toy: Toy, easy: Path, tmp_path: Path
) -> None:
    task: dict[str, Any] = LOW | {"frozen": "0-3", "out": tmp_path / "out"}
    with pytest.raises(UsageError, match=r"^the budget is 1 full-run equivalents; ") as refused:
        public.find(toy.model, easy, **task, budget=1)
    assert not list(tmp_path.rglob("runs/*.json"))
    (least,) = re.findall(r"use --budget ([\d.]+) or more$", str(refused.value))
    found = public.find(toy.model, easy, **task, budget=float(least))
    because = found.answer.stopped_because
    untried = {0, 1, 2, 3} - {point.n_frozen for point in found.points}
    assert untried
    assert f"; depths not tried: {', '.join(map(str, sorted(untried)))}; --budget " in because
    assert because.endswith(" pays for the whole curve")
    assert float(re.findall(r"--budget ([\d.]+)", because)[0]) >= found.runs_of_full_curve
    printed = str(found)
    assert because in " ".join(printed.split())
    assert printed.count("\n") < 20, "a title, the answer and a table"


@pytest.mark.parametrize("seeds", [2, 3, "0,1,2"])
def test_too_few_seeds_are_refused_from_python_too(seeds: int | str, toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="find decides nothing with fewer than 4 seeds of the full model"):
        public.find(toy.model, toy.train, lr=1e-3, epochs=1, seeds=seeds, frozen="2,3", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--keep", "1.5"), "keep is 1.5; it must be above 0 and at most 1"),
        (("--seeds", "3"), "find decides nothing with fewer than 4 seeds of the full model; there are 3"),
        (("--confidence", "1.2"), "confidence is 1.2"),
        (("--budget", "-3"), "budget is -3; it must be above 0 and finite, in full-run equivalents"),
        (("--budget", "soon"), "budget is 'soon'; give full-run equivalents, for example 12, or a time: 30min, 2h"),
        (("--budget", "1.5"), "choosing the learning rates and the first"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(
    toy: Toy, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    refused = frostline(*find_of(toy, *flags), out=tmp_path / "out")
    assert refused.code == 2
    assert said in refused.stderr
    assert refused.stderr.strip().count("\n") == 0
