"""The page, read as text: every number is that of its record, nothing is asked of the network, names do no harm."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from frostline.analysis import VIEWS, Interval, series
from frostline.records.depth import FULL, Depth
from frostline.report.curve_chapter import CurveChapter
from frostline.report.formats.html import REFRESH_SECONDS, page
from frostline.report.formats.registry import write_report
from frostline.report.wording import curve_words

from .chapters import make_chapter
from .curves import make_curve

MINUS = "−"


class Page(HTMLParser):
    """The tables of a page by their captions, its text and its links to elsewhere."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.outside: list[str] = []
        self.tags: list[str] = []
        self._caption, self._cell = "", None  # type: tuple[str, str | None]
        self._rows: list[list[str]] = []
        self._in_caption = False
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [value or "" for name, value in attrs if name in ("src", "href", "action") and value]
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("th", "td"):
            self._cell = ""
        elif tag == "caption":
            self._caption, self._in_caption = "", True

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.tables.append((self._caption, self._rows))
        elif tag in ("th", "td") and self._cell is not None:
            self._rows[-1].append(self._cell.strip())
            self._cell = None
        elif tag == "caption":
            self._in_caption = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_caption:
            self._caption += data
        if self._cell is not None:
            self._cell += data

    def named(self, start: str) -> list[list[list[str]]]:
        """The tables whose caption starts so."""
        return [rows for caption, rows in self.tables if caption.startswith(start)]


def signed(number: float, form: str) -> str:
    """As the page writes it, written here once more."""
    said = format(number, form).replace("-", MINUS)
    return said.lstrip(f"+{MINUS}") if not said.strip(f"+{MINUS}0.%") else said


def between(interval: Interval | None, form: str, factor: float = 1.0) -> str:
    if interval is None:
        return "–"
    return f"[{', '.join(signed(factor * end, form) for end in interval)}]"


@pytest.fixture(scope="module")
def chapter() -> CurveChapter:
    return make_chapter()


@pytest.fixture(scope="module")
def shown(chapter: CurveChapter) -> Page:
    return Page(page([chapter]))


def test_the_answer_and_the_decision_stand_first(chapter: CurveChapter, shown: Page) -> None:
    assert curve_words.answer(chapter.curve) in shown.text
    assert shown.text.index(curve_words.answer(chapter.curve)) < shown.text.index("Operating points")


def test_every_number_of_the_curve_is_that_of_its_record(chapter: CurveChapter, shown: Page) -> None:
    (rows,) = shown.named("Score (accuracy)")
    for point, row in zip((chapter.curve.full, *chapter.curve.points), rows[1:], strict=True):
        cells = dict(zip(rows[0], row, strict=True))
        assert point.mean is not None
        assert point.difference is not None
        assert cells["frozen"] == ("full" if point.n_frozen is FULL else str(point.n_frozen))
        assert cells["mean"] == signed(point.mean, ".3f")
        assert cells["95% interval"] == between(point.ci, ".3f")
        assert cells["with examples"] == between(point.ci_dev, ".3f")
        assert cells["minus full"] == signed(point.difference, "+.3f")
        itself = point.n_frozen is FULL
        assert cells["interval of it"] == ("–" if itself else between(point.difference_ci_dev, "+.3f"))
        assert cells["share of full"] == f"{100 * (point.ratio or 0):.1f}%"
        assert cells["interval of share"] == ("–" if itself else between(point.ratio_ci_dev, ".1f", 100))
        assert cells["trained parameters"] == f"{point.trained_parameters:,}"
        assert cells["scores by seed"] == " ".join(f"{score:.3f}" for score in point.scores)


def test_every_run_is_there_as_it_was(chapter: CurveChapter, shown: Page) -> None:
    (rows,) = shown.named("Every finished run")
    assert len(rows) == len(chapter.runs) + 1
    for run, row in zip(chapter.runs, rows[1:], strict=True):
        cells = dict(zip(rows[0], row, strict=True))
        assert cells["trains"] == run.strategy
        assert float(cells["rate"]) == run.learning_rate
        assert (cells["seed"], cells["score"]) == (str(run.seed), f"{run.score:.3f}")
        assert cells["training score"] == f"{run.train_score:.3f}"
        assert cells["last loss"] == f"{run.epoch_losses[-1]:.3f}"
        assert cells["seconds"] == f"{run.seconds:.1f}"
        assert cells["failed"] == ("yes" if run.is_failed else "")


def test_behind_every_view_is_its_table(chapter: CurveChapter, shown: Page) -> None:
    tables = shown.named("The values of this chart")
    assert len(tables) == len(VIEWS)
    for view, rows in zip(VIEWS, tables, strict=True):
        marks = series(chapter.curve, view)
        assert marks is not None
        form = {"difference": "+.3f", "ratio": ".1%", "ratio_above_chance": ".1%"}.get(view, ".3f")
        written = [signed(mark.value or 0.0, form) for mark in (marks.full, *marks.marks)]
        assert [row[rows[0].index("value")] for row in rows[1:]] == written


