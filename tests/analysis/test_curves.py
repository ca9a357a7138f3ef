from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from frostline import stats
from frostline.analysis import Curve, Judge, Replicates, build_curve
from frostline.errors import FrostlineError
from frostline.kinds import kind_of
from frostline.records.arrays import StoredArray
from frostline.records.depth import FULL, Depth
from frostline.records.keys import canonical_json
from frostline.records.requests import StudyRequest
from frostline.records.results import Predictions
from frostline.records.specs import Protocol
from synthetic import COST, COUNTS, TASK, make_curve, make_replicates, make_result, make_spec

Array = NDArray[Any]

WHOLE = [0.80, 0.82, 0.78, 0.81, 0.79]
HALF = [0.79, 0.80, 0.79, 0.81, 0.76]
HEAD = [0.60, 0.62, 0.61, 0.50, 0.45]


def _build(full: Replicates, depths: dict[int, Replicates], protocol: Protocol = "paper") -> Curve:
    request = StudyRequest(model="toy-model", task=TASK, protocol=protocol)
    return build_curve(request=request, full=full, depths=depths, line_search=(), cost=COST, runs=COUNTS)


def test_a_point_by_its_definitions() -> None:
    curve = make_curve(WHOLE, {4: HEAD, 2: HALF})
    assert [point.n_frozen for point in curve.points] == [2, 4]
    point = curve.points[0]
    assert point.trained_layers == 2
    assert point.mean == pytest.approx(np.mean(HALF))
    assert point.std == pytest.approx(np.std(HALF, ddof=1))
    wanted = scipy.stats.t.interval(0.95, 4, loc=np.mean(HALF), scale=scipy.stats.sem(HALF))
    assert point.ci == pytest.approx(wanted, abs=1e-12)
    assert point.seeds == (0, 1, 2, 3, 4)
    assert point.scores == tuple(HALF)
    assert point.train_scores == pytest.approx([score + 0.1 for score in HALF])
    assert point.train_loss == (0.5, 1.5, 2.5, 3.5, 4.5)
    assert list(point.other_metrics) == ["f1"]
    assert point.other_metrics["f1"].mean == pytest.approx(np.mean(HALF) / 2)
    assert (point.seconds, point.peak_bytes, point.trained_parameters) == (3.0, 1004, 70)
    assert point.learning_rate == 2e-5


def test_a_point_against_the_full_model() -> None:
    point = make_curve(WHOLE, {2: HALF}).points[0]
    differences = np.array(HALF) - np.array(WHOLE)
    assert point.difference == pytest.approx(differences.mean())
    wanted = scipy.stats.t.interval(0.95, 4, loc=differences.mean(), scale=scipy.stats.sem(differences))
    assert point.difference_ci == pytest.approx(wanted, abs=1e-12)
    assert point.ratio == pytest.approx(np.mean(HALF) / np.mean(WHOLE))
    assert point.ratio_ci == stats.ratio_interval(HALF, WHOLE)
    assert point.ratio_above_chance == pytest.approx((np.mean(HALF) - 0.5) / (np.mean(WHOLE) - 0.5))


def test_the_ratio_is_of_the_means_not_the_mean_of_ratios() -> None:
    full, half = [0.9, 0.6, 0.6], [0.6, 0.6, 0.9]
    assert make_curve(full, {2: half}).points[0].ratio == pytest.approx(1.0)
    assert np.mean(np.array(half) / np.array(full)) > 1.05


def test_the_full_model_against_itself() -> None:
    full = make_curve(WHOLE, {}).full
    assert (full.n_frozen, full.trained_layers) == (FULL, 4)
    assert (full.difference, full.difference_ci) == (0.0, (0.0, 0.0))
    assert (full.ratio, full.ratio_ci, full.ratio_above_chance) == (1.0, (1.0, 1.0), 1.0)
    two = make_curve(WHOLE[:2], {}).full
    assert (two.ratio, two.ratio_ci, two.difference_ci, two.ci, two.ci_dev) == (1.0, None, None, None, None)


