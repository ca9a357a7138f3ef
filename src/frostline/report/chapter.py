"""A chapter: one result in a report, and everything that a format asks of it.

A format (terminal, Markdown, LaTeX, CSV, HTML, pictures) knows no study. It asks chapters for their title, answer,
tables and charts. A new study needs a title, an answer and tables; everything else has a default. `TableChapter` takes
exactly those three, for a study that needs no class of its own.

A page shows all chapters of one class together, so that curves share a chart: that is what the class methods are for.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

from frostline.analysis import Provenance, RunLine
from frostline.records.serial import Record
from frostline.report import numbers
from frostline.report.sections import Section
from frostline.report.tables import NAMES, Table, yes

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

ROLE_WORDS = {"replicate": "replicate", "line_search": "line search", "tuning": "tuning"}


@dataclass(frozen=True, kw_only=True)
class Chapter(Record, ABC):
    """One result in a report."""

    runs: tuple[RunLine, ...] = ()
    """finished runs; empty if only the result is known"""
    n_missing: int = 0
    """number of runs that are not done yet"""
    provenance: Provenance | None = None
    """where the numbers come from; None if only the result is known"""

    rank: ClassVar[int] = 9
    """place in a report; lower comes first"""
    noun: ClassVar[str] = "result"
    """what the title of a page with several chapters counts"""
    is_overview: ClassVar[bool] = False
    """it summarizes other chapters of the report, which have the numbers"""
    question: ClassVar[str] = "what do the runs say?"
    """the question that the page answers"""

    @property
    @abstractmethod
    def title(self) -> str:
        """Which model on which task."""

    @property
    @abstractmethod
    def answer(self) -> Sequence[str]:
        """The answer in one sentence; then how sure it is."""

    @property
    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """The tables for the terminal, the most important one first."""

    @property
    def record(self) -> Record:
        """The record that the JSON file of this result holds."""
        return self

    @property
    def model(self) -> str:
        """The model, as the request named it."""
        return ""

    @property
    def task(self) -> str:
        """The task."""
        return ""

    @property
    def kicker(self) -> str:
        """The question that a page which begins with this chapter answers."""
        return self.question

    @property
    def about(self) -> str:
        """What tells it from other chapters of its class, model and task; empty: nothing but a number does."""
        return ""

    @property
    def parts(self) -> Sequence[Chapter]:
        """Chapters that a report shows along with this one, such as the curves behind a summary of them."""
        return ()

    @property
    def wide_tables(self) -> Sequence[Table]:
        """The tables for formats without a width, such as Markdown."""
        return self.tables

    @property
    def warnings(self) -> Sequence[str]:
        """What the reader should know, one line each."""
        return ()

    @property
    def how_run(self) -> Sequence[tuple[str, str]]:
        """How the result was made, as names and values."""
        return ()

    @property
    def note(self) -> str:
        """What the columns of the tables mean."""
        return ""

    @property
    def details(self) -> list[tuple[str, str]]:
        """How the result was made, with data, versions and machine if they are known."""
        return [*self.how_run, *([] if self.provenance is None else _origin(self.provenance))]

    def text_chart(self, width: int) -> list[str]:  # noqa: ARG002 - the interface
        """A chart in characters for the terminal, its heading first; empty if there is none."""
        return []

    def with_model(self, name: str) -> Self:  # noqa: ARG002 - the interface
        """The same chapter under another name of its model, to tell two of one model and task apart."""
        return self

    def to_json(self) -> dict[str, Any]:
        """The chapter as JSON data, its result first."""
        written = super().to_json()
        fields = dataclasses.fields(self)
        required = [f.name for f in fields if f.default is dataclasses.MISSING]
        return {name: written[name] for name in dict.fromkeys([*required, *written])}

    @classmethod
    def sections(cls, chapters: Sequence[Self]) -> Iterator[Section | None]:
        """The parts of a page for all chapters of this class."""
        for number, chapter in enumerate(chapters, start=1):
            yield Section(id=f"{cls.noun}-{number}", title=chapter.title, tables=list(chapter.tables))

    @classmethod
    def paper_tables(cls, chapters: Sequence[Self]) -> list[tuple[Table, str]]:
        """Tables for a paper, each with its caption."""
        return [(table, f"{chapter.title}. {table.title}.") for chapter in chapters for table in chapter.tables]

    @classmethod
    def rows(cls, chapters: Sequence[Self]) -> list[dict[str, object]]:
        """The numbers as rows of a CSV file."""
        return [
            {"title": chapter.title, "table": table.title, **dict(zip(table.headers, row, strict=True))}
            for chapter in chapters
            for table in chapter.tables
            for row in table.rows
        ]

    @classmethod
    def pictures(cls, chapters: Sequence[Self]) -> list[Drawing]:  # noqa: ARG003 - the interface
        """Charts that can stand alone."""
        return []

    @classmethod
    def overviews(cls, chapters: Sequence[Self]) -> Sequence[Chapter]:  # noqa: ARG003 - the interface
        """Chapters that summarize some of these, such as curves that differ only in their training rows."""
        return ()


@final
@dataclass(frozen=True, kw_only=True)
class TableChapter(Chapter):
    """A chapter made of a title, an answer and tables."""

    # The defaults stand in for the abstract properties; without them the dataclass would take these as defaults.
    title: str = ""
    """which model on which task"""
    answer: tuple[str, ...] = ()
    """the answer in one sentence; then how sure it is"""
    tables: tuple[Table, ...] = ()
    """the most important one first"""
    of: Record | None = None
    """the record behind it, which `<name>.json` holds; None: the chapter itself"""

    @property
    def record(self) -> Record:
        """The record behind it."""
        return self if self.of is None else self.of


def by_class(chapters: Sequence[Chapter]) -> dict[type[Chapter], list[Chapter]]:
    """The chapters of each class, in the order of a report."""
    groups: dict[type[Chapter], list[Chapter]] = {}
    for chapter in sorted(chapters, key=lambda one: one.rank):
        groups.setdefault(type(chapter), []).append(chapter)
    return groups


def arranged(chapters: Sequence[Chapter]) -> list[Chapter]:
    """The chapters as a report shows them: in order, with overviews, those of one model and task distinguished."""
    single = [chapter for chapter in chapters if not chapter.parts]
    found = [one for kind, group in by_class(single).items() for one in kind.overviews(group)]
    found += [chapter for chapter in chapters if chapter.parts]
    single = spread(chapters)
    shown = [one for group in by_class(single).values() for one in told_apart(group)]
    return sorted([*shown, *found], key=lambda one: one.rank)


def spread(chapters: Sequence[Chapter]) -> list[Chapter]:
    """The chapters, with those that have parts replaced by their parts."""
    return [part for chapter in chapters for part in (chapter.parts or (chapter,))]


def told_apart(chapters: Sequence[Chapter]) -> list[Chapter]:
    """The chapters, with those of one model and task together.

    If there are several of one model and task, the name of the model gets their number of training rows, the fewest
    first; or a running number if the rows are not known or equal.
    """
    groups: dict[tuple[str, str, str], list[Chapter]] = {}
    for chapter in chapters:
        groups.setdefault((chapter.task, numbers.model_name(chapter.model), chapter.about), []).append(chapter)
    return [chapter for group in groups.values() for chapter in (_numbered(group) if len(group) > 1 else group)]


def _numbered(chapters: Sequence[Chapter]) -> list[Chapter]:
    rows = {c.provenance.n_train: c for c in chapters if c.provenance is not None}
    named: Mapping[str, Chapter] = (
        {f"{n_train:,} rows": rows[n_train] for n_train in sorted(rows)}
        if len(rows) == len(chapters)
        else {str(number): chapter for number, chapter in enumerate(chapters, start=1)}
    )
    return [chapter.with_model(f"{chapter.model} ({suffix})") for suffix, chapter in named.items()]


def runs_table(chapters: Sequence[Chapter]) -> Table:
    """Every finished run."""
    heads = ("role", "trains", "rate", "seed", "score", "training score", "last loss", "seconds", "memory", "failed")
    names = [(numbers.one_line(one.task, 60), numbers.model_name(one.model, 60)) for one in chapters]
    rows = [(*name, *_run_row(run)) for name, chapter in zip(names, chapters, strict=True) for run in chapter.runs]
    title = "Every finished run. Failed: the run learned nothing; its score is no better than with shuffled labels"
    return Table(title=title, headers=(*NAMES, *heads), rows=tuple(rows), left=(*NAMES, "role", "trains"))


def _run_row(run: RunLine) -> tuple[str, ...]:
    return (
        ROLE_WORDS[run.role],
        numbers.one_line(run.strategy, 40),
        numbers.learning_rate(run.learning_rate or None),  # a closed-form fit has none
        str(run.seed),
        numbers.score(run.score),
        numbers.score(run.train_score),
        numbers.loss(run.epoch_losses[-1] if run.epoch_losses else None),
        numbers.seconds(run.seconds),
        numbers.size(run.peak_bytes),
        yes(run.is_failed),
    )


def _origin(came: Provenance) -> list[tuple[str, str]]:
    rows = f"{numbers.count(came.n_train)} training rows, {numbers.count(came.n_dev)} dev rows"
    return [
        ("data", f"{rows}, fingerprint {came.data_fingerprint}"),
        ("model", came.model_fingerprint),
        ("versions", _listed(came.versions)),
        ("machine", _listed(came.hardware)),
        ("folder", came.folder),
        ("last run", came.at),
    ]


def _listed(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {what}" for name, what in named.items() if what)
