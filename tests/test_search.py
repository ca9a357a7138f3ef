"""`find` from the command line: the answer, what it used and left in the store, killed and resumed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from commands import Finished, Toy, announced_rng, curve_numbers, frostline, numbers, run_files, runs_in, start

RATES = ("--lrs", "1e-3,3e-3,1e-2", "--epochs", "2", "--batch-size", "8")


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
        "keep", "scale", "n_frozen", "trained_layers", "confidence", "decision", "stopped_because",
    }  # fmt: skip
    assert answer["decision"] in ("decided", "open")
    assert answer["trained_layers"] == 3 - (answer["n_frozen"] or 0)
    assert 0 < found.json["runs_spent"] <= found.json["runs_of_full_curve"]
    assert [tried["share"] for tried in found.json["line_search"]].count(0.5) == 2, "two of three raced on"
    assert {path.name for path in found.out.iterdir()} >= {"find.json", "find.md", "find.svg", "find.yaml"}
    operating = [point for point in found.json["operating_points"] if point["scale"] == answer["scale"]]
    assert operating[0]["n_frozen"] == answer["n_frozen"]


def test_no_run_of_the_race_enters_a_mean(found: Finished) -> None:
    assert {result.spec.role for result in runs_in(found.out).values()} == {"replicate"}


def test_again_nothing_is_run_and_the_answer_is_the_same(toy: Toy, found: Finished) -> None:
    again = frostline(*find_of(toy, "--rerun", "never"), out=found.out)
    assert again.code == 0, again.stderr
    assert again.json["runs"] == {"done": 0, "reused": found.json["runs"]["done"], "crashed": 0}
    assert curve_numbers(again.json) == curve_numbers(found.json)


def test_one_worker_finds_the_same_with_the_same_runs(toy: Toy, found: Finished, tmp_path: Path) -> None:
    alone = frostline(*find_of(toy, "--workers", "1"), out=tmp_path / "out")
    assert found_numbers(alone.json) == found_numbers(found.json)
    ours, others = runs_in(alone.out), runs_in(found.out)
    assert {key: numbers(result) for key, result in ours.items()} == {
        key: numbers(result) for key, result in others.items()
    }


@pytest.mark.parametrize("attempt", range(2))
def test_killed_at_a_random_moment_and_resumed(toy: Toy, found: Finished, tmp_path: Path, attempt: int) -> None:
    rng, out = announced_rng(), tmp_path / "out"
    for _ in range(2):
        process = start(*find_of(toy, "--workers", "2"), "--out", str(out), cwd=tmp_path, own_group=True)
        n_before, deadline = len(run_files(out)), time.monotonic() + 60
        while not (out / "paused").is_dir() and len(run_files(out)) <= n_before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 1.5) + attempt)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    resumed = frostline(*find_of(toy, "--workers", "2"), out=out)
    assert resumed.code == 0, resumed.stderr
    assert found_numbers(resumed.json) == found_numbers(found.json)
    assert runs_in(out).keys() == runs_in(found.out).keys()


def test_a_curve_after_it_does_only_what_is_missing(toy: Toy, found: Finished, tmp_path: Path) -> None:
    rate = str(found.json["learning_rate"])
    command = ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *RATES[2:], "--lr", rate, "--json")
    curve = frostline(*command, out=found.out)
    n_of_search = len(found.json["full"]["seeds"]) + sum(len(point["seeds"]) for point in found.json["points"])
    assert curve.json["runs"]["reused"] == n_of_search


def test_a_finished_line_search_is_not_raced_again(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "out"
    searched = ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *RATES, "--seeds", "2", "--json")
    curve = frostline(*searched, "--frozen", "3", out=out)
    after = frostline(*find_of(toy), out=out)
    assert not (out / "paused").exists()
    assert after.json["learning_rate"] == curve.json["learning_rate"]
    assert after.json["runs"]["reused"] >= 2


def test_the_answers_model_is_handed_over(toy: Toy, found: Finished, tmp_path: Path) -> None:
    saved = frostline(*find_of(toy, "--save", str(tmp_path / "model")), out=found.out)
    assert saved.code == 0, saved.stderr
    from transformers import AutoModelForSequenceClassification

    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").config.num_labels == 2


@pytest.mark.parametrize("seeds", ["0,2", "0,1"])
def test_a_model_that_learned_nothing_is_not_handed_over(toy: Toy, tmp_path: Path, seeds: str) -> None:
    # At this rate nothing is learned. With seed 1, the head's first values are above chance by luck.
    nothing = ("--lr", "1e-12", "--epochs", "1", "--seeds", seeds, "--frozen", "3", "--save", str(tmp_path / "model"))
    done = frostline("find", str(toy.model), str(toy.train), "--dev", str(toy.dev), *nothing, out=tmp_path / "out")
    assert (tmp_path / "out" / "find.json").is_file()
    if seeds == "0,1":
        assert "seed 1" in done.stderr.splitlines()[-1]
    else:
        assert done.code == 2
        assert done.stderr.splitlines()[-1].startswith(
            "frostline: no model is saved: no run with 3 frozen layers scored"
        )
    assert (tmp_path / "model").exists() == (seeds == "0,1")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--keep", "1.5"), "keep is 1.5; it must be above 0 and at most 1"),
        (("--seeds", "1"), "find compares at least 2 seeds; there is one: give more"),
        (("--confidence", "1.2"), "confidence is 1.2"),
        (("--budget", "-3"), "budget is -3; it must be above 0 and finite, in full-run equivalents"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(
    toy: Toy, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    refused = frostline(*find_of(toy, *flags), out=tmp_path / "out")
    assert refused.code == 2
    assert said in refused.stderr
    assert refused.stderr.strip().count("\n") == 0