def test_failed_runs_are_those_at_or_below_chance() -> None:
    point = make_curve(WHOLE, {4: HEAD}).points[0]
    assert point.n_failed == 2
    assert point.mean == pytest.approx(np.mean(HEAD))
    assert point.mean_without_failed == pytest.approx(0.61)
    none_left = make_curve(WHOLE, {4: [0.5, 0.4, 0.1 + 0.4]}).points[0]
    assert (none_left.n_failed, none_left.mean_without_failed) == (3, None)


def test_crashed_runs_are_absent_and_all_others_are_compared() -> None:
    curve = make_curve([None, *WHOLE[1:]], {2: [*HALF[:4], None]})
    point = curve.points[0]
    assert point.seeds == (0, 1, 2, 3)
    assert point.scores == tuple(HALF[:4])
    assert point.mean == pytest.approx(np.mean(HALF[:4]))
    assert point.difference == pytest.approx(np.mean(HALF[:4]) - np.mean(WHOLE[1:]))
    assert point.ratio == pytest.approx(np.mean(HALF[:4]) / np.mean(WHOLE[1:]))
    assert point.n_failed == 0


def test_an_interval_is_about_the_means_that_it_is_shown_with() -> None:
    """A search has more seeds of the full model than of a depth; over common seeds this depth would keep 98%."""
    point = make_curve([0.9, 0.91, 0.9, 0.5], {2: [0.88, 0.89, 0.88]}).points[0]
    assert point.ratio == pytest.approx(0.8833 / 0.8025, abs=1e-3)
    for interval in (point.ratio_ci, point.ratio_ci_dev):
        assert interval is not None
        assert interval[0] < 0.8833 / 0.8025 < interval[1]
    assert point.difference == pytest.approx(0.0808, abs=1e-3)


def test_runs_of_a_release_with_another_definition_of_chance_can_be_compared() -> None:
    full = make_replicates(FULL, WHOLE)
    older = Replicates(specs=full.specs, results=[result.replace(chance=0.333) for result in full.results[:2]])
    mixed = Replicates(specs=full.specs, results=[*older.results, *full.results[2:]])
    assert _build(mixed, {}) == _build(full, {})


def test_a_depth_where_most_runs_failed_is_not_called_kept() -> None:
    full, depth = (make_replicates(place, [0.9, 0.91, 0.9]) for place in (FULL, 2))
    scored = {place: group.scored([0, 1, 2]) for place, group in ((FULL, full), (2, depth))}
    assert Judge(scored, (2,), 200, 0.95).verdicts(0.9, 0.0) == {2: "kept"}
    assert Judge(scored, (2,), 200, 0.95, frozenset({2})).verdicts(0.9, 0.0) == {2: "open"}


def test_results_may_come_in_any_order() -> None:
    group = make_replicates(2, HALF)
    shuffled = Replicates(specs=group.specs, results=group.results[::-1])
    full = make_replicates(FULL, WHOLE)
    assert _build(full, {2: group}) == _build(full, {2: shuffled})


def test_a_depth_where_every_run_crashed_is_no_operating_point() -> None:
    curve = make_curve(WHOLE, {2: HALF, 4: [None] * 5}, keep=(0.1,))
    point = curve.points[1]
    assert (point.mean, point.std, point.ci, point.ci_dev, point.ratio, point.difference) == (None,) * 6
    assert (point.seeds, point.scores, point.other_metrics, point.n_failed) == ((), (), {}, 0)
    assert (point.trained_parameters, point.learning_rate) == (None, 2e-5)
    found = curve.operating_point(0.1)
    assert found.n_frozen == 2
    assert [(share.n_frozen, share.share) for share in found.distribution] == [(2, 1.0)]


def test_a_full_model_where_every_run_crashed_leaves_everything_relative_out() -> None:
    curve = make_curve([None] * 3, {2: HALF[:3]})
    point = curve.points[0]
    assert point.mean is not None
    assert point.ci is not None
    relative = (point.difference, point.difference_ci, point.ratio, point.ratio_ci, point.ratio_above_chance)
    assert relative == (None,) * 5
    for found in curve.operating_points:
        assert (found.n_frozen, found.trained_layers, found.distribution) == (FULL, None, ())


