"""The command `compare`, and `train --strategy`: effects, again without work, killed and resumed, refused in a line."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frostline as public
from commands import Finished, Toy, check_one_line, curve_numbers, frostline, numbers, run_files, runs_in, start
from frostline.cli import main
from frostline.records.requests import ResolvedComparison
from frostline.report.comparison_chapter import ComparisonChapter
from frostline.report.curve_chapter import CurveChapter
from frostline.storage.runs import Store
from frostline.strategies import parse
from frostline.studies.registry import chapters
from frostline.studies.requests.resolve import trained_words
from frostline.testing.models import make_model, make_spec
from frostline.training.run import Runner

pytestmark = pytest.mark.usefixtures("draws")

NAMES = ("full", "freeze:+1", "lora:2", "features", "gradual")
SETTINGS = ("--seeds", "3", "--lrs", "1e-3,1e-2", "--epochs", "2", "--batch-size", "8", "--json")
N_FIRST = 4 * (2 * 2 + 2 * 2) + 5 * 3
"""runs of races that are not extended, two rungs of two rates with two seeds; and replicates"""
POINT_FIELDS = {
    "name", "n_frozen", "trained_layers", "mean", "std", "ci", "ci_dev", "seeds", "scores", "train_scores",
    "train_loss", "other_metrics", "difference", "difference_ci", "ratio", "ratio_ci", "ratio_above_chance",
    "learning_rate", "trained_parameters", "seconds", "peak_bytes", "n_failed", "mean_without_failed", "stored_bytes",
    "is_pareto",
}  # fmt: skip


def command(toy: Toy, *more: str) -> tuple[str, ...]:
    """The shared comparison."""
    task = (str(toy.model), str(toy.train), "--dev", str(toy.dev))
    return ("compare", *task, "--strategies", ",".join(NAMES), *SETTINGS, *more)


@pytest.fixture(scope="module")
def done(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The comparison, done by two workers in one go."""
    return frostline(*command(toy, "--workers", "2"), out=tmp_path_factory.mktemp("compare") / "out")


def test_the_first_lines_and_the_table_count_the_same_trained_parameters(done: Finished) -> None:
    for point in done.json["strategies"]:
        assert f"{point['name']}: trains {point['trained_parameters']:,} (" in done.stderr


@pytest.mark.parametrize("name", ["freeze:1", "lora:2", "lora:2@1", "adapter:2", "features", "features:bilstm"])
def test_the_summary_counts_added_modules_as_a_run_does(name: str, toy: Toy) -> None:
    strategy = parse(name).resolved(3, "classification")
    spec = make_spec(toy.model, toy.train, strategy="full")
    runner = Runner(max_cache_bytes=0)
    stack, _ = runner.begin(spec)
    before = stack.digest(())
    begun, plan = runner.begin(spec.replace(strategy=strategy.name))
    trained, total = begun.count(plan.trained(2)), begun.count(begun.all_parameters)
    assert f"trains {trained:,} ({trained / total:.1%})" in trained_words(strategy, strategy.plan(stack), stack, 2)
    assert stack.digest(()) == before, "the model itself is not touched"
    already = [parameter for parameter in plan.trained(2) if parameter in stack.all_parameters]
    assert (stack.count(already) != trained) == bool(plan.added), "added modules make the difference"


def test_it_ends_with_every_strategy_and_its_costs(done: Finished) -> None:
    assert done.code == 0, done.stderr
    found = done.json
    assert found["protocol"] == "tuned"
    assert [point["name"] for point in found["strategies"]] == list(NAMES), "as the user wrote them, in that order"
    for point in found["strategies"]:
        assert point.keys() >= POINT_FIELDS
        assert point["seeds"] == [0, 1, 2]
        assert point["stored_bytes"] == 4 * point["trained_parameters"]
        assert point["seconds"] > 0
    by_name = {point["name"]: point for point in found["strategies"]}
    assert by_name["full"]["ratio"] == 1
    assert by_name["freeze:+1"]["n_frozen"] == 2
    assert by_name["lora:2"]["n_frozen"] is None
    assert by_name["features"]["learning_rate"] is None
    assert by_name["features"]["trained_layers"] == 0
    assert len(found["probes"]) == 4
    n_runs = len(run_files(done.out))
    assert found["runs"] == {"done": n_runs, "reused": 0, "crashed": 0}
    assert n_runs >= N_FIRST
    assert {one["name"] for one in found["line_search"]} == set(NAMES) - {"features"}
    for name in ("compare.json", "compare.md", "compare.svg", "compare.yaml", "report.html"):
        assert (done.out / name).stat().st_size > 100
    assert json.loads((done.out / "compare.json").read_text()) == found


