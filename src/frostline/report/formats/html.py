"""Chapters → one self-contained page. The charts are drawn here; the browser loads nothing and computes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata, resources
from typing import TYPE_CHECKING

from frostline.report import numbers
from frostline.report.chapter import Chapter, arranged, by_class, runs_table, spread
from frostline.report.charts.curve import unchecked
from frostline.report.sections import Section
from frostline.report.tables import without_names

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

REFRESH_SECONDS = 20
MOST_ANSWERS = 4
"""Up to this many chapters each have their answer at the top; more are a table."""


@unchecked()
def page(chapters: Sequence[Chapter], *, is_live: bool = False) -> str:
    """The report as HTML; the browser reloads a live page while runs are missing."""
    everything = arranged(chapters)
    shown = [chapter for chapter in everything if not chapter.is_overview]
    is_many = len(shown) > 1
    n_missing = sum(chapter.n_missing for chapter in shown)
    return _template().render(
        title=_title(spread(chapters)),
        kicker=shown[0].kicker,
        answers=list(_answers(shown)) if len(shown) <= MOST_ANSWERS else [],
        going=_going(shown, n_missing),
        refresh=REFRESH_SECONDS if is_live and n_missing else None,
        is_many=is_many,
        sections=[_lean(section, is_many) for section in _sections(everything, shown) if section is not None],
        version=metadata.version("frostline"),
        style=_asset("style.css"),
        script=_asset("script.js"),
    )


def _lean(section: Section, is_many: bool) -> Section:
    """The section; if the page has one result, without its name in every row."""
    if is_many:
        return section
    return dataclasses.replace(
        section,
        tables=[without_names(table) for table in section.tables],
        views=[
            dataclasses.replace(view, tables=[without_names(table) for table in view.tables]) for view in section.views
        ],
        runs=None if section.runs is None else without_names(section.runs),
    )


def _title(chapters: Sequence[Chapter]) -> str:
    """The title of a single chapter; for several, their model and task, or how many there are of each kind."""
    if len(chapters) == 1:
        return chapters[0].title
    tasks, models = {one.task for one in chapters}, {one.model for one in chapters}
    if len(tasks) == len(models) == 1:
        return f"{numbers.model_name(models.pop(), 60)} on {numbers.one_line(tasks.pop(), 60)}"
    *counts, last = [numbers.counted(len(group), kind.noun) for kind, group in by_class(chapters).items()]
    counted = f"{', '.join(counts)} and {last}" if counts else last
    return f"{counted} of {numbers.counted(len(tasks), 'task')} and {numbers.counted(len(models), 'model')}"


def _answers(chapters: Sequence[Chapter]) -> Iterator[dict[str, str]]:
    for chapter in chapters:
        said, *sure = chapter.answer
        yield {"head": f"{chapter.title}:" if len(chapters) > 1 else "", "said": said, "sure": " ".join(sure)}


def _going(chapters: Sequence[Chapter], n_missing: int) -> str:
    """The progress in words; empty if all runs are done."""
    if not n_missing:
        return ""
    n_done = sum(len(chapter.runs) for chapter in chapters)
    return f"{n_done} of {numbers.counted(n_done + n_missing, 'run')} done: the numbers below will change."


def _sections(everything: Sequence[Chapter], shown: Sequence[Chapter]) -> Iterator[Section | None]:
    for kind, group in by_class(everything).items():
        yield from kind.sections(group)
    runs = runs_table(shown)
    yield Section(id="runs", title="Runs", runs=runs) if runs.rows else None
    warnings = list(_warnings(shown))
    yield Section(id="warnings", title="Warnings", warnings=warnings) if warnings else None
    notes = list(dict.fromkeys(chapter.note for chapter in shown if chapter.note))
    yield Section(id="how", title="How it was run", details=list(_details(shown)), note=" ".join(notes))


def _warnings(chapters: Sequence[Chapter]) -> Iterator[dict[str, object]]:
    for chapter in chapters:
        if chapter.warnings:
            yield {"title": chapter.title if len(chapters) > 1 else "", "lines": chapter.warnings}


def _details(chapters: Sequence[Chapter]) -> Iterator[dict[str, object]]:
    for chapter in chapters:
        came = chapter.provenance
        yield {
            "title": chapter.title,
            "lines": [(name, numbers.one_line(value, 2000)) for name, value in chapter.details],
            "command": "" if came is None else numbers.one_line(came.command, 4000),
            "settings": "" if came is None else came.settings,
        }


@cache
def _asset(name: str) -> Markup:
    from markupsafe import Markup

    return Markup(resources.files("frostline.report").joinpath("page", name).read_text(encoding="utf-8"))


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(str(_asset("page.html")))
