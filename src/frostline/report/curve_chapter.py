"""The chapter of a curve, or of the part of a curve that a search ran."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, final

from frostline import stats
from frostline.analysis import VIEWS, Curve, Point, ProbePoint, RunLine, View, axis_name, build_sizes, series, value_of
from frostline.records.depth import FULL, AxisName, Depth
from frostline.report import comparison_tables, curve_tables
from frostline.report.chapter import Chapter
from frostline.report.charts import curve as curve_charts
from frostline.report.charts import panels
from frostline.report.charts.text import chart_lines
from frostline.report.curve_tables import Learning
from frostline.report.grid_chapters import SizesChapter
from frostline.report.sections import Section, Shown, charted, drawn
from frostline.report.tables import Table, number_row, without_names
from frostline.report.wording import axis_words, curve_words, run_words

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

_RATES = "Score on dev of each learning rate; the ring marks the one that was chosen."
_COST = "Score against the time to train and evaluate one run, without computing the frozen layers. The labels are "
_LEARNING = "Mean score on dev after each epoch, over the replicates of each "
_GAINS = (
    "What each additional layer adds to the score, compared with the point that has one less: differences of runs with "
    "the same seed, with 95% intervals over seeds. Where layers lie between, the gain is divided by their number."
)
_PROBES = (
    "Squares: linear probes. Each is a linear fit to the outputs of that many layers; nothing is trained and no layer "
    "above is used. If a square is above its dot, the layers above were trained too little."
)


@final
@dataclass(frozen=True, kw_only=True)
class CurveChapter(Chapter):
    """A curve in a report."""

    curve: Curve
    """the curve; for a search, a `Finding`"""
    probes: tuple[ProbePoint, ...] = ()
    """linear probes of each layer, if the store has them"""

    rank: ClassVar[int] = 0
    noun: ClassVar[str] = "curve"
    question: ClassVar[str] = "how many of the last layers need fine-tuning?"

    @property
    def title(self) -> str:
        """Which model on which task."""
        return curve_words.curve_title(self.curve)

    @property
    def answer(self) -> Sequence[str]:
        """The answer in one sentence; for a search, also how sure it is."""
        search = self.curve.search
        return [curve_words.answer(self.curve), *([] if search is None else [curve_words.decision(search)])]

    @property
    def tables(self) -> Sequence[Table]:
        """Scores, comparison with the full model, operating points."""
        points = [curve_tables.operating_table(self.curve)] if self.curve.operating_points else []
        return [curve_tables.score_table(self.curve), curve_tables.against_table(self.curve), *points]

    @property
    def wide_tables(self) -> Sequence[Table]:
        """All numbers in one table, operating points, line search, probes."""
        curve = self.curve
        return [
            curve_tables.wide_table(curve),
            *([curve_tables.operating_table(curve)] if curve.operating_points else []),
            *([without_names(curve_tables.gains_table([curve]))] if curve.gains else []),
            *([curve_tables.line_search_table(curve)] if curve.line_search else []),
            *([comparison_tables.probe_table(self.probes)] if self.probes else []),
        ]

    @property
    def record(self) -> Curve:
        """The curve."""
        return self.curve

    @property
    def model(self) -> str:
        """The model, as the request named it."""
        return self.curve.model

    @property
    def task(self) -> str:
        """The task."""
        return self.curve.task

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings of the curve."""
        return curve_words.warnings(self.curve)

    @property
    def how_run(self) -> Sequence[tuple[str, str]]:
        """Protocol, learning rate, seeds, runs and times."""
        return run_words.how_run(self.curve)

    @property
    def about(self) -> str:
        """What varies."""
        return axis_name(self.curve)

    @property
    def kicker(self) -> str:
        """The question, which depends on what varies."""
        return axis_words.words_of(self.curve).question or self.question

    @property
    def note(self) -> str:
        """What the columns of the tables mean, and what would settle open verdicts."""
        return f"{curve_words.INTERVALS_NOTE}{curve_words.seeds_needed(self.curve)}"

    @property
    def learning(self) -> Learning:
        """(epoch, mean dev score) of the replicates of each depth or value, the full model first."""
        there = {at for run in self._replicates if (at := self._place(run)) is not None}
        points = [value_of(point) for point in (self.curve.full, *self.curve.points)]
        ordered = points if self.curve.axis else sorted(there, key=lambda depth: -1 if depth is FULL else depth)
        return [(at, self._learning_at(at)) for at in ordered if at in there]

    def text_chart(self, width: int) -> list[str]:
        """The scores of each depth in characters."""
        return chart_lines(self.curve, width)

    def with_model(self, name: str) -> Self:
        """The same curve under another name of its model."""
        return self.replace(curve=self.curve.replace(model=name))

    @classmethod
    def sections(cls, chapters: Sequence[Self]) -> Iterator[Section | None]:
        """All curves of one axis together: views, operating points, line search, cost, learning curves."""
        for axis in dict.fromkeys(chapter.about for chapter in chapters):
            group = [chapter for chapter in chapters if chapter.about == axis]
            for section in _axis_sections(group, axis_name(group[0].curve)):
                if section is not None:
                    yield section if axis == "depth" else _renamed(section, group[0].curve)

    @classmethod
    def paper_tables(cls, chapters: Sequence[Self]) -> list[tuple[Table, str]]:
        """The three operating points of the paper; of another axis, its own."""
        curves = [chapter.curve for chapter in chapters]
        groups = [[one for one in curves if axis_name(one) == axis] for axis in dict.fromkeys(map(axis_name, curves))]
        return [(curve_tables.paper_table(group), curve_words.paper_caption(group)) for group in groups]

    @classmethod
    def rows(cls, chapters: Sequence[Self]) -> list[dict[str, object]]:
        """One row per depth or value."""
        curves = [chapter.curve for chapter in chapters]
        return [
            number_row(curve, point) | _place_cells(curve, point)
            for curve in curves
            for point in (curve.full, *curve.points)
        ]

    @classmethod
    def pictures(cls, chapters: Sequence[Self]) -> list[Drawing]:
        """One curve: its chart. Several: the figure of the paper, differences from the full model."""
        curves = [chapter.curve for chapter in chapters]
        others = [curve_charts.curve_chart(curve) for curve in curves if curve.axis is not None]
        curves = [curve for curve in curves if curve.axis is None]
        if len(curves) < 2:
            return [*map(curve_charts.curve_chart, curves), *others]
        chart = panels.view_chart(curves, "difference") or panels.view_chart(curves, "score")
        return [*([] if chart is None else [chart]), *others]

    @classmethod
    def overviews(cls, chapters: Sequence[Self]) -> Sequence[Chapter]:
        """Summaries of curves that differ only in their training rows; searches, which try few depths, excluded."""
        groups: dict[tuple[str, ...], list[tuple[int, Curve]]] = {}
        for chapter in chapters:
            curve = chapter.curve
            if chapter.provenance is not None and curve.search is None and curve.axis is None:
                alike = curve.task, curve.model, curve.metric, curve.protocol
                groups.setdefault(alike, []).append((chapter.provenance.n_train, curve))
        return [
            SizesChapter(sizes=build_sizes(sorted(group, key=lambda sized: sized[0]), None))
            for group in groups.values()
            if len({n_train for n_train, _ in group}) > 1
        ]

    @property
    def _replicates(self) -> list[RunLine]:
        return [run for run in self.runs if run.role == "replicate"]

    def _place(self, run: RunLine) -> Depth | None:
        """Where on the axis a run is; None: nowhere."""
        axis = self.curve.axis
        if axis is None or run.strategy == "full":
            return run.n_frozen
        return axis.values[axis.strategies.index(run.strategy)] if run.strategy in axis.strategies else None

    def _learning_at(self, at: Depth) -> list[tuple[int, float]]:
        scores = [run.epoch_scores for run in self._replicates if self._place(run) == at]
        # A run that diverged has fewer epochs; after them it stays where it is.
        n_epochs = max((len(one) for one in scores), default=0)
        at_epoch = [[one[min(epoch, len(one) - 1)] for one in scores] for epoch in range(n_epochs)]
        return [(number, stats.mean(values)) for number, values in enumerate(at_epoch, start=1)]


