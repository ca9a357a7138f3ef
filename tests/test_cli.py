"""`frostline curve` end to end: what it prints, what it leaves, and that nothing is computed twice."""

from __future__ import annotations

import itertools
import json
import math
import socket
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import (
    DEPTHS,
    N_RUNS,
    N_SEARCHED,
    N_SEEDS,
    SETTINGS,
    Finished,
    Toy,
    curve_numbers,
    frostline,
    numbers,
    run_files,
    runs_in,
)
from frostline import __version__, tasks
from frostline.cli import main
from frostline.records.requests import ResolvedRequest
from frostline.records.results import RunResult
from losses import losses_of

CURVE_FIELDS = {
    "model", "task", "metric", "chance", "n_layers", "protocol", "learning_rate", "line_search", "full", "points",
    "operating_points", "is_monotone", "cost", "runs", "warnings",
}  # fmt: skip
POINT_FIELDS = {
    "mean", "std", "ci", "ci_dev", "seeds", "scores", "train_scores", "train_loss", "other_metrics", "difference",
    "difference_ci", "ratio", "ratio_ci", "ratio_above_chance", "learning_rate", "trained_parameters", "seconds",
    "peak_bytes", "n_failed", "mean_without_failed",
}  # fmt: skip
OPERATING_POINT_FIELDS = {"keep", "scale", "n_frozen", "trained_layers", "distribution"}


def points_of(curve: Any) -> list[Any]:
    return [curve["full"], *curve["points"]]


