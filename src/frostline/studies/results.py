"""Finished curves, searches, comparisons and grids that can write themselves down."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, final

from frostline.analysis import Chapter, Comparison, ComparisonChapter, Curve, Finding, Grid
from frostline.records.serial import Record
from frostline.report.chapters import AnyChapter
from frostline.report.formats.files import write_report

AnyStudy = TypeVar("AnyStudy", bound=Record)


class Reportable:
    """What holds the chapters that it was made with; one that was read or changed tells of itself alone."""

    @property
    def chapters(self) -> list[AnyChapter]:
        """What a report tells: its runs too, and how to do it again."""
        kept = vars(self).get("_chapters")
        return list(kept) if kept else _alone(self)

    def report(self, path: str | Path) -> Path:
        """Writes it in the format of the file's ending: `.html`, `.md`, `.tex`, `.csv`, `.svg`, `.png`, `.pdf`…"""
        return write_report(self.chapters, Path(path))


def _alone(made: object) -> list[AnyChapter]:
    if isinstance(made, Curve):
        return [Chapter(curve=made)]
    if isinstance(made, Comparison):
        return [ComparisonChapter(comparison=made)]
    assert isinstance(made, Grid)
    return [Chapter(curve=sized.curve) for sized in made.train_sizes]


@final
class Study(Curve, Reportable):
    """A finished curve."""


@final
class Found(Finding, Reportable):
    """A finished search."""


@final
class SizeStudy(Grid, Reportable):
    """Finished curves at several training sizes."""


@final
class Compared(Comparison, Reportable):
    """A finished comparison."""


def study_of(kind: type[AnyStudy], record: Record, chapters: Sequence[AnyChapter]) -> AnyStudy:
    """The record as one that holds the chapters it was made with."""
    made = kind(**{field.name: getattr(record, field.name) for field in dataclasses.fields(record)})
    vars(made)["_chapters"] = tuple(chapters)  # no field: JSON and equality are the record's
    return made