def test_nothing_finished_is_an_error() -> None:
    with pytest.raises(FrostlineError, match="every run crashed"):
        make_curve([None] * 3, {2: [None] * 3})


def test_operating_points_on_both_scales() -> None:
    curve = make_curve([0.8] * 3, {1: [0.79] * 3, 2: [0.75] * 3, 3: [0.72] * 3, 4: [0.6] * 3}, keep=(0.9, 1.0))
    found = {(point.keep, point.scale): (point.n_frozen, point.trained_layers) for point in curve.operating_points}
    assert found == {
        (0.9, "ratio"): (3, 1),  # 0.9 × 0.8 is 0.72 but for its last bit
        (0.9, "ratio_above_chance"): (1, 3),
        (1.0, "ratio"): (FULL, 4),
        (1.0, "ratio_above_chance"): (FULL, 4),
    }
    assert curve.is_monotone


def test_a_depth_of_zero_leaves_every_layer_to_train() -> None:
    found = make_curve([0.8] * 3, {0: [0.8] * 3, 4: [0.5] * 3}).operating_point(0.9)
    assert (found.n_frozen, found.trained_layers) == (0, 4)


def test_a_shallower_cut_that_falls_short_is_not_monotone() -> None:
    curve = make_curve([0.8] * 3, {1: [0.79] * 3, 2: [0.6] * 3, 3: [0.75] * 3})
    assert curve.operating_point(0.9).n_frozen == 3
    assert not curve.operating_point(0.9).is_monotone
    assert not curve.is_monotone


@pytest.mark.parametrize(
    ("full", "chance", "null_scales"),
    [
        ([-0.1, 0.0, 0.1], 0.0, {"ratio", "ratio_above_chance"}),
        ([0.4, 0.5, 0.6], 0.5, {"ratio_above_chance"}),
        ([0.1 * 3] * 3, 0.3, {"ratio_above_chance"}),
        ([-0.2, -0.1, -0.1], 0.5, {"ratio", "ratio_above_chance"}),
        ([0.8] * 3, 0.5, set()),
    ],
)
def test_a_scale_without_meaning_is_null(full: list[float], chance: float, null_scales: set[str]) -> None:
    curve = make_curve(full, {2: [0.5, 0.6, 0.7]}, chance=chance)
    point = curve.points[0]
    assert (point.ratio is None) == ("ratio" in null_scales)
    assert (point.ratio_above_chance is None) == ("ratio_above_chance" in null_scales)
    for found in curve.operating_points:
        if found.scale in null_scales:
            assert (found.n_frozen, found.trained_layers, found.distribution) == (FULL, None, ())
        else:
            assert found.trained_layers is not None


def test_two_runs_that_did_not_fail_are_too_few_for_probabilities() -> None:
    enough = make_curve(WHOLE[:3], {2: [0.9, 0.7, 0.7]}).operating_point(0.9)
    assert sum(one.share for one in enough.distribution) == pytest.approx(1.0)
    assert make_curve(WHOLE[:3], {2: [0.9, 0.7, 0.5]}).operating_point(0.9).distribution == ()


def test_probabilities_are_on_their_own_scale() -> None:
    curve = make_curve([0.8] * 3, {2: [0.76, 0.77, 0.78]})
    shares = {
        found.scale: {share.n_frozen: share.share for share in found.distribution} for found in curve.operating_points
    }
    assert shares["ratio"][2] > 0.95
    # The bar is 0.77.
    assert shares["ratio_above_chance"][2] == pytest.approx(0.5, abs=0.05)


def test_a_ratio_whose_pairs_are_not_above_zero_has_no_interval() -> None:
    point = make_curve([-0.20, -0.21, -0.19, 0.9, 0.9], {2: [0.5, 0.6, 0.7, None, None]}).points[0]
    assert point.ratio == pytest.approx(0.6 / 0.24)
    assert point.ratio_ci is None
    assert stats.ratio_interval([0.5, 0.6, 0.7], [-0.20, -0.21, -0.19]) is not None


