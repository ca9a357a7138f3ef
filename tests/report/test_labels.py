from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frostline.report.charts.labels import Box, Label, Scene, place

SIZE = (680.0, 380.0)
NAMES = [f"strategy:{number}" for number in range(12)]


def overlaps(labels: list[Label]) -> list[tuple[int, int]]:
    pairs = itertools.combinations(enumerate(labels), 2)
    return [(a, b) for (a, one), (b, other) in pairs if one.box.shared(other.box) > 0]


def placed(dots: list[tuple[float, float]]) -> list[Label]:
    return place(NAMES[: len(dots)], Scene(size=SIZE, dots=dots))


def test_a_name_alone_stands_right_of_its_dot() -> None:
    (label,) = placed([(100.0, 100.0)])
    assert (label.align, label.dy, label.is_far) == ("left", 0.0, False)
    assert label.box.left > 100


def test_at_the_right_edge_it_stands_to_the_left() -> None:
    (label,) = placed([(670.0, 100.0)])
    assert label.align == "right"
    assert label.box.right < 670


@pytest.mark.parametrize("x", [30.0, 340.0, 650.0])
def test_twelve_dots_in_one_place_can_all_be_read(x: float) -> None:
    labels = placed([(x + number % 3, 190.0 + number) for number in range(12)])
    assert overlaps(labels) == []
    assert any(label.is_far for label in labels)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(20, 660), st.floats(20, 360)), min_size=1, max_size=12))
def test_names_do_not_cover_each_other_nor_leave_the_chart(dots: list[tuple[float, float]]) -> None:
    labels = placed(dots)
    assert overlaps(labels) == []
    for label in labels:
        assert label.box.shared(Box(0, 0, *SIZE)) == pytest.approx(label.box.area)


def test_without_looking_at_the_others_they_would_collide() -> None:
    alone = [placed([dot])[0] for dot in [(300.0, 190.0), (302.0, 194.0)]]
    assert overlaps(alone) == [(0, 1)]


def test_a_name_beside_two_dots_stands_nearer_to_its_own() -> None:
    dots = [(300.0, 190.0), (300.0, 204.0)]
    for label, dot, other in zip(placed(dots), dots, dots[::-1], strict=True):
        y = dot[1] + label.dy
        assert abs(y - dot[1]) < abs(y - other[1]) or label.is_far
