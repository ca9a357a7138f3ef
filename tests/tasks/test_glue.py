from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from frostline import tasks
from frostline.errors import DataError, UsageError
from frostline.tasks import glue

# Of QNLI, QQP and MNLI the shared folder holds parts; the other six are the official files.
ROWS = {
    "cola": (8551, 1043),
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "stsb": (5749, 1500),
    "rte": (2490, 277),
    "wnli": (635, 71),
    "qnli": (10475, 5463),
    "qqp": (20000, 3497),
    "mnli": (9888, 9815),
}
CONTRADICTING = {"cola": (22,), "sst2": (10,)}
TASKS = {task.name: task for task in glue.TASKS}


def write_task(data: Path, name: str, train: str, dev: str, folder: str | None = None) -> Path:
    files = TASKS[name].glue_files
    assert files is not None
    place = data / (folder or files.folder)
    place.mkdir(parents=True)
    (place / files.train_file).write_bytes(train.encode())
    (place / files.dev_file).write_bytes(dev.encode())
    return data


def load(name: str, data: Path, dev: str | None = None) -> tasks.TaskData:
    return tasks.load(tasks.resolve(tasks.parse(name, data=str(data), dev=dev)))


SST2 = "sentence\tlabel\ngood \t1\nbad \t0\n"


@pytest.mark.parametrize("name", ROWS)
def test_real_files_give_all_their_rows(name: str) -> None:
    shared = os.environ.get("FROSTLINE_SHARED")
    if not shared or not (Path(shared) / "glue").is_dir():
        pytest.skip("the GLUE files are not here: set FROSTLINE_SHARED to the folder that holds glue/")
    data = load(name, Path(shared) / "glue")
    assert (len(data.train), len(data.dev)) == ROWS[name]
    contradicting = [text.split(":")[0] for text in data.warnings if "leakage" not in text]
    assert contradicting == [f"{n} training rows contradict each other" for n in CONTRADICTING.get(name, ())]
    for rows in (data.train, data.dev):
        assert rows.ids.tolist() == list(range(len(rows)))
        assert all(rows.texts)
        assert rows.pairs is None or all(rows.pairs)
        assert not any("\n" in text or "\t" in text or "\ufeff" in text for text in rows.texts)
    if name == "stsb":
        assert (data.train.labels.min(), data.train.labels.max()) == (0.0, 5.0)
    else:
        assert np.unique(data.train.labels).tolist() == list(range(len(data.label_names)))


def test_the_nine_tasks_and_their_scores() -> None:
    scores = {name: task.metrics[0] for name, task in TASKS.items()}
    others = dict.fromkeys(("sst2", "rte", "wnli", "qnli", "mnli", "mnli-mm"), "accuracy")
    assert scores == {"cola": "mcc", "mrpc": "f1", "qqp": "f1", "stsb": "pearson", **others}
    assert [name for name, task in TASKS.items() if task.kind == "regression"] == ["stsb"]
    for task in TASKS.values():
        assert task.glue_files is not None
        assert tasks.Task.from_json(task.to_json()) == task


def test_cola_has_no_header_and_quotes_are_text(tmp_path: Path) -> None:
    train = '\ufeffgj04\t1\t\t"She left.\ngj04\t0\t*\tLeft "she".\r\ngj04\t1\t\tThey a\u2028b\u0085c.'
    data = load("cola", write_task(tmp_path, "cola", train, train))
    assert data.train.texts == ['"She left.', 'Left "she".', "They a\u2028b\u0085c."]
    assert data.train.labels.tolist() == [1, 0, 1]
    assert data.train.labels.dtype == np.int64
    assert data.label_names == ("unacceptable", "acceptable")


def test_mrpc_reads_pairs_below_a_byte_order_mark(tmp_path: Path) -> None:
    train = '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta\t"b\n0\t9\t1\tc\td\n'
    data = load("mrpc", write_task(tmp_path, "mrpc", train, train))
    assert (data.train.texts, data.train.pairs) == (["a", "c"], ['"b', "d"])
    assert data.train.labels.tolist() == [1, 0]


def test_mnli_columns_are_found_by_name(tmp_path: Path) -> None:
    few = "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tneutral\n1\tc\td\tentailment\n2\te\tf\tcontradiction\n"
    many = (
        "index\tpromptID\tsentence2\tsentence1\tlabel1\tlabel2\tgold_label\n"
        "0\t1\tb\ta\tentailment\tneutral\tneutral\n"
        "1\t1\td\tc\tneutral\tneutral\tentailment\n"
        "2\t1\tf\te\tneutral\tneutral\tcontradiction\n"
    )
    data = load("mnli", write_task(tmp_path, "mnli", many, few))
    for rows in (data.train, data.dev):
        assert (rows.texts, rows.pairs, rows.labels.tolist()) == (["a", "c", "e"], ["b", "d", "f"], [1, 0, 2])


def test_stsb_scores_stay_as_they_are(tmp_path: Path) -> None:
    train = "sentence1\tsentence2\tscore\na\tb\t5.000\nc\td\t0.25\n"
    data = load("stsb", write_task(tmp_path, "stsb", train, train))
    assert data.train.labels.tolist() == [5.0, 0.25]
    assert data.train.labels.dtype == np.float64
    assert data.label_names == ()
    assert data.task.metrics == ("pearson", "spearman")


