"""Depths from scores: the rule of each score, the fit to other tasks, and how right predictions are said to be."""

from __future__ import annotations

import numpy as np
import pytest

from frostline.analysis.inside.scout import (
    BASELINES,
    RULES,
    MeasuredPair,
    accuracy,
    best_of,
    fitted,
    measurements,
    scores_of,
)

pytestmark = pytest.mark.usefixtures("draws")

N_LAYERS = 6
COSTS = {rule.name: 0.1 for rule in RULES}
TASKS = ("sst2", "cola", "mrpc", "rte")


def pairs(seed: int = 0) -> list[MeasuredPair]:
    """Two models on four tasks. LogME names a depth that is always two layers of six too shallow; others are noise."""
    rng = np.random.default_rng(seed)
    found = []
    for model, n_layers in (("small", 6), ("large", 12)):
        for task in TASKS:
            true = int(rng.integers(n_layers // 3, n_layers + 1))
            picks = {rule.name: int(rng.integers(0, n_layers + 1)) for rule in RULES}
            picks["logme"] = true - n_layers // 3
            found.append(MeasuredPair(model=model, task=task, n_layers=n_layers, n_frozen=true, picks=picks))
    return found


def values() -> dict[str, list[float]]:
    """Scores that name depth 4, and layer 4."""
    by_depth = [0.1, 0.2, 0.3, 0.4, 0.9, 0.5, 0.4]
    return {
        rule.name: ([-v for v in by_depth] if rule.best == "lowest" else by_depth)[not rule.is_by_depth :]
        for rule in RULES
    }


def test_each_score_names_its_best_depth_or_what_lies_below_its_best_layer() -> None:
    named = {one.name: one.named for one in scores_of(values(), COSTS, "qnli", [])}
    assert named == {rule.name: 4 if rule.is_by_depth else 3 for rule in RULES}


def test_of_equal_scores_the_cheaper_depth_counts_for_states_and_the_lower_layer_for_gradients() -> None:
    rules = {rule.name: rule for rule in RULES}
    assert rules["probe"].n_frozen([0.5, 0.8, 0.8, 0.7]) == 2
    assert rules["fisher"].n_frozen([0.5, 0.8, 0.8, 0.7]) == 1


def test_before_anything_is_measured_nothing_is_fitted_and_the_probe_comes_first() -> None:
    scores = scores_of(values(), COSTS, "qnli", [])
    assert all(one.n_frozen is None and one.accuracy is None for one in scores)
    assert best_of(scores).name == "probe"
    assert accuracy([]) == []


def test_a_constant_offset_is_fitted_and_the_score_that_has_one_wins() -> None:
    known = {one.name: one for one in accuracy(pairs())}
    assert known["logme"].mean_error == pytest.approx(0, abs=1e-9)
    assert known["logme"].rank_correlation == pytest.approx(1)
    assert known["logme"].n_pairs == 8
    assert min(one.mean_error for name, one in known.items() if name != "logme") > 0.05
    scores = scores_of(values(), COSTS, "qnli", pairs())
    assert best_of(scores).name == "logme"
    assert best_of(scores).n_frozen == 6, "4 of 6 layers, and a third of the layers more"


def test_the_judged_task_never_takes_part_in_its_own_fit() -> None:
    known = pairs()
    moved = [one.replace(n_frozen=0) if one.task == "sst2" else one for one in known]
    before, after = (scores_of(values(), COSTS, "sst2", some) for some in (known, moved))
    assert [one.n_frozen for one in before] == [one.n_frozen for one in after]
    assert best_of(before).name == best_of(after).name
    assert [one.accuracy for one in before] == [one.accuracy for one in after], "nor in the choice of the score"
    others = [one.replace(n_frozen=0) if one.task != "sst2" else one for one in known]
    changed = scores_of(values(), COSTS, "sst2", others)
    assert [one.n_frozen for one in before] != [one.n_frozen for one in changed], "other tasks do"


def test_errors_are_those_of_predictions_without_the_task_for_both_models() -> None:
    known = pairs(3)
    wanted = []
    for pair in known:
        others = [one for one in known if one.task != pair.task]
        assert {one.model for one in others} == {"small", "large"}
        shift = np.median([(one.n_frozen - one.picks["probe"]) / one.n_layers for one in others])
        depth = round(pair.n_layers * min(max(pair.picks["probe"] / pair.n_layers + float(shift), 0), 1))
        wanted.append(abs(depth - pair.n_frozen) / pair.n_layers)
    found = next(one for one in accuracy(known) if one.name == "probe")
    assert found.mean_error == pytest.approx(np.mean(wanted))


def test_baselines_are_not_fitted() -> None:
    known = {one.name: one for one in accuracy(pairs())}
    assert set(BASELINES) <= known.keys()
    half = [abs(one.n_layers // 2 - one.n_frozen) / one.n_layers for one in pairs()]
    assert known["half"].mean_error == pytest.approx(np.mean(half))
    quarter = [abs(0.75 - one.n_frozen / one.n_layers) for one in pairs() if one.n_layers == 12]
    assert quarter, "with twelve layers, a quarter trained is nine frozen"


def test_a_score_that_names_one_depth_everywhere_gains_nothing_over_the_typical_answer() -> None:
    same = [one.replace(picks=one.picks | {"fisher": one.n_layers}) for one in pairs()]
    known = {one.name: one for one in accuracy(same)}
    assert known["fisher"].gain == pytest.approx(0, abs=0.02), "but for rounding"
    assert known["fisher"].rank_correlation == 0, "though its fit moves against the judged task"
    assert known["typical"].gain == 0
    assert known["typical"].rank_correlation is None
    assert known["logme"].gain == pytest.approx(known["typical"].mean_error)


def test_gains_have_an_interval_over_tasks_not_over_pairs() -> None:
    known = pairs(5)
    one = next(each for each in accuracy(known) if each.name == "half")
    typical = []
    for pair in known:
        others = [other.n_frozen / other.n_layers for other in known if other.task != pair.task]
        depth = round(pair.n_layers * float(np.median(others)))
        typical.append(abs(depth - pair.n_frozen) / pair.n_layers)
    own = [abs(pair.n_layers // 2 - pair.n_frozen) / pair.n_layers for pair in known]
    by_task = [
        np.mean([t - o for t, o, pair in zip(typical, own, known, strict=True) if pair.task == task]) for task in TASKS
    ]
    half = 3.182446 * np.std(by_task, ddof=1) / 2
    assert one.gain == pytest.approx(np.mean(by_task))
    assert one.gain_ci == pytest.approx((np.mean(by_task) - half, np.mean(by_task) + half), abs=1e-6)


def test_too_few_pairs_fit_nothing() -> None:
    assert fitted("probe", 3, 6, pairs()[:2]) is None
    assert fitted("probe", 3, 6, pairs()[:3]) is not None


def test_the_shipped_measurements_can_be_read() -> None:
    known = measurements()
    assert all(set(pair.picks) == {rule.name for rule in RULES} for pair in known.pairs)
    assert all(0 <= pair.n_frozen <= pair.n_layers for pair in known.pairs)
