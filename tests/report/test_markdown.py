from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from frostline.analysis import Curve, Point
from frostline.records.depth import FULL
from frostline.report import numbers
from frostline.report.formats.markdown import escape, markdown

from .chapters import alone
from .curves import make_curve, verdict_cell

PAGE = MarkdownIt("commonmark").enable("table")


def rendered_table(page: str, number: int = 0) -> list[list[str]]:
    """The cells of a table as a browser would show them, heads first."""
    drawn = re.findall(r"<table>(.*?)</table>", PAGE.render(page), re.S)[number]
    rows = re.findall(r"<tr>(.*?)</tr>", drawn, re.S)
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)] for row in rows]


def cells(point: Point) -> list[str]:
    itself = point.n_frozen is FULL
    return [
        "full" if itself else str(point.n_frozen),
        str(point.trained_layers),
        numbers.score(point.mean),
        numbers.score_interval(point.ci),
        numbers.score_interval(point.ci_dev),
        numbers.difference(point.difference),
        "–" if itself else numbers.difference_interval(point.difference_ci_dev),
        numbers.share(point.ratio),
        "–" if itself else numbers.share_interval(point.ratio_ci_dev),
        numbers.share(point.ratio_above_chance),
        verdict_cell(point),
        numbers.count(point.trained_parameters),
        numbers.seconds(point.seconds),
        str(len(point.seeds)),
        str(point.n_failed),
        numbers.score(point.mean_without_failed),
        " ".join(map(numbers.score, point.scores)) or "–",
    ]


@pytest.mark.parametrize(
    "curve",
    [
        make_curve(),
        make_curve({FULL: (0.78,), 3: (0.77,), 6: ()}),
        make_curve({FULL: (), 3: (0.78, 0.79, 0.77)}),
        make_curve({FULL: (-0.02, 0.01, -0.05), 3: (-0.1, -0.02, 0.01)}, chance=0.0),
    ],
)
def test_every_cell_is_the_records_value(curve: Curve) -> None:
    heads, *rows = rendered_table(markdown(alone(curve)))
    assert rows == [cells(point) for point in (curve.full, *curve.points)]
    assert len(heads) == len(rows[0])
    assert len(set(heads)) == len(heads)


def test_a_changed_record_shows() -> None:
    curve = make_curve()
    changed = curve.replace(full=curve.full.replace(difference=0.25))
    rows = rendered_table(markdown(alone(changed)))
    assert rows[1] == cells(changed.full)
    assert rows[1] != cells(curve.full)


def test_the_page_has_everything() -> None:
    page = markdown(alone(make_curve().replace(warnings=("mind the gap",))))
    heads = re.findall(r"^#+ .*$", page, re.M)
    assert heads == [
        "# all-MiniLM-L6-v2 on rotten-tomatoes",
        "## Operating points: fewest trained layers, of those tried, that keep a share",
        "## Line search on the full model",
        "## Warnings",
        "## How it was run",
    ]
    assert "keeps 95.9% [92.4, 99.4] of the full score" in page
    assert rendered_table(page, 1)[1] == ["90%", "the full score", "4", "2", "4", "full, 3–4", "4: 88%, 3: 12%"]
    assert rendered_table(page, 2)[1:] == [["1e-5", "0.741"], ["5e-5", "0.784"]]
    assert "- mind the gap\n" in page
    assert "- time: 3 min 12 s for this call\n" in page
    assert "- learning rate: 5e-5 (best of 2 in the line search)\n" in page
    assert "- frozen layers: 21 s over all runs, 91 MB cached\n" in page


def test_what_is_not_there_has_no_section() -> None:
    page = markdown(alone(make_curve(keeps=()).replace(line_search=())))
    assert re.findall(r"^## .*$", page, re.M) == ["## How it was run"]
    assert "5e-5 (given)" in page


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "a|b",
        "`code` **bold** _it_ ~~gone~~ $x$",
        "[text](javascript:alert(1)) ![x](y)",
        "[a]: http://b",
        "👩‍🔬 模型 &lt; &amp;",
        "back\\slash\\",
        "two\nlines\n\n# head",
    ],
)
def test_names_and_warnings_are_shown_as_they_are(name: str) -> None:
    page = markdown(alone(make_curve().replace(model=name, task=name, metric=name, warnings=(name,))))
    drawn = PAGE.render(page)
    tags = set(re.findall(r"</?([a-zA-Z]+)", drawn))
    assert tags <= {"h", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    shown = html.unescape(re.sub(r"<[^>]*>", "", drawn))
    assert numbers.one_line(name, 60) + " on " + numbers.one_line(name, 60) in shown
    assert len(re.findall(r"<h1>", drawn)) == 1


def test_unescaped_the_same_names_would_break_the_page() -> None:
    assert "<script>" in MarkdownIt("commonmark").render("a <script>alert(1)</script>")
    assert "<a href" in PAGE.render("[text](http://b)")


def test_10000_characters_are_cut() -> None:
    page = markdown(alone(make_curve().replace(model="m" * 10_000, task="|" * 10_000, metric="<" * 10_000)))
    assert max(map(len, page.splitlines())) < 1000
    assert rendered_table(page)[1] == cells(make_curve().full)


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Zs")), min_size=1))
def test_escaped_text_renders_to_itself(name: str) -> None:
    drawn = PAGE.render(f"Name: {escape(name)}.")
    assert html.unescape(drawn.removeprefix("<p>").removesuffix("</p>\n")) == f"Name: {name}."


def test_a_pipe_stays_inside_its_cell_and_no_angle_is_left() -> None:
    assert rendered_table(f"| a | b |\n| - | - |\n| {escape('x|y')} | {escape('<i>')} |\n")[1] == ["x|y", "<i>"]
    assert rendered_table("| a | b |\n| - | - |\n| x|y | z |\n")[1] != ["x|y", "z"]
    assert not set("<>") & set(escape("<script>alert(1)</script>"))
