"""A new study runs through the real driver: files, report, resuming and crashes come with it."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from commands import Toy
from frostline.report.formats.registry import FORMATS, write_reports
from frostline.report.progress.display import PlainProgress
from frostline.report.terminal import print_chapters
from frostline.studies.driver import Session
from frostline.studies.registry import STUDIES, chapters
from frostline.studies.requests.parse import parse
from frostline.studies.requests.settings import CurveSettings
from studies import toy_study
from studies.toy_study import Spread, SpreadStudy


def run(toy: Toy, out: Path) -> tuple[Spread, str]:
    """The toy study through the driver; its record and what the progress display said."""
    settings: CurveSettings = {"out": out, "dev": str(toy.dev), "seeds": 2, "lr": 3e-3, "epochs": 1, "workers": 1}
    parsed = parse(str(toy.model), str(toy.train), settings, CurveSettings)
    said = StringIO()
    with PlainProgress(Console(file=said)) as progress, Session(parsed.request, parsed.options, progress) as session:
        return session.run(SpreadStudy(), parsed.request).record, said.getvalue()


def test_a_study_of_60_lines_has_files_a_report_and_is_not_run_twice(toy: Toy, tmp_path: Path) -> None:
    assert Path(toy_study.__file__).read_text().count("\n") < 60
    out = tmp_path / "out"
    record, said = run(toy, out)
    assert len(record.scores) == 2
    assert "[2/2] full seed 1" in said
    assert json.loads((out / "spread.json").read_text()) == record.to_json()
    assert {"spread.md", "spread.svg", "spread.yaml", "report.html"} <= {path.name for path in out.iterdir()}
    assert "Spread over seeds" in (out / "report.html").read_text()
    again, said = run(toy, out)
    assert again == record
    assert "seed" not in said, "nothing is run again"


def test_every_format_shows_it_beside_other_studies(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "out"
    record, _ = run(toy, out)
    found = chapters(out, (*STUDIES, SpreadStudy()))
    assert [chapter.record for chapter in found if chapter.title == "Spread over seeds"] == [record]
    console = Console(file=StringIO(), width=100)
    print_chapters(console, found)
    written = {path.suffix: path for path in write_reports(found, list(FORMATS), tmp_path)}
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    for shown in (printed, *(written[suffix].read_text() for suffix in (".html", ".md"))):
        assert "The score varies by" in shown
        assert f"{record.scores[0]:.3f}" in shown
