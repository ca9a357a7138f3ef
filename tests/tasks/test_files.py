from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import tasks
from frostline.errors import DataError, UsageError
from frostline.tasks.formats import files


def write(path: Path, text: str, encoding: str = "utf-8") -> str:
    path.write_bytes(text.encode(encoding))
    return str(path)


def load(source: str, **options: object) -> tasks.TaskData:
    return tasks.load(tasks.resolve(tasks.parse(source, **options)))  # type: ignore[arg-type]


def body(n: int, labels: tuple[str, ...] = ("no", "yes")) -> str:
    return "".join(f"row {i},{labels[i % len(labels)]}\n" for i in range(n))


@pytest.fixture
def own(tmp_path: Path) -> str:
    return write(tmp_path / "own.csv", "text,label\n" + body(40))


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    texts = ['say "hi", you', "two\nlines", "a\u2028b\u0085c", " kept ", "tab\there", ""]
    for suffix, dialect in ((".csv", "excel"), (".tsv", "excel-tab")):
        path = tmp_path / f"own{suffix}"
        with path.open("w", encoding="utf-8-sig", newline="") as stream:
            writer = csv.writer(stream, dialect)
            writer.writerow(["id", "label", "text"])
            writer.writerows([[str(i), str(i % 2), text] for i, text in enumerate(texts)])
        table = files.read(path, ("text", "label"))
        assert table.columns["text"] == texts
        assert table.lines == [2, 3, 5, 6, 7, 8]


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(st.lists(TEXT, min_size=1, max_size=8))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("own") / "own.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([["text", "label"], *([text, "x"] for text in texts)])
    assert files.read(path, ("text", "label")).columns["text"] == texts


def test_labels_are_numbered_in_order(tmp_path: Path) -> None:
    words = load(write(tmp_path / "words.csv", "text,label\n" + body(30, ("b", "a", "Z"))))
    assert words.label_names == ("Z", "a", "b")
    numbers = load(write(tmp_path / "numbers.csv", "text,label\n" + body(30, ("10", "9", "-1"))))
    assert numbers.label_names == ("-1", "9", "10")
    assert numbers.task.metrics == ("accuracy", "macro_f1", "mcc")
    assert [int(text.split()[1]) % 3 for text in numbers.train.texts] == [2 - n for n in numbers.train.labels]
    assert numbers.warnings[0] == "classes: -1 = 0, 9 = 1, 10 = 2"


def test_two_classes_also_have_f1(own: str) -> None:
    data = load(own, metric="mcc")
    assert data.task.metrics == ("mcc", "accuracy", "f1", "macro_f1", "roc_auc")
    assert data.warnings == (
        "classes: no = 0, yes = 1; f1 is the F1 of yes",
        "no dev file: 4 of 40 rows (10%) were set aside as dev with a fixed seed",
    )
    assert tasks.metrics_of(tasks.parse(own)) == ("accuracy", "f1", "macro_f1", "mcc", "roc_auc")


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("text,label", ("text", None)),
        ("label,sentence", ("sentence", None)),
        ("text,text_pair,label", ("text", "text_pair")),
        ("sentence1,sentence2,label", ("sentence1", "sentence2")),
        (" text , label ", ("text", None)),
    ],
)
def test_columns_of_a_usual_name(tmp_path: Path, header: str, columns: tuple[str, str | None]) -> None:
    rows = "".join(",".join([str(i % 2)] * len(header.split(","))) + "\n" for i in range(4))
    spec = tasks.resolve(tasks.parse(write(tmp_path / "own.csv", f"{header}\n{rows}")))
    assert (spec.text, spec.text_pair, spec.label) == (*columns, "label")
    assert (spec.kind, spec.metric) == ("classification", "accuracy")
    assert tasks.resolve(spec) == spec


