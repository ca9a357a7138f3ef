"""Curves along other axes in words, tables, charts and pages."""

from __future__ import annotations

import functools

import pytest

from frostline.analysis import Curve, Established, SmallestSubspace
from frostline.records.depth import FULL
from frostline.records.requests import ResolvedAxis
from frostline.report import curve_tables
from frostline.report.chapter import Chapter, arranged
from frostline.report.charts import curve as curve_charts
from frostline.report.charts import panels
from frostline.report.charts.text import chart_lines
from frostline.report.curve_chapter import CurveChapter
from frostline.report.formats.html import page
from frostline.report.formats.spreadsheet import spreadsheet
from frostline.report.terminal import format_result
from frostline.report.wording import axis_words, curve_words
from synthetic import make_axis, make_axis_curve, make_curve

FULL_SCORES = [0.90, 0.92, 0.91, 0.93, 0.92]
SCORES = [[0.91, 0.90, 0.92, 0.91, 0.92], [0.88, 0.89, 0.87, 0.90, 0.88], [0.70, 0.72, 0.66, 0.71, 0.69]]
HEADS = make_axis("heads", (48, 24, 12), total=72)
SUBSPACE = make_axis("subspace", (100_000, 1_000, 10))


AXES: dict[str, ResolvedAxis] = {
    "heads": HEADS,
    "subspace": SUBSPACE,
    "transfer": make_axis("transfer", (6, 4, 0), total=6),
    "reinit": make_axis("reinit", (0, 2, 6), total=6),
}


@functools.cache
def _curve(axis: str) -> Curve:
    """A curve along an axis; 90% is kept at the second of its places."""
    return make_axis_curve(AXES[axis], FULL_SCORES, SCORES)


@pytest.mark.parametrize(
    ("axis", "begins", "sure"),
    [
        (
            "heads",
            "Training 24 of 72 attention heads keeps 96.5% [",
            "established for training 24 of 72 attention heads",
        ),
        (
            "subspace",
            "Training in a random subspace of D = 1,000 keeps 96.5% [",
            "established for training in a random",
        ),
        ("transfer", "The lowest 4 of 6 pretrained layers carry 96.5% [", "established for the lowest 4 of 6"),
        ("reinit", "Re-initialising the top 2 of 6 layers keeps 96.5% [", "established for re-initialising the top 2"),
    ],
)
def test_the_answer_names_the_value(axis: str, begins: str, sure: str) -> None:
    said = curve_words.answer(_curve(axis))
    assert said.startswith(begins)
    assert f"90% of the full score is {sure}" in said
    assert "layers need" not in said
    assert ("of the parameters" in said) == (axis in ("heads", "subspace")), "the others train everything"
    assert curve_words.short_answer(_curve(axis)).startswith(begins.removesuffix(" ["))


@pytest.mark.parametrize(
    ("axis", "at", "words"),
    [
        ("transfer", 0, "the pretrained embeddings alone"),
        ("transfer", 1, "the lowest of 6 pretrained layers"),
        ("transfer", 6, "all 6 pretrained layers"),
        ("reinit", 0, "re-initialising no layer"),
        ("reinit", 1, "re-initialising the top of 6 layers"),
        ("reinit", 6, "re-initialising all 6 layers"),
        ("heads", 1, "training 1 of 72 attention heads"),
        ("heads", FULL, "training the full model"),
    ],
)
def test_what_is_done_at_a_value(axis: str, at: int, words: str) -> None:
    assert axis_words.what_is_done(_curve(axis), at) == words


def test_a_bar_that_no_value_reaches() -> None:
    low = make_axis_curve(HEADS, FULL_SCORES, [SCORES[2], SCORES[2], SCORES[2]])
    said = curve_words.answer(low)
    assert said.startswith(
        "No number of attention heads tried keeps 90% of the full score; the closest, training 48 of"
    )


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (SmallestSubspace(value=1000, scale="ratio", beside=None), "d90: the smallest subspace with verdict kept"),
        (
            SmallestSubspace(value=1000, scale="ratio", beside=Established(n_frozen=2, trained_layers=2)),
            "is D = 1,000; on the depth curve of this folder, training the last 2 of 4 layers keeps as much.",
        ),
        (
            SmallestSubspace(value=None, scale="ratio", beside=Established(n_frozen=FULL, trained_layers=4)),
            "d90: no subspace that was tried has the verdict kept; on the depth curve of this folder, no depth keeps",
        ),
    ],
)  # fmt: skip
def test_the_intrinsic_dimension_is_beside_the_depth(found: SmallestSubspace, wanted: str) -> None:
    assert wanted in curve_words.answer(_curve("subspace").replace(d90=found))
    assert "d90" not in curve_words.answer(_curve("subspace"))


