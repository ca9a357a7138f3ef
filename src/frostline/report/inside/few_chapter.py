"""The chapter of a comparison on few examples: strategies against the number of training rows per class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, final

from frostline.analysis import Comparison, StrategyPoint
from frostline.analysis.inside.few import FewComparison, FewExamples
from frostline.report import numbers
from frostline.report.chapter import Chapter
from frostline.report.charts.few import few_chart
from frostline.report.sections import Section, charted
from frostline.report.tables import Table
from frostline.report.wording import comparison_words
from frostline.report.wording.failure_words import with_failed

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

_CAPTION = (
    "Mean score against the number of training rows per class; bars: 95% intervals over subsets (each seed draws its "
    "own rows, the same for all strategies). Dotted: chance. Strategies of one size stand a little apart."
)
_NOTE = (
    "Each seed draws its own training rows, equally many of each class, and all strategies train on them; a larger "
    "subset contains the smaller one. 95% intervals: new subsets and seeds on this dev set. Minus full: paired by "
    "subset, for new subsets and new dev examples; the intervals of one size hold at once."
)


@final
@dataclass(frozen=True, kw_only=True)
class FewChapter(Chapter):
    """A few-example comparison. The comparison at each size is a chapter of its own, given here or beside it."""

    few: FewExamples
    """the comparisons by their rows per class"""
    comparisons: tuple[Chapter, ...] = ()
    """the chapters of the comparisons, if they are not in the report anyway"""

    rank: ClassVar[int] = 1
    is_overview: ClassVar[bool] = True
    question: ClassVar[str] = "which way of fine-tuning is best with few examples?"

    @property
    def title(self) -> str:
        """Which model on which task, and the sizes."""
        named = f"{numbers.model_name(self.model, 60)} on {numbers.one_line(self.task, 60)}"
        return f"{named}: {_listed([str(one.per_class) for one in self.few.sizes])} training rows per class"

    @property
    def answer(self) -> Sequence[str]:
        """The best strategy at each size, and what it gains over the full model."""
        return [" ".join(_sentence(one) for one in self.few.sizes)]

    @property
    def tables(self) -> Sequence[Table]:
        """Scores, and differences from full, one row per strategy and one column per size."""
        tables = [score_table(self.few)]
        return [*tables, difference_table(self.few)] if "full" in self.few.strategies else tables

    @property
    def note(self) -> str:
        """How the rows were drawn, and what the intervals mean."""
        return _NOTE

    @property
    def record(self) -> FewExamples:
        """The comparisons by rows per class."""
        return self.few

    @property
    def model(self) -> str:
        """The model, as the request named it."""
        return self.few.model

    @property
    def task(self) -> str:
        """The task."""
        return self.few.task

    @property
    def parts(self) -> Sequence[Chapter]:
        """The comparisons."""
        return self.comparisons

    @classmethod
    def sections(cls, chapters: Sequence[Self]) -> Iterator[Section | None]:
        """A chart for each model and task."""
        for number, chapter in enumerate(chapters, start=1):
            suffix = "" if number == 1 else f"-{number}"
            of = f": {chapter.title}" if len(chapters) > 1 else ""
            section = Section(id=f"few{suffix}", title=f"Few examples{of}", note=_NOTE)
            section.below.extend(chapter.tables[1:])
            yield charted(section, few_chart(chapter.few), chapter.tables[0], _CAPTION)

    @classmethod
    def paper_tables(cls, chapters: Sequence[Self]) -> list[tuple[Table, str]]:
        """Scores by strategy and size."""
        return [(chapter.tables[0], f"{chapter.title}. {_CAPTION}") for chapter in chapters]

    @classmethod
    def rows(cls, chapters: Sequence[Self]) -> list[dict[str, object]]:  # noqa: ARG003 - the interface
        """None: the rows of the comparisons have these numbers."""
        return []

    @classmethod
    def pictures(cls, chapters: Sequence[Self]) -> list[Drawing]:
        """Score against rows per class, one chart per model and task."""
        return [chart for chapter in chapters if (chart := few_chart(chapter.few)) is not None]


def score_table(few: FewExamples) -> Table:
    """The mean score of each strategy at each size, with its interval."""
    return _table(few, f"Mean {numbers.one_line(few.metric, 40)} by training rows per class", _score)


def difference_table(few: FewExamples) -> Table:
    """The difference of each strategy from the full model at each size, with its interval."""
    return _table(few, "Minus full, on the same rows", _difference)


def _table(few: FewExamples, title: str, cell: Callable[[StrategyPoint], str]) -> Table:
    points = [{point.name: point for point in one.comparison.strategies} for one in few.sizes]
    rows = tuple(
        (numbers.one_line(name, 40), *(cell(at[name]) if name in at else numbers.DASH for at in points))
        for name in few.strategies
    )
    heads = tuple(f"{one.per_class} per class" for one in few.sizes)
    return Table(title=title, headers=("strategy", *heads), rows=rows, left=("strategy",))


def _score(point: StrategyPoint) -> str:
    interval = "" if point.ci is None else f" {numbers.score_interval(point.ci)}"
    return f"{numbers.score(point.mean)}{interval}"


def _difference(point: StrategyPoint) -> str:
    ends = point.difference_ci_adjusted
    interval = "" if ends is None else f" {numbers.difference_interval(ends)}"
    return numbers.DASH if point.name == "full" else f"{numbers.difference(point.difference)}{interval}"


def _sentence(one: FewComparison) -> str:
    compared = one.comparison
    top = comparison_words.best(compared)
    if top is None:
        return f"With {one.per_class} rows per class no run finished."
    metric, failed = numbers.one_line(compared.metric, 40), with_failed(top)
    best = f"{comparison_words.name(top)}{failed} scores highest, {metric} {_score(top)}"
    return f"With {one.per_class} rows per class {best}{_against_full(compared, top)}."


def _against_full(compared: Comparison, top: StrategyPoint) -> str:
    """What the best strategy gains over the full model, and whether that is established."""
    full = compared.strategy("full")
    if full is None or full.mean is None or top.name == "full":
        return ""
    ends = top.difference_ci_adjusted
    sure = "" if ends is None else ", established" if ends[0] > 0 else ", within noise"
    return f" against {numbers.score(full.mean)} for full ({_difference(top)}{sure})"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
