"""`predict` on other people's files and models: JSON comes back as it was, and heads that it cannot read are told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import pandas
import pytest
from transformers import AutoModelForSequenceClassification

import frostline
from commands import Toy
from frostline.cli import main
from frostline.errors import DataError, FrostlineError, UsageError
from frostline.saving.manifest import Manifest
from frostline.saving.predict import predict_file

ROWS: list[dict[str, Any]] = [
    {"text": "so good", "n": 1.0, "tags": ["a", {"b": None}]},
    {"id": 7, "text": "so bad", "is": True},
    {"id": None, "n": 2},
]


@pytest.fixture(scope="module")
def trained(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head, as others save it."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    shutil.copytree(toy.model, folder)
    AutoModelForSequenceClassification.from_pretrained(toy.model, num_labels=2).save_pretrained(folder)
    return folder


def configured(trained: Path, folder: Path, **changes: Any) -> Path:
    shutil.copytree(trained, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_json_values_come_back_unchanged(trained: Path, file: Path) -> None:
    rows = list(predict_file(trained, file, as_json=True))
    assert [{name: row[name] for name in given} for row, given in zip(rows, ROWS, strict=True)] == ROWS
    assert [repr(row.get("n")) for row in rows] == ["1.0", "None", "2"]
    assert [set(row) - set(given) for row, given in zip(rows, ROWS, strict=True)] == [
        {"prediction", "probability_LABEL_0", "probability_LABEL_1"}
    ] * 3


def test_as_text_every_row_has_all_keys(trained: Path, file: Path) -> None:
    rows = list(predict_file(trained, file))
    names = ["text", "n", "tags", "id", "is"]
    assert [list(row)[:5] for row in rows] == [names] * 3
    assert [[row[name] for name in names] for row in rows] == [
        ["so good", "1", '["a", {"b": null}]', "", ""],
        ["so bad", "", "", "7", "true"],
        ["", "2", "", "", ""],
    ]
    typed = predict_file(trained, file, as_json=True)
    assert [row["probability_LABEL_0"] for row in typed] == [row["probability_LABEL_0"] for row in rows]


def test_a_table_s_rows_are_the_same_either_way(trained: Path, toy: Toy) -> None:
    assert list(predict_file(trained, toy.dev, as_json=True)) == list(predict_file(trained, toy.dev))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem_type": "multi_label_classification"}, "is a multi-label model .*not supported"),
        ({"id2label": {"0": "a", "1": "a"}, "label2id": {"a": 0}}, "two of its classes are called 'a'; rename one"),
    ],
)
def test_heads_that_are_not_read(
    changes: dict[str, Any], message: str, trained: Path, toy: Toy, tmp_path: Path
) -> None:
    folder = configured(trained, tmp_path / "other", **changes)
    with pytest.raises(DataError, match=message) as caught:
        list(predict_file(folder, toy.dev))
    assert caught.value.path == folder
    sound = configured(trained, tmp_path / "sound", id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1})
    assert {row["prediction"] for row in predict_file(sound, toy.dev)} <= {"a", "b"}


def frame() -> pandas.DataFrame:
    return pandas.DataFrame({"text": ["so good", None, "so bad"], "n": [1, 2, 3]}, index=[7, 8, 9])


def test_python_predicts_from_a_file_as_the_command_does(trained: Path, toy: Toy) -> None:
    assert frostline.predict(str(trained), str(toy.dev)) == predict_file(trained, toy.dev)


def test_python_predicts_from_lists_frames_and_datasets(trained: Path) -> None:
    texts = frostline.predict(trained, ["so good", "", "so bad"])
    assert [list(row) for row in texts] == [["text", "prediction", "probability_LABEL_0", "probability_LABEL_1"]] * 3
    assert texts[0]["probability_LABEL_0"] != texts[2]["probability_LABEL_0"]
    answers = [{name: row[name] for name in list(row)[1:]} for row in texts]
    found = frostline.predict(trained, frame())
    assert list(found.index) == [7, 8, 9]
    assert list(found.columns) == ["text", "n", *answers[0]]
    assert found[list(answers[0])].to_dict("records") == answers
    given: list[dict[str, Any]] = [{"text": "so good", "n": 1}, {"text": None, "n": 2}, {"text": "so bad", "n": 3}]
    rows = frostline.predict(trained, datasets.Dataset.from_list(given))
    assert rows == [row | answer for row, answer in zip(given, answers, strict=True)]


def test_python_predicts_from_pairs(trained: Path) -> None:
    pairs = frostline.predict(trained, [("so good", "the plot"), ("so good", "a film")])
    assert [list(row)[:3] for row in pairs] == [["text", "text_pair", "prediction"]] * 2
    assert pairs[0]["probability_LABEL_0"] != pairs[1]["probability_LABEL_0"], "the second text is read"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "cannot predict from an empty list; give a file name"),
        ({"text": ["a"]}, "cannot predict from a dict"),
        (["a", ("b", "c")], "cannot predict from a list"),
        (pandas.DataFrame({"a": ["x"], "b": ["y"]}), "the DataFrame has no text column with a known name"),
        (pandas.DataFrame({"text": ["x"], "prediction": ["y"]}), "the DataFrame has a column prediction already"),
        (pandas.DataFrame([["x", "y"]], columns=["text", "text"]), "two columns of the DataFrame have the same name"),
        (pandas.DataFrame({"text": []}), "the DataFrame: has no rows"),
    ],
)
def test_python_refuses_other_data_in_one_line(data: Any, message: str, trained: Path) -> None:
    with pytest.raises(FrostlineError, match=message) as caught:
        frostline.predict(trained, data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("column", [None, "second"])
def test_single_texts_and_pairs_are_not_confused(column: str | None, trained: Path, tmp_path: Path) -> None:
    folder = configured(trained, tmp_path / "saved")
    manifest = Manifest(
        text="text", text_pair=column, max_length=16, pair_joiner=None, label_names=("a", "b"), score=0.5, run_key="k"
    )
    (folder / "frostline.json").write_text(json.dumps(manifest.to_json()))
    texts, pairs = ["so good"], [("so good", "so bad")]
    wrong, right = (texts, pairs) if column else (pairs, texts)
    with pytest.raises(UsageError, match=r"the model reads .* texts, but the list holds"):
        frostline.predict(folder, wrong)
    assert len(frostline.predict(folder, right)) == 1


def test_a_blank_line_of_a_file_with_one_column_is_an_empty_text(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("text\nso good\n\nso bad\n")
    assert [row["text"] for row in predict_file(trained, path)] == ["so good", "", "so bad"]
    path.write_text("text,n\nso good,1\n\nso bad,2\n")
    assert [row["text"] for row in predict_file(trained, path)] == ["so good", "so bad"], "between rows of two columns"


def test_an_existing_file_is_replaced_only_on_request(
    trained: Path, toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "predicted.csv"
    path.write_text("mine")
    command = ["predict", str(trained), str(toy.dev), "--to", str(path)]
    assert main(command) == 2
    said = capfd.readouterr().err
    assert f"--to {path} exists already; give another name, or add --overwrite" in said
    assert said.count("\n") == 1
    assert path.read_text() == "mine"
    assert main([*command, "--overwrite"]) == 0
    assert path.read_text().startswith("text,label,prediction")


def test_help_names_both_commands_that_save(capfd: pytest.CaptureFixture[str]) -> None:
    main(["predict", "--help"])
    said = " ".join(capfd.readouterr().out.replace("│", " ").split())
    assert "train --save" in said
    assert "find --save" in said
