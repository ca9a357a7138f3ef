from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import tasks
from frostline.errors import UsageError
from frostline.kinds import CLASSIFICATION, REGRESSION
from frostline.tasks import Rows, Task
from frostline.tasks.warnings import class_warnings, row_warnings

Row = tuple[str, float]


def make_task(names: tuple[str, ...] | None, *, metric: str | None = None, pair: bool = False) -> Task:
    kind = REGRESSION if names is None else CLASSIFICATION
    measured = kind.metric_names(None if names is None else len(names))
    return Task(
        name="own",
        title="own",
        kind=kind.name,
        text="text",
        text_pair="text_pair" if pair else None,
        label="label",
        label_names=names,
        metrics=(metric, *measured) if metric else measured,
    )


def make_rows(rows: Sequence[Row], pairs: list[str] | None = None, dtype: type = np.int64) -> Rows:
    return Rows(
        ids=np.arange(len(rows)),
        texts=[text for text, _ in rows],
        pairs=pairs,
        labels=np.array([label for _, label in rows], dtype=dtype),
    )


def labelled(prefix: str, *counts: int) -> list[Row]:
    """Rows of different texts, so many of each class."""
    return [(f"{prefix} {label} {i}", label) for label, count in enumerate(counts) for i in range(count)]


TWO = make_task(("often", "rare"))
EVEN = make_rows(labelled("dev", 5, 5))


def found(word: str, task: Task, train: Rows, dev: Rows = EVEN) -> list[str]:
    return [warning for warning in row_warnings(task, train, dev) if word in warning]


def test_rows_without_a_fault_have_no_warning() -> None:
    assert row_warnings(TWO, make_rows(labelled("train", 50, 40)), EVEN) == []
    values = [(f"t {i}", float(value)) for i, value in enumerate(np.linspace(-2, 2, 30))]
    assert row_warnings(make_task(None), make_rows(values, dtype=float), make_rows([("d", 1.0)], dtype=float)) == []


def test_how_classes_are_numbered() -> None:
    assert class_warnings(TWO) == ["classes: often = 0, rare = 1; f1 is the F1 of rare"]
    assert class_warnings(make_task(("a", "b", "c"))) == ["classes: a = 0, b = 1, c = 2"]
    assert class_warnings(make_task(None)) == []


@pytest.mark.parametrize(
    ("names", "alike"),
    [
        (("Yes", "no", "yes"), "'Yes' and 'yes'"),
        (("NO", "No", "a b", "a  b", "no"), "'NO' and 'No' and 'no', 'a b' and 'a  b'"),
        (("yes", "no"), None),
        (("a", "b", "ab"), None),
    ],
)
def test_classes_that_differ_only_in_case_or_spaces(names: tuple[str, ...], alike: str | None) -> None:
    advice = f"classes that differ only in case or spaces: {alike}; if they are one class, write it in one way"
    assert class_warnings(make_task(names))[1:] == ([advice] if alike else [])


def test_yes_and_yes_in_a_file(tmp_path: Path) -> None:
    data = tasks.load(tasks.parse(write(tmp_path / "own.csv", *["Yes", "yes", "no"] * 10)))
    assert len(data.label_names) == 3
    assert any("'Yes' and 'yes'" in warning for warning in data.warnings)


@pytest.mark.parametrize(
    ("counts", "is_told"),
    [
        ((90, 10), True),
        ((91, 9), True),
        ((80, 20), False),
        ((81, 19), True),
        ((60, 31, 9), True),
        ((60, 30, 10), False),
        ((5,) * 20, False),
        ((5,) * 19 + (2,), True),
    ],
)
def test_imbalance_is_told_from_its_bounds_on(counts: tuple[int, ...], is_told: bool) -> None:
    task = make_task(tuple(f"c{i}" for i in range(len(counts))))
    rows = make_rows(labelled("train", *counts))
    assert bool(found("imbalanced", task, rows, make_rows(labelled("dev", *[1] * len(counts))))) == is_told


def test_imbalance_names_the_shares_and_a_better_metric() -> None:
    rows = make_rows(labelled("train", 193, 7))
    said = "imbalanced classes: often has 96.5% of the training rows, rare 3.5%"
    advice = "; accuracy rewards the majority: use --metric macro_f1 or mcc"
    assert found("imbalanced", TWO, rows) == [said + advice]
    assert found("imbalanced", make_task(("often", "rare"), metric="mcc"), rows) == [said]
    (fixed,) = found("imbalanced", TWO.replace(metrics=("accuracy",)), rows)
    assert "--metric" not in fixed
    assert "above chance" in fixed