def test_named_columns(tmp_path: Path) -> None:
    source = write(tmp_path / "own.csv", "q,a,text,text_pair,y\n" + "1,2,3,4,0\n5,6,7,8,1\n" * 3)
    data = load(source, text="q", text_pair="a", label="y", dev_share=0.4)
    assert set(data.train.texts) == {"1", "5"}
    assert data.train.pairs is not None
    assert set(data.train.pairs) == {"2", "6"}
    assert load(source, text="text", label="y", dev_share=0.4).train.pairs is None
    assert tasks.resolve(tasks.parse(source, text_pair="a", label="y")).text == "text"


def test_regression(tmp_path: Path) -> None:
    source = write(tmp_path / "own.tsv", "text\tlabel\n" + "".join(f"t{i}\t{i / 4}\n" for i in range(20)))
    data = load(source, kind="regression")
    assert data.train.labels.dtype == np.float64
    assert data.label_names == ()
    assert data.task.metrics == ("pearson", "spearman", "r2", "rmse")
    assert [float(text[1:]) / 4 for text in data.train.texts] == data.train.labels.tolist()
    with pytest.raises(UsageError, match="pass --kind regression"):
        load(source)
    assert len(load(source, kind="classification", dev_share=0.5).label_names) == 20


def test_whole_numbers_are_classes_unless_told(tmp_path: Path) -> None:
    source = write(tmp_path / "own.csv", "text,label\n" + body(20, ("1.0", "2.0", "10.0")))
    assert load(source).label_names == ("1.0", "2.0", "10.0")
    assert load(source, kind="regression").train.labels.max() == 10.0


def test_dev_of_its_own(tmp_path: Path, own: str) -> None:
    dev = write(tmp_path / "held.tsv", "label\ttext\nyes\tfine\nno\tawful\n")
    data = load(own, dev=dev)
    assert (len(data.train), data.dev.texts, data.dev.labels.tolist()) == (40, ["fine", "awful"], [1, 0])
    assert data.fingerprint != load(own).fingerprint
    with pytest.raises(UsageError, match="is the training file"):
        load(own, dev=own)
    with pytest.raises(UsageError, match="there is no dev file"):
        load(own, dev=str(tmp_path / "none.csv"))


@pytest.mark.parametrize("stem", ["dev", "validation"])
def test_a_folder(tmp_path: Path, stem: str) -> None:
    folder = tmp_path / "v1.2"
    folder.mkdir()
    with pytest.raises(UsageError, match=r"holds no training file \(train.csv, .*train.parquet\) and no data set"):
        load(str(folder))
    write(folder / "train.csv", "text,label\n" + body(20))
    assert len(load(str(folder)).dev) == 2
    write(folder / f"{stem}.tsv", "text\tlabel\na\tno\nb\tyes\n")
    data = load(str(folder))
    assert (data.task.name, len(data.train), data.dev.texts) == ("v1.2", 20, ["a", "b"])
    write(folder / "train.tsv", "text\tlabel\na\tno\n")
    with pytest.raises(UsageError, match=r"train.csv and train.tsv"):
        load(str(folder))


def test_dev_labels_unseen_in_train(tmp_path: Path, own: str) -> None:
    dev = write(tmp_path / "dev.csv", "text,label\na,no\nb,maybe\n")
    with pytest.raises(DataError, match=r"dev.csv, line 3: unknown label 'maybe'; known: no, yes"):
        load(own, dev=dev)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "is empty"),
        ("\n \n", None, "is empty"),
        ("text,label\n", None, "a header but no rows"),
        ("text,text,label\na,b,0\n", 1, "names text more than once"),
        ("text,label\na,0\nb\n", 3, "too few fields: 1 instead of 2"),
        ("text,label\na,0\nb, c,1\n", 3, "too many fields: 3 instead of 2"),
        ("text,label\na,0\nb,\n", 3, "is empty"),
        ("text,label\na,0\nb,0\n", None, "all labels .* are '0'"),
        ("text,label\na,1\nb,01\n", None, "'01' and '1' are the same number"),
        ('text,label\n"two\nlines",0\n"never closed,1\nc,0\n', 4, "bad quoting"),
        ('text,label\na,0\n"b" c,1\n', 3, "bad quoting"),
    ],
)
def test_faults_of_a_file_name_it_and_the_line(tmp_path: Path, text: str, line: int | None, message: str) -> None:
    source = write(tmp_path / "own.csv", text)
    with pytest.raises(DataError, match=message) as caught:
        load(source)
    assert caught.value.path == Path(source)
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