def _axis_sections(chapters: Sequence[CurveChapter], axis: AxisName) -> Iterator[Section | None]:
    """The parts of a page for curves along one axis; for several, first a summary."""
    curves = [chapter.curve for chapter in chapters]
    if len(curves) > 1:
        yield Section(id="summary", title="Summary", tables=[curve_tables.summary_table(curves)])
    views = list(_views(curves, chapters[0].probes if len(chapters) == 1 and axis == "depth" else ()))
    title = "The curve" if len(curves) == 1 else "The curves"
    yield Section(id="curve", title=title, views=views) if views else None
    yield Section(id="points", title="Operating points", tables=list(_point_tables(curves)))
    yield from _more_charts(curves, [(chapter.curve, chapter.learning) for chapter in chapters])


def _renamed(section: Section, curve: Curve) -> Section:
    """A section of another axis: a page may have the same section of the curve of depth."""
    title = f"{section.title}: {axis_words.words_of(curve).title}"
    views = [dataclasses.replace(view, name=f"{axis_name(curve)}-{view.name}") for view in section.views]
    return dataclasses.replace(section, id=f"{axis_name(curve)}-{section.id}", title=title, views=views)


def _place_cells(curve: Curve, point: Point) -> dict[str, object]:
    """What trains at a point, for a spreadsheet."""
    at = value_of(point)
    if curve.axis is None:
        return {"strategy": "full" if at is FULL else f"freeze:{at}", "n_frozen": str(at)}
    strategy = "full" if at is FULL else curve.axis.strategies[curve.axis.values.index(at)]
    return {"strategy": strategy, "n_frozen": "", "axis": curve.axis.name, "value": str(at)}


