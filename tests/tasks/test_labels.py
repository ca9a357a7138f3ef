"""Labels that are not what they look like: missing numbers, lists in text, class names that are one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from hypothesis import given
from hypothesis import strategies as st

from frostline import tasks
from frostline.errors import DataError


def load(source: Path, **options: Any) -> tasks.TaskData:
    return tasks.load(tasks.resolve(tasks.parse(str(source), **options)))


def write(path: Path, labels: list[str]) -> Path:
    path.write_text("text\tlabel\n" + "".join(f"row {i}\t{label}\n" for i, label in enumerate(labels)))
    return path


@pytest.mark.parametrize("word", ["nan", "NaN", "NA", "N/A", "null", "None", ""])
@pytest.mark.parametrize("numbers", [("0", "1"), ("0.5", "1.5")])
def test_among_numbers_a_label_can_be_missing(word: str, numbers: tuple[str, str], tmp_path: Path) -> None:
    own = write(tmp_path / "own.tsv", [*numbers * 6, word, *numbers])
    with pytest.raises(DataError, match="missing") as caught:
        load(own)
    assert (caught.value.path, caught.value.line) == (own, 14)


@pytest.mark.parametrize("word", ["nan", "N/A", "None"])
def test_among_words_it_is_a_class(word: str, tmp_path: Path) -> None:
    assert load(write(tmp_path / "own.tsv", ["0", word, "good"] * 9)).label_names == tuple(sorted(("0", word, "good")))


@pytest.mark.parametrize("lists", [("[0, 1]", "[0]", "[]"), ("['a', 'b']", "['a']"), ("[0 1]", "[1 0]")])
def test_lists_written_as_text_are_several_labels(lists: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the label holds a list.*\(multi-label\), make one column") as caught:
        load(write(tmp_path / "own.tsv", [*lists] * 9))
    assert caught.value.line == 2


@pytest.mark.parametrize("names", [("[GOOD]", "[BAD]"), ("a, b", "[a, b]"), ("[1]", "[2]")])
def test_brackets_alone_make_no_list(names: tuple[str, ...], tmp_path: Path) -> None:
    assert load(write(tmp_path / "own.tsv", [*names] * 9)).label_names == tuple(sorted(names))


@pytest.mark.parametrize(("names", "is_right"), [(("a", "a "), False), (("none", "1"), True), (("a", "b "), True)])
def test_declared_names_differ_by_more_than_white_space(names: tuple[str, ...], is_right: bool, tmp_path: Path) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(names))})
    columns = {"text": [f"row {i}" for i in range(20)], "label": [0, 1] * 10}
    own = tmp_path / "own.parquet"
    Dataset.from_dict(columns, features=features).to_parquet(own)
    if is_right:
        assert load(own).label_names == tuple(name.strip() for name in names)
        return
    with pytest.raises(DataError, match="declares two classes 'a' that differ at most in white space; rename one"):
        load(own)


@given(labels=st.lists(st.sampled_from(["0", "1", "-2.5", "nan", "NULL", "none", "word", "[1, 2]"]), min_size=4))
def test_no_class_is_a_missing_number(labels: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    own = write(tmp_path_factory.mktemp("own") / "own.tsv", labels)
    kinds = {label.lower() for label in labels}
    try:
        found = tasks.resolve(tasks.parse(str(own), kind="classification"))
    except DataError:
        is_missing = bool(kinds & {"nan", "null", "none"}) and not kinds & {"word", "[1, 2]"}
        assert is_missing or len(set(labels)) == 1 or kinds == {"[1, 2]"}
    else:
        assert found.kind == "classification"
        assert not kinds & {"nan", "null", "none"} or kinds & {"word", "[1, 2]"} or kinds <= {"nan", "null", "none"}
