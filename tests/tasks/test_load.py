from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from frostline import tasks
from frostline.errors import UsageError
from frostline.kinds import kind_named
from frostline.records.specs import TaskSpec


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.csv"
    rows = [f"row {i},{'rare' if i % 10 == 0 else 'often'}\n" for i in range(300)]
    path.write_text("text,label\n" + "".join(rows), encoding="utf-8")
    return str(path)


def test_libraries_for_other_formats_are_imported_when_they_are_needed() -> None:
    code = "import sys, frostline.tasks; sys.exit(bool({'datasets', 'pyarrow', 'pandas', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_known_names_however_written() -> None:
    for written, name in (
        ("sst2", "sst2"),
        ("SST-2", "sst2"),
        ("CoLA", "cola"),
        ("rotten_tomatoes", "rotten-tomatoes"),
    ):
        assert tasks.parse(written).name == name
    assert [task.name for task in tasks.known()][-1] == "rotten-tomatoes"


def test_every_metric_a_task_names_is_there() -> None:
    for task in tasks.known():
        kind = kind_named(task.kind)
        labels = kind.encode(["0", "1", "1"], ["0", "1"])
        for name in task.metrics:
            assert 0 <= kind.chance(name, labels) < 1


def test_unknown_tasks() -> None:
    with pytest.raises(UsageError, match=r"unknown task 'sts2'; known: cola, .*Did you mean 'stsb'\? Or give a file"):
        tasks.parse("sts2")
    with pytest.raises(UsageError, match="unknown task"):
        tasks.parse("x" * 5000)
    with pytest.raises(UsageError, match=r"there is no file or folder missing.csv"):
        tasks.parse("missing.csv")
    with pytest.raises(UsageError, match="there is no file or folder some/where/else"):
        tasks.parse("some/where/else")
    with pytest.raises(UsageError, match=r"there is no file or folder \./where"):
        tasks.parse("./where")
    with pytest.raises(UsageError, match="unknown task"):
        tasks.parse("\0")
    with pytest.raises(UsageError, match="unknown task 'sts2'"):
        tasks.resolve(TaskSpec(name="sts2", source=None, data=None, dev=None))


def test_faults_of_a_known_task_come_together() -> None:
    spec = tasks.parse("sst2", text="body", kind="regression", metric="f1", dev_share=0.0, max_dev=0)
    with pytest.raises(UsageError) as caught:
        tasks.resolve(spec)
    for part in (
        "--text 'body' is not for sst2",
        "--kind 'regression'",
        "unknown metric 'f1' for sst2; known: accuracy",
        "dev_share is 0.0",
        "max_dev is 0",
    ):
        assert part in str(caught.value)


def test_a_resolved_glue_spec_resolves_to_itself(tmp_path: Path) -> None:
    folder = tmp_path / "MRPC"
    folder.mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("Quality\t#1 String\t#2 String\n1\ta\tb\n0\tc\td\n", encoding="utf-8")
    spec = tasks.resolve(tasks.parse("mrpc", data=str(tmp_path), metric="accuracy"))
    assert (spec.text, spec.text_pair, spec.label) == ("#1 String", "#2 String", "Quality")
    assert tasks.resolve(spec) == spec
    assert tasks.metrics_of(spec) == ("accuracy", "f1")


def test_own_data_named_like_a_known_task(tmp_path: Path) -> None:
    path = tmp_path / "sst2.csv"
    path.write_text("text,label\na,0\nb,1\nc,0\nd,1\n", encoding="utf-8")
    spec = tasks.resolve(tasks.parse(str(path)))
    assert (spec.name, spec.text) == ("sst2", "text")
    with pytest.raises(UsageError, match="--data is the folder of the GLUE tasks"):
        tasks.resolve(spec.replace(data=str(tmp_path)))


def test_loading_twice_gives_the_same(own: str) -> None:
    spec = tasks.resolve(tasks.parse(own, max_train=50, max_dev=10))
    first, second = tasks.load(spec), tasks.load(spec)
    assert first.fingerprint == second.fingerprint
    for one, other in ((first.train, second.train), (first.dev, second.dev)):
        assert np.array_equal(one.ids, other.ids)
        assert np.array_equal(one.labels, other.labels)
        assert one.texts == other.texts == [f"row {i}" for i in one.ids]


def test_dev_does_not_depend_on_the_train_size(own: str) -> None:
    spec = tasks.resolve(tasks.parse(own))
    everything = tasks.load(spec)
    smaller: set[int] = set()
    for max_train in (20, 100, 270):
        data = tasks.load(spec.replace(max_train=max_train))
        assert np.array_equal(data.dev.ids, everything.dev.ids)
        ids = set(data.train.ids.tolist())
        assert len(ids) == max_train
        assert smaller < ids
        assert not ids & set(data.dev.ids.tolist())
        assert abs(float(data.train.labels.mean()) - 0.1) <= 1 / max_train + 1e-9
        smaller = ids


def test_train_does_not_depend_on_the_dev_size(own: str) -> None:
    spec = tasks.resolve(tasks.parse(own))
    everything, few = tasks.load(spec), tasks.load(spec.replace(max_dev=5))
    assert np.array_equal(everything.train.ids, few.train.ids)
    assert set(few.dev.ids.tolist()) < set(everything.dev.ids.tolist())


def test_the_fingerprint_is_of_the_bytes(own: str) -> None:
    spec = tasks.resolve(tasks.parse(own))
    before = tasks.load(spec).fingerprint
    assert tasks.load(spec.replace(max_train=20)).fingerprint == before
    path = Path(own)
    path.write_text(path.read_text(encoding="utf-8").replace("row 7,", "row VII,"), encoding="utf-8")
    assert tasks.load(spec).fingerprint != before


def test_two_classes_must_be_left(own: str) -> None:
    spec = tasks.resolve(tasks.parse(own))
    with pytest.raises(
        UsageError, match="max_train is 1: only the label 'often' is left in train; use at least"
    ) as caught:
        tasks.load(spec.replace(max_train=1))
    least = int(str(caught.value).split()[-1])
    assert len(np.unique(tasks.load(spec.replace(max_train=least)).train.labels)) == 2
    with pytest.raises(UsageError, match="only the label"):
        tasks.load(spec.replace(max_train=least - 1))


def test_too_few_rows_to_cut_dev_from(tmp_path: Path) -> None:
    path = tmp_path / "tiny.csv"
    path.write_text("text,label\na,0\nb,1\n", encoding="utf-8")
    with pytest.raises(UsageError, match="give more rows, or separate dev rows with --dev"):
        tasks.load(tasks.parse(str(path)))


def test_samples_larger_than_the_data_and_absent_classes_are_noticed(own: str) -> None:
    notices = tasks.load(tasks.parse(own, max_train=1000)).warnings
    assert "max_train is 1000, but there are 270 rows; all are used" in notices
    rows = "".join(f"a {i},{'xyz'[i % 3]}\n" for i in range(90))
    Path(own).write_text("text,label\n" + rows, encoding="utf-8")
    assert any(
        "classes without a training row" in warning for warning in tasks.load(tasks.parse(own, max_train=2)).warnings
    )
    assert len(tasks.load(tasks.parse(own)).warnings) == 2
