"""Curves along other axes than depth: the same statistics under other names; and what each layer gains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from frostline.analysis import Along, Curve, Replicates, build_curve, place_words, value_of, words_at
from frostline.errors import FrostlineError
from frostline.records.depth import FULL, AxisName, value_words
from frostline.records.requests import StudyRequest
from synthetic import (
    COST,
    COUNTS,
    TASK,
    make_axis,
    make_axis_curve,
    make_curve,
    make_replicates,
    make_result,
    make_spec,
)

FULL_SCORES = [0.90, 0.92, 0.91, 0.93, 0.92]
SCORES = [[0.91, 0.90, 0.92, 0.91, 0.92], [0.88, 0.89, 0.87, 0.90, 0.88], [0.70, 0.72, 0.66, 0.71, 0.69]]
HEADS = make_axis("heads", (48, 24, 12), total=72)


@pytest.fixture(scope="module")
def heads() -> Curve:
    """A curve over attention heads, the fewest last."""
    return make_axis_curve(HEADS, FULL_SCORES, SCORES, keep=(0.9, 0.99))


@pytest.fixture(scope="module")
def depths() -> Curve:
    """A curve of depth with the same scores."""
    return make_curve(FULL_SCORES, dict(enumerate(SCORES)), keep=(0.9, 0.99))


def _renamed(value: Any, *, is_plausible: bool = False) -> Any:
    """JSON of a curve over attention heads, with the place in place of each value."""
    if isinstance(value, list):
        return [_renamed(item, is_plausible=is_plausible) for item in value]
    if is_plausible and isinstance(value, int):
        return HEADS.values.index(value)
    if not isinstance(value, dict):
        return value
    named = dict(value)
    if isinstance(named.get("value"), int):
        named["n_frozen"] = HEADS.values.index(named.pop("value"))
    return {name: _renamed(item, is_plausible=name == "plausible") for name, item in named.items()}


def _statistics(curve: Curve) -> Any:
    """What the statistics say, without costs, which the strategies decide."""
    found = curve.to_json() if curve.axis is None else _renamed(curve.to_json())
    for point in found["points"]:
        for name in ("trained_layers", "trained_parameters", "other_metrics"):
            point.pop(name)
    for asked in found["operating_points"]:
        asked.pop("trained_layers")
        asked["established"].pop("trained_layers")
    return {name: found[name] for name in ("full", "points", "operating_points", "is_monotone", "chance")}


def test_an_axis_is_judged_as_depth_is(heads: Curve, depths: Curve) -> None:
    assert _statistics(heads) == _statistics(depths)


def test_the_order_of_the_places_matters(depths: Curve) -> None:
    """The twin: values in the wrong order have another operating point."""
    turned = make_axis_curve(HEADS, FULL_SCORES, SCORES[::-1], keep=(0.9, 0.99))
    assert _statistics(turned)["operating_points"] != _statistics(depths)["operating_points"]


def test_values_are_named_where_depths_are_not(heads: Curve) -> None:
    asked = heads.operating_point(0.9)
    assert (asked.n_frozen, asked.value) == (FULL, 24)
    assert asked.established is not None
    assert (value_of(asked.established), asked.established.trained_layers) == (24, 4)
    assert {one.value: one.verdict for one in asked.verdicts} == {48: "kept", 24: "kept", 12: "short"}
    assert [value_of(point) for point in (heads.full, *heads.points)] == [FULL, 48, 24, 12]
    found = heads.to_json()
    assert found["axis"] == {
        "name": "heads",
        "values": [48, 24, 12],
        "strategies": ["heads:48", "heads:24", "heads:12"],
        "trained_layers": [4, 4, 4],
        "total": 72,
    }
    assert [(point["n_frozen"], point["value"]) for point in found["points"]] == [(None, 48), (None, 24), (None, 12)]
    assert "value" not in found["full"]
    assert Curve.from_json(found) == heads


def test_depth_says_nothing_new_but_gains(depths: Curve) -> None:
    found = depths.to_json()
    assert not {"axis", "d90"} & found.keys()
    assert "gains" in found
    assert not any("value" in point for point in (found["full"], *found["points"], *found["operating_points"]))
    assert Curve.from_json(found) == depths
    assert Curve.from_json({name: value for name, value in found.items() if name != "gains"}).gains == ()


def test_runs_of_another_value_are_refused() -> None:
    specs = [make_spec(FULL, seed).replace(strategy="heads:12") for seed in range(3)]
    runs = Replicates(specs=specs, results=[make_result(FULL, spec.seed, 0.9, spec=spec) for spec in specs])

    def curve_at(place: int) -> Curve:
        return build_curve(
            request=StudyRequest(model="toy-model", task=TASK),
            full=make_replicates(FULL, FULL_SCORES),
            depths={place: runs},
            line_search=(),
            cost=COST,
            runs=COUNTS,
            along=Along(axis=HEADS),
        )

    assert value_of(curve_at(2).points[0]) == 12
    with pytest.raises(FrostlineError, match="some results of 24 attention heads trained are of another strategy"):
        curve_at(1)


def test_what_is_not_monotone_is_named_by_its_value() -> None:
    dip = make_axis_curve(HEADS, FULL_SCORES, [SCORES[0], SCORES[2], SCORES[1]])
    (line,) = [line for line in dip.warnings if line.startswith("not monotone") and "scale ratio," in line]
    assert line.endswith("12 attention heads trained are enough, but 24 fall short")


@pytest.mark.parametrize(
    ("axis", "value", "words"),
    [
        ("depth", 1, "1 frozen layer"),
        ("depth", FULL, "full model"),
        ("heads", FULL, "full model"),
        ("heads", 1, "1 attention head trained"),
        ("transfer", 4, "4 pretrained layers kept"),
        ("reinit", 0, "0 layers re-initialised"),
        ("subspace", 10_000, "subspace of D = 10,000"),
    ],
)
def test_values_in_a_sentence(axis: AxisName, value: Any, words: str) -> None:
    assert value_words(axis, value) == words


def test_places_in_a_sentence(heads: Curve, depths: Curve) -> None:
    assert place_words(HEADS, 0) == words_at(heads, 48) == "48 attention heads trained"
    assert place_words(None, 2) == words_at(depths, 2) == "2 frozen layers"


def test_a_gain_by_its_definition(depths: Curve) -> None:
    first, last = depths.gains
    assert (first.n_frozen_from, first.n_frozen_to, last.n_frozen_from, last.n_frozen_to) == (2, 1, 1, 0)
    differences = np.array(SCORES[1]) - np.array(SCORES[2])
    assert first.gain == pytest.approx(differences.mean())
    wanted = scipy.stats.t.interval(0.95, 4, loc=differences.mean(), scale=scipy.stats.sem(differences))
    assert first.ci == pytest.approx(wanted, abs=1e-12)
    assert first.ci_dev is not None
    assert first.ci_dev[0] < wanted[0] < wanted[1] < first.ci_dev[1], "new examples make it wider"
    apart = scipy.stats.ttest_ind(SCORES[1], SCORES[2]).confidence_interval()
    assert first.ci != pytest.approx((apart.low, apart.high), abs=1e-3), "runs are paired by seed"


def test_a_gain_is_per_layer() -> None:
    near, far = (make_curve(FULL_SCORES, {0: SCORES[0], deep: SCORES[2]}).gains[0] for deep in (1, 4))
    assert far.gain == pytest.approx(near.gain / 4)
    assert far.ci is not None
    assert near.ci is not None
    assert np.array(far.ci) == pytest.approx(np.array(near.ci) / 4)


def test_neighbours_need_three_seeds_in_common_and_values_that_count_layers() -> None:
    assert make_curve(FULL_SCORES, {1: [0.8, 0.81, 0.8], 2: [0.7, 0.72]}).gains == ()
    assert make_curve(FULL_SCORES, {1: [0.8, 0.81, None, None], 2: [None, None, 0.7, 0.72]}).gains == ()
    assert make_axis_curve(HEADS, FULL_SCORES, SCORES).gains == ()
    same = make_curve(FULL_SCORES, {1: [0.8, 0.8, 0.8], 2: [0.7, 0.7, 0.7]}).gains[0]
    assert same.gain == pytest.approx(0.1)
    assert same.ci is None, "that seeds do not vary is not known"


def test_the_gain_of_a_pretrained_layer() -> None:
    transfer = make_axis_curve(make_axis("transfer", (4, 2, 0), total=4), FULL_SCORES, SCORES)
    first = transfer.gains[0].to_json()
    assert (first["value_from"], first["value_to"], first["n_frozen_from"], first["n_frozen_to"]) == (0, 2, None, None)
    assert first["gain"] == pytest.approx((np.mean(SCORES[1]) - np.mean(SCORES[2])) / 2)
