"""Curves → parts of a page: the views, operating points, line search, cost, learning curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from frostline.analysis import VIEWS, Chapter, Curve, ProbePoint, View, series
from frostline.report import comparison_tables, summaries, tables, wording
from frostline.report.charts import panels
from frostline.report.formats.sections import Section, Shown, charted, drawn
from frostline.report.tables import Table

if TYPE_CHECKING:
    from frostline.report.charts.marks import Drawing

_RATES = "Score on dev of each rate; the ring marks the one that was taken."
_COST = (
    "Score against the seconds of training and evaluating one run, frozen layers apart; a label is the frozen layers."
)
_LEARNING = "Mean score on dev after each epoch, of the replicates of each depth."
_PROBES = (
    "Squares: a linear fit to the state after so many layers, nothing trained and nothing above it used. Where they "
    "are above the dots, the layers above are trained too little."
)


def curve_sections(chapters: Sequence[Chapter]) -> Iterator[Section | None]:
    """The parts of the curves, all of them in each; of several, a summary first."""
    curves = [chapter.curve for chapter in chapters]
    if not curves:
        return
    if len(curves) > 1:
        yield Section(id="summary", title="Summary", tables=[summaries.summary_table(curves)])
    views = list(_views(curves, chapters[0].probes if len(chapters) == 1 else ()))
    yield Section(id="curve", title="The curve" if len(curves) == 1 else "The curves", views=views) if views else None
    yield Section(id="points", title="Operating points", tables=list(_point_tables(curves)))
    yield from _more_charts(chapters, curves)


def _more_charts(chapters: Sequence[Chapter], curves: Sequence[Curve]) -> Iterator[Section | None]:
    """Line search, cost and learning curves; of very many curves as tables alone."""
    parts: list[tuple[str, str, Callable[[], Drawing | None], Table, str]] = [
        ("rates", "Line search", lambda: panels.line_search_chart(curves), summaries.rates_table(curves), _RATES),
        ("cost", "Cost against quality", lambda: panels.cost_chart(curves), summaries.cost_table(curves), _COST),
        (
            "learning",
            "Learning curves",
            lambda: panels.learning_chart(chapters),
            summaries.learning_table(chapters),
            _LEARNING,
        ),
    ]
    for name, title, draw, table, caption in parts:
        if len(curves) <= panels.MOST_PANELS:
            yield charted(Section(id=name, title=title), draw(), table, caption, is_wide=len(curves) > 1)
        elif table.rows:
            yield Section(id=name, title=title, tables=[table])


def _views(curves: Sequence[Curve], probes: Sequence[ProbePoint]) -> Iterator[Shown]:
    for view in VIEWS:
        chart = panels.view_chart(curves, view, probes)
        if chart is not None:
            has_probes = bool(probes) and view == "score"
            behind = [comparison_tables.probe_table(probes)] if has_probes else []
            yield Shown(
                name=view,
                title=panels.VIEW_WORDS[view],
                svg=drawn(chart, f"{panels.VIEW_WORDS[view]} against frozen layers; the table below holds its values"),
                caption=_caption(curves, view) + (f" {_PROBES}" if has_probes else ""),
                tables=[summaries.view_table(curves, view), *behind],
                is_wide=len(curves) > 1,
            )


def _caption(curves: Sequence[Curve], view: View) -> str:
    """What the marks of a chart are; of one curve, with the numbers of its lines."""
    if len(curves) > panels.MOST_PANELS:
        return "A line a task: means over seeds. Intervals and runs are in the table."
    shown = series(curves[0], view) if len(curves) == 1 else None
    values = (None, None, None) if shown is None else (shown.full.value, shown.bar, shown.chance)
    full, bar, chance = ("" if value is None else f" ({wording.view_value(view, value)})" for value in values)
    said = (
        f"Dots: means, with 95% intervals over seeds; small dots: runs. Line: the full model{full}, band: its interval."
    )
    if view == "train_score":
        return f"{said} Scores on a fixed sample of at most 1,000 training rows."
    return f"{said} Dashed: the share to keep{bar}; dotted: chance{chance}; ring: the operating point."


def _point_tables(curves: Sequence[Curve]) -> Iterator[Table]:
    yield summaries.paper_table(curves)
    if len(curves) == 1:
        yield tables.operating_table(curves[0])
        yield tables.wide_table(curves[0])