class TestCurve:
    def test_ends_well_with_one_json_object_on_stdout_and_progress_on_stderr(self, undisturbed: Finished) -> None:
        assert undisturbed.code == 0, undisturbed.stderr
        assert isinstance(undisturbed.json, dict)
        assert f"[{N_RUNS}/{N_RUNS}]" in undisturbed.stderr
        assert "the line search chose the learning rate" in undisturbed.stderr
        assert "Traceback" not in undisturbed.stderr

    def test_every_field_of_the_contract_is_there(self, undisturbed: Finished) -> None:
        curve = undisturbed.json
        assert set(curve) >= CURVE_FIELDS
        for point in points_of(curve):
            assert set(point) >= POINT_FIELDS
        for point in curve["points"]:
            assert {"n_frozen", "trained_layers"} <= set(point)
        for found in curve["operating_points"]:
            assert set(found) >= OPERATING_POINT_FIELDS
        assert {"wall_seconds", "prefix_seconds", "train_seconds", "cache_bytes"} <= set(curve["cost"])
        assert curve["runs"] == {"done": N_RUNS, "reused": 0, "crashed": 0}
        assert [set(tried) for tried in curve["line_search"]] == [{"learning_rate", "score", "share"}] * N_SEARCHED

    def test_says_what_was_asked(self, undisturbed: Finished, toy: Toy) -> None:
        curve = undisturbed.json
        assert (curve["model"], curve["task"], curve["metric"]) == (str(toy.model), "reviews", "accuracy")
        assert (curve["n_layers"], curve["protocol"], curve["chance"]) == (3, "paper", 0.5)
        assert [point["n_frozen"] for point in curve["points"]] == list(DEPTHS)
        assert [point["trained_layers"] for point in curve["points"]] == [3 - depth for depth in DEPTHS]
        assert [(found["keep"], found["scale"]) for found in curve["operating_points"]] == [
            (0.9, "ratio"),
            (0.9, "ratio_above_chance"),
        ]
        rates = {tried["learning_rate"]: tried["score"] for tried in curve["line_search"]}
        assert list(rates) == [1e-3, 3e-3]
        assert rates[curve["learning_rate"]] == max(rates.values())

    def test_the_numbers_of_a_point_fit_together(self, undisturbed: Finished) -> None:
        curve = undisturbed.json
        full = curve["full"]
        for point in points_of(curve):
            assert point["seeds"] == [0, 1, 2]
            assert all(len(point[name]) == N_SEEDS for name in ("scores", "train_scores", "train_loss"))
            assert point["mean"] == pytest.approx(statistics.mean(point["scores"]), abs=1e-12)
            assert point["std"] == pytest.approx(statistics.stdev(point["scores"]), abs=1e-12)
            assert point["ratio"] == pytest.approx(point["mean"] / full["mean"], abs=1e-12)
            assert point["difference"] == pytest.approx(point["mean"] - full["mean"], abs=1e-12)
            assert point["n_failed"] == len(point["failed_seeds"]) >= sum(score <= 0.5 for score in point["scores"])
            assert all(math.isfinite(loss) and loss > 0 for loss in point["train_loss"])
            assert point["ci"] is None or point["ci"][0] <= point["mean"] <= point["ci"][1]
            assert (point["ci"] is None) == (len(set(point["scores"])) == 1)
            assert set(point["other_metrics"]) == {"f1", "macro_f1", "mcc", "roc_auc"}
        trained = [point["trained_parameters"] for point in points_of(curve)]
        assert trained == sorted(trained, reverse=True)
        assert len(set(trained)) == len(trained)
        for found in curve["operating_points"]:
            if full[found["scale"]] is None:  # the full model is not above chance: there is nothing to keep
                assert (found["n_frozen"], found["trained_layers"], found["distribution"]) == (None, None, [])
            else:
                assert sum(share["share"] for share in found["distribution"]) in (0, pytest.approx(1))

    def test_the_numbers_are_those_of_the_runs(self, undisturbed: Finished) -> None:
        curve, runs = undisturbed.json, list(runs_in(undisturbed.out).values())
        assert len(runs) == N_RUNS
        for point in points_of(curve):
            own = [r for r in runs if r.spec.role == "replicate" and r.plan.n_frozen == point["n_frozen"]]
            own.sort(key=lambda result: result.spec.seed)
            assert point["scores"] == [result.score for result in own]
            assert point["train_loss"] == [result.epochs[-1].train_loss for result in own]
            for result in own:
                labels = result.predictions.labels.array()
                answers = result.predictions.outputs.array().argmax(axis=1)
                assert result.score == pytest.approx(float(np.mean(answers == labels)))
        searched = [result for result in runs if result.spec.role == "line_search"]
        assert {result.spec.strategy for result in searched} == {"full"}
        assert sorted((r.spec.learning_rate, r.score) for r in searched) == [
            (tried["learning_rate"], tried["score"]) for tried in curve["line_search"]
        ]

    def test_the_line_search_is_no_replicate_under_another_name(self, undisturbed: Finished) -> None:
        rate = undisturbed.json["learning_rate"]
        alike = [
            r
            for r in runs_in(undisturbed.out).values()
            if r.spec.strategy == "full" and r.spec.learning_rate == rate and r.spec.seed == 0
        ]
        losses = {result.spec.role: result.epochs[0].train_loss for result in alike}
        assert set(losses) == {"replicate", "line_search"}
        assert losses["replicate"] != losses["line_search"]

    def test_the_files(self, undisturbed: Finished, toy: Toy) -> None:
        out = undisturbed.out
        assert {path.name for path in out.iterdir()} == {
            "identity.json", "curve.json", "curve.md", "curve.svg", "curve.yaml", "report.html", "specs", "runs",
            "arrays",
        }  # fmt: skip
        assert json.loads((out / "curve.json").read_text()) == undisturbed.json
        assert "<svg" in (out / "curve.svg").read_text()
        assert "| " in (out / "curve.md").read_text()
        (request,) = (out / "specs").iterdir()
        assert request.name.startswith("curve-")
        resolved = ResolvedRequest.from_json(json.loads(request.read_text())["content"])
        assert (resolved.request.model, resolved.depths, resolved.is_cached) == (str(toy.model), DEPTHS, True)
        assert len(list((out / "runs").iterdir())) == N_RUNS

    def test_a_run_file_holds_what_later_work_needs(self, undisturbed: Finished, toy: Toy) -> None:
        for result in runs_in(undisturbed.out).values():
            assert len(result.epochs) == 2
            assert result.n_dev == 24
            assert len(result.predictions.rows.array()) == 24
            assert result.label_names == ("bad", "good")
            assert result.environment.command[1:3] == ("curve", str(toy.model))
            assert {"torch", "transformers", "frostline"} <= set(result.environment.versions)
            assert result.spec.is_cached is (result.spec.strategy != "full")
            assert result.cost.trained_parameters <= result.cost.total_parameters


