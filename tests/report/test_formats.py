"""LaTeX, CSV and pictures, from the same records."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from frostline.errors import UsageError
from frostline.records.depth import FULL
from frostline.report.formats.latex import escape, latex
from frostline.report.formats.registry import FORMATS, write_reports
from frostline.report.formats.spreadsheet import spreadsheet
from frostline.report.terminal import print_chapters

from .chapters import alone, make_chapter
from .comparisons import make_comparison_chapter
from .curves import make_curve


def test_latex_has_the_papers_three_rows_a_task() -> None:
    curves = [make_curve(), make_curve().replace(task="a_b & 100%")]
    made = latex(alone(*curves))
    assert made.count("\\midrule") == 2
    for rule in ("\\toprule", "\\bottomrule", "\\begin{tabular}", "\\end{tabular}"):
        assert made.count(rule) == 1
    rows = [line for line in made.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + 6
    assert {row.count(" & ") for row in rows} == {8}
    assert r"a\_b \& 100\%" in made
    assert f"{make_curve().full.mean:.3f}" in rows[1]
    assert rows[2].startswith(" &  & fewest layers for 90\\%")


def test_latex_takes_every_character() -> None:
    assert escape("\\{}_$&#%^~<>") == (
        r"\textbackslash{}\{\}\_\$\&\#\%\textasciicircum{}\textasciitilde{}\textless{}\textgreater{}"
    )
    assert escape("−0.1 [a]") == "$-$0.1 {[}a{]}"


def test_csv_holds_every_number_as_it_is() -> None:
    curve = make_curve().replace(task='=1+1,"x"')
    rows = list(csv.DictReader(io.StringIO(spreadsheet(alone(curve)))))
    assert [row["n_frozen"] for row in rows] == ["full", "3", "4", "5", "6"]
    for point, row in zip((curve.full, *curve.points), rows, strict=True):
        assert row["task"] == "'" + curve.task, "no spreadsheet takes it for a formula"
        assert float(row["mean"]) == point.mean
        assert point.ci is not None
        assert (float(row["ci_low"]), float(row["ci_high"])) == point.ci
        assert tuple(float(score) for score in row["scores"].split()) == point.scores


def test_csv_leaves_out_what_is_not_there() -> None:
    (full, point) = csv.DictReader(io.StringIO(spreadsheet(alone(make_curve({FULL: (0.5,), 3: ()})))))
    assert (full["ci_low"], point["mean"], point["scores"]) == ("", "", "")


@pytest.mark.parametrize("n_chapters", [1, 3])
def test_every_format_is_written(n_chapters: int, tmp_path: Path) -> None:
    chapters = [make_chapter(task=f"task {number}") for number in range(n_chapters)]
    paths = write_reports(chapters, list(FORMATS), tmp_path)
    assert [path.name for path in paths] == [f"report{ending}" for ending in FORMATS.values()]
    starts = {path.suffix: path.read_bytes()[:8] for path in paths}
    assert starts[".png"].startswith(b"\x89PNG")
    assert starts[".pdf"].startswith(b"%PDF")
    assert starts[".svg"].startswith(b"<svg")
    assert starts[".html"].startswith(b"<!doctyp")
    named = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert all(f"task {number}" in named for number in range(n_chapters))
    assert len(re.findall("^# ", named, re.MULTILINE)) == n_chapters


def test_curves_of_one_task_and_model_are_told_apart_everywhere(tmp_path: Path) -> None:
    write_reports(
        [make_chapter(), make_chapter(), make_chapter(task="other")], ["html", "latex", "csv", "md"], tmp_path
    )
    for ending in (".html", ".tex", ".csv", ".md"):
        made = (tmp_path / f"report{ending}").read_text(encoding="utf-8")
        assert "all-MiniLM-L6-v2 (1)" in made
        assert "all-MiniLM-L6-v2 (2)" in made
        assert "all-MiniLM-L6-v2 (3)" not in made
    assert "<title>3 curves of 2 tasks and 1 model</title>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "report.tex").read_text(encoding="utf-8").count("\\midrule") == 3


def test_results_of_one_model_and_task_have_both_as_their_title(tmp_path: Path) -> None:
    write_reports([make_chapter(task="sst2"), make_comparison_chapter()], ["html"], tmp_path)
    assert "<title>all-MiniLM-L6-v2 on sst2</title>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_an_unknown_format_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown format 'htm'; known: html, md, .* Did you mean 'html'\?"):
        write_reports([make_chapter()], ["md", "htm"], tmp_path)
    assert list(tmp_path.iterdir()) == []


def printed(n_chapters: int, n_missing: int = 0) -> str:
    console = Console(file=io.StringIO(), width=100)
    chapters = [make_chapter(task=f"task {number}", n_missing=n_missing) for number in range(n_chapters)]
    print_chapters(console, chapters)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_on_the_terminal_one_is_told_whole_and_several_in_short() -> None:
    assert "Against the full model" in printed(1)
    several = printed(2)
    assert "Against the full model" not in several
    assert several.count("Training the last 2 of 6 layers keeps") == 2
    assert "14 runs not done yet" in printed(2, n_missing=7)
