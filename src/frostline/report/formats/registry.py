"""Chapters → files, each in the format of its ending. A new format is one module here and one row in the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from frostline.errors import check_choice
from frostline.report.chapter import Chapter
from frostline.report.formats.html import page
from frostline.report.formats.json_data import json_text
from frostline.report.formats.latex import latex
from frostline.report.formats.markdown import markdown
from frostline.report.formats.picture import pdf, png, svg
from frostline.report.formats.spreadsheet import spreadsheet
from frostline.storage import atomic


class _Format(NamedTuple):
    """A report format."""

    name: str
    ending: str
    render: Callable[[Sequence[Chapter]], str | bytes]
    is_offered: bool = True
    """users can ask for it by name; JSON is asked for with --json"""


_TABLE = (
    _Format("html", ".html", page),
    _Format("md", ".md", markdown),
    _Format("latex", ".tex", latex),
    _Format("csv", ".csv", spreadsheet),
    _Format("svg", ".svg", svg),
    _Format("png", ".png", png),
    _Format("pdf", ".pdf", pdf),
    _Format("json", ".json", json_text, is_offered=False),
)
FORMATS = {one.name: one.ending for one in _TABLE if one.is_offered}
"""file endings by the names that users give"""
_RENDER = {one.ending: one.render for one in _TABLE}


def write_result(chapter: Chapter, folder: Path | str, name: str) -> tuple[Path, ...]:
    """The paths of `<name>.json`, `.md` and `.svg`, written into the folder.

    All three are rendered before the first is replaced: if one of them cannot show the result, no file changes.
    """
    rendered = {f"{name}{ending}": _RENDER[ending]([chapter]) for ending in (".json", ".md", ".svg")}
    return tuple(atomic.write(Path(folder) / file, content) for file, content in rendered.items())


def write_report(chapters: Sequence[Chapter], path: Path | str) -> Path:
    """The path, with the chapters written to it in the format of its ending."""
    return atomic.write(Path(path), render(chapters, Path(path).suffix.lower()))


def render(chapters: Sequence[Chapter], ending: str) -> str | bytes:
    """The chapters in the format of a file ending."""
    return _RENDER[check_choice("report ending", ending, _RENDER)](chapters)


def write_reports(chapters: Sequence[Chapter], formats: Sequence[str], folder: Path) -> list[Path]:
    """The paths of `report.<ending>` in the folder, one per format."""
    known = [check_choice("format", name, FORMATS) for name in dict.fromkeys(formats)]
    return [write_report(chapters, folder / f"report{FORMATS[name]}") for name in known]