def test_the_marks_say_their_values(chapter: CurveChapter) -> None:
    labels = re.findall(r'aria-label="(\d) frozen: ([^" ]+)', page([chapter]))
    means = [(str(point.n_frozen), f"{point.mean:.3f}") for point in chapter.curve.points]
    assert labels[: len(means)] == means


def test_the_papers_three_rows(chapter: CurveChapter, shown: Page) -> None:
    rows = shown.named("Operating points")[0]
    assert rows[0][:2] == ["what", "frozen"], "of one curve no row names it"
    assert [row[0] for row in rows[1:]] == ["nothing frozen", "fewest layers for 90%", "all frozen but the output"]
    assert [row[1] for row in rows[1:]] == ["full", "4", "6"]


def test_it_is_whole_and_asks_for_nothing(shown: Page, chapter: CurveChapter) -> None:
    source = page([chapter])
    assert len(source.encode()) < 1_500_000
    assert all(address.startswith("#") for address in shown.outside)
    assert "default-src 'none'" in source
    assert not re.search(r"url\(|@import|<link|<iframe|<img", source)
    ids = re.findall(r' id="([^"]+)"', source)
    assert len(ids) == len(set(ids))
    assert {address[1:] for address in shown.outside} <= set(ids)


def test_where_it_comes_from_is_told(chapter: CurveChapter, shown: Page) -> None:
    came = chapter.provenance
    assert came is not None
    for said in (came.command, came.settings, came.model_fingerprint, came.data_fingerprint, came.versions["torch"]):
        assert said.strip() in shown.text
    assert chapter.curve.warnings[0] in shown.text


def test_a_sweep_under_way_says_how_far_it_is() -> None:
    going = page([make_chapter(n_missing=7)], is_live=True)
    n_runs = len(make_chapter().runs)
    assert f"{n_runs} of {n_runs + 7} runs done" in going
    assert f'http-equiv="refresh" content="{REFRESH_SECONDS}"' in going
    assert "refresh" not in page([make_chapter()], is_live=True)
    assert "refresh" not in page([make_chapter(n_missing=7)])


def test_names_from_outside_stay_text() -> None:
    evil = "<script>alert(1)</script>\"'><img src=x>&amp;👩‍🔬{{ 7 * 7 }}" + "x" * 10_000
    made = page([make_chapter(task=evil, model=evil, warnings=(evil,), command=evil)])
    read = Page(made)
    assert read.tags.count("script") == 1
    assert "img" not in read.tags
    assert "{{ 7 * 7 }}" in read.text
    assert read.outside == Page(page([make_chapter()])).outside


@pytest.mark.parametrize(
    "scores",
    [{FULL: (0.7, 0.7, 0.7)}, {FULL: (), 3: (0.7, 0.7, 0.7)}, {FULL: (0.5,), 3: (0.5,)}, {FULL: (-0.1,), 3: (0.1,)}],
)
def test_odd_curves_have_a_page_too(scores: dict[Depth, tuple[float, ...]]) -> None:
    made = page([CurveChapter(curve=make_curve(scores))])
    assert "NaN" not in made
    assert "None" not in Page(made).text


def test_thirty_six_curves_fit_into_three_megabytes() -> None:
    depths = range(5, 13)
    scores: dict[Depth, tuple[float, ...]] = {d: tuple(0.8 - 0.001 * d * (1 + s) for s in range(5)) for d in depths}
    scores[FULL] = (0.8,) * 5
    curve = make_curve(scores, n_layers=12)
    chapters = [make_chapter(curve, task=f"task {t}", model=f"model {m}") for t in range(9) for m in range(4)]
    made = page(chapters)
    assert len(made.encode()) < 3_000_000
    assert Page(made).text.count("task 8") > 10


@pytest.mark.parametrize("n_curves", [2, 13])
def test_names_that_look_the_same_when_cut_keep_their_own_marks(n_curves: int) -> None:
    models = [f"a model with a very long name {number} that ends with the same words" for number in range(n_curves)]
    made = page([make_chapter(model=model) for model in models])
    first_view = made.partition('data-view="score"')[2].partition("<figcaption>")[0]
    assert len(re.findall(r'aria-label="[^"]*\d frozen: ', first_view)) == n_curves * len(make_curve().points)
    heads = re.findall(r">[^<]*same words \((\d+)\)<", first_view)
    assert heads == [str(number + 1) for number in range(n_curves)]


def test_charts_are_valid_and_drawn_alike_without_altairs_checks() -> None:
    chapters = [make_chapter()]
    assert page.__wrapped__(chapters) == page(chapters)  # type: ignore[attr-defined]


def test_a_run_that_diverged_has_fewer_epochs_than_the_others(tmp_path: Path) -> None:
    chapter = make_chapter()
    first, *others = chapter.runs
    early = dataclasses.replace(chapter, runs=(first.replace(epoch_scores=first.epoch_scores[:1]), *others))
    assert [len(points) for _, points in early.learning] == [len(points) for _, points in chapter.learning]
    write_report([early], tmp_path / "report.html")