def test_a_trailing_separator_is_no_fault(tmp_path: Path) -> None:
    assert len(load(write(tmp_path / "own.csv", "text,label,\n" + body(20).replace("\n", ",\n"))).train) == 18


@pytest.mark.parametrize("label", ["nan", "inf", "1e999", "high", "1_000"])
def test_regression_labels_are_finite_numbers(tmp_path: Path, label: str) -> None:
    source = write(tmp_path / "own.csv", f'text,label\n"two\nlines",1.5\nb,{label}\n')
    with pytest.raises(DataError, match=rf"own.csv, line 4: the label '{label}' is not a finite number"):
        load(source, kind="regression")


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    source = write(tmp_path / "own.csv", "text,label\ncafé,0\n", encoding="latin-1")
    with pytest.raises(DataError, match=r"own.csv, line 2: is not UTF-8"):
        load(source)


def test_columns_that_are_not_there_are_told_together(own: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(own, text="txt", label="lable", max_train=0, dev_share=1.0, metric="acc")
    message = str(caught.value)
    for part in (
        "'txt'",
        "Did you mean 'text'?",
        "Did you mean 'label'?",
        "max_train is 0",
        "dev_share is 1.0",
        "'acc'",
    ):
        assert part in message
    with pytest.raises(UsageError, match="must be different columns"):
        load(own, text="label")


def test_no_column_of_a_usual_name(tmp_path: Path) -> None:
    source = write(tmp_path / "own.csv", "review,stars\na,0\n")
    with pytest.raises(UsageError, match=r"its columns: review, stars. Give --text.*no column 'label'"):
        load(source)


@pytest.mark.parametrize(
    ("suffix", "sign", "name"), [(".csv", ";", "semicolons"), (".csv", "\t", "tabs"), (".tsv", ",", "commas")]
)
def test_another_separator_is_named(tmp_path: Path, suffix: str, sign: str, name: str) -> None:
    source = write(tmp_path / f"own{suffix}", f"text{sign}label\na{sign}0\n")
    with pytest.raises(UsageError, match=f"looks separated by {name}: save it with commas as .csv, or with tabs"):
        load(source)


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'.txt'; own data is read from .csv, .* and .parquet"):
        load(write(tmp_path / "own.txt", "text,label\n"))
    with pytest.raises(UsageError, match=r"Did you mean '.jsonl'\?"):
        load(write(tmp_path / "own.jsonlines", "{}\n"))


def test_a_field_larger_than_csv_takes(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    source = write(tmp_path / "own.csv", f"text,label\n{'x' * (before + 1)},0\n" + body(3, ("1",)))
    assert max(map(len, files.read(Path(source), ["text"]).columns["text"])) == before + 1
    assert csv.field_size_limit() == before
    with pytest.raises(csv.Error), Path(source).open(encoding="utf-8", newline="") as stream:
        list(csv.reader(stream))


def test_empty_texts_are_noticed(tmp_path: Path) -> None:
    dev = write(tmp_path / "dev.csv", "text,label\n ,no\nb,yes\n")
    data = load(write(tmp_path / "own.csv", "text,label\n" + body(10)), dev=dev)
    assert data.warnings[1:] == ("1 of 2 dev rows have an empty text",)


def test_metric_must_fit_the_kind(tmp_path: Path, own: str) -> None:
    with pytest.raises(UsageError, match="for classification with 2 classes; known: accuracy, f1, macro_f1, mcc"):
        load(own, metric="pearson")
    three = write(tmp_path / "three.csv", "text,label\n" + body(9, ("a", "b", "c")))
    with pytest.raises(UsageError, match="'f1' for classification with 3 classes; known: accuracy, macro_f1, mcc"):
        load(three, metric="f1")