def test_classes_that_one_side_lacks_are_told_by_name_and_count() -> None:
    task = make_task(("a", "b", "c"))
    full, without = labelled("train", 10, 10, 10), labelled("dev", 4, 4)
    (line,) = row_warnings(task, make_rows(full), make_rows(without))
    assert line == "classes without a dev row, so the score does not cover them: c"
    (line,) = row_warnings(task, make_rows(full[:20]), make_rows([*without, ("new", 2), ("newer", 2)]))
    assert line == (
        "classes without a training row: c; 2 of 10 dev rows belong to them and cannot be answered correctly"
    )
    assert row_warnings(task, make_rows(full[:20]), make_rows(without)) == ["classes without a training row: c"]


@pytest.mark.parametrize(
    ("values", "is_told"),
    [
        ([1.0, 2.0, 5.0], False),
        ([-1.0, 0.0, 1.0], False),
        ([101.0, 102.0, 103.0], True),
        ([0.0, 100.0, -100.0], True),
        ([0.01, 0.02, 0.03], True),
        ([8.0, 8.5, 9.0], True),
    ],
)
def test_labels_far_from_the_standard_scale_are_told(values: list[float], is_told: bool) -> None:
    rows = make_rows([(f"t {i}", value) for i, value in enumerate(values)], dtype=float)
    lines = row_warnings(make_task(None), rows, make_rows([("d", 0.0)], dtype=float))
    assert ["standardise" in line for line in lines] == [True] * is_told
    if is_told:
        standardised = (rows.labels - rows.labels.mean()) / rows.labels.std()
        better = make_rows([(f"t {i}", value) for i, value in enumerate(standardised)], dtype=float)
        assert row_warnings(make_task(None), better, make_rows([("d", 0.0)], dtype=float)) == []


def test_empty_texts_are_counted_in_either_column() -> None:
    task = make_task(("a", "b"), pair=True)
    train = make_rows([("x", 0), (" ", 1), ("y", 0), ("z", 1)], ["p", "q", "\t", ""])
    dev = make_rows([("u", 0), ("v", 1)], ["r", "s"])
    assert row_warnings(task, train, dev) == ["3 of 4 training rows have an empty text"]


def test_dev_rows_that_stand_in_train_are_told_by_label() -> None:
    train = make_rows([*labelled("train", 30, 30), ("Good  film", 1), ("dull", 0), ("STRASSE", 0)])
    dev = make_rows([*labelled("dev", 3, 3), (" good film\n", 1), ("DULL", 1), ("dull!", 0), ("Stra\u00dfe", 0)])
    assert row_warnings(TWO, train, dev) == [
        "leakage: 3 of 10 dev rows (30%) are also in train, ignoring case and spaces: 2 with the same label, "
        "1 with another; remove them from train"
    ]
    apart = make_rows([*labelled("train", 30, 30), ("Good films", 1), ("dul l", 0)])
    assert row_warnings(TWO, apart, dev) == []


def test_a_pair_stands_in_train_only_where_both_texts_do() -> None:
    task = make_task(("a", "b"), pair=True)
    train = make_rows([("one", 0), ("two", 1)], ["x", "y"])
    assert row_warnings(task, train, make_rows([("one", 0), ("two", 1)], ["y", "x"])) == []
    assert row_warnings(task, train, make_rows([("onex", 0), ("", 1)], ["x", "twoy"]))[1:] == []
    assert found("leakage: 1 of 2", task, train, make_rows([("one", 0), ("two", 1)], ["X", "x"])) != []


def test_many_repeats_in_train_are_told_and_few_are_not() -> None:
    rows = labelled("train", 50, 45)
    assert found("repeat", TWO, make_rows(rows + rows[-5:])) == []
    assert found("repeat", TWO, make_rows(rows + rows[-6:])) == ["6 of 101 training rows (5.94%) repeat another row"]


def test_contradictions_in_train_are_told_for_classes_alone() -> None:
    rows = labelled("train", 60, 60)
    twins: list[Row] = [("same", 0), ("Same", 1), ("same ", 1), ("other", 0), ("OTHER", 1), ("twice", 0), ("twice", 0)]
    assert found("contradict", TWO, make_rows(rows + twins)) == [
        "5 training rows contradict each other: 2 texts occur with more than one label"
    ]
    assert found("contradict", TWO, make_rows(rows + twins[-2:])) == []
    dev = make_rows([("d", 0.0)], dtype=float)
    assert found("contradict", make_task(None), make_rows(rows + twins, dtype=float), dev) == []


