"""Finished curves, searches, comparisons and train sizes that can print themselves and write reports."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, final

from frostline.analysis import Comparison, Curve, Finding, Rates, Sizes, value_of, words_at
from frostline.analysis.inside.change import Change
from frostline.analysis.inside.few import FewExamples
from frostline.analysis.inside.heads import HeadsRecord
from frostline.analysis.inside.scout import ScoutReport
from frostline.records.serial import Record
from frostline.report.chapter import Chapter
from frostline.report.comparison_chapter import ComparisonChapter
from frostline.report.curve_chapter import CurveChapter
from frostline.report.formats.registry import write_report
from frostline.report.grid_chapters import RatesChapter, SizesChapter
from frostline.report.inside.change_chapter import ChangeChapter
from frostline.report.inside.few_chapter import FewChapter
from frostline.report.inside.heads_chapter import HeadsChapter
from frostline.report.inside.scout_chapter import ScoutChapter
from frostline.report.terminal import format_result

ResultT = TypeVar("ResultT", bound=Record)


class Reportable(ABC):
    """A result that keeps the chapters it was made with; one that was read from JSON has only its record."""

    @property
    def chapters(self) -> list[Chapter]:
        """The chapters of its report, with runs and provenance if they are known."""
        kept = vars(self).get("_chapters")
        return list(kept) if kept else [self._chapter()]

    def report(self, path: str | Path) -> Path:
        """Write a report in the format of the file ending: `.html`, `.md`, `.tex`, `.csv`, `.svg`, `.png`, `.pdf`…"""
        return write_report(self.chapters, Path(path))

    def __str__(self) -> str:
        """Title, answer and a small table."""
        return format_result(self.chapters)

    @abstractmethod
    def _chapter(self) -> Chapter:
        """A chapter of the record alone."""


@final
class CurveResult(Curve, Reportable):
    """A finished curve."""

    def _chapter(self) -> Chapter:
        return CurveChapter(curve=self)


@final
class FindResult(Finding, Reportable):
    """A finished search."""

    @property
    def answer_words(self) -> str:
        """What was frozen in the model of the answer, its learning rate and the mean score of its runs."""
        value = value_of(self.answer)
        found = next(point for point in (self.full, *self.points) if value_of(point) == value)
        rate = "" if found.learning_rate is None else f", learning rate {found.learning_rate:g}"
        scored = "" if found.mean is None else f", {self.metric} {found.mean:.4f} on average"
        return f"{words_at(self, value)}{rate}{scored}"

    def _chapter(self) -> Chapter:
        return CurveChapter(curve=self)


@final
class SizesResult(Sizes, Reportable):
    """Finished curves at several training sizes."""

    def _chapter(self) -> Chapter:
        return SizesChapter(sizes=self, curves=tuple(CurveChapter(curve=one.curve) for one in self.train_sizes))


@final
class RatesResult(Rates, Reportable):
    """Finished curves at several learning rates."""

    def _chapter(self) -> Chapter:
        return RatesChapter(rates=self, curves=tuple(CurveChapter(curve=one.curve) for one in self.rates))


@final
class ComparisonResult(Comparison, Reportable):
    """A finished comparison."""

    def _chapter(self) -> Chapter:
        return ComparisonChapter(comparison=self)


@final
class FewResult(FewExamples, Reportable):
    """Finished comparisons on few examples."""

    def _chapter(self) -> Chapter:
        parts = tuple(ComparisonChapter(comparison=one.comparison) for one in self.sizes)
        return FewChapter(few=self, comparisons=parts)


@final
class HeadsResult(HeadsRecord, Reportable):
    """A finished study of attention heads."""

    def _chapter(self) -> Chapter:
        return HeadsChapter(heads=self)


@final
class ChangeResult(Change, Reportable):
    """A finished study of change."""

    def _chapter(self) -> Chapter:
        return ChangeChapter(change=self)


@final
class ScoutResult(ScoutReport, Reportable):
    """Depths predicted before training."""

    def _chapter(self) -> Chapter:
        return ScoutChapter(scout=self)


def result_of(kind: type[ResultT], record: Record, chapters: Sequence[Chapter]) -> ResultT:
    """The record as one that holds the chapters it was made with."""
    made = kind(**{field.name: getattr(record, field.name) for field in dataclasses.fields(record)})
    vars(made)["_chapters"] = tuple(chapters)  # no field: JSON and equality are the record's
    return made
