"""What a format asks of a chapter, and what a new kind of chapter needs."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

import frostline.report
from frostline.analysis import Finding
from frostline.records.depth import FULL
from frostline.report.chapter import Chapter, TableChapter, arranged, runs_table
from frostline.report.formats.html import page
from frostline.report.formats.markdown import markdown
from frostline.report.formats.registry import FORMATS, write_reports
from frostline.report.grid_chapters import SizesChapter
from frostline.report.tables import Table
from frostline.report.terminal import format_result, print_chapters
from frostline.report.wording import curve_words

from .chapters import alone, make_chapter, make_finding
from .comparisons import make_comparison_chapter, sized
from .curves import make_curve

TOY = TableChapter(
    title="toy on sst2",
    answer=("Three of twelve attention heads matter.", "Decided at 95% confidence."),
    tables=(Table(title="Heads", headers=("head", "score"), rows=(("1", "0.91"), ("2", "0.42")), left=("head",)),),
)


def printed(*chapters: Chapter) -> str:
    console = Console(file=io.StringIO(), width=100)
    print_chapters(console, chapters)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_chapter_of_a_title_an_answer_and_tables_is_shown_by_every_format(tmp_path: Path) -> None:
    paths = write_reports([TOY], list(FORMATS), tmp_path)
    assert all(path.stat().st_size > 50 for path in paths)
    for name in ("html", "md", "latex", "csv"):
        assert "0.42" in (tmp_path / f"report{FORMATS[name]}").read_text(encoding="utf-8"), name
    said = printed(TOY)
    assert said.index("toy on sst2") < said.index("Three of twelve") < said.index("Decided") < said.index("0.42")
    assert json.loads(json.dumps(TOY.to_json()))["tables"][0]["rows"][1] == ["2", "0.42"]


def test_it_stands_beside_other_chapters(tmp_path: Path) -> None:
    write_reports([TOY, make_chapter(), make_comparison_chapter()], list(FORMATS), tmp_path)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text(encoding="utf-8"))))
    assert [rows[0]["strategy"], rows[-1]["score"]] == ["full", "0.42"]
    assert "1 curve, 1 comparison and 1 result" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_json_of_a_chapter_begins_with_its_record() -> None:
    assert list(make_chapter().to_json()) == ["curve", "runs", "n_missing", "provenance", "probes"]
    assert list(make_comparison_chapter().to_json()) == ["comparison", "runs", "n_missing", "provenance"]


def test_no_format_asks_what_kind_of_chapter_it_has() -> None:
    folder = Path(frostline.report.__file__).parent
    pattern = re.compile(r"isinstance\([^)]*(Chapter|Curve|Comparison|Finding|Sizes)\b")
    assert pattern.search("isinstance(one, Chapter)")
    assert [path for path in folder.rglob("*.py") if pattern.search(path.read_text(encoding="utf-8"))] == []


def test_a_model_folder_is_shown_by_its_name_and_its_path_only_in_the_details() -> None:
    path = "/home/someone/models/my-bert"
    chapter = make_chapter(model=path)
    assert chapter.title == "my-bert on rotten-tomatoes"
    assert ("model folder", path) in chapter.details
    made = page([chapter])
    assert made.count(path) == 1
    assert made.index(path) > made.index('id="how"')
    assert path in json.dumps(chapter.to_json())
    assert "model folder" not in dict(make_chapter(model="org/bert").details)
    assert make_chapter(model="org/bert").title == "org/bert on rotten-tomatoes"


def test_two_folders_of_one_name_are_told_apart() -> None:
    shown = arranged([make_chapter(model="/a/b/bert"), make_chapter(model="/c/d/bert")])
    assert [chapter.title.partition(" on ")[0] for chapter in shown] == ["bert (1)", "bert (2)"]


def test_train_sizes_have_a_table_of_rows_and_depths_on_the_terminal() -> None:
    said = printed(sized(8000), sized(100, 0.05))
    assert re.search(r"training\s+rows\s+full\s+3 frozen\s+4 frozen", said) or "training rows" in said
    assert re.search(r"^ *100 +0\.731 +0\.716", said, re.M)
    assert re.search(r"^ *8,000 +0\.781 +0\.766", said, re.M)
    assert "2 with 100 rows, 2 with 8,000 rows" in said
    assert said.index("(100 rows)") < said.index("(8,000 rows)"), "the fewest rows come first"
    assert "training size" not in printed(sized(100), make_chapter(task="other"))


def test_a_sizes_chapter_brings_its_curves() -> None:
    curves = (sized(100), sized(200))
    (overview,) = [one for one in arranged(curves) if one.is_overview]
    assert isinstance(overview, SizesChapter)
    whole = overview.replace(curves=curves)
    assert page([whole]) == page(curves)
    assert printed(whole) == printed(*curves)


def test_a_result_prints_as_title_answer_and_one_table() -> None:
    chapter = make_chapter()
    lines = format_result([chapter]).splitlines()
    assert lines[0] == chapter.title
    assert "Training the last 2 of 6 layers keeps 95.9%" in lines[1]
    assert len(lines) < 18
    assert "\x1b" not in format_result([chapter])
    assert "8,000" in format_result([sized(100), sized(8000)])


def test_failed_is_explained_where_it_is_shown() -> None:
    assert "Failed: the run learned nothing" in runs_table([make_chapter()]).title
    assert "Failed: the run learned nothing" in " ".join(printed(make_chapter()).split())


def test_a_depth_no_better_than_a_constant_is_not_recommended() -> None:
    curve = make_curve({FULL: (0.623, 0.623), 3: (0.6, 0.6), 6: (0.57, 0.57)}, chance=0.57)
    said = curve_words.answer(curve)
    assert said.startswith("Training the head alone does no better than a constant answer (2 of 2 runs failed)")
    assert "--scale ratio_above_chance" in said
    assert "no better than a constant" in curve_words.short_answer(curve)
    better = make_curve({FULL: (0.623, 0.623), 3: (0.6, 0.6), 6: (0.58, 0.58)}, chance=0.57)
    assert curve_words.answer(better).startswith("Training the head alone keeps 93.1%")


def test_an_answer_that_a_constant_would_reach_says_so() -> None:
    """MRPC with few rows: every depth is a little above a constant answer, which keeps 99% of the full F1."""
    curve = make_curve({FULL: (0.820, 0.821), 3: (0.82, 0.82), 6: (0.816, 0.816)}, chance=0.812)
    said = curve_words.answer(curve)
    assert said.startswith("Training the head alone keeps 99.5%")
    assert ". A constant answer keeps 99.0% too, so this says little; use --scale ratio_above_chance. At 95%" in said
    asked = next(one for one in curve.operating_points if one.scale == "ratio_above_chance")
    assert "A constant answer" not in curve_words.answer(curve.replace(operating_points=(asked,)))
    assert "A constant answer" not in curve_words.answer(make_curve()), "chance is far below the bar"


def test_failed_runs_of_the_recommended_depth_come_first() -> None:
    curve = make_curve({FULL: (0.8, 0.8, 0.8), 3: (0.8, 0.8, 0.5)}, keeps=(0.8,))
    said = curve_words.answer(curve)
    assert said.startswith("1 of 3 runs failed (they learned nothing): training the last 3 of 6 layers keeps 87.5%")


@pytest.mark.parametrize("full", [(0.3, 0.3), (0.29, 0.3)])
def test_a_full_model_that_did_not_learn_is_the_answer(full: tuple[float, ...]) -> None:
    curve = make_curve({FULL: full, 3: (0.3, 0.3)}, chance=0.3)
    said = curve_words.answer(curve)
    assert said.startswith("The full model did not learn: accuracy 0.")
    assert "keeps" not in said
    assert all(flag in said for flag in ("--epochs", "--lr", "more rows"))
    assert curve_words.short_answer(curve) == "The full model did not learn"
    learned = make_curve({FULL: (0.31, 0.31), 3: (0.31, 0.31)}, chance=0.3)
    assert "keeps 100.0%" in curve_words.answer(learned)


def test_a_search_out_of_budget_names_the_depths_that_it_did_not_try() -> None:
    because = "the budget of 2.4 full runs is used up; depths not tried: 3, 4; a larger --budget continues the search"
    found = make_finding(because)
    first, second = alone(found)[0].answer
    assert first.startswith("No depth tried keeps 90%")
    assert "depths not tried: 3, 4; a larger --budget" in second
    assert second in markdown(alone(found))
    assert json.loads(json.dumps(found.to_json()))["answer"]["n_frozen"] is None
    assert Finding.from_json(found.to_json()) == found