@pytest.mark.parametrize("axis", AXES)
def test_tables_have_the_column_of_the_axis(axis: str) -> None:
    curve = _curve(axis)
    column = axis_words.words_of(curve).column
    for table in (
        curve_tables.score_table(curve),
        curve_tables.against_table(curve),
        curve_tables.wide_table(curve),
    ):
        assert table.headers[0] == column
        assert "frozen" not in table.headers
        assert [row[0] for row in table.rows] == ["full", *(f"{value:,}" for value in AXES[axis].values)]
        assert all(len(row) == len(table.headers) for row in table.rows)
    points = curve_tables.operating_table(curve)
    assert all(len(row) == len(points.headers) for row in points.rows)
    assert points.rows[0][2] == f"{AXES[axis].values[1]:,}"


@pytest.mark.parametrize("axis", AXES)
def test_a_chart_draws_every_value(axis: str) -> None:
    chart = curve_charts.curve_chart(_curve(axis))
    assert "frozen" not in str(chart)
    layers = chart["layer"]
    values = {row["x"] for rows in chart["datasets"].values() for row in rows}
    assert set(AXES[axis].values) <= values
    scales = {str(layer["encoding"]["x"]["scale"].get("type")) for layer in layers}
    assert scales == ({"log"} if axis == "subspace" else {"None"})


def test_a_subspace_of_no_dimension_has_a_place_on_the_axis() -> None:
    curve = make_axis_curve(make_axis("subspace", (1000, 10, 0)), FULL_SCORES, SCORES)
    layers = curve_charts.curve_chart(curve)["layer"]
    assert {layer["encoding"]["x"]["scale"]["type"] for layer in layers} == {"symlog"}
    assert "<svg" in curve_charts.svg(curve)


def test_long_values_have_room_in_characters() -> None:
    lines = chart_lines(_curve("subspace"), 80)
    assert lines[0].startswith("Dimensions of the subspace and accuracy")
    assert lines[2].startswith("100,000  ")
    assert lines[1].startswith("   full  ")
    assert max(map(len, lines)) <= 80
    assert chart_lines(make_curve(FULL_SCORES, {2: SCORES[0]}), 80)[1].startswith("  full  "), "depth is as it was"


def test_a_page_has_the_curve_of_each_axis() -> None:
    depth = CurveChapter(curve=make_curve(FULL_SCORES, {1: SCORES[0], 2: SCORES[1], 4: SCORES[2]}))
    chapters: list[Chapter] = [depth, *(CurveChapter(curve=_curve(axis)) for axis in AXES)]
    made = page(chapters)
    for name in ("curve", "points", *(f"{axis}-curve" for axis in AXES), "gains", "transfer-gains"):
        assert f'id="{name}"' in made
    assert 'id="heads-gains"' not in made
    titles = [chapter.title for chapter in arranged(chapters)]
    assert "toy-model on toy" in titles, "curves of other axes are told from it without a number"
    assert "toy-model on toy, by trained attention heads" in titles


def test_a_page_of_one_axis_asks_its_own_question() -> None:
    assert "how many attention heads need fine-tuning?" in page([CurveChapter(curve=_curve("heads"))])
    assert "how many of the last layers need fine-tuning?" in page(
        [CurveChapter(curve=make_curve(FULL_SCORES, {2: SCORES[0]}))]
    )


def test_a_spreadsheet_names_strategy_and_value() -> None:
    heads, depth = CurveChapter(curve=_curve("heads")), CurveChapter(curve=make_curve(FULL_SCORES, {2: SCORES[0]}))
    lines = spreadsheet([depth, heads]).splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    found = [(row["strategy"], row["n_frozen"], row["axis"], row["value"]) for row in rows]
    assert found[:2] == [("full", "full", "", ""), ("freeze:2", "2", "", "")]
    assert found[2:4] == [("full", "", "heads", "full"), ("heads:48", "", "heads", "48")]
    assert "axis" not in spreadsheet([depth]).splitlines()[0].split(","), "a curve of depth is as it was"


def test_gains_are_drawn_with_their_intervals() -> None:
    curve = make_curve(FULL_SCORES, {1: SCORES[0], 2: SCORES[1], 4: SCORES[2]})
    chart = panels.gains_chart([curve])
    assert chart is not None
    said = [row["said"] for row in _rows(chart) if row["kind"] == "mean"]
    assert said[0].startswith("from 0 to 2: +0.09")
    table = curve_tables.gains_table([curve])
    assert [row[2:4] for row in table.rows] == [("4", "2"), ("2", "1")]
    assert panels.gains_chart([_curve("heads")]) is None


def _rows(chart: dict[str, object]) -> list[dict[str, str]]:
    data = chart["data"]
    assert isinstance(data, dict)
    rows = data["values"]
    assert isinstance(rows, list)
    return rows


def test_it_prints() -> None:
    said = format_result([CurveChapter(curve=_curve("heads"))])
    assert said.startswith("toy-model on toy, by trained attention heads\nTraining 24 of 72 attention heads keeps")
