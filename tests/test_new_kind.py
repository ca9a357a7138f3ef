"""A kind of task that frostline does not know, from a module outside it, through the whole of frostline."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

import frostline
from frostline.errors import DataError, UsageError
from frostline.kinds import kind_named
from frostline.saving.predict import predict_file
from frostline.testing.kinds import check_kind
from frostline.testing.models import make_model, make_task
from toy_kind import STARS

TESTS = Path(__file__).parent
KIND = "toy_kind:STARS"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A tiny model and rows with stars; worker processes find the kind's module on their path."""
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}:{Path(frostline.__file__).parents[1]}")
    model, task = make_model(tmp_path / "model"), make_task(tmp_path / "films.csv", n_rows=80)
    task.write_text(task.read_text().replace(",good", ",***").replace(",bad", ",*"))
    return str(model), str(task)


def test_it_is_short_and_keeps_the_promises_of_kinds() -> None:
    assert len((TESTS / "toy_kind.py").read_text().splitlines()) < 60
    assert kind_named(KIND) is STARS
    check_kind(STARS, written=("*", "***", "**", "*", "***", "***"))


def test_a_curve_in_worker_processes_and_its_report(files: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = frostline.curve(*files, out=out, kind=KIND, frozen="1-2", seeds=2, lr=1e-2, epochs=1, workers=2)
    assert found.metric == "nearness"
    assert found.chance > 0.4, "a constant answer is near to some"
    stored = [json.loads(path.read_text())["content"] for path in (out / "runs").glob("*.json")]
    assert {run["spec"]["task"]["kind"] for run in stored} == {KIND}
    assert {tuple(run["label_names"]) for run in stored} == {("*", "**", "***")}
    assert {tuple(sorted(run["metrics"])) for run in stored} == {("accuracy", "nearness")}
    assert "nearness" in (out / "report.html").read_text()
    shown = subprocess.run(
        [sys.executable, "-m", "frostline", "report", str(out)], capture_output=True, text=True, check=True
    )
    assert "nearness" in shown.stdout


def test_a_saved_model_predicts_with_the_columns_of_its_kind(files: tuple[str, str], tmp_path: Path) -> None:
    save = tmp_path / "saved"
    result = frostline.train(
        *files, kind=KIND, frozen="full", lr=1e-2, epochs=2, seeds="0,", out=tmp_path / "out", save=save
    )
    assert set(result.metrics) == {"nearness", "accuracy"}
    rows = list(predict_file(save, Path(files[1])))
    with Path(files[1]).open(encoding="utf-8") as stream:
        given = list(csv.DictReader(stream))
    assert list(rows[0]) == ["text", "label", "prediction", "stars"]
    assert [row["text"] for row in rows] == [row["text"] for row in given]
    assert {row["prediction"] for row in rows} <= {"*", "**", "***"}
    assert all(1 <= float(row["stars"]) <= 3 for row in rows)


def test_its_own_label_errors_have_a_line(files: tuple[str, str], tmp_path: Path) -> None:
    Path(files[1]).write_text("text,label\na,*\nb,two\n")
    with pytest.raises(DataError, match=r"films.csv, line 3: 'two' is not a number of stars"):
        frostline.curve(*files, kind=KIND, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("classificaton", "unknown kind 'classificaton'; known: classification, regression. Did you mean 'classif"),
        ("no_such_module:KIND", "cannot be imported .*No module named 'no_such_module'.*PYTHONPATH"),
        ("toy_kind:MOONS", "cannot be imported .*MOONS"),
        ("toy_kind:nearness", "'toy_kind:nearness' is a function; it must be a frostline.kinds.Kind"),
    ],
)
def test_a_kind_that_is_not_there_is_one_line(kind: str, reason: str, files: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=reason):
        frostline.curve(*files, kind=kind, out=tmp_path / "out")