@pytest.mark.parametrize("folder", ["SST-2", "sst-2", "sst2", "Sst_2"])
def test_the_folder_is_found_whatever_its_case(tmp_path: Path, folder: str) -> None:
    assert load("sst2", write_task(tmp_path, "sst2", SST2, SST2, folder)).train.texts == ["good ", "bad "]


def test_another_dev_file_takes_the_place_of_the_tasks_own(tmp_path: Path) -> None:
    data = write_task(tmp_path, "sst2", SST2, SST2)
    other = tmp_path / "other.tsv"
    other.write_text("label\tsentence\n0\tawful\n1\tfine\n", encoding="utf-8")
    assert load("sst2", data, dev=str(other)).dev.texts == ["awful", "fine"]
    assert load("sst2", data, dev=str(other)).fingerprint != load("sst2", data).fingerprint
    with pytest.raises(UsageError, match="is the training file"):
        load("sst2", data, dev=str(data / "SST-2" / "train.tsv"))
    with pytest.raises(UsageError, match="there is no dev file"):
        load("sst2", data, dev=str(tmp_path / "none.tsv"))


@pytest.mark.parametrize(
    ("train", "line", "message"),
    [
        ("sentence\tlabel\ngood\t1\nbad\n", 3, "too few fields: 1 instead of 2"),
        ("sentence\tlabel\ngood\t1\n\nbad\t0\n", 3, "too few fields"),
        ("sentence\tlabel\ngood\t1\nbad\t2\n", 3, "unknown label '2'; known: 0, 1"),
        ("sentence\tlabel\ngood\t\n", 2, r"the label \(column 'label'\) is empty"),
        ("sentence\tlabel\n", None, "no rows"),
        ("", None, "is empty"),
        ("sentence\tlable\ngood\t1\n", None, "no column 'label'; its columns: sentence, lable. Did you mean 'lable'"),
        ("sentence\tlabel\tlabel\ngood\t1\t1\n", 1, "names label more than once"),
    ],
)
def test_faults_of_a_file_name_it_and_the_line(tmp_path: Path, train: str, line: int | None, message: str) -> None:
    data = write_task(tmp_path, "sst2", train, SST2)
    with pytest.raises(DataError, match=message) as caught:
        load("sst2", data)
    assert caught.value.path == data / "SST-2" / "train.tsv"
    assert caught.value.line == line


def test_a_score_that_is_no_number(tmp_path: Path) -> None:
    train = "sentence1\tsentence2\tscore\na\tb\t5.000\nc\td\tnan\n"
    with pytest.raises(DataError, match=r"train.tsv, line 3: the label 'nan' is not a finite number"):
        load("stsb", write_task(tmp_path, "stsb", train, train))


def test_missing_folders_and_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        load("sst2", tmp_path / "none")
    with pytest.raises(UsageError, match="holds no folder SST-2"):
        load("sst2", tmp_path)
    (write_task(tmp_path, "sst2", SST2, SST2) / "SST-2" / "dev.tsv").unlink()
    with pytest.raises(DataError, match=r"dev.tsv: does not exist"):
        load("sst2", tmp_path)


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    data = write_task(tmp_path, "sst2", SST2, SST2)
    (data / "SST-2" / "train.tsv").write_bytes(b"sentence\tlabel\ngood\t1\ncaf\xe9\t0\n")
    with pytest.raises(DataError, match=r"line 3: is not UTF-8"):
        load("sst2", data)


def test_short_rows_of_qqp_are_left_out_and_told(tmp_path: Path) -> None:
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    train = header + "0\t1\t2\ta\tb\t0\n1\t3\t4\tbroken off\n2\t5\t6\tc\td\t1\n"
    data = load("qqp", write_task(tmp_path, "qqp", train, header + "0\t1\t2\te\tf\t0\n1\t3\t4\tg\th\t1\n"))
    assert (data.train.texts, data.train.ids.tolist()) == (["a", "c"], [0, 2])
    assert f"rows skipped because they have too few fields: 1 of {tmp_path / 'QQP' / 'train.tsv'}" in data.warnings
    assert not any("dev.tsv" in warning for warning in data.warnings)


def test_mnli_is_scored_on_the_matched_dev_set_and_mnli_mm_on_the_other(tmp_path: Path) -> None:
    header = "sentence1\tsentence2\tgold_label\n"
    train, matched, mismatched = (
        header + f"{word}\tb\tneutral\n{word}\td\tentailment\n" for word in ("train", "matched", "mismatched")
    )
    write_task(tmp_path, "mnli", train, matched)
    with pytest.raises(DataError, match=r"dev_mismatched.tsv: does not exist, but mnli-mm needs it"):
        load("mnli-mm", tmp_path)
    (tmp_path / "MNLI" / "dev_mismatched.tsv").write_text(mismatched)
    assert load("mnli", tmp_path).dev.texts == ["matched"] * 2
    assert load("MNLI_mm", tmp_path).dev.texts == ["mismatched"] * 2
    assert load("mnli-mm", tmp_path).train.texts == load("mnli", tmp_path).train.texts
