"""`predict` on other people's files and models: JSON comes back as it was, and heads that it cannot read are told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForSequenceClassification

from commands import Toy
from frostline.errors import DataError
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
