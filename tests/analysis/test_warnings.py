from __future__ import annotations

import pytest

from frostline.analysis import Curve, Replicates, TriedRate, build_curve
from frostline.records.depth import FULL
from frostline.records.requests import StudyRequest
from frostline.records.specs import Scale
from synthetic import COST, COUNTS, TASK, make_curve, make_replicates, make_result, make_spec

GOOD = [0.80, 0.82, 0.78]
POINTWISE = "intervals are pointwise: each holds on its own, not all of them at once"


def _lines(curve: Curve, word: str) -> list[str]:
    return [line for line in curve.warnings if word in line]


def test_a_clean_curve_says_only_that_intervals_are_pointwise() -> None:
    assert make_curve(GOOD, {2: [0.79, 0.8, 0.79]}).warnings == (POINTWISE,)


def test_without_intervals_their_absence_is_said_instead() -> None:
    curve = make_curve(GOOD[:2], {2: [0.79, 0.8]})
    assert curve.warnings == (
        "fewer than 3 seeds, so there are no intervals: full model, 2 frozen layers",
        "fewer than 3 runs to judge by, so depths have no probabilities",
    )


@pytest.mark.parametrize(
    ("full", "chance", "wanted"),
    [
        ([0.4, 0.5, 0.3], 0.5, ["ratio_above_chance is not given: @ is 0.4, not above chance (0.5)"]),
        (
            [-0.1, -0.2, -0.3],
            0.5,
            [
                "ratio is not given: @ is -0.2, not above 0",
                "ratio_above_chance is not given: @ is -0.2, not above chance (0.5)",
            ],
        ),
        (GOOD, 0.5, []),
    ],
)
def test_a_null_scale_has_its_reason(full: list[float], chance: float, wanted: list[str]) -> None:
    found = _lines(make_curve(full, {2: [0.3, 0.3, 0.3]}, chance=chance), "is not given")
    assert found == [line.replace("@", "the full model's mean accuracy") for line in wanted]


def _curve_on(n_dev: int, score: float, *, keep: tuple[float, ...] = (0.9,), scale: Scale = "ratio") -> Curve:
    results = [make_result(FULL, seed, score, n_dev=n_dev) for seed in range(3)]
    return build_curve(
        request=StudyRequest(model="toy-model", task=TASK, keep=keep, scale=scale),
        full=Replicates(specs=[result.spec for result in results], results=results),
        depths={},
        line_search=(),
        cost=COST,
        runs=COUNTS,
    )


def test_few_dev_rows_for_the_claim_are_told_by_how_far_they_move_a_score() -> None:
    # 1.96 √(0.75 × 0.25 / 96) is 0.087; resampled 400 times it comes within a few percent.
    (line,) = _lines(_curve_on(96, 0.75), "dev rows")
    assert line.startswith("96 dev rows: a new sample of them may move the accuracy of one run by ±0.08")
    assert line.endswith("keep 0.9 on scale ratio allows a loss of 0.075; more dev rows give a more reliable answer")
    assert _lines(_curve_on(400, 0.75), "dev rows") == []


def test_dev_rows_are_few_for_some_shares_and_scales_only() -> None:
    (line,) = _lines(_curve_on(400, 0.75, keep=(0.8, 0.95, 0.9, 1.0)), "dev rows")
    assert "keep 0.95 on scale ratio allows a loss of 0.038; more" in line
    (line,) = _lines(_curve_on(400, 0.75, scale="ratio_above_chance"), "dev rows")
    assert "keep 0.9 on scale ratio_above_chance allows a loss of 0.025; more" in line


def test_a_score_without_a_mistake_on_few_rows_is_not_taken_for_certain() -> None:
    (line,) = _lines(_curve_on(6, 1.0), "dev rows")
    assert "by ±0.5 (95%)" in line
    assert _lines(_curve_on(60, 1.0), "dev rows") == []


