"""The chapter of a comparison of strategies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, final

from frostline.analysis import Comparison
from frostline.analysis.inside.few import build_few
from frostline.report import comparison_tables, numbers
from frostline.report.chapter import Chapter
from frostline.report.charts import comparison as comparison_charts
from frostline.report.inside.few_chapter import FewChapter
from frostline.report.sections import Section, Shown, charted, drawn
from frostline.report.tables import Table, number_row
from frostline.report.wording import comparison_words, curve_words

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

_RATES = (
    "Score of each learning rate on the rows that decide; the ring marks the one that was chosen. All panels have the "
    "same scale."
)
_PAPER = (
    "Quality and cost of each strategy. Means with 95% intervals over seeds (Student's t); seconds and peak memory "
    "of one run; front: no other strategy scores as high in less time, or higher in the same time."
)


@final
@dataclass(frozen=True, kw_only=True)
class ComparisonChapter(Chapter):
    """A comparison in a report."""

    comparison: Comparison
    """the comparison"""

    rank: ClassVar[int] = 2
    noun: ClassVar[str] = "comparison"
    question: ClassVar[str] = "which way of fine-tuning is worth its cost?"

    @property
    def title(self) -> str:
        """Which model on which task, and how many strategies."""
        return comparison_words.title(self.comparison)

    @property
    def answer(self) -> Sequence[str]:
        """The best strategy, and the fastest that keeps the share."""
        return [comparison_words.answer(self.comparison)]

    @property
    def tables(self) -> Sequence[Table]:
        """Score and cost, comparison with full, linear probes."""
        probes = self.comparison.probes
        return [
            comparison_tables.score_table(self.comparison),
            comparison_tables.against_table(self.comparison),
            *([comparison_tables.probe_table(probes)] if probes else []),
        ]

    @property
    def wide_tables(self) -> Sequence[Table]:
        """All numbers in one table, learning rates, linear probes."""
        compared = self.comparison
        return [
            comparison_tables.main_table(compared),
            *([comparison_tables.rates_table(compared)] if compared.line_search else []),
            *([comparison_tables.probe_table(compared.probes)] if compared.probes else []),
        ]

    @property
    def record(self) -> Comparison:
        """The comparison."""
        return self.comparison

    @property
    def model(self) -> str:
        """The model, as the request named it."""
        return self.comparison.model

    @property
    def task(self) -> str:
        """The task."""
        return self.comparison.task

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings of the comparison."""
        return curve_words.warnings(self.comparison)

    @property
    def how_run(self) -> Sequence[tuple[str, str]]:
        """Protocol, learning rates, seeds, runs and times."""
        return comparison_words.how_run(self.comparison)

    @property
    def note(self) -> str:
        """What the columns of the tables mean."""
        return comparison_words.NOTE

    def with_model(self, name: str) -> Self:
        """The same comparison under another name of its model."""
        return self.replace(comparison=self.comparison.replace(model=name))

    @classmethod
    def sections(cls, chapters: Sequence[Self]) -> Iterator[Section | None]:
        """The parts of each comparison; for several, a summary first."""
        comparisons = [chapter.comparison for chapter in chapters]
        if len(comparisons) > 1:
            table = comparison_tables.summary_table(comparisons)
            yield Section(id="comparisons", title="Comparisons", tables=[table])
        for number, comparison in enumerate(comparisons, start=1):
            suffix = "" if number == 1 else f"-{number}"
            yield from _sections(comparison, suffix, f": {_brief(comparison)}" if len(comparisons) > 1 else "")

    @classmethod
    def paper_tables(cls, chapters: Sequence[Self]) -> list[tuple[Table, str]]:
        """Every strategy of every comparison."""
        return [(comparison_tables.paper_table([chapter.comparison for chapter in chapters]), _PAPER)]

    @classmethod
    def rows(cls, chapters: Sequence[Self]) -> list[dict[str, object]]:
        """One row per strategy."""
        return [
            number_row(chapter.comparison, point)
            | {"strategy": point.name, "n_frozen": "full" if point.name == "full" else point.n_frozen}
            | {"stored_bytes": point.stored_bytes, "is_pareto": point.is_pareto}
            for chapter in chapters
            for point in chapter.comparison.strategies
        ]

    @classmethod
    def pictures(cls, chapters: Sequence[Self]) -> list[Drawing]:
        """Quality against cost, one chart per comparison."""
        return [comparison_charts.titled_chart(chapter.comparison) for chapter in chapters]

    @classmethod
    def overviews(cls, chapters: Sequence[Self]) -> Sequence[Chapter]:
        """Summaries of comparisons on few examples that differ only in their training rows per class."""
        groups: dict[tuple[str, ...], list[Comparison]] = {}
        for compared in (chapter.comparison for chapter in chapters):
            if compared.per_class is not None:
                alike = compared.task, compared.model, compared.metric, compared.protocol
                groups.setdefault(alike, []).append(compared)
        return [FewChapter(few=build_few(group)) for group in groups.values() if _is_one_grid(group)]


def _is_one_grid(group: Sequence[Comparison]) -> bool:
    """Whether there are several sizes, each once; two comparisons of one size are of different strategies or steps."""
    sizes = [compared.per_class for compared in group]
    return len(sizes) > 1 and len(set(sizes)) == len(sizes)


def _sections(comparison: Comparison, suffix: str, of: str) -> Iterator[Section | None]:
    yield Section(
        id=f"strategies{suffix}",
        title=f"Strategies{of}",
        views=list(_cost_views(comparison)),
        below=[comparison_tables.main_table(comparison)],
    )
    tried = Section(id=f"tried{suffix}", title=f"Learning rates that were tried{of}")
    yield charted(tried, comparison_charts.rates_chart(comparison), comparison_tables.rates_table(comparison), _RATES)
    layers = Section(id=f"layers{suffix}", title=f"Layer by layer{of}")
    table = comparison_tables.probe_table(comparison.probes)
    yield charted(layers, comparison_charts.probe_chart(comparison), table, _probe_caption(comparison))


def _brief(comparison: Comparison) -> str:
    return f"{numbers.one_line(comparison.task, 28)} · {numbers.model_name(comparison.model, 28)}"


def _probe_caption(comparison: Comparison) -> str:
    full = comparison.strategy("full")
    line = "" if full is None or full.mean is None else f" Line: full ({numbers.score(full.mean)})."
    return (
        "Score of a linear fit to the outputs of each layer, with nothing else trained; 95% intervals over seeds."
        f"{line} Dotted: chance ({numbers.score(comparison.chance)})."
    )


def _cost_views(comparison: Comparison) -> Iterator[Shown]:
    for kind in comparison_words.COSTS:
        chart = comparison_charts.cost_chart(comparison, kind)
        if chart is not None:
            title = comparison_charts.COST_WORDS[kind]
            yield Shown(
                name=kind,
                title=title,
                panels=drawn(chart, f"score against {title}; the table below holds its values"),
                caption=_cost_caption(comparison, kind),
                tables=[comparison_tables.cost_table(comparison, kind)],
            )


def _cost_caption(comparison: Comparison, kind: comparison_words.CostKind) -> str:
    full = comparison.strategy("full")
    share = numbers.keep_share(comparison_words.KEEP)
    bar = "" if full is None or full.ratio is None else f" Dashed: {share} of full."
    costs = {"seconds": "time", "parameters": "number of trained parameters", "memory": "memory"}
    return (
        f"Score against the {costs[kind]} of one run; bars: 95% intervals over seeds. "
        f"Line and coloured dots: the front, where no other strategy scores as high for less.{bar}"
    )
