"""Comparisons, and curves of several sizes of training data → parts of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from frostline.analysis import Chapter, Comparison
from frostline.report import comparison_tables, comparison_wording, text
from frostline.report.charts import comparison as comparison_charts
from frostline.report.charts.heatmap import HEAT_VIEWS, HeatView, by_training_rows, heat_chart, heat_table
from frostline.report.formats.sections import Section, Shown, charted, drawn

_RATES = (
    "Score on the rows that choose, of each rate; the ring marks the one that was taken. All panels have one scale."
)
_HEAT_TITLES: dict[HeatView, str] = {"score": "score", "train_score": "training score"}


def comparison_sections(comparisons: Sequence[Comparison]) -> Iterator[Section | None]:
    """The parts of each comparison; of several, a summary first."""
    if len(comparisons) > 1:
        table = comparison_tables.summary_table(comparisons)
        yield Section(id="comparisons", title="Comparisons", tables=[table])
    for number, comparison in enumerate(comparisons, start=1):
        suffix = "" if number == 1 else f"-{number}"
        of = f": {_brief(comparison)}" if len(comparisons) > 1 else ""
        yield Section(
            id=f"strategies{suffix}",
            title=f"Strategies{of}",
            views=list(_cost_views(comparison)),
            below=[comparison_tables.main_table(comparison)],
        )
        tried = Section(id=f"tried{suffix}", title=f"Rates that were tried{of}")
        n_tried = len({one.name for one in comparison.line_search})
        chart, table = comparison_charts.rates_chart(comparison), comparison_tables.rates_table(comparison)
        yield charted(tried, chart, table, _RATES, is_wide=n_tried > 1)
        layers = Section(id=f"layers{suffix}", title=f"Layer by layer{of}")
        chart, table = comparison_charts.probe_chart(comparison), comparison_tables.probe_table(comparison.probes)
        yield charted(layers, chart, table, _probe_caption(comparison), is_wide=False)


def heat_sections(chapters: Sequence[Chapter]) -> Iterator[Section]:
    """A heat map for each model and task with curves of several sizes."""
    groups = by_training_rows(chapters)
    for number, sizes in enumerate(groups, start=1):
        of = f": {sizes.title}" if len(groups) > 1 else ""
        views = []
        for view in HEAT_VIEWS:
            chart = heat_chart(sizes, view)
            if chart is not None:
                what = f"mean {_HEAT_TITLES[view]}"
                svg = drawn(chart, f"{what} by training rows and frozen layers; the table below holds its values")
                caption = (
                    f"{what.capitalize()} ({text.one_line(sizes.metric, 40)}); the stronger the colour, the higher."
                )
                table = heat_table(sizes, view)
                views.append(Shown(name=view, title=_HEAT_TITLES[view], svg=svg, caption=caption, tables=[table]))
        if views:
            suffix = "" if number == 1 else f"-{number}"
            yield Section(id=f"rows{suffix}", title=f"Training rows{of}", views=views)


def _brief(comparison: Comparison) -> str:
    return f"{text.one_line(comparison.task, 28)} · {text.one_line(comparison.model, 28)}"


def _probe_caption(comparison: Comparison) -> str:
    full = comparison.strategy("full")
    line = "" if full is None or full.mean is None else f" Line: full ({text.score(full.mean)})."
    return (
        "Score of a linear fit to what each layer puts out, nothing else trained, with 95% intervals over seeds."
        f"{line} Dotted: chance ({text.score(comparison.chance)})."
    )


def _cost_views(comparison: Comparison) -> Iterator[Shown]:
    for kind in comparison_wording.COSTS:
        chart = comparison_charts.cost_chart(comparison, kind)
        if chart is not None:
            title = comparison_charts.COST_WORDS[kind]
            yield Shown(
                name=kind,
                title=title,
                svg=drawn(chart, f"score against {title}; the table below holds its values"),
                caption=_cost_caption(comparison, kind),
                tables=[comparison_tables.cost_table(comparison, kind)],
            )


def _cost_caption(comparison: Comparison, kind: comparison_wording.CostKind) -> str:
    full = comparison.strategy("full")
    bar = "" if full is None or full.ratio is None else f" Dashed: {text.keep_share(comparison_wording.KEEP)} of full."
    costs = {"seconds": "time", "parameters": "number of trained parameters", "memory": "memory"}
    return (
        f"Score against the {costs[kind]} of one run; bars: 95% intervals over seeds. "
        f"Line and coloured dots: the front, on which no other scores as high for less.{bar}"
    )