def test_ci_dev_is_wider_than_ci_and_narrows_with_rows() -> None:
    def width(n_dev: int) -> float:
        results = [make_result(FULL, seed, score, n_dev=n_dev) for seed, score in enumerate(WHOLE)]
        full = _build(Replicates(specs=[result.spec for result in results], results=results), {}).full
        assert full.ci is not None
        assert full.ci_dev is not None
        assert full.ci_dev[1] - full.ci_dev[0] > full.ci[1] - full.ci[0]
        return full.ci_dev[1] - full.ci_dev[0]

    assert width(40) > 1.3 * width(400)


def test_ci_dev_of_one_answer_given_by_all_seeds_is_the_binomial_interval() -> None:
    # Every seed makes the same mistakes, so the rows alone are uncertain: √(0.75 × 0.25 / 400).
    right = make_result(FULL, 0, 0.75, n_dev=400)
    results = [right.replace(spec=make_spec(FULL, seed)) for seed in range(3)]
    low, high = _build(Replicates(specs=[result.spec for result in results], results=results), {}).full.ci_dev or (0, 0)
    assert (high - low) / 2 == pytest.approx(1.96 * math.sqrt(0.75 * 0.25 / 400), rel=0.15)
    assert (high + low) / 2 == pytest.approx(0.75)


def _scored(metric: str, labels: Array, outputs: Sequence[Array], others: Sequence[str] = ()) -> Curve:
    """The curve of a full model alone, one run for each array of outputs, scored as a run scores them."""
    results = []
    for seed, said in enumerate(outputs):
        kind = "regression" if labels.dtype.kind == "f" else "classification"
        spec = make_spec(FULL, seed).replace(task=TASK.replace(metric=metric, kind=kind))
        result = make_result(FULL, seed, kind_of(spec.task).score(metric, labels, said), n_dev=len(labels), spec=spec)
        rows = StoredArray.of(np.arange(len(labels)))
        predictions = Predictions(rows=rows, labels=StoredArray.of(labels), outputs=StoredArray.of(said))
        measured = {name: kind_of(spec.task).score(name, labels, said) for name in (metric, *others)}
        chance = kind_of(spec.task).chance(metric, labels)
        results.append(result.replace(predictions=predictions, chance=chance, metrics=measured))
    return _build(Replicates(specs=[result.spec for result in results], results=results), {})


def _margins(labels: Array, noise: float) -> list[Array]:
    drawn = np.random.default_rng(0).normal(labels, noise, size=(3, len(labels)))
    return [np.stack([np.zeros(len(labels)), one], axis=1).astype(np.float32) for one in drawn]


def test_roc_auc_has_its_chance_its_scales_and_an_interval() -> None:
    labels = np.arange(200) % 2
    curve = _scored("roc_auc", labels, _margins(labels, 1.0), ["accuracy"])
    assert (curve.metric, curve.chance) == ("roc_auc", 0.5)
    assert curve.full.mean is not None
    assert 0.6 < curve.full.mean < 0.9
    assert (curve.full.ratio, curve.full.ratio_above_chance, curve.full.n_failed) == (1.0, 1.0, 0)
    assert curve.full.ci_dev is not None
    # Hanley and McNeil's standard error is about 0.033 here.
    assert 0.04 < curve.full.ci_dev[1] - curve.full.ci_dev[0] < 0.3
    assert list(curve.full.other_metrics) == ["accuracy"]


def test_resamples_without_a_class_widen_the_interval_of_roc_auc() -> None:
    rare, common = (np.arange(60) < n for n in (1, 30))
    widths = []
    for is_positive in (rare, common):
        labels = is_positive.astype(np.int64)
        low, high = _scored("roc_auc", labels, _margins(labels, 0.1)).full.ci_dev or (0.0, 0.0)
        widths.append(high - low)
    # One positive row is missing from 36% of the resamples, which then count as chance.
    assert widths[0] > 0.5
    assert widths[1] < 0.1, "no mistake among 60 rows: as if one were wrong"


