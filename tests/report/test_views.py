"""A curve seen five ways: every value is the record's, and what has no meaning is not there."""

from __future__ import annotations

import numpy as np
import pytest

from frostline import stats
from frostline.analysis import VIEWS, Curve, Series, View, series
from frostline.analysis.views import score_to_reach
from frostline.records.depth import FULL

from .curves import DEMO_SCORES, make_curve


def seen(curve: Curve, view: View) -> Series:
    shown = series(curve, view)
    assert shown is not None
    return shown


def test_the_score_to_reach() -> None:
    curve = make_curve({FULL: (0.8, 0.8, 0.8), 3: (0.7, 0.7, 0.7)})
    assert [score_to_reach(curve, asked) for asked in curve.operating_points] == pytest.approx([0.72, 0.77])
    assert score_to_reach(curve, None) is None
    null = make_curve({FULL: (-0.8,), 3: (0.7,)}, chance=0.0)
    assert [score_to_reach(null, asked) for asked in null.operating_points] == [None, None]


def test_a_huge_interval_does_not_squeeze_the_curve() -> None:
    curve = make_curve(DEMO_SCORES)
    wild = curve.replace(full=curve.full.replace(ci=(-40.0, 42.0)))
    assert seen(curve, "score").extent == pytest.approx((0.5, 0.7996), abs=1e-3)
    assert seen(wild, "score").extent == pytest.approx((0.5 - 0.146, 0.792 + 0.146))


def test_values_and_intervals_are_those_of_the_records() -> None:
    curve = make_curve()
    for view, value, interval in (
        ("score", "mean", "ci"),
        ("difference", "difference", "difference_ci"),
        ("ratio", "ratio", "ratio_ci"),
    ):
        marks = seen(curve, view).marks  # type: ignore[arg-type]
        assert [mark.value for mark in marks] == [getattr(point, value) for point in curve.points]
        assert [mark.interval for mark in marks] == [getattr(point, interval) for point in curve.points]
    above = seen(curve, "ratio_above_chance")
    assert [mark.value for mark in above.marks] == [point.ratio_above_chance for point in curve.points]
    assert [mark.interval for mark in above.marks] == [point.ratio_above_chance_ci for point in curve.points]
    older = curve.replace(points=tuple(point.replace(ratio_above_chance_ci=None) for point in curve.points))
    own, full = (np.array(point.scores) - curve.chance for point in (curve.points[0], curve.full))
    assert seen(older, "ratio_above_chance").marks[0].interval == stats.ratio_interval(own, full)


def test_runs_lines_and_the_full_model_lie_where_the_view_puts_them() -> None:
    curve = make_curve()
    full = curve.full.mean
    assert full is not None
    ratio = seen(curve, "ratio")
    assert (ratio.full.value, ratio.bar) == pytest.approx((1.0, 0.9))
    assert ratio.chance == pytest.approx(0.5 / full)
    assert ratio.marks[0].by_seed == tuple(
        (seed, score / full) for seed, score in zip(curve.points[0].seeds, curve.points[0].scores, strict=True)
    )
    gap = seen(curve, "difference")
    assert (gap.full.value, gap.bar) == pytest.approx((0.0, -0.1 * full))
    trained = seen(curve, "train_score")
    assert (trained.chance, trained.bar, trained.asked) == (None, None, None)
    assert trained.marks[0].value == stats.mean(curve.points[0].train_scores)


def test_a_view_that_means_nothing_is_not_there() -> None:
    no_full = make_curve({FULL: (), 3: (0.7, 0.7, 0.7)})
    assert [series(no_full, view) is None for view in VIEWS] == [False, True, True, True, False]
    at_chance = make_curve({FULL: (0.5,), 3: (0.5,)})
    assert [series(at_chance, view) is None for view in VIEWS] == [False, False, False, True, False]


def test_a_depth_that_crashed_has_no_value() -> None:
    curve = make_curve({FULL: (0.78, 0.79, 0.8), 3: (), 6: (0.6, 0.6, 0.6)})
    for view in VIEWS:
        assert [mark.value is None for mark in seen(curve, view).marks] == [True, False]
