"""`frostline report` and what stands behind it: out folders read again, without a model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import Finished, Toy, frostline, start
from frostline.analysis import Curve
from frostline.errors import DataError, UsageError
from frostline.records.requests import ResolvedRequest
from frostline.report.curve_chapter import CurveChapter
from frostline.report.formats.html import page
from frostline.report.progress.live import FIRST_AFTER, PAUSE, LivePage
from frostline.storage.runs import Store
from frostline.studies.curve import CurveStudy
from frostline.studies.registry import chapters

pytestmark = pytest.mark.usefixtures("draws")

SETTINGS = ("--seeds", "3", "--lrs", "1e-3,3e-3", "--epochs", "2", "--frozen", "2,3", "--batch-size", "8", "--json")


@pytest.fixture(scope="module")
def curve(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A finished curve, its out folder, and a search in it."""
    out = tmp_path_factory.mktemp("stored") / "out"
    task = (str(toy.model), str(toy.train), "--dev", str(toy.dev))
    done = frostline("curve", *task, *SETTINGS, out=out)
    assert done.code == 0, done.stderr
    return done


@pytest.fixture
def copied(curve: Finished, tmp_path: Path) -> Store:
    """A store with the same curve, to be changed."""
    return Store(Path(shutil.copytree(curve.out, tmp_path / "out")))


def whole_of(store: Store) -> tuple[ResolvedRequest, CurveChapter]:
    """The request of the only curve, and its chapter."""
    (resolved,) = CurveStudy().stored(store)
    chapter = chapter_so_far(store)
    assert isinstance(chapter, CurveChapter)
    return resolved, chapter


def chapter_so_far(store: Store) -> CurveChapter | None:
    """What the store has of its only curve."""
    chapter = CurveStudy().stored_chapter(CurveStudy().stored(store)[0], store)
    assert chapter is None or isinstance(chapter, CurveChapter)
    return chapter


def report(*arguments: str, cwd: Path) -> Finished:
    process = start("report", *arguments, cwd=cwd)
    stdout, stderr = process.communicate()
    return Finished(process.returncode, stdout, stderr, cwd)


def without_costs(curve: Any) -> Any:
    """What does not depend on the call."""
    return {name: value for name, value in curve.items() if name not in ("cost", "runs")}


def test_what_is_read_again_is_what_was_written(curve: Finished) -> None:
    (chapter,) = chapters(curve.out)
    assert isinstance(chapter, CurveChapter)
    assert without_costs(chapter.curve.to_json()) == without_costs(curve.json)
    assert chapter.n_missing == 0
    assert len(chapter.runs) == 2 + 3 * 3
    assert chapter.curve.cost.wall_seconds is None, "nobody knows how long all calls took"
    stored = {run.key for run in chapter.runs}
    assert stored == {path.stem for path in (curve.out / "runs").glob("*.json")}


def test_the_curve_leaves_a_page_of_itself(curve: Finished) -> None:
    made = (curve.out / "report.html").read_text(encoding="utf-8")
    assert made.startswith("<!doctype html>")
    assert f"{curve.json['full']['mean']:.3f}" in made
    assert "refresh" not in made


def test_each_format_by_the_command(curve: Finished, tmp_path: Path) -> None:
    formats = "html,md,latex,csv,svg,png,pdf"
    done = report(str(curve.out), "--format", formats, "--to", str(tmp_path / "new"), cwd=tmp_path)
    assert done.code == 0, done.stderr
    names = ["report.html", "report.md", "report.tex", "report.csv", "report.svg", "report.png", "report.pdf"]
    assert [Path(line).name for line in done.stdout.split()] == names
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(names)


def test_on_the_terminal_and_as_json(curve: Finished, tmp_path: Path) -> None:
    said = report(str(curve.out), cwd=tmp_path)
    assert said.code == 0
    assert "Against the full model" in said.stdout
    (chapter,) = report(str(curve.out), "--json", cwd=tmp_path).json["chapters"]
    assert without_costs(chapter["curve"]) == without_costs(curve.json)


def test_several_folders_make_one_report(curve: Finished, tmp_path: Path) -> None:
    shutil.copytree(curve.out, tmp_path / "second")
    done = report(str(curve.out), str(tmp_path / "second"), "--format", "html", "--to", str(tmp_path), cwd=tmp_path)
    assert done.code == 0, done.stderr
    made = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="summary"' in made
    assert made.count("nothing frozen") == 2


def test_without_to_the_files_are_in_the_first_folder_and_named(curve: Finished, tmp_path: Path) -> None:
    first, second = (Path(shutil.copytree(curve.out, tmp_path / name)) for name in ("first", "second"))
    done = report(str(first), str(second), "--format", "md", cwd=tmp_path)
    assert (done.code, done.stdout.split()) == (0, [str(first / "report.md")]), done.stderr
    assert not (second / "report.md").exists()


