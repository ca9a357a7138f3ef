from __future__ import annotations

import dataclasses
from typing import cast

import pytest

from frostline.analysis import Curve, Point, Replicated
from frostline.errors import UsageError
from frostline.records.serial import field_docs
from frostline.records.specs import Scale
from synthetic import make_curve


def test_an_operating_point_is_found_by_its_share_and_scale() -> None:
    curve = make_curve([0.8] * 3, {2: [0.78] * 3, 4: [0.73] * 3}, keep=(0.9, 0.5))
    assert curve.operating_point(0.9).n_frozen == 4
    assert curve.operating_point(0.9, "ratio_above_chance").n_frozen == 2
    assert curve.operating_point(0.5).keep == 0.5
    assert curve.operating_point(keep=0.3 * 3).keep == 0.9


def test_without_a_scale_the_one_asked_for_answers() -> None:
    curve = make_curve([0.8] * 3, {2: [0.78] * 3, 4: [0.73] * 3}, scale="ratio_above_chance")
    assert curve.operating_point(0.9).scale == "ratio_above_chance"
    assert curve.operating_point(0.9, "ratio").n_frozen == 4


def test_a_share_that_was_not_asked_for_lists_those_that_were() -> None:
    curve = make_curve([0.8] * 3, {}, keep=(0.9, 0.95))
    with pytest.raises(UsageError, match=r"keep 0\.8; there are: 0\.9, 0\.95"):
        curve.operating_point(0.8)
    with pytest.raises(UsageError, match="Did you mean 'ratio'"):
        curve.operating_point(0.9, cast(Scale, "ratios"))


def test_a_curve_comes_back_from_json_as_it_was() -> None:
    curve = make_curve([0.8, 0.75, 0.7], {2: [0.7, None, 0.6], 4: [None, None, None]})
    assert Curve.from_json(curve.to_json()) == curve


def test_every_field_says_what_it_is() -> None:
    assert set(field_docs(Curve)) == {field.name for field in dataclasses.fields(Curve)}
    assert set(field_docs(Replicated)) | set(field_docs(Point)) == {field.name for field in dataclasses.fields(Point)}
