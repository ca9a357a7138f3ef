"""Chapters → one self-contained page: no request, no arithmetic; charts are drawn here, not in the browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata, resources
from typing import TYPE_CHECKING

from frostline.analysis import Chapter, Curve, Finding
from frostline.report import comparison_wording, summaries, text, wording
from frostline.report.chapters import AnyChapter, Told, comparisons_in, curves_in, told
from frostline.report.formats.comparison_sections import comparison_sections, heat_sections
from frostline.report.formats.curve_sections import curve_sections
from frostline.report.formats.sections import Section

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

REFRESH_SECONDS = 20
MOST_ANSWERS = 4
"""Curves and comparisons up to which each has its sentence; more are a table."""
_ASKED_OF_CURVES = "how many of the last layers need fine-tuning?"
_ASKED_OF_COMPARISONS = "which way of fine-tuning is worth its cost?"


def page(chapters: Sequence[AnyChapter], *, is_live: bool = False) -> str:
    """The report as HTML; a live one is loaded anew by the browser while runs are missing."""
    curves, comparisons = curves_in(chapters), comparisons_in(chapters)
    shown: list[AnyChapter] = [*curves, *comparisons]
    is_many = len(shown) > 1
    n_missing = sum(chapter.n_missing for chapter in shown)
    return _template().render(
        title=_title(chapters),
        kicker=_ASKED_OF_CURVES if curves else _ASKED_OF_COMPARISONS,
        answers=list(_answers(shown)) if len(shown) <= MOST_ANSWERS else [],
        going=_going(shown, n_missing),
        refresh=REFRESH_SECONDS if is_live and n_missing else None,
        is_many=is_many,
        sections=[_lean(section, is_many) for section in _sections(chapters, shown) if section is not None],
        version=metadata.version("frostline"),
        style=_asset("style.css"),
        script=_asset("script.js"),
    )


def _lean(section: Section, is_many: bool) -> Section:
    """A section whose tables, where all is of one curve, do not name it in every row."""
    if is_many:
        return section
    return dataclasses.replace(
        section,
        tables=[summaries.without_names(table) for table in section.tables],
        views=[
            dataclasses.replace(view, tables=[summaries.without_names(table) for table in view.tables])
            for view in section.views
        ],
        runs=None if section.runs is None else summaries.without_names(section.runs),
    )


def _title(chapters: Sequence[AnyChapter]) -> str:
    """Of one, its name; of several, how many of what. Takes the names as they were given."""
    if len(chapters) == 1:
        return wording.title_of(told(chapters[0]))
    of = [told(chapter) for chapter in chapters]
    n_curves = sum(isinstance(one, Curve) for one in of)
    kinds = ((n_curves, "curve"), (len(of) - n_curves, "comparison"))
    what = " and ".join(text.counted(number, noun) for number, noun in kinds if number)
    n_tasks, n_models = len({one.task for one in of}), len({one.model for one in of})
    return f"{what} of {text.counted(n_tasks, 'task')} and {text.counted(n_models, 'model')}"


def _answers(chapters: Sequence[AnyChapter]) -> Iterator[dict[str, str]]:
    for chapter in chapters:
        one = told(chapter)
        head = f"{wording.title_of(one)}:" if len(chapters) > 1 else ""
        sure = wording.decision(one) if isinstance(one, Finding) else ""
        said = wording.answer(one) if isinstance(one, Curve) else comparison_wording.answer(one)
        yield {"head": head, "said": said, "sure": sure}


def _going(chapters: Sequence[AnyChapter], n_missing: int) -> str:
    """How far it is; nothing when all is done."""
    if not n_missing:
        return ""
    n_done = sum(len(chapter.runs) for chapter in chapters)
    return f"{n_done} of {text.counted(n_done + n_missing, 'run')} done: the numbers below are of these, and will move."


def _sections(given: Sequence[AnyChapter], shown: Sequence[AnyChapter]) -> Iterator[Section | None]:
    """Those of the chapters as they are shown; sizes of one task are found by the names as given."""
    curves = [chapter for chapter in shown if isinstance(chapter, Chapter)]
    comparisons = [chapter.comparison for chapter in shown if not isinstance(chapter, Chapter)]
    yield from curve_sections(curves)
    yield from heat_sections([chapter for chapter in given if isinstance(chapter, Chapter)])
    yield from comparison_sections(comparisons)
    runs = summaries.runs_table(shown)
    yield Section(id="runs", title="Runs", runs=runs) if runs.rows else None
    cares = list(_cares([told(chapter) for chapter in shown]))
    yield Section(id="care", title="Take care", cares=cares) if cares else None
    notes = [*([wording.INTERVALS_NOTE] if curves else []), *([comparison_wording.NOTE] if comparisons else [])]
    yield Section(id="how", title="How it was run", hows=list(_hows(shown)), note=" ".join(notes))


def _cares(all_told: Sequence[Told]) -> Iterator[dict[str, object]]:
    for one in all_told:
        remarks = wording.remarks(one)
        if remarks:
            yield {"title": wording.title_of(one) if len(all_told) > 1 else "", "remarks": remarks}


def _hows(chapters: Sequence[AnyChapter]) -> Iterator[dict[str, object]]:
    for chapter in chapters:
        one, came = told(chapter), chapter.provenance
        lines = wording.how_run(one) if isinstance(one, Curve) else comparison_wording.how_run(one)
        if came is not None:
            rows = f"{text.count(came.n_train)} training rows, {text.count(came.n_dev)} dev rows"
            lines += [("data", f"{rows}, fingerprint {came.data_fingerprint}"), ("model", came.model_fingerprint)]
            lines += [("versions", _listed(came.versions)), ("machine", _listed(came.hardware))]
            lines += [("folder", came.folder), ("last run", came.at)]
        yield {
            "title": wording.title_of(one),
            "lines": [(name, text.one_line(said, 2000)) for name, said in lines],
            "command": "" if came is None else text.one_line(came.command, 4000),
            "settings": "" if came is None else came.settings,
        }


def _listed(named: dict[str, str]) -> str:
    return ", ".join(f"{name} {what}" for name, what in named.items() if what)


@cache
def _asset(name: str) -> Markup:
    from markupsafe import Markup

    return Markup(resources.files("frostline.report").joinpath("page", name).read_text(encoding="utf-8"))


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(str(_asset("page.html")))