def test_the_rates_are_chosen_on_rows_held_out_of_train(done: Finished) -> None:
    runs = runs_in(done.out).values()
    assert {run.spec.role for run in runs} == {"tuning", "replicate"}
    assert all(run.n_dev == 36 for run in runs if run.spec.role == "tuning"), "half of 72: too few for 50"
    assert all(run.n_dev == 24 for run in runs if run.spec.role == "replicate")
    for point in done.json["strategies"]:
        tried = {one["learning_rate"] for one in done.json["line_search"] if one["name"] == point["name"]}
        assert point["learning_rate"] in (tried or {None})


def test_again_does_nothing(done: Finished, toy: Toy) -> None:
    before = run_files(done.out)
    again = frostline(*command(toy), out=done.out)
    assert again.json["runs"] == {"done": 0, "reused": len(before), "crashed": 0}
    assert curve_numbers(again.json) == curve_numbers(done.json)
    assert run_files(done.out) == before


@pytest.mark.thorough
def test_killed_half_way_it_ends_with_the_same_numbers(
    done: Finished, toy: Toy, tmp_path: Path, rng: np.random.Generator
) -> None:
    out = tmp_path / "out"
    process = start(*command(toy, "--workers", "2"), "--out", str(out), cwd=tmp_path, own_group=True)
    n_wanted = int(rng.integers(2, N_FIRST - 4))
    deadline = time.monotonic() + 120
    while len(run_files(out)) < n_wanted and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.poll() is None, "over before it was disturbed: no teeth"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    kept = run_files(out)
    ended = frostline(*command(toy, "--workers", "1"), out=out)
    assert ended.json["runs"]["reused"] >= len(kept)
    assert curve_numbers(ended.json) == curve_numbers(done.json) | _measured(ended.json)
    whole, resumed = runs_in(done.out), runs_in(out)
    assert whole.keys() == resumed.keys()
    assert all(numbers(whole[key]) == numbers(resumed[key]) for key in whole)


def _measured(found: Any) -> dict[str, Any]:
    """What is measured anew in every run: costs, and what follows from them."""
    return {"strategies": found["strategies"], "warnings": found["warnings"]}


def test_a_report_tells_of_it_without_a_model(done: Finished) -> None:
    (chapter,) = chapters(done.out)
    assert isinstance(chapter, ComparisonChapter)
    assert curve_numbers(chapter.comparison.to_json()) == curve_numbers(done.json)
    assert chapter.n_missing == 0
    assert len(chapter.runs) == len(run_files(done.out))


def test_a_curve_in_the_same_folder_finds_runs_and_probes(done: Finished, toy: Toy) -> None:
    task = (str(toy.model), str(toy.train), "--dev", str(toy.dev))
    settings = ("--protocol", "tuned", "--frozen", "2", *SETTINGS)
    found = frostline("curve", *task, *settings, out=done.out)
    assert found.code == 0, found.stderr
    assert found.json["runs"]["done"] == 0, "full and freeze:2 were compared already"
    (shown,) = [chapter for chapter in chapters(done.out) if isinstance(chapter, CurveChapter)]
    assert [probe.depth for probe in shown.probes] == [0, 1, 2, 3]
    assert len(Store(done.out).requests("compare", ResolvedComparison)) == 1


def test_its_settings_can_be_given_back(done: Finished, capfd: pytest.CaptureFixture[str]) -> None:
    code = main(["compare", "--config", str(done.out / "compare.yaml"), "--rerun", "never", "--json"])
    assert code == 0, capfd.readouterr().err
    assert curve_numbers(json.loads(capfd.readouterr().out)) == curve_numbers(done.json)


def test_from_python(done: Finished, toy: Toy, tmp_path: Path) -> None:
    found = public.compare(
        toy.model, toy.train, dev=str(toy.dev), strategies=list(NAMES), out=done.out, seeds=3, lrs=(1e-3, 1e-2),
        epochs=2, batch_size=8, rerun="never",
    )  # fmt: skip
    assert curve_numbers(found.to_json()) == curve_numbers(done.json)
    assert "lora:2" in found.report(tmp_path / "page.html").read_text()
    assert found.report(tmp_path / "table.csv").read_text().count("\n") == 1 + len(NAMES)


def test_a_dry_run_only_tells(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = main([*command(toy, "--dry-run"), "--out", str(tmp_path / "out")])
    assert code == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["runs"], told["missing"]) == (N_FIRST, N_FIRST)
    assert told["minutes"] > 0