def test_an_r2_below_zero_leaves_both_scales_null() -> None:
    labels = np.linspace(0.0, 5.0, 50)
    bad = [np.full((50, 1), 9.0 + seed, dtype=np.float32) for seed in range(3)]
    curve = _scored("r2", labels, bad, ["pearson", "rmse"])
    assert curve.chance == 0.0
    assert curve.full.mean is not None
    assert curve.full.mean < 0
    assert (curve.full.ratio, curve.full.ratio_above_chance, curve.full.n_failed) == (None, None, 3)
    assert {(found.n_frozen, found.trained_layers) for found in curve.operating_points} == {(FULL, None)}
    assert curve.full.other_metrics["rmse"].mean > 5
    canonical_json(curve.to_json())
    good = _scored("r2", labels, [(labels[:, None] + 0.1 * seed).astype(np.float32) for seed in range(3)])
    assert good.full.ratio == good.full.ratio_above_chance == 1.0


def test_the_same_runs_give_the_same_record() -> None:
    scores = [0.8, 0.7, 0.75, 0.9, 0.6, 0.65, 0.7]
    assert make_curve(scores, {2: scores[::-1]}) == make_curve(scores, {2: scores[::-1]})


def test_another_depth_does_not_move_a_points_numbers() -> None:
    assert make_curve(WHOLE, {2: HALF}).points[0] == make_curve(WHOLE, {1: HEAD, 2: HALF}).points[1]


def test_a_mean_never_mixes_specs() -> None:
    good = make_replicates(2, HALF)
    other_spec = make_spec(2, 9, learning_rate=5e-5)
    other = make_result(2, 9, 0.7, spec=other_spec)
    mixed = Replicates(specs=[*good.specs, other_spec], results=[*good.results, other])
    full = make_replicates(FULL, WHOLE)
    with pytest.raises(FrostlineError, match="2 frozen layers differ in more than the seed"):
        _build(full, {2: mixed})
    with pytest.raises(FrostlineError, match="not asked for"):
        _build(full, {2: Replicates(specs=good.specs, results=mixed.results)})
    with pytest.raises(FrostlineError, match="a seed twice"):
        _build(full, {2: Replicates(specs=[*good.specs, good.specs[0]], results=good.results)})
    with pytest.raises(FrostlineError, match="full model differ in more than the seed, or there are none"):
        _build(Replicates(specs=[], results=[]), {2: good})


def test_the_line_search_never_enters_a_mean() -> None:
    specs = [make_spec(FULL, seed).replace(role="line_search") for seed in range(3)]
    results = [make_result(FULL, seed, 0.8, spec=spec) for seed, spec in enumerate(specs)]
    with pytest.raises(FrostlineError, match="line search"):
        _build(Replicates(specs=specs, results=results), {})


def test_a_result_of_another_depth_is_refused() -> None:
    result = make_result(3, 0, 0.8, spec=make_spec(2, 0))
    with pytest.raises(FrostlineError, match="another depth"):
        _build(make_replicates(FULL, WHOLE), {2: Replicates(specs=[result.spec], results=[result])})


def test_depths_with_other_rates_are_compared_when_tuned_only() -> None:
    specs = [make_spec(2, seed, learning_rate=1e-3) for seed in range(3)]
    results = [make_result(2, spec.seed, 0.8, spec=spec) for spec in specs]
    depths = {2: Replicates(specs=specs, results=results)}
    full = make_replicates(FULL, WHOLE)
    curve = _build(full, depths, protocol="tuned")
    assert (curve.learning_rate, curve.points[0].learning_rate) == (2e-5, 1e-3)
    with pytest.raises(FrostlineError, match="more than what trains"):
        _build(full, depths)


def test_runs_on_other_dev_rows_are_refused() -> None:
    results = [make_result(2, 0, 0.8, n_dev=20), make_result(2, 1, 0.8, n_dev=40)]
    group = Replicates(specs=[result.spec for result in results], results=results)
    with pytest.raises(FrostlineError, match="same dev rows"):
        _build(make_replicates(FULL, WHOLE), {2: group})


_SCORES = st.one_of(st.none(), st.sampled_from([-1.0, -0.1, 0.0, 0.1, 0.5, 1.0]), st.floats(-1.0, 1.0))


