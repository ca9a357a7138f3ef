from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import altair as alt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.analysis import Curve
from frostline.records.depth import FULL
from frostline.report.charts.curve import ACCENT, apart, curve_chart, svg, write_svg

from .curves import make_curve

SVG = "{http://www.w3.org/2000/svg}"


def drawn(curve: Curve) -> ElementTree.Element:
    return ElementTree.fromstring(svg(curve))


def words(root: ElementTree.Element) -> list[str]:
    """Every piece of text in the picture."""
    return [piece for node in root.iter(f"{SVG}text") for piece in node.itertext()]


def layers(curve: Curve) -> list[dict[str, Any]]:
    """The chart's layers as (mark, rows), with the rows put back in place."""
    spec = curve_chart(curve)
    rows = spec.get("datasets", {})
    return [
        {"mark": layer["mark"], "rows": layer["data"].get("values") or rows[layer["data"]["name"]]}
        for layer in spec["layer"]
    ]


def rows_of(curve: Curve, mark: str, **style: object) -> list[dict[str, Any]]:
    """The rows of the layers with this mark and style."""
    chosen = [at for at in layers(curve) if at["mark"]["type"] == mark and style.items() <= at["mark"].items()]
    return [row for layer in chosen for row in layer["rows"]]


def test_it_agrees_with_the_schema() -> None:
    spec = curve_chart(make_curve())
    assert len(alt.LayerChart.from_dict(spec).layer) == len(spec["layer"])
    with pytest.raises(Exception, match="wide"):
        alt.LayerChart.from_dict(spec | {"width": "wide"})


def test_the_picture_says_the_answer_and_names_what_it_shows() -> None:
    said = words(drawn(make_curve()))
    assert "Training the last 2 of 6 layers keeps 95.9% of the full score" in said
    assert "all-MiniLM-L6-v2 on rotten-tomatoes" in said
    assert {"full 0.781", "90% of full 0.703", "chance 0.500", "95.9%", "accuracy"} <= set(said)
    assert "frozen layers of 6 (trained layers)" in said
    ticks = said[said.index("3") : said.index("3") + 8]
    assert ticks == ["3", "(3)", "4", "(2)", "5", "(1)", "6", "(0)"]


def test_every_seed_mean_and_interval_is_drawn_where_it_is() -> None:
    curve = make_curve()
    seeds = [{"x": point.n_frozen, "y": score} for point in curve.points for score in point.scores]
    means = [{"x": point.n_frozen, "y": point.mean} for point in curve.points]
    bars = [{"x": p.n_frozen, "y": p.ci[0], "y2": p.ci[1]} for p in curve.points if p.ci is not None]
    assert rows_of(curve, "circle", size=20) == seeds
    assert rows_of(curve, "circle", size=64) == means
    assert rows_of(curve, "line") == means
    assert rows_of(curve, "rule", color=ACCENT) == bars
    assert [(row["x"], row["y"]) for row in rows_of(curve, "point")] == [(4, curve.points[1].mean)]
    assert [(row["y"], row["y2"]) for row in rows_of(curve, "rect")] == [curve.full.ci]


def test_the_marks_are_in_the_svg() -> None:
    curve = make_curve()
    accents = [node for node in drawn(curve).iter(f"{SVG}path") if ACCENT in (node.get("fill"), node.get("stroke"))]
    n_seeds, n_means, n_lines, n_rings = 20, 4, 1, 1
    assert len(accents) == n_seeds + n_means + n_lines + n_rings
    bars = [node for node in drawn(curve).iter(f"{SVG}line") if node.get("stroke") == ACCENT]
    assert len(bars) == 4


def test_a_higher_score_is_drawn_higher() -> None:
    positions = re.findall(r"mark-symbol role-mark layer_8_marks.*?</g>", svg(make_curve()), re.S)[0]
    heights = [float(y) for _, y in re.findall(r"translate\(([\d.]+),([\d.]+)\)", positions)]
    assert len(heights) == 4
    assert heights == sorted(heights)