def _more_charts(curves: Sequence[Curve], learning: Sequence[tuple[Curve, Learning]]) -> Iterator[Section | None]:
    """Line search, cost and learning curves; for very many curves only the tables."""
    parts: list[tuple[str, str, Callable[[], Drawing | None], Table, str]] = [
        ("rates", "Line search", lambda: panels.line_search_chart(curves), curve_tables.rates_table(curves), _RATES),
        (
            "gains",
            "Diminishing returns",
            lambda: panels.gains_chart(curves),
            curve_tables.gains_table(curves),
            _GAINS,
        ),
        (
            "cost",
            "Cost against quality",
            lambda: panels.cost_chart(curves),
            curve_tables.cost_table(curves),
            f"{_COST}{_labels(curves)}.",
        ),
        (
            "learning",
            "Learning curves",
            lambda: panels.learning_chart(learning),
            curve_tables.learning_table(learning),
            f"{_LEARNING}{'depth' if curves[0].axis is None else 'value'}.",
        ),
    ]
    for name, title, draw, table, caption in parts:
        if len(curves) <= panels.MOST_PANELS:
            yield charted(Section(id=name, title=title), draw(), table, caption)
        elif table.rows:
            yield Section(id=name, title=title, tables=[table])


def _labels(curves: Sequence[Curve]) -> str:
    """What the labels of a chart are."""
    return f"{'' if axis_words.words_of(curves[0]).is_log else 'numbers of '}{axis_words.words_of(curves[0]).title}"


def _views(curves: Sequence[Curve], probes: Sequence[ProbePoint]) -> Iterator[Shown]:
    for view in VIEWS:
        chart = panels.view_chart(curves, view, probes)
        if chart is not None:
            has_probes = bool(probes) and view == "score"
            words = panels.VIEW_WORDS[view]
            yield Shown(
                name=view,
                title=words,
                panels=drawn(
                    chart,
                    f"{words} against {axis_words.words_of(curves[0]).title}; the table below holds its values",
                ),
                caption=_caption(curves, view) + (f" {_PROBES}" if has_probes else ""),
                tables=[
                    curve_tables.view_table(curves, view),
                    *([comparison_tables.probe_table(probes)] if has_probes else []),
                ],
            )


def _caption(curves: Sequence[Curve], view: View) -> str:
    """What the marks of a chart are; for one curve, with the values of its lines."""
    if len(curves) > panels.MOST_PANELS:
        return "One line per task: means over seeds. Intervals and runs are in the table."
    shown = series(curves[0], view) if len(curves) == 1 else None
    values = (None, None, None) if shown is None else (shown.full.value, shown.bar, shown.chance)
    full, bar, chance = ("" if value is None else f" ({curve_words.view_value(view, value)})" for value in values)
    said = (
        f"Dots: means, with 95% intervals over seeds; small dots: runs. Line: the full model{full}, band: its interval."
    )
    if view == "train_score":
        return f"{said} Scores on a fixed sample of at most 1,000 training rows."
    return f"{said} Dashed: the share to keep{bar}; dotted: chance{chance}; ring: the operating point."


def _point_tables(curves: Sequence[Curve]) -> Iterator[Table]:
    yield curve_tables.paper_table(curves)
    if len(curves) == 1:
        yield curve_tables.operating_table(curves[0])
        yield curve_tables.wide_table(curves[0])