class TestAgain:
    def test_nothing_is_computed_again(self, undisturbed: Finished, out_copy: Path, toy: Toy) -> None:
        before = run_files(out_copy)
        again = frostline(*toy.curve, "--json", out=out_copy)
        assert again.code == 0, again.stderr
        assert again.json["runs"] == {"done": 0, "reused": N_RUNS, "crashed": 0}
        assert curve_numbers(again.json) == curve_numbers(undisturbed.json)
        assert run_files(out_copy) == before

    def test_other_seeds_and_a_damaged_run_reuse_the_rest(
        self, undisturbed: Finished, out_copy: Path, toy: Toy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = out_copy
        (lost,) = [r for r in runs_in(out).values() if (r.spec.strategy, r.spec.seed) == ("freeze:3", 1)]
        damaged = out / "runs" / f"{lost.key}.json"
        damaged.write_text(damaged.read_text()[:-100])
        asked = [*toy.curve, "--seeds", "1,7", "--frozen", "3", "--json", "--workers", "1", "--out", str(out)]
        assert main(asked) == 0
        said = capsys.readouterr()
        curve = json.loads(said.out)
        assert curve["runs"] == {"done": 3, "reused": N_SEARCHED + 1, "crashed": 0}
        assert len(run_files(out)) == N_RUNS + 2
        assert damaged.name in said.err
        assert [file.stem for file in (out / "damaged").iterdir()] == [f"{lost.key}-0"]
        assert numbers(runs_in(out)[lost.key]) == numbers(lost)
        before = {point["n_frozen"]: point for point in points_of(undisturbed.json)}
        for point in points_of(curve):
            assert point["seeds"] == [1, 7]
            assert point["scores"][0] == before[point["n_frozen"]]["scores"][1]
            assert point["train_loss"][0] == before[point["n_frozen"]]["train_loss"][1]
            assert point["train_loss"][1] not in before[point["n_frozen"]]["train_loss"]
            assert point["ci"] is None

    def test_never_is_refused_where_runs_are_missing(
        self, out_copy: Path, toy: Toy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = run_files(out_copy)
        asked = [*toy.curve, "--seeds", "9,", "--rerun", "never", "--out", str(out_copy)]
        assert main(asked) == 2
        assert "4 runs are missing and --rerun never forbids" in capsys.readouterr().err
        assert run_files(out_copy) == before


class TestSameBits:
    def test_one_worker_gives_the_bits_of_two(self, toy: Toy, undisturbed: Finished, tmp_path: Path) -> None:
        rate = str(undisturbed.json["learning_rate"])
        asked = ["curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), "--epochs", "2", "--batch-size", "16"]
        # A depth and a seed less, the seeds in another order: prefix states are extended from other depths.
        asked += ["--lr", rate, "--seeds", "1,0", "--frozen", "1,3", "--workers", "1", "--out", str(tmp_path / "out")]
        assert main(asked) == 0
        wanted, found = runs_in(undisturbed.out), runs_in(tmp_path / "out")
        assert len(found) == 6
        for key, result in found.items():
            assert numbers(result) == numbers(wanted[key])

    def test_no_cache_is_only_float_noise(
        self, toy: Toy, undisturbed: Finished, out_copy: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        asked = ["--no-cache", "--workers", "1", "--frozen", "1-3", "--seeds", "2", "--json", "--out", str(out_copy)]
        assert main([*toy.curve, *asked]) == 0
        assert json.loads(capsys.readouterr().out)["runs"] == {"done": 6, "reused": N_SEARCHED + 2, "crashed": 0}
        runs = runs_in(out_copy)
        uncached = [result for key, result in runs.items() if key not in runs_in(undisturbed.out)]
        for result in uncached:
            cached = runs[result.spec.replace(is_cached=True).key]
            assert losses(result) == pytest.approx(losses(cached), abs=1e-5)
            assert np.allclose(outputs(result), outputs(cached), atol=1e-4)
            # The twin: another seed is no noise.
            other = runs[cached.spec.replace(seed=1 - cached.spec.seed).key]
            assert np.abs(outputs(result) - outputs(other)).max() > 1e-2

    def test_states_in_half_precision_keep_the_full_runs_and_move_little(
        self, toy: Toy, undisturbed: Finished, out_copy: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        asked = ["--cache-dtype", "bf16", "--workers", "1", "--seeds", "2", "--json", "--out", str(out_copy)]
        assert main([*toy.curve, *asked]) == 0
        said, whole = json.loads(capsys.readouterr().out), undisturbed.json
        assert said["runs"] == {"done": 6, "reused": N_SEARCHED + 2, "crashed": 0}
        assert 0 < said["cost"]["cache_bytes"] < whole["cost"]["cache_bytes"]
        runs = runs_in(out_copy)
        for result in (runs[key] for key in runs.keys() - runs_in(undisturbed.out).keys()):
            exact = runs[result.spec.replace(cache_dtype="fp32").key]
            assert losses(result) == pytest.approx(losses(exact), abs=0.05)
            assert losses(result) != losses(exact)


def losses(result: RunResult) -> list[float]:
    return losses_of(result)


def outputs(result: RunResult) -> np.ndarray[Any, Any]:
    return result.predictions.outputs.array()


class TestFlags:
    def test_a_dry_run_tells_and_trains_nothing(
        self, toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out"
        assert main([*toy.curve, "--dry-run", "--json", "--out", str(out)]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["runs"], said["missing"]) == (N_RUNS, N_RUNS)
        assert 0 < said["minutes"] < 5
        assert said["cache_bytes"] > 0
        assert said["store_bytes"] > 0
        assert list(out.rglob("runs/*")) == []
        assert main([*toy.curve, "--dry-run", "--out", str(out)]) == 0
        assert capsys.readouterr().out.startswith(f"{N_RUNS} runs, {N_RUNS} of them to do: about ")

    def test_after_the_curve_a_dry_run_has_nothing_to_do(
        self, toy: Toy, out_copy: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([*toy.curve, "--dry-run", "--json", "--out", str(out_copy)]) == 0
        said = json.loads(capsys.readouterr().out)
        nothing = {"missing": 0, "minutes": 0.0, "cache_bytes": 0, "store_bytes": 0, "is_at_most": False}
        assert said.pop("tells_apart") > 0
        assert said == {"runs": N_RUNS, **nothing}

    def test_whether_a_cache_is_used_is_decided_once(
        self, toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def cache_bytes(out: str, *flags: str) -> int:
            assert main([*toy.curve, *flags, "--dry-run", "--json", "--out", str(tmp_path / out)]) == 0
            return int(json.loads(capsys.readouterr().out)["cache_bytes"])

        assert cache_bytes("out", "--cache-max-gb", "0") == 0
        assert cache_bytes("out") == 0, "the same request, resolved before"
        assert cache_bytes("another") > 0
        assert cache_bytes("another", "--cache-max-gb", "0") > 0
        assert cache_bytes("another", "--no-cache") == 0, "another request"

    @pytest.mark.parametrize("flags", [("--max_train", "32"), ("--max-train", "32"), ("--max_train=32",)])
    def test_underscores_and_dashes_are_alike(self, toy: Toy, tmp_path: Path, flags: tuple[str, ...]) -> None:
        asked = [*toy.curve, *flags, "--dry_run", "--json", "--out", str(tmp_path / "out_with_underscores")]
        assert main(asked) == 0
        (request,) = (tmp_path / "out_with_underscores" / "specs").iterdir()
        assert ResolvedRequest.from_json(json.loads(request.read_text())["content"]).base.task.max_train == 32

    def test_keep_may_be_given_twice_and_the_scale_asked_for_comes_first(
        self, toy: Toy, out_copy: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        asked = ["--keep", "0.5", "--keep", "0.95", "--scale", "ratio_above_chance", "--json", "--out", str(out_copy)]
        assert main([*toy.curve, *asked]) == 0
        found = json.loads(capsys.readouterr().out)["operating_points"]
        assert [(point["keep"], point["scale"]) for point in found] == [
            (keep, scale) for keep in (0.5, 0.95) for scale in ("ratio_above_chance", "ratio")
        ]

    def test_without_a_command_there_is_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([]) == 0
        assert "curve" in capsys.readouterr().out

    def test_every_flag_of_curve_explains_itself(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["curve", "--help"]) == 0
        said = capsys.readouterr().out
        for flag in (*SETTINGS[::2], "--frozen", "--keep", "--no-cache", "--workers", "--dry-run", "--json"):
            assert flag in said


class TestLayers:
    @pytest.fixture(autouse=True)
    def _without_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("the network was asked")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)

    @pytest.mark.parametrize(
        ("model", "embeddings", "layer", "n_layers", "total"),
        [
            ("bert-base-uncased", 23_837_184, 7_087_872, 12, 109_482_240),
            ("roberta-base", 39_000_576, 7_087_872, 12, 124_645_632),
            ("bert-large-uncased", 31_782_912, 12_596_224, 24, 335_141_888),
            ("roberta-large", 52_000_768, 12_596_224, 24, 355_359_744),
        ],
    )
    def test_the_table_of_the_paper(
        self, model: str, embeddings: int, layer: int, n_layers: int, total: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["layers", model, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["embeddings"], said["layer"], said["total"]) == (embeddings, layer, total)
        assert said["layers"] == n_layers * layer
        assert said["pooler"] == total - embeddings - n_layers * layer
        assert [depth["n_frozen"] for depth in said["depths"]] == list(range(n_layers + 1))
        trained = [depth["trained_parameters"] for depth in said["depths"]]
        assert [above - below for above, below in itertools.pairwise(trained)] == [layer] * n_layers
        assert all(0 < depth["share"] < 1 for depth in said["depths"])

    def test_a_folder_is_counted_from_its_weights(self, toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
        from transformers import AutoModel

        assert main(["layers", str(toy.model), "--json"]) == 0
        total = sum(parameter.numel() for parameter in AutoModel.from_pretrained(toy.model).parameters())
        assert json.loads(capsys.readouterr().out)["total"] == total

    def test_people_get_a_table(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["layers", "bert-base-uncased"]) == 0
        assert "109,482,240" in capsys.readouterr().out


def test_pairs_with_numbers_that_are_not_learned_get_advice(toy: Toy, tmp_path: Path) -> None:
    from frostline.testing.models import make_task

    task = make_task(tmp_path / "pairs.csv", n_rows=48, kind="regression", is_pair=True)
    flags = ("--kind", "regression", "--lr", "1e-9", "--epochs", "1", "--seeds", "1", "--frozen", "3")
    done = frostline("curve", str(toy.model), str(task), *flags, out=tmp_path / "out")
    assert done.code == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "The full model did not learn: pearson" in said
    assert "train longer (--epochs), use a higher learning rate (--lr), or train on more rows" in said
    assert "keeps" not in said.partition("Score (pearson)")[0]


def test_tasks_are_listed_by_the_real_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "frostline", "tasks", "--json"], capture_output=True, text=True, check=True
    )
    said = {task["name"]: task for task in json.loads(done.stdout)}
    assert list(said) == [task.name for task in tasks.known()]
    assert len(said) == 11
    assert (said["mrpc"]["metrics"], said["mrpc"]["text_pair"]) == (["f1", "accuracy"], "#2 String")
    assert done.stderr == ""


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"frostline {__version__}\n"