_ROWS = st.lists(st.tuples(st.sampled_from(["a", "A ", " b", "c  d", "C D", ""]), st.integers(0, 1)), min_size=1)


@given(_ROWS, _ROWS)
def test_leakage_is_what_comparing_every_dev_row_with_every_training_row_finds(
    train: list[Row], dev: list[Row]
) -> None:
    def plain(text: str) -> str:
        return " ".join(text.lower().split())

    n_leaked = sum(any(plain(text) == plain(other) for other, _ in train) for text, _ in dev)
    n_alike = sum(any((plain(text), label) == (plain(other), mark) for other, mark in train) for text, label in dev)
    lines = found("leakage", TWO, make_rows(train), make_rows(dev))
    assert len(lines) == (n_leaked > 0)
    for line in lines:
        assert f"leakage: {n_leaked} of {len(dev)} dev rows" in line
        assert f"{n_alike} with the same label, {n_leaked - n_alike} with another" in line


@pytest.mark.parametrize(("name", "n_leaked"), [("cola", 16), ("stsb", 6), ("qqp", 2), ("sst2", 0), ("mrpc", 0)])
def test_real_files_leak_as_counted(name: str, n_leaked: int) -> None:
    shared = os.environ.get("FROSTLINE_SHARED")
    if not shared or not (Path(shared) / "glue").is_dir():
        pytest.skip("the GLUE files are not here: set FROSTLINE_SHARED to the folder that holds glue/")
    data = tasks.load(tasks.resolve(tasks.parse(name, data=str(Path(shared) / "glue"))))
    assert [line.split()[1] for line in data.warnings if "leakage" in line] == [str(n_leaked)] * (n_leaked > 0)


def write(path: Path, *labels: str) -> str:
    path.write_text("text,label\n" + "".join(f"{path.stem} {i},{label}\n" for i, label in enumerate(labels)))
    return str(path)


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc", "mcc"])
def test_a_dev_set_of_one_class_is_refused_before_training(tmp_path: Path, metric: str) -> None:
    train = write(tmp_path / "train.csv", *["no", "yes"] * 10)
    one = write(tmp_path / "one.csv", "yes", "yes", "yes")
    with pytest.raises(
        UsageError, match=r"only the label 'yes' is left in dev \(rows: 3\); give more rows, .* with --dev"
    ):
        tasks.load(tasks.parse(train, dev=one, metric=metric))
    both = write(tmp_path / "both.csv", "yes", "yes", "no")
    assert len(tasks.load(tasks.parse(train, dev=both, metric=metric)).dev) == 3


def test_a_dev_sample_of_one_class_says_how_many_rows_it_takes(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", *["no", "yes"] * 10)
    dev = write(tmp_path / "dev.csv", *["no"] * 9, "yes")
    with pytest.raises(UsageError, match="max_dev is 1: only the label 'no' is left in dev; use at least") as caught:
        tasks.load(tasks.parse(train, dev=dev, max_dev=1))
    least = int(str(caught.value).split()[-1])
    assert len(tasks.load(tasks.parse(train, dev=dev, max_dev=least)).dev) == least
    with pytest.raises(UsageError, match="max_dev"):
        tasks.load(tasks.parse(train, dev=dev, max_dev=least - 1))


def test_a_dev_set_of_one_value_is_refused(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", *[str(i / 4) for i in range(20)])
    same = write(tmp_path / "same.csv", "2.5", "2.50")
    with pytest.raises(UsageError, match=r"only the label '2.5' is left in dev \(rows: 2\)"):
        tasks.load(tasks.parse(train, dev=same, kind="regression"))
    apart = write(tmp_path / "apart.csv", "2.5", "2.75")
    assert len(tasks.load(tasks.parse(train, dev=apart, kind="regression")).dev) == 2


@pytest.mark.parametrize(("asked", "name"), [("Macro-F1", "macro_f1"), ("rocauc", "roc_auc")])
def test_a_metric_is_resolved_to_its_own_name(tmp_path: Path, asked: str, name: str) -> None:
    spec = tasks.resolve(tasks.parse(write(tmp_path / "own.csv", *["a", "b"] * 20), metric=asked))
    assert spec.metric == name
    assert tasks.load(spec).task.metrics[0] == name
    with pytest.raises(UsageError, match="use r2"):
        tasks.resolve(spec.replace(metric="RMSE"))
