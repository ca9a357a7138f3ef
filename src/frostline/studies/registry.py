"""The table of studies whose results a report finds in an output folder. Needs no model and no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from frostline.errors import UsageError
from frostline.records.keys import key_of
from frostline.report.chapter import Chapter
from frostline.storage.runs import Store
from frostline.studies.compare import CompareStudy
from frostline.studies.curve import CurveStudy
from frostline.studies.find import FindStudy
from frostline.studies.inside.change import ChangeStudy
from frostline.studies.inside.heads import HeadsStudy
from frostline.studies.inside.scout import ScoutStudy
from frostline.studies.study import Study

STUDIES: tuple[Study[Any, Any, Any], ...] = (
    CurveStudy(),
    FindStudy(),
    CompareStudy(),
    HeadsStudy(),
    ChangeStudy(),
    ScoutStudy(),
)
"""The studies that a report finds in an output folder, in the order of its chapters."""


def chapters(folder: Path, studies: tuple[Study[Any, Any, Any], ...] = STUDIES) -> list[Chapter]:
    """What a report shows of an output folder: every request of every study, as far as its runs are there."""
    if not (folder / "identity.json").is_file():
        what = "it has no identity.json; give a folder that `curve`, `find` or `compare` made"
        raise UsageError(f"{folder} is not a frostline output folder: {what}")
    store = Store(folder)
    found = _different([chapter for study in studies for chapter in study.chapters(store)])
    if not found:
        raise UsageError(f"{folder} has no finished study yet; run the same command with --out {folder} to go on")
    return found


def _different(found: list[Chapter]) -> list[Chapter]:
    """The chapters without those that say the same again."""
    first: dict[str, Chapter] = {}
    for chapter in found:
        content = chapter.record.to_json() | {"model": ""}  # one folder may be written in two ways
        first.setdefault(key_of([type(chapter).__name__, content]), chapter)
    return [chapter for chapter in found if any(chapter is kept for kept in first.values())]