@st.composite
def _curves(draw: st.DrawFn) -> Curve:
    n_seeds = draw(st.integers(1, 6))
    rows = st.one_of(
        st.lists(_SCORES, min_size=n_seeds, max_size=n_seeds), _SCORES.map(lambda score: [score] * n_seeds)
    )
    full = draw(rows.filter(lambda scores: any(score is not None for score in scores)))
    depths = draw(st.dictionaries(st.integers(0, 4), rows, max_size=3))
    keep = draw(st.lists(st.sampled_from([0.5, 0.9, 1.0]), min_size=1, max_size=2, unique=True))
    return make_curve(full, depths, keep=keep, chance=draw(st.sampled_from([-0.1, 0.0, 0.5])))


@settings(max_examples=60, deadline=None)
@given(_curves())
def test_whatever_the_scores_the_record_holds_together(curve: Curve) -> None:
    canonical_json(curve.to_json())
    for point in (curve.full, *curve.points):
        assert len(point.seeds) == len(point.scores) == len(point.train_scores) == len(point.train_loss)
        for interval in (point.ci, point.ci_dev, point.difference_ci, point.ratio_ci):
            assert interval is None or (len(point.seeds) >= 3 and interval[0] <= interval[1])
        if point.mean is not None and point.ci is not None:
            assert point.ci[0] <= point.mean <= point.ci[1]
    depths = {FULL, *(point.n_frozen for point in curve.points if point.scores)}
    for found in curve.operating_points:
        assert found.n_frozen in depths
        if found.distribution:
            assert math.fsum(share.share for share in found.distribution) == pytest.approx(1.0, abs=1e-9)
            assert {share.n_frozen for share in found.distribution} <= depths
    assert all("\n" not in line for line in curve.warnings)
    assert len(set(curve.warnings)) == len(curve.warnings)


FAR = [0.79, 0.80, 0.78, 0.81, 0.80]
LOW = [0.40, 0.42, 0.38, 0.41, 0.39]


def _asked(curve: Curve) -> dict[Depth, str]:
    return {one.n_frozen: one.verdict for one in curve.operating_points[0].verdicts}


def test_verdicts_say_what_is_sure_on_each_scale() -> None:
    curve = make_curve(WHOLE, {2: FAR, 4: LOW})
    asked = curve.operating_points[0]
    assert _asked(curve) == {2: "kept", 4: "short"}
    assert [point.verdict for point in curve.points] == ["kept", "short"]
    assert curve.full.verdict is None
    assert asked.established is not None
    assert (asked.established.n_frozen, asked.established.trained_layers) == (2, 2)
    assert asked.plausible == (2,)
    assert not any(point.is_better for point in curve.points)


def test_a_depth_that_is_surely_better_than_the_full_model_is_called_so() -> None:
    better = make_curve(WHOLE, {2: [0.97, 0.98, 0.97, 0.98, 0.97]}).points[0]
    assert (better.verdict, better.is_better) == ("kept", True)


def test_with_examples_intervals_are_wider_than_over_seeds_alone() -> None:
    point = make_curve(WHOLE, {2: HALF}).points[0]
    for name in ("difference", "ratio", "ratio_above_chance"):
        alone, both = getattr(point, f"{name}_ci"), getattr(point, f"{name}_ci_dev")
        assert both[0] <= alone[0] + 1e-9
        assert both[1] >= alone[1] - 1e-9
        assert both[1] - both[0] > 1.01 * (alone[1] - alone[0])


def test_verdicts_are_about_runs_that_did_not_fail() -> None:
    one_failed = make_curve(WHOLE, {2: [*FAR[:4], 0.45]})
    assert _asked(one_failed) == {2: "kept"}
    most_failed = make_curve(WHOLE, {2: [*FAR[:2], 0.45, 0.45, 0.44]})
    assert _asked(most_failed)[2] != "kept", "half of its runs or more failed: judged over all of them"


def test_nothing_is_sure_if_half_of_the_full_runs_failed() -> None:
    curve = make_curve([0.80, 0.81, 0.45, 0.44, 0.46], {2: FAR})
    assert set(_asked(curve).values()) <= {"open"}


def test_more_depths_leave_more_open() -> None:
    near = [0.742, 0.762, 0.752, 0.762, 0.742]
    assert _asked(make_curve(WHOLE, {2: near})) == {2: "kept"}
    assert set(_asked(make_curve(WHOLE, dict.fromkeys(range(4), near))).values()) == {"open"}