def test_one_seed_has_no_interval_and_no_dots() -> None:
    curve = make_curve({FULL: (0.78,), 3: (0.77,), 6: (0.6,)})
    assert rows_of(curve, "rect") == []
    assert rows_of(curve, "rule", color=ACCENT) == []
    assert rows_of(curve, "circle", size=20) == []
    assert "1 seed, mean, no interval below 3 seeds" in words(drawn(curve))


def test_a_crashed_depth_breaks_the_line_and_keeps_its_tick() -> None:
    curve = make_curve({FULL: (0.78, 0.79, 0.8), 3: (0.77, 0.76, 0.75), 4: (), 6: (0.6, 0.6, 0.6)})
    assert [row["y"] is None for row in rows_of(curve, "line")] == [False, True, False]
    assert [row["x"] for row in rows_of(curve, "circle", size=64)] == [3, 6]
    assert {"3", "4", "6"} <= set(words(drawn(curve)))


@pytest.mark.parametrize(
    "curve",
    [
        make_curve({FULL: ()}),
        make_curve({FULL: (0.7, 0.7, 0.7)}),
        make_curve({FULL: (), 3: (0.7, 0.7, 0.7)}),
        make_curve({FULL: (0.5,), 3: (0.5,)}),
        make_curve({FULL: (-0.02, 0.01, -0.05), 3: (-0.1, -0.02, 0.01)}, chance=0.0),
        make_curve(keeps=()),
    ],
)
def test_odd_curves_are_drawn_too(curve: Curve) -> None:
    root = drawn(curve)
    heads = ("Frozen layers and accuracy", "The full model did not learn", "Training")
    assert any(head in " ".join(words(root)) for head in heads)
    assert "NaN" not in ElementTree.tostring(root, encoding="unicode")


def test_a_huge_interval_stays_on_the_axis() -> None:
    curve = make_curve()
    wild = curve.replace(points=(curve.points[0].replace(ci=(-40.0, 42.0)), *curve.points[1:]))
    (bar, *_) = rows_of(wild, "rule", color=ACCENT)
    assert -1 < bar["y"] < bar["y2"] < 2


@pytest.mark.parametrize(
    "name", ["<script>x</script>&\"'", "a|`b`", "👩‍🔬 模型", "\x00\x1b\ud800\uffff x", "m" * 10_000]
)
def test_any_name_gives_valid_xml(name: str) -> None:
    root = drawn(make_curve().replace(model=name, task=name, metric=name))
    assert not list(root.iter(f"{SVG}script"))
    assert max(map(len, words(root))) < 200
    assert float(root.get("width", "inf")) < 1000
    if len(name) < 50:
        assert any(name.replace("\x00\x1b\ud800\uffff x", "x") in piece for piece in words(root))


@pytest.mark.usefixtures("draws_again")
def test_the_same_curve_gives_the_same_picture_and_another_does_not() -> None:
    curve = make_curve()
    first = svg(curve)
    assert svg(curve) == first
    assert svg(curve.replace(full=curve.full.replace(mean=0.75))) != first


def test_write_svg(tmp_path: Path) -> None:
    path = write_svg(make_curve(), tmp_path / "a.svg")
    assert path.read_text(encoding="utf-8") == svg(make_curve())
    assert [found.name for found in tmp_path.iterdir()] == ["a.svg"]


@given(st.lists(st.floats(0, 1), max_size=3).map(sorted), st.floats(0.01, 0.2))
def test_labels_keep_apart_and_in_order(heights: list[float], pitch: float) -> None:
    moved = apart(heights, pitch)
    gaps = [after - before for before, after in itertools.pairwise(moved)]
    assert all(gap >= 0.99 * pitch for gap in gaps)
    assert sum(moved) == pytest.approx(sum(heights))
    if all(b - a >= pitch for a, b in itertools.pairwise(heights)):
        assert moved == heights


def test_labels_of_two_equal_heights_part_evenly() -> None:
    assert apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert math.isclose(apart([0.5], 0.1)[0], 0.5)
