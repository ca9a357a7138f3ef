"""Chapters of both kinds, curves and comparisons, as every format takes them: curves first, told apart by name."""

from __future__ import annotations

from collections.abc import Sequence

from frostline.analysis import Chapter, Comparison, ComparisonChapter, Curve, told_apart

AnyChapter = Chapter | ComparisonChapter
Told = Curve | Comparison
"""what a chapter tells of"""


def told(chapter: AnyChapter) -> Told:
    """The curve or the comparison of a chapter."""
    return chapter.curve if isinstance(chapter, Chapter) else chapter.comparison


def curves_in(chapters: Sequence[AnyChapter]) -> list[Chapter]:
    """The chapters of curves, those of one task and model numbered."""
    return told_apart([chapter for chapter in chapters if isinstance(chapter, Chapter)])


def comparisons_in(chapters: Sequence[AnyChapter]) -> list[ComparisonChapter]:
    """The chapters of comparisons, those of one task and model numbered."""
    found = [chapter for chapter in chapters if isinstance(chapter, ComparisonChapter)]
    names = [(chapter.comparison.task, chapter.comparison.model) for chapter in found]
    return [
        _numbered(chapter, names[:at].count(name) + 1) if names.count(name) > 1 else chapter
        for at, (chapter, name) in enumerate(zip(found, names, strict=True))
    ]


def in_order(chapters: Sequence[AnyChapter]) -> list[AnyChapter]:
    """All of them, curves first."""
    return [*curves_in(chapters), *comparisons_in(chapters)]


def _numbered(chapter: ComparisonChapter, number: int) -> ComparisonChapter:
    compared = chapter.comparison
    return chapter.replace(comparison=compared.replace(model=f"{compared.model} ({number})"))
