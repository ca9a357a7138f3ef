"""`frostline train` and `predict`: a folder that transformers opens, and what it says of a file."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from commands import Finished, Toy, frostline, numbers, run_files, runs_in, start
from frostline import api
from frostline.cli import main
from frostline.errors import UsageError
from frostline.records.results import RunResult
from frostline.saving.predict import predict_file
from frostline.testing.models import make_model, make_task

N_FROZEN = 2


@pytest.fixture(scope="module")
def trained(toy: Toy, undisturbed: Finished, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """`train` in an out folder where the curve has been; the model is beside it, under `saved`."""
    folder = tmp_path_factory.mktemp("train")
    out = Path(shutil.copytree(undisturbed.out, folder / "out"))
    asked = ["train", str(toy.model), str(toy.train), "--dev", str(toy.dev), "--epochs", "2", "--batch-size", "16"]
    return frostline(*asked, "--frozen", str(N_FROZEN), "--save", str(folder / "saved"), "--json", out=out)


@pytest.fixture(scope="module")
def result(trained: Finished) -> RunResult:
    return RunResult.from_json(trained.json)


@pytest.fixture(scope="module")
def saved(trained: Finished) -> Path:
    assert trained.code == 0, trained.stderr
    return trained.out.parent / "saved"


def texts_in(path: Path) -> list[str]:
    with path.open(newline="") as stream:
        return [row["text"] for row in csv.DictReader(stream)]


def shares(outputs: NDArray[Any]) -> NDArray[np.float64]:
    exponents = np.exp(outputs.astype(np.float64))
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True))


class TestTrain:
    def test_the_rate_is_that_of_the_line_search_and_no_run_is_new(
        self, trained: Finished, result: RunResult, undisturbed: Finished
    ) -> None:
        assert result.spec.learning_rate == undisturbed.json["learning_rate"]
        assert (result.spec.strategy, result.spec.role, result.spec.seed) == (f"freeze:{N_FROZEN}", "replicate", 0)
        assert {name: content for name, (_, content) in run_files(trained.out).items()} == {
            name: content for name, (_, content) in run_files(undisturbed.out).items()
        }
        assert "line search" not in trained.stderr

    def test_it_is_the_run_of_the_curve_to_the_bit(self, result: RunResult, undisturbed: Finished) -> None:
        assert numbers(result) == numbers(runs_in(undisturbed.out)[result.key])

    def test_from_pretrained_gives_the_dev_predictions(self, saved: Path, result: RunResult, toy: Toy) -> None:
        model = AutoModelForSequenceClassification.from_pretrained(saved).eval()
        tokenizer = AutoTokenizer.from_pretrained(saved)
        with torch.no_grad():
            outputs = model(**tokenizer(texts_in(toy.dev), padding=True, return_tensors="pt")).logits.numpy()
        wanted = result.predictions.outputs.array()
        assert np.abs(outputs - wanted).max() < 1e-5
        assert np.abs(outputs[::-1] - wanted).max() > 1e-2, "rows are too alike for this test to have teeth"
        assert model.config.id2label == {0: "bad", 1: "good"}

    def test_a_pipeline_gives_the_dev_predictions(self, saved: Path, result: RunResult, toy: Toy) -> None:
        classify = pipeline("text-classification", model=str(saved), top_k=None, device="cpu")
        said = [{answer["label"]: answer["score"] for answer in answers} for answers in classify(texts_in(toy.dev))]
        found = np.array([[answer["bad"], answer["good"]] for answer in said])
        assert np.abs(found - shares(result.predictions.outputs.array())).max() < 1e-5

    def test_what_was_frozen_is_the_pretrained_model_to_the_bit(self, saved: Path, toy: Toy) -> None:
        before = AutoModel.from_pretrained(toy.model).state_dict()
        after = AutoModelForSequenceClassification.from_pretrained(saved).bert.state_dict()
        assert set(after) == set(before)
        frozen = ("embeddings.", *(f"encoder.layer.{number}." for number in range(N_FROZEN)))
        same = {name for name, tensor in before.items() if torch.equal(tensor, after[name])}
        assert {name for name in before if name.startswith(frozen)} <= same
        moved = {name for name in before if name.startswith((f"encoder.layer.{N_FROZEN}.", "pooler."))}
        # A key's bias shifts all scores of a softmax alike: its gradient is nothing but noise.
        assert {name for name in moved & same if not name.endswith("key.bias")} == set()

    def test_the_card_names_base_and_metrics(self, saved: Path, result: RunResult) -> None:
        card = (saved / "README.md").read_text()
        assert card.startswith("---\nbase_model: tiny-bert\n")
        for name, value in result.metrics.items():
            assert f"| {name} | {value:.4f} |" in card
        assert f"seed {result.spec.seed}" in card
        assert f"{result.spec.learning_rate:g}" in card

    def test_nothing_else_is_left_beside_it(self, saved: Path) -> None:
        assert {path.name for path in saved.parent.iterdir()} == {"out", "saved"}
        assert {"config.json", "model.safetensors", "tokenizer.json", "frostline.json"} <= {
            path.name for path in saved.iterdir()
        }

    def test_a_folder_with_something_in_it_is_refused_before_training(
        self, saved: Path, toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = {path.name: path.read_bytes() for path in saved.iterdir()}
        out = tmp_path / "out"
        asked = ["train", str(toy.model), str(toy.train), "--frozen", "full", "--save", str(saved), "--out", str(out)]
        assert main(asked) == 2
        assert "exists already; give a new or empty folder" in capsys.readouterr().err
        assert not out.exists()
        assert {path.name: path.read_bytes() for path in saved.iterdir()} == before

    def test_full_into_an_empty_folder_with_a_rate_given(self, toy: Toy, tmp_path: Path) -> None:
        (tmp_path / "saved").mkdir()
        found = api.train(
            str(toy.model),
            str(toy.train),
            frozen="full",
            save=tmp_path / "saved",
            out=tmp_path / "out",
            lr=1e-3,
            epochs=1,
        )
        assert (found.spec.strategy, found.spec.learning_rate) == ("full", 1e-3)
        assert list(runs_in(tmp_path / "out")) == [found.key]
        before = AutoModel.from_pretrained(toy.model).state_dict()
        after = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").bert.state_dict()
        assert not torch.equal(
            before["encoder.layer.0.output.dense.weight"], after["encoder.layer.0.output.dense.weight"]
        )

    def test_texts_longer_than_the_model_takes_are_cut(self, tmp_path: Path) -> None:
        # RoBERTa's 42 positions begin after its padding token's: 41 are for tokens.
        for family, most in (("bert", 42), ("roberta", 41)):
            model = make_model(tmp_path / family, "roberta" if family == "roberta" else "bert")
            task = make_task(tmp_path / f"{family}.csv", n_rows=20)
            task.write_text(task.read_text().replace("film", "film " * 60))
            settings: dict[str, Any] = {"out": tmp_path / f"{family} out", "lr": 1e-3, "epochs": 1, "max_length": 1000}
            found = api.train(str(model), str(task), frozen=1, save=tmp_path / f"{family} saved", **settings)
            assert found.spec.max_length == most
            assert any("were cut" in warning for warning in found.warnings)

    def test_without_a_line_search_in_the_folder_there_is_one_first(self, toy: Toy, tmp_path: Path) -> None:
        settings: dict[str, Any] = {"out": tmp_path / "out", "lrs": "1e-3,3e-3", "epochs": 1, "workers": 1}
        found = api.train(str(toy.model), str(toy.train), frozen=3, save=tmp_path / "saved", **settings)
        runs = list(runs_in(tmp_path / "out").values())
        searched = [run for run in runs if run.spec.role == "line_search"]
        assert [run.spec.strategy for run in searched] == ["full", "full"]
        best = max(searched, key=lambda run: (run.score, -run.spec.learning_rate))
        assert found.spec.learning_rate == best.spec.learning_rate
        assert len(runs) == 3


def test_what_to_beware_of_is_told(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    both = tmp_path / "both.csv"
    both.write_text(toy.train.read_text())
    where = ("--out", str(tmp_path / "out"), "--save", str(tmp_path / "saved"))
    leaky = (
        "train",
        str(toy.model),
        str(toy.train),
        "--dev",
        str(both),
        "--frozen",
        "2",
        "--lr",
        "1e-3",
        "--epochs",
        "1",
    )
    assert main([*leaky, "--max-length", "4", *where]) == 0
    said = capfd.readouterr().err
    assert "warning: leakage: 72 of 72 dev rows (100%) are also in train" in said
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "(1 epoch, batch 16," in card
    assert "training texts were cut at 4 tokens" in said


class TestPredict:
    def test_the_real_command_writes_the_columns_of_the_file_and_the_dev_predictions(
        self, saved: Path, result: RunResult, toy: Toy
    ) -> None:
        process = start("predict", str(saved), str(toy.dev), cwd=saved.parent)
        stdout, stderr = process.communicate()
        assert (process.returncode, stderr) == (0, "")
        rows = list(csv.DictReader(io.StringIO(stdout, newline="")))
        check_rows(rows, result, toy)

    def test_lines_of_json_into_a_file(self, saved: Path, result: RunResult, toy: Toy, tmp_path: Path) -> None:
        path = tmp_path / "new folder" / "predicted.jsonl"
        assert main(["predict", str(saved), str(toy.dev), "--format", "jsonl", "--to", str(path)]) == 0
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert all(isinstance(row["probability_good"], float) for row in rows)
        check_rows(rows, result, toy)

    def test_awkward_fields_come_back_as_they_were(
        self, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        awkward = [["1", 'the "plot", was\ngood', "ñ 👩‍🔬"], ["2", "", "=1+1"], ["3", "dull " * 300, " spaced "]]
        path = tmp_path / "awkward.csv"
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([["id", "text", "note, quoted"], *awkward])
        assert main(["predict", str(saved), str(path)]) == 0
        header, *rows = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
        assert header == ["id", "text", "note, quoted", "prediction", "probability_bad", "probability_good"]
        awkward[1][2] = "'=1+1"  # a spreadsheet would take it for a formula
        assert [row[:3] for row in rows] == awkward

    @pytest.mark.parametrize(
        ("header", "flags", "used"),
        [
            (["text", "sentence"], {}, "text"),
            (["sentence", "text"], {"text": "sentence"}, "sentence"),
            (["sentence"], {}, "sentence"),
            (["sentence", "text"], {}, "text"),
        ],
    )
    def test_which_column_is_the_text(
        self, saved: Path, tmp_path: Path, header: list[str], flags: dict[str, str], used: str
    ) -> None:
        texts = {"text": "so good", "sentence": "the plot was dull and poor"}
        wanted = {text: predicted(saved, tmp_path, ["text"], [text]) for text in texts.values()}
        assert wanted[texts["text"]] != wanted[texts["sentence"]]
        assert predicted(saved, tmp_path, header, [texts[name] for name in header], **flags) == wanted[texts[used]]

    def test_columns_of_other_names_are_not_guessed(self, saved: Path, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"no text column with a known name; its columns: a, b\. Give --text"):
            predicted(saved, tmp_path, ["a", "b"], ["so good", "so bad"])
        with pytest.raises(UsageError, match="no column 'c'"):
            predicted(saved, tmp_path, ["a", "b"], ["so good", "so bad"], text="c")

    @pytest.mark.parametrize("name", ["prediction", "probability_bad"])
    def test_a_column_of_the_file_is_never_replaced(self, saved: Path, tmp_path: Path, name: str) -> None:
        with pytest.raises(UsageError, match=f"has a column {name} already"):
            predicted(saved, tmp_path, ["text", name], ["so good", "mine"])
        assert predicted(saved, tmp_path, ["text", "probability_of_rain"], ["so good", "0.5"]) > 0

    def test_pairs_by_the_names_of_training(self, tmp_path: Path) -> None:
        model = make_model(tmp_path / "bert", initializer_range=0.25)
        task = make_task(tmp_path / "pairs.csv", n_rows=40, is_pair=True)
        renamed = task.read_text().replace("text,text_pair,label", "premise,claim,label", 1)
        task.write_text(renamed)
        asked: dict[str, Any] = {"text": "premise", "text_pair": "claim", "out": tmp_path / "out", "epochs": 1}
        result = api.train(str(model), str(task), frozen=1, save=tmp_path / "saved", lr=1e-3, **asked)
        rows = list(predict_file(tmp_path / "saved", task))
        dev = [rows[number] for number in result.predictions.rows.array()]
        found = np.array([[row["probability_bad"], row["probability_good"]] for row in dev])
        assert np.abs(found - shares(result.predictions.outputs.array())).max() < 1e-5
        swapped = list(predict_file(tmp_path / "saved", task, text="claim", text_pair="premise"))
        assert swapped[0]["probability_good"] != rows[0]["probability_good"]
        task.write_text(renamed.replace("premise,claim", "text,text_pair", 1))
        assert [row["probability_good"] for row in predict_file(tmp_path / "saved", task)] == [
            row["probability_good"] for row in rows
        ]

    def test_regression_gives_a_value_alone(self, toy: Toy, tmp_path: Path) -> None:
        task = make_task(tmp_path / "values.csv", n_rows=40, kind="regression")
        settings: dict[str, Any] = {
            "kind": "regression",
            "out": tmp_path / "out",
            "lr": 1e-3,
            "epochs": 1,
            "dev_share": 0.3,
        }
        result = api.train(str(toy.model), str(task), frozen=2, save=tmp_path / "saved", **settings)
        rows = list(predict_file(tmp_path / "saved", task))
        assert [list(row) for row in rows] == [["text", "label", "prediction"]] * 40
        found = np.array([rows[number]["prediction"] for number in result.predictions.rows.array()])
        assert np.abs(found - result.predictions.outputs.array()[:, 0]).max() < 1e-5
        assert "| pearson |" in (tmp_path / "saved" / "README.md").read_text()


def check_rows(rows: list[dict[str, Any]], result: RunResult, toy: Toy) -> None:
    """The rows of the dev file in its order, each with what the run predicted of it."""
    with toy.dev.open(newline="") as stream:
        wanted = list(csv.DictReader(stream))
    assert [list(row) for row in rows] == [["text", "label", "prediction", "probability_bad", "probability_good"]] * 24
    assert [{"text": row["text"], "label": row["label"]} for row in rows] == wanted
    found = np.array([[float(row["probability_bad"]), float(row["probability_good"])] for row in rows])
    outputs = result.predictions.outputs.array()
    assert np.abs(found.sum(axis=1) - 1).max() < 1e-9
    assert np.abs(found - shares(outputs)).max() < 1e-5
    assert [row["prediction"] for row in rows] == [("bad", "good")[number] for number in outputs.argmax(axis=1)]


def predicted(saved: Path, folder: Path, header: list[str], fields: list[str], **flags: Any) -> float:
    """The probability of `good` for a file of one row."""
    path = folder / "one.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, fields])
    (row,) = predict_file(saved, path, **flags)
    assert [row[name] for name in header] == fields
    return float(row["probability_good"])
