"""The chapters of grids: curves of one model and task that differ only in their training rows, or learning rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, final

from frostline.analysis import Rates, Sizes
from frostline.report import numbers
from frostline.report.chapter import Chapter
from frostline.report.charts.heatmap import HEAT_VIEWS, VIEW_TITLES, Grid, heat_chart, heat_table
from frostline.report.sections import Section, Shown, drawn
from frostline.report.tables import Table
from frostline.report.wording import sizes_words


@final
@dataclass(frozen=True, kw_only=True)
class SizesChapter(Chapter):
    """Training rows against frozen layers. The curves are chapters of their own, given as `curves` or beside it."""

    sizes: Sizes
    """the curves by their number of training rows"""
    curves: tuple[Chapter, ...] = ()
    """the chapters of the curves, if they are not in the report anyway"""

    rank: ClassVar[int] = 1
    is_overview: ClassVar[bool] = True
    question: ClassVar[str] = "how many of the last layers need fine-tuning?"

    @property
    def title(self) -> str:
        """Which model on which task, and the sizes."""
        named = f"{numbers.model_name(self.model, 60)} on {numbers.one_line(self.task, 60)}"
        return f"{named}: {numbers.counted(len(self.sizes.train_sizes), 'training size')}"

    @property
    def answer(self) -> Sequence[str]:
        """The fewest trained layers at each size, and whether what a depth loses depends on it."""
        fewest = sizes_words.answer_by_rows([(one.train_size, one.curve) for one in self.sizes.train_sizes])
        return [fewest, *sizes_words.change_with_rows(self.sizes.interactions)]

    @property
    def tables(self) -> Sequence[Table]:
        """Mean scores, one row per number of training rows, one column per depth."""
        return [heat_table(grid_of(self.sizes), "score")]

    @property
    def record(self) -> Sizes:
        """The curves by training rows."""
        return self.sizes

    @property
    def model(self) -> str:
        """The model, as the request named it."""
        return self.sizes.model

    @property
    def task(self) -> str:
        """The task."""
        return self.sizes.task

    @property
    def parts(self) -> Sequence[Chapter]:
        """The curves."""
        return self.curves

    @classmethod
    def sections(cls, chapters: Sequence[Self]) -> Iterator[Section | None]:
        """A heat map for each model and task."""
        for number, chapter in enumerate(chapters, start=1):
            views = list(heat_views(grid_of(chapter.sizes)))
            suffix = "" if number == 1 else f"-{number}"
            of = f": {chapter.title}" if len(chapters) > 1 else ""
            yield Section(id=f"rows{suffix}", title=f"Training rows{of}", views=views) if views else None

    @classmethod
    def paper_tables(cls, chapters: Sequence[Self]) -> list[tuple[Table, str]]:  # noqa: ARG003 - the interface
        """None: the tables of the curves have these numbers."""
        return []

    @classmethod
    def rows(cls, chapters: Sequence[Self]) -> list[dict[str, object]]:  # noqa: ARG003 - the interface
        """None: the rows of the curves have these numbers."""
        return []


def grid_of(sizes: Sizes) -> Grid:
    """The curves with their training rows in words; two of one size are numbered."""
    rows = [one.train_size for one in sizes.train_sizes]
    suffixes = [f" ({rows[:at].count(size) + 1})" if rows.count(size) > 1 else "" for at, size in enumerate(rows)]
    names = [f"{numbers.count(size)}{suffix}" for size, suffix in zip(rows, suffixes, strict=True)]
    curves = [(name, one.curve) for name, one in zip(names, sizes.train_sizes, strict=True)]
    return Grid("training rows", sizes.metric, curves)


def heat_views(grid: Grid) -> Iterator[Shown]:
    """The heat map of each view, with the table of its values."""
    metric = numbers.one_line(grid.metric, 40)
    for view in HEAT_VIEWS:
        chart = heat_chart(grid, view)
        if chart is not None:
            what = f"mean {VIEW_TITLES[view]}"
            yield Shown(
                name=view,
                title=VIEW_TITLES[view],
                panels=drawn(chart, f"{what} by {grid.by} and frozen layers; the table below holds its values"),
                caption=f"{what.capitalize()} ({metric}); the stronger the colour, the higher.",
                tables=[heat_table(grid, view)],
            )


@final
@dataclass(frozen=True, kw_only=True)
class RatesChapter(Chapter):
    """Learning rates against frozen layers."""

    rates: Rates
    """the curves by their learning rate"""
    curves: tuple[Chapter, ...] = ()
    """the chapters of the curves"""

    rank: ClassVar[int] = 1
    is_overview: ClassVar[bool] = True
    question: ClassVar[str] = "how much does the answer depend on the learning rate?"

    @property
    def title(self) -> str:
        """Which model on which task, and the rates."""
        named = f"{numbers.model_name(self.model, 60)} on {numbers.one_line(self.task, 60)}"
        return f"{named}: {numbers.counted(len(self.rates.rates), 'learning rate')}"

    @property
    def answer(self) -> Sequence[str]:
        """The fewest trained layers at each rate."""
        named = [(f"at {numbers.learning_rate(one.learning_rate)}", one.curve) for one in self.rates.rates]
        return [sizes_words.fewest_layers(named)]

    @property
    def tables(self) -> Sequence[Table]:
        """Mean scores, one row per rate, one column per depth."""
        return [heat_table(_grid(self.rates), "score")]

    @property
    def record(self) -> Rates:
        """The curves by rate."""
        return self.rates

    @property
    def model(self) -> str:
        """The model, as the request named it."""
        return self.rates.model

    @property
    def task(self) -> str:
        """The task."""
        return self.rates.task

    @property
    def parts(self) -> Sequence[Chapter]:
        """The curves."""
        return self.curves

    @classmethod
    def sections(cls, chapters: Sequence[Self]) -> Iterator[Section | None]:
        """A heat map for each model and task."""
        for number, chapter in enumerate(chapters, start=1):
            suffix = "" if number == 1 else f"-{number}"
            of = f": {chapter.title}" if len(chapters) > 1 else ""
            views = list(heat_views(_grid(chapter.rates)))
            yield Section(id=f"rates{suffix}", title=f"Learning rates{of}", views=views) if views else None

    @classmethod
    def paper_tables(cls, chapters: Sequence[Self]) -> list[tuple[Table, str]]:  # noqa: ARG003 - the interface
        """None: the tables of the curves have these numbers."""
        return []

    @classmethod
    def rows(cls, chapters: Sequence[Self]) -> list[dict[str, object]]:  # noqa: ARG003 - the interface
        """None: the rows of the curves have these numbers."""
        return []


def _grid(rates: Rates) -> Grid:
    curves = [(numbers.learning_rate(one.learning_rate), one.curve) for one in rates.rates]
    return Grid("learning rate", rates.metric, curves)