@pytest.mark.parametrize(
    ("strategies", "words"),
    [
        ("full,freeze:99", ("'freeze:99': the model has 3 layers", "Did you mean 'freeze:3'?")),
        ("lorra:8", ("unknown strategy 'lorra:8'", "lora:R", "Did you mean 'lora'?")),
        ("lora:-1,layers:", ("'lora:-1' needs a whole number", "'layers:' has nothing after the colon")),
        ("freeze:99,layers:9", ("freeze:99", "no layer 9")),
        ("full,full", ("'full' is there twice",)),
        ("freeze:2,freeze:+1", ("'freeze:2' and 'freeze:+1' are the same for this model",)),
        ("features:ridge", ("not for classification", "features:logreg")),
        (" , ", ("no strategies; give at least one",)),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_line(
    strategies: str, words: tuple[str, ...], toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    task = (str(toy.model), str(toy.train), "--out", str(out))
    check_one_line(main(["compare", *task, "--strategies", strategies]), 2, words, capfd)
    assert not list(out.glob("specs/*")), "nothing is left that a report would stumble over"


def test_a_family_that_has_not_what_it_takes(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    llama = make_model(tmp_path / "llama", "llama", n_layers=2)
    task = (str(llama), str(toy.train), "--out", str(tmp_path / "out"))
    words = ("bitfit: the layers of LlamaForSequenceClassification have no biases",)
    check_one_line(main(["compare", *task, "--strategies", "full,bitfit"]), 2, words, capfd)


def test_train_refuses_what_the_model_has_not(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    llama = make_model(tmp_path / "llama", "llama", n_layers=2)
    task = (str(llama), str(toy.train), "--out", str(tmp_path / "out"), "--save", str(tmp_path / "saved"))
    code = main(["train", *task, "--strategy", "bitfit"])
    assert code == 2
    assert "have no biases" in capfd.readouterr().err


def test_features_that_would_be_too_large_are_refused(
    toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = (str(toy.model), str(toy.train), "--out", str(tmp_path / "out"), "--cache-max-gb", "1e-6")
    code = main(["compare", *task, "--strategies", "features"])
    assert code == 2
    assert "use fewer rows (--max-train) or a larger --cache-max-gb" in capfd.readouterr().err


@pytest.mark.parametrize("wrong", ["frozen", "keep", "scale"])
def test_settings_of_a_curve_are_refused(wrong: str, toy: Toy, tmp_path: Path) -> None:
    given: dict[str, Any] = {wrong: 1}
    with pytest.raises(public.UsageError, match=f"{wrong} is for curves"):
        public.compare(toy.model, toy.train, strategies="full", out=tmp_path, **given)


@pytest.mark.parametrize("strategy", ["lora:2", "adapter:2", "features", "bitfit"])
def test_a_model_of_any_strategy_is_saved_and_predicts(strategy: str, toy: Toy, tmp_path: Path) -> None:
    result = public.train(
        toy.model, toy.train, dev=str(toy.dev), strategy=strategy, save=tmp_path / "saved", out=tmp_path / "out",
        seeds=[0], lr=1e-2, epochs=2, batch_size=8,
    )  # fmt: skip
    predicted = frostline_predict(tmp_path / "saved", toy.dev)
    outputs = result.predictions.outputs.array()
    right = [result.label_names[number] for number in outputs.argmax(1)]
    assert [row["prediction"] for row in predicted] == right
    card = (tmp_path / "saved" / "README.md").read_text()
    is_plain = strategy in ("lora:2", "bitfit")
    assert (tmp_path / "saved" / "model.safetensors").is_file() == is_plain
    assert ("frostline predict" in card) != is_plain


def frostline_predict(folder: Path, file: Path) -> list[dict[str, str]]:
    """What the command predicts."""
    from frostline.saving.predict import predict_file

    rows = list(predict_file(folder, file))
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return list(csv.DictReader(io.StringIO(stream.getvalue())))


def test_the_library_does_not_open_half_a_model(toy: Toy, tmp_path: Path) -> None:
    """Without the adapters its answers would be others, in silence."""
    from transformers import AutoModelForSequenceClassification

    public.train(
        toy.model, toy.train, dev=str(toy.dev), strategy="adapter:2", save=tmp_path / "saved", out=tmp_path / "out",
        seeds=[0], lr=1e-2, epochs=1, batch_size=8,
    )  # fmt: skip
    with pytest.raises(OSError, match=r"model.safetensors|no file named"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")


def test_train_takes_one_of_the_two(toy: Toy, tmp_path: Path) -> None:
    wrong: tuple[dict[str, Any], ...] = ({}, {"frozen": 1, "strategy": "full"})
    for both in wrong:
        with pytest.raises(public.UsageError, match="give either frozen"):
            public.train(toy.model, toy.train, save=tmp_path / "saved", out=tmp_path / "out", **both)
