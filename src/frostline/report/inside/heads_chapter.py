"""The chapter of attention heads: their importance, and what pruning them costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, final

from frostline.analysis.inside.heads import HeadsRecord, PruningPoint, relative_importance
from frostline.report import numbers
from frostline.report.chapter import Chapter
from frostline.report.charts.cells import Cells, cells_chart, cells_table
from frostline.report.charts.pruning import pruning_chart
from frostline.report.sections import Section, charted
from frostline.report.tables import Table
from frostline.report.wording import heads_words

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

_SHOWN = 5
"""most and least important attention heads in the table"""


@final
@dataclass(frozen=True, kw_only=True)
class HeadsChapter(Chapter):
    """Attention heads in a report."""

    heads: HeadsRecord
    """importance and pruning"""

    rank: ClassVar[int] = 4
    noun: ClassVar[str] = "study of attention heads"
    question: ClassVar[str] = "which attention heads matter?"

    @property
    def title(self) -> str:
        """Which model on which task."""
        return heads_words.title(self.heads)

    @property
    def answer(self) -> Sequence[str]:
        """How many attention heads can be pruned, and how sure that is."""
        return heads_words.answer(self.heads)

    @property
    def tables(self) -> Sequence[Table]:
        """Pruning in short, then the most and the least important attention heads."""
        return [*([brief_table(self.heads)] if self.heads.pruning else []), ranking_table(self.heads)]

    @property
    def wide_tables(self) -> Sequence[Table]:
        """The same with intervals, and the importance of every attention head."""
        pruning = [pruning_table(self.heads)] if self.heads.pruning else []
        return [*pruning, ranking_table(self.heads), cells_table(importance_cells(self.heads))]

    @property
    def record(self) -> HeadsRecord:
        """Importance and pruning."""
        return self.heads

    @property
    def model(self) -> str:
        """The model, as the request named it."""
        return self.heads.model

    @property
    def task(self) -> str:
        """The task."""
        return self.heads.task

    @property
    def how_run(self) -> Sequence[tuple[str, str]]:
        """Model, rows and time."""
        return heads_words.how_run(self.heads)

    @property
    def note(self) -> str:
        """What the numbers mean."""
        return heads_words.NOTE

    def with_model(self, name: str) -> Self:
        """The same chapter under another name of its model."""
        return self.replace(heads=self.heads.replace(model=name))

    @classmethod
    def sections(cls, chapters: Sequence[Self]) -> Iterator[Section | None]:
        """A heat map and the pruning curves of each."""
        for number, chapter in enumerate(chapters, start=1):
            record, suffix = chapter.heads, "" if number == 1 else f"-{number}"
            of = f": {chapter.title}" if len(chapters) > 1 else ""
            section = Section(id=f"heads{suffix}", title=f"Importance of attention heads{of}")
            section.tables.append(ranking_table(record))
            cells = importance_cells(record)
            yield charted(section, cells_chart(cells), cells_table(cells), _IMPORTANCE)
            if (chart := pruning_chart(record)) is not None:
                section = Section(id=f"pruning{suffix}", title=f"Pruned attention heads{of}")
                yield charted(section, chart, pruning_table(record), _pruning_caption(record))

    @classmethod
    def rows(cls, chapters: Sequence[Self]) -> list[dict[str, object]]:
        """One row per attention head, and one per step of pruning."""
        return [row for chapter in chapters for row in (*_importance_rows(chapter), *_pruning_rows(chapter))]

    @classmethod
    def pictures(cls, chapters: Sequence[Self]) -> list[Drawing]:
        """The heat map and the pruning curves of each."""
        charts = [
            chart
            for chapter in chapters
            for chart in (cells_chart(importance_cells(chapter.heads)), pruning_chart(chapter.heads))
        ]
        return [chart for chart in charts if chart is not None]


_IMPORTANCE = (
    "Importance of each attention head. The colour shows its importance within its layer: the number divided by the "
    "layer's length (L2), as in Michel 2019. This is what attention heads are ranked by."
)


def _pruning_caption(record: HeadsRecord) -> str:
    keep = numbers.keep_share(record.keep)
    return (
        "Score on dev after each tenth of the attention heads was pruned; intervals are paired with the unpruned "
        "model. "
        f"Dashed: {keep} of its score. Dotted: chance ({numbers.score(record.chance)})."
    )


def importance_cells(record: HeadsRecord) -> Cells:
    """The importance of every attention head, coloured within each layer."""
    title = "Importance of every attention head, the top layer first"
    return Cells(title, record.importance, numbers.change, relative_importance(record.importance))


def ranking_table(record: HeadsRecord) -> Table:
    """The most and the least important attention heads."""
    ranked = list(enumerate(record.ranked, start=1))
    shown = ranked if len(ranked) <= 2 * _SHOWN else [*ranked[:_SHOWN], *ranked[-_SHOWN:]]
    rows = tuple(
        (*map(str, (place, head, head.layer, head.number)), numbers.change(record.of(head)), numbers.score(value))
        for place, (head, value) in shown
    )
    which = "All" if len(shown) == len(ranked) else f"The {_SHOWN} most and the {_SHOWN} least important"
    heads = ("place", "name", "layer", "head", "importance", "within its layer")
    return Table(title=f"{which} of {record.n_heads} attention heads", headers=heads, rows=rows, left=("name",))


def brief_table(record: HeadsRecord) -> Table:
    """The score after each step with its verdict, one column for each order."""
    by_order = [{point.n_pruned: point for point in curve.points} for curve in record.pruning]
    steps = sorted({number for points in by_order for number in points})
    rows = tuple((_share(record, step), *(_brief(points.get(step)) for points in by_order)) for step in steps)
    names = [heads_words.ORDER_WORDS[curve.order] for curve in record.pruning]
    keep = numbers.keep_share(record.keep)
    title = f"Score with pruned attention heads, and whether {keep} of {numbers.score(record.score)} is kept"
    return Table(title=title, headers=("pruned", *names), rows=rows)


def _brief(point: PruningPoint | None) -> str:
    return numbers.DASH if point is None else f"{numbers.score(point.score)} {_verdict(point)}"


def _verdict(point: PruningPoint) -> str:
    return "failed" if point.is_failed else point.verdict


def _share(record: HeadsRecord, n_pruned: int) -> str:
    return f"{n_pruned} ({numbers.rough_share(n_pruned / record.n_heads)})"


def pruning_table(record: HeadsRecord) -> Table:
    """The score after each step, in each order."""
    rows = tuple(
        (heads_words.ORDER_WORDS[curve.order], *_cells(record, point))
        for curve in record.pruning
        for point in curve.points
    )
    keep = numbers.keep_share(record.keep)
    heads = ("pruned", "heads", "score", "minus unpruned", "interval of it", f"{keep} kept")
    title = f"Pruning {record.n_heads} attention heads; unpruned: {numbers.score(record.score)}"
    return Table(title=title, headers=heads, rows=rows, left=("pruned", f"{keep} kept"))


def _cells(record: HeadsRecord, point: PruningPoint) -> tuple[str, ...]:
    return (
        _share(record, point.n_pruned),
        numbers.score(point.score),
        numbers.difference(point.difference),
        numbers.difference_interval(point.difference_ci_dev),
        _verdict(point),
    )


def _importance_rows(chapter: HeadsChapter) -> Iterator[dict[str, object]]:
    for head, _ in sorted(chapter.heads.ranked):
        own = {"layer": head.layer, "head": head.number, "importance": chapter.heads.of(head)}
        yield _named(chapter) | own


def _pruning_rows(chapter: HeadsChapter) -> Iterator[dict[str, object]]:
    for curve in chapter.heads.pruning:
        for point in curve.points:
            low, high = point.difference_ci_dev or (None, None)
            yield _named(chapter) | {
                "order": curve.order,
                "n_pruned": point.n_pruned,
                "score": point.score,
                "difference": point.difference,
                "difference_ci_dev_low": low,
                "difference_ci_dev_high": high,
                "verdict": point.verdict,
            }


def _named(chapter: HeadsChapter) -> dict[str, object]:
    record = chapter.heads
    return {"task": record.task, "model": numbers.model_name(record.model), "metric": record.metric}