def test_without_a_full_model_or_a_scale_the_dev_rows_are_not_spoken_of() -> None:
    assert _lines(make_curve([None] * 3, {2: [0.6] * 3}, keep=(0.99,)), "dev rows") == []
    assert _lines(make_curve([0.5] * 3, {2: [0.5] * 3}, keep=(0.99,), scale="ratio_above_chance"), "dev rows") == []


def test_failed_runs_are_counted_by_depth() -> None:
    curve = make_curve(GOOD, {2: [0.7, 0.5, 0.4], 3: [0.7, 0.7, 0.7]})
    assert _lines(curve, "learned nothing") == [
        "2 frozen layers: 2 of 3 runs learned nothing, 21% to 94% of all (chance 0.5); the mean includes them"
    ]


def test_crashed_runs_are_named_by_depth_and_seed() -> None:
    curve = make_curve([0.8, None, 0.8, 0.8], {2: [None, 0.7, 0.7, None], 3: [None] * 4})
    assert _lines(curve, "crashed") == [
        "full model: seed 1 crashed; not in its mean or its pairs",
        "2 frozen layers: seeds 0, 3 crashed; not in its mean or its pairs",
        "3 frozen layers: every run crashed (seeds 0, 1, 2, 3); it has no score",
    ]
    assert _lines(make_curve(GOOD, {2: GOOD}), "crashed") == []


def test_a_full_model_that_crashed_is_said_once_with_what_it_costs() -> None:
    curve = make_curve([None] * 3, {2: GOOD})
    assert len(_lines(curve, "need a finished run of the full model")) == 1
    assert _lines(curve, "not above") == []


def test_too_few_runs_leave_no_probabilities() -> None:
    curve = make_curve([0.8, None], {2: [None, 0.7]})
    assert curve.operating_point(0.9).distribution == ()
    assert len(_lines(curve, "depths have no probabilities")) == 1


def test_a_constant_answer_that_keeps_the_share_is_a_warning() -> None:
    high = make_curve([0.88] * 3, {2: [0.87] * 3}, keep=(0.9, 0.95), chance=0.81)
    (line,) = _lines(high, "constant answer")
    assert "92% of the full accuracy (0.81), so keep 0.9 says little" in line
    assert _lines(make_curve([0.88] * 3, {2: [0.87] * 3}, chance=0.5), "constant answer") == []


def test_a_cut_that_falls_short_above_one_that_does_not_is_named() -> None:
    curve = make_curve([0.8] * 3, {1: [0.6] * 3, 2: [0.79] * 3, 3: [0.5] * 3})
    assert "not monotone: for keep 0.9 on scale ratio, 2 frozen layers are enough, but 1 fall short" in curve.warnings


def test_a_rate_selected_on_dev_is_said_when_it_was_searched() -> None:
    tried = [TriedRate(learning_rate=1e-5, score=None), TriedRate(learning_rate=2e-5, score=0.8)]
    curve = make_curve(GOOD, {2: GOOD}, line_search=tried)
    assert len(_lines(curve, "the rate 2e-05 was selected on the dev set")) == 1
    assert len(_lines(curve, "rate 1e-05 crashed")) == 1
    assert _lines(make_curve(GOOD, {2: GOOD}), "selected") == []


def test_a_rate_selected_apart_from_dev_is_not_said_to_be_optimistic() -> None:
    curve = build_curve(
        request=StudyRequest(model="toy-model", task=TASK, protocol="tuned"),
        full=make_replicates(FULL, GOOD),
        depths={},
        line_search=[TriedRate(learning_rate=2e-5, score=0.8)],
        cost=COST,
        runs=COUNTS,
    )
    assert _lines(curve, "selected") == []


def test_warnings_of_runs_come_once() -> None:
    results = [make_result(FULL, seed, 0.8, warnings=("3 rows are empty",)) for seed in range(3)]
    curve = build_curve(
        request=StudyRequest(model="toy-model", task=TASK),
        full=Replicates(specs=[make_spec(FULL, seed) for seed in range(3)], results=results),
        depths={},
        line_search=(),
        cost=COST,
        runs=COUNTS,
    )
    assert curve.warnings == ("3 rows are empty",)
