"""Chapters → one self-contained page: no request, no arithmetic; charts are drawn here, not in the browser."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata, resources
from typing import TYPE_CHECKING

from frostline.analysis import VIEWS, Chapter, Curve, Finding, View, series, told_apart
from frostline.report import panels, sentences, summaries, tables, text
from frostline.report.charts import ACCENT, GREY, INK, PALE
from frostline.report.tables import Table

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

REFRESH_SECONDS = 20
MOST_ANSWERS = 4
"""Curves up to which each has its sentence; more are a table."""
_COLOURS = {ACCENT: "var(--accent)", INK: "var(--ink)", GREY: "var(--muted)", PALE: "var(--grid)"}


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """A chart with the table behind it."""

    name: str
    title: str
    svg: Markup
    caption: str
    table: Table


@dataclass(frozen=True, kw_only=True)
class _Section:
    """A part of the page."""

    id: str
    title: str
    tables: list[Table] = field(default_factory=list)
    views: list[_Shown] = field(default_factory=list)
    runs: Table | None = None
    cares: list[dict[str, object]] = field(default_factory=list)
    hows: list[dict[str, object]] = field(default_factory=list)
    note: str = ""


def page(chapters: Sequence[Chapter], *, is_live: bool = False) -> str:
    """The report as HTML; a live one is loaded anew by the browser while runs are missing."""
    title = _title([chapter.curve for chapter in chapters])
    chapters = told_apart(chapters)
    curves = [chapter.curve for chapter in chapters]
    n_missing = sum(chapter.n_missing for chapter in chapters)
    return _template().render(
        title=title,
        answers=list(_answers(curves)) if len(curves) <= MOST_ANSWERS else [],
        going=_going(chapters, n_missing),
        refresh=REFRESH_SECONDS if is_live and n_missing else None,
        is_many=len(curves) > 1,
        sections=[_lean(section, len(curves) > 1) for section in _sections(chapters, curves) if section is not None],
        version=metadata.version("frostline"),
        style=_asset("style.css"),
        script=_asset("script.js"),
    )


def _lean(section: _Section, is_many: bool) -> _Section:
    """A section whose tables, where all is of one curve, do not name it in every row."""
    if is_many:
        return section
    return dataclasses.replace(
        section,
        tables=[summaries.without_names(table) for table in section.tables],
        views=[dataclasses.replace(view, table=summaries.without_names(view.table)) for view in section.views],
        runs=None if section.runs is None else summaries.without_names(section.runs),
    )


def _title(curves: Sequence[Curve]) -> str:
    if len(curves) == 1:
        return sentences.title(curves[0])
    tasks, models = ({getattr(curve, name) for curve in curves} for name in ("task", "model"))
    counted = f"{text.counted(len(tasks), 'task')} and {text.counted(len(models), 'model')}"
    return f"{text.counted(len(curves), 'curve')} of {counted}"


def _answers(curves: Sequence[Curve]) -> Iterator[dict[str, str]]:
    for curve in curves:
        head = f"{sentences.title(curve)}:" if len(curves) > 1 else ""
        sure = sentences.decision(curve) if isinstance(curve, Finding) else ""
        yield {"head": head, "said": sentences.answer(curve), "sure": sure}


def _going(chapters: Sequence[Chapter], n_missing: int) -> str:
    """How far it is; nothing when all is done."""
    if not n_missing:
        return ""
    n_done = sum(len(chapter.runs) for chapter in chapters)
    return f"{n_done} of {text.counted(n_done + n_missing, 'run')} done: the numbers below are of these, and will move."


def _sections(chapters: Sequence[Chapter], curves: Sequence[Curve]) -> Iterator[_Section | None]:
    if len(curves) > 1:
        yield _Section(id="summary", title="Summary", tables=[summaries.summary_table(curves)])
    views = list(_views(curves))
    yield _Section(id="curve", title="The curve" if len(curves) == 1 else "The curves", views=views) if views else None
    yield _Section(id="points", title="Operating points", tables=list(_point_tables(curves)))
    yield from _more_charts(chapters, curves)
    runs = summaries.runs_table(chapters)
    yield _Section(id="runs", title="Runs", runs=runs) if runs.rows else None
    cares = list(_cares(curves))
    yield _Section(id="care", title="Take care", cares=cares) if cares else None
    yield _Section(id="how", title="How it was run", hows=list(_hows(chapters)), note=sentences.INTERVALS_NOTE)


def _more_charts(chapters: Sequence[Chapter], curves: Sequence[Curve]) -> Iterator[_Section | None]:
    """Line search, cost and learning curves; of very many curves as tables alone."""
    parts: list[tuple[str, str, Callable[[], panels.Drawing | None], Table, str]] = [
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
            yield _charted(name, title, draw(), table, caption)
        elif table.rows:
            yield _Section(id=name, title=title, tables=[table])


_RATES = "Score on dev of each rate; the ring marks the one that was taken."
_COST = (
    "Score against the seconds of training and evaluating one run, frozen layers apart; a label is the frozen layers."
)
_LEARNING = "Mean score on dev after each epoch, of the replicates of each depth."


def _views(curves: Sequence[Curve]) -> Iterator[_Shown]:
    for view in VIEWS:
        chart = panels.view_chart(curves, view)
        if chart is not None:
            yield _Shown(
                name=view,
                title=panels.VIEW_WORDS[view],
                svg=_drawn(chart, f"{panels.VIEW_WORDS[view]} against frozen layers; the table below holds its values"),
                caption=_caption(curves, view),
                table=summaries.view_table(curves, view),
            )


def _caption(curves: Sequence[Curve], view: View) -> str:
    """What the marks of a chart are; of one curve, with the numbers of its lines."""
    if len(curves) > panels.MOST_PANELS:
        return "A line a task: means over seeds. Intervals and runs are in the table."
    shown = series(curves[0], view) if len(curves) == 1 else None
    values = (None, None, None) if shown is None else (shown.full.value, shown.bar, shown.chance)
    full, bar, chance = ("" if value is None else f" ({sentences.view_value(view, value)})" for value in values)
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


def _charted(name: str, title: str, chart: panels.Drawing | None, table: Table, caption: str) -> _Section | None:
    if chart is None:
        return None
    svg = _drawn(chart, f"{title}; the table below holds its values")
    return _Section(id=name, title=title, views=[_Shown(name=name, title=title, svg=svg, caption=caption, table=table)])


def _cares(curves: Sequence[Curve]) -> Iterator[dict[str, object]]:
    for curve in curves:
        remarks = sentences.remarks(curve)
        if remarks:
            yield {"title": sentences.title(curve) if len(curves) > 1 else "", "remarks": remarks}


def _hows(chapters: Sequence[Chapter]) -> Iterator[dict[str, object]]:
    for chapter in chapters:
        lines, came = sentences.how_run(chapter.curve), chapter.provenance
        if came is not None:
            rows = f"{text.count(came.n_train)} training rows, {text.count(came.n_dev)} dev rows"
            lines += [("data", f"{rows}, fingerprint {came.data_fingerprint}"), ("model", came.model_fingerprint)]
            lines += [("versions", _listed(came.versions)), ("machine", _listed(came.hardware))]
            lines += [("folder", came.folder), ("last run", came.at)]
        yield {
            "title": sentences.title(chapter.curve),
            "lines": [(name, text.one_line(said, 2000)) for name, said in lines],
            "command": "" if came is None else text.one_line(came.command, 4000),
            "settings": "" if came is None else came.settings,
        }


def _listed(named: dict[str, str]) -> str:
    return ", ".join(f"{name} {what}" for name, what in named.items() if what)


def _drawn(chart: panels.Drawing, label: str) -> Markup:
    """The chart as SVG with the page's colours, and marks that keys can reach."""
    import vl_convert
    from markupsafe import Markup, escape

    svg = vl_convert.vegalite_to_svg(chart.to_dict(validate=False))
    svg = re.sub(r'<rect width="[\d.]+" height="[\d.]+" fill="white"/>', "", svg, count=1)
    svg = re.sub(r'(?<= )(?:transform|d)="[^"]*"', _shortened, svg)
    svg = re.sub(r' (?:font-family|pointer-events|aria-roledescription)="[^"]*"| (?:opacity|stroke-width)="1"', "", svg)
    for colour, variable in _COLOURS.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(
        r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"', r'<svg class="marks" width="\1" height="\2"', svg, count=1
    )
    svg = re.sub(r'(<path aria-label="[^"]*") role="graphics-symbol"', r'\1 role="img" tabindex="0"', svg)
    return Markup(svg.replace("<svg ", f'<svg role="group" aria-label="{escape(label)}" ', 1))


def _shortened(places: re.Match[str]) -> str:
    """Where a mark lies, to a hundredth of a pixel."""
    return re.sub(r"(\.\d\d)\d+", r"\1", places[0])


@cache
def _asset(name: str) -> Markup:
    from markupsafe import Markup

    return Markup(resources.files("frostline.report").joinpath("page", name).read_text(encoding="utf-8"))


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(str(_asset("page.html")))