def test_it_starts_without_torch(curve: Finished, tmp_path: Path) -> None:
    code = f"""
import sys
from frostline.cli import entry
sys.argv = ["frostline", "report", {str(curve.out)!r}, "--format", "html,csv", "--to", {str(tmp_path)!r}]
try:
    entry()
except SystemExit as ended:
    assert not ended.code, ended.code
print(sorted({{"torch", "transformers"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_curve_under_way_is_shown_as_far_as_it_is(copied: Store) -> None:
    store, out = copied, copied.folder
    _, whole = whole_of(store)
    for run in whole.runs:
        if run.n_frozen == 3 or (run.n_frozen == 2 and run.seed == 2):
            (out / "runs" / f"{run.key}.json").unlink()
    part = chapter_so_far(store)
    assert part is not None
    assert part.n_missing == 4
    assert [point.n_frozen for point in part.curve.points] == [2]
    assert part.curve.points[0].seeds == (0, 1)
    assert not any("crashed" in warning for warning in part.curve.warnings), "what is yet to come has not crashed"
    assert "7 of 11 runs done" in page([part])
    for run in whole.runs:
        if run.role == "replicate":
            (out / "runs" / f"{run.key}.json").unlink(missing_ok=True)
    assert chapter_so_far(store) is None
    with pytest.raises(UsageError, match="has no finished study yet"):
        chapters(out)


def test_a_run_that_crashed_is_told_of(copied: Store) -> None:
    store, out = copied, copied.folder
    _, whole = whole_of(store)
    gone = next(run for run in whole.runs if run.n_frozen == 2 and run.seed == 2)
    (out / "runs" / f"{gone.key}.json").unlink()
    (out / "crashed").mkdir()
    (out / "crashed" / f"{gone.key}.json").write_text("{}")
    part = chapter_so_far(store)
    assert part is not None
    assert any("crashed" in warning for warning in part.curve.warnings)
    assert part.curve.runs.crashed == 1
    for run in whole.runs:
        if run.role == "replicate":
            (out / "runs" / f"{run.key}.json").unlink(missing_ok=True)
            (out / "crashed" / f"{run.key}.json").write_text("{}")
    assert chapter_so_far(store) is None, "where all crashed there is nothing to draw"


def test_what_is_no_out_folder(tmp_path: Path) -> None:
    done = report(str(tmp_path), cwd=tmp_path)
    assert done.code == 2
    assert "is not a frostline output folder" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_unknown_format_is_told_in_one_line(curve: Finished, tmp_path: Path) -> None:
    done = report(str(curve.out), "--format", "htm", cwd=tmp_path)
    assert done.code == 2
    assert "unknown format 'htm'; known: html, md, latex, csv, svg, png, pdf. Did you mean 'html'?" in done.stderr


def test_a_search_is_a_chapter_of_its_own(copied: Store, toy: Toy) -> None:
    out = copied.folder
    task = (str(toy.model), str(toy.train), "--dev", str(toy.dev))
    found = frostline("find", *task, *SETTINGS, "--seeds", "4", out=out)
    assert found.code == 0, found.stderr
    told = [chapter for chapter in chapters(out) if isinstance(chapter, CurveChapter)]
    assert len(told) == 2
    assert told[1].curve.to_json() == found.json
    n_scores = sum(len(point["scores"]) for point in (found.json["full"], *found.json["points"]))
    assert len(told[1].runs) == n_scores
    assert "find" in (told[1].provenance.settings if told[1].provenance else "")
    (out / "find.json").write_text("{")
    with pytest.raises(DataError, match=r"find\.json: not the answer of a search"):
        chapters(out)


def test_python_users_write_a_report_of_their_curve(curve: Finished, toy: Toy, tmp_path: Path) -> None:
    import frostline as package

    settings: dict[str, Any] = {"seeds": 3, "lrs": "1e-3,3e-3", "epochs": 2, "frozen": "2,3", "batch_size": 8}
    again = package.curve(str(toy.model), str(toy.train), dev=str(toy.dev), out=curve.out, **settings)
    made = again.report(tmp_path / "mine.html").read_text(encoding="utf-8")
    assert "Every finished run" in made
    assert Curve.from_json(json.loads(again.report(tmp_path / "mine.json").read_text())) == Curve.from_json(
        again.to_json()
    )


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_a_live_page_is_written_seldom_enough(copied: Store) -> None:
    (copied.folder / "report.html").unlink()
    store, clock, said = copied, FakeClock(), list[str]()
    live = LivePage(store.folder, lambda: chapter_so_far(store), said.append, clock)
    live.renew()
    assert not live.path.is_file(), "the sweep may be over soon"
    clock.now += FIRST_AFTER
    live.renew()
    assert live.path.is_file()
    live.path.unlink()
    live.renew()
    assert not live.path.is_file(), "the last time is too near"
    clock.now += 3 * PAUSE
    live.renew()
    assert live.path.is_file()
    assert said == []


def test_a_page_that_cannot_be_written_ends_no_sweep(copied: Store) -> None:
    (copied.folder / "report.html").unlink()
    (copied.folder / "report.html").mkdir()
    said, clock = list[str](), FakeClock()
    live = LivePage(
        copied.folder,
        lambda: CurveStudy().stored_chapter(CurveStudy().stored(copied)[0], copied),
        said.append,
        clock,
    )
    clock.now += FIRST_AFTER
    live.renew()
    live.renew()
    assert len(said) == 1
    assert "report.html is no longer updated" in said[0]
