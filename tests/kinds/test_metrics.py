from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from frostline.errors import UsageError
from frostline.kinds import CLASSIFICATION, KINDS, REGRESSION, Kind, Metric, metrics_for
from frostline.kinds.metrics import (
    accuracy,
    f1,
    macro_f1,
    mcc,
    pearson,
    r2,
    rmse,
    roc_auc,
    score_faults,
    spearman,
    spelled,
)
from frostline.kinds.regression import values_of

METRICS = metrics_for(None)

Array = NDArray[Any]
Pair = tuple[Array, Array]


def _kind(metric: str) -> Kind:
    return next((kind for kind in KINDS.values() if metric in kind.metrics), REGRESSION)


def evaluate(metric: str, labels: Array, outputs: Array) -> float:
    return _kind(metric).score(metric, labels, outputs)


def chance(metric: str, labels: Array) -> float:
    return _kind(metric).chance(metric, labels)


def _class_pairs(n_classes: int) -> st.SearchStrategy[Pair]:
    rows = st.tuples(st.integers(0, n_classes - 1), st.integers(0, n_classes - 1))
    return st.lists(rows, min_size=1, max_size=40).map(lambda r: (np.array(r)[:, 0], np.array(r)[:, 1]))


def _value_pairs() -> st.SearchStrategy[Pair]:
    # Few distinct values, so that ties and constants are common.
    rows = st.tuples(st.integers(-4, 4).map(lambda n: n / 3), st.integers(-4, 4).map(lambda n: n * 0.7))
    return st.lists(rows, min_size=2, max_size=40).map(lambda r: (np.array(r)[:, 0], np.array(r)[:, 1]))


def _one_hot(answers: Array, n_classes: int) -> Array:
    return np.eye(n_classes, dtype=np.float32)[answers]


@given(_class_pairs(4))
def test_accuracy_and_mcc_agree_with_scikit_learn(pair: Pair) -> None:
    labels, predicted = pair
    assert accuracy(labels, predicted) == pytest.approx(sklearn.metrics.accuracy_score(labels, predicted))
    is_constant = len(set(labels)) == 1 or len(set(predicted)) == 1
    wanted = 0.0 if is_constant else sklearn.metrics.matthews_corrcoef(labels, predicted)
    assert mcc(labels, predicted) == pytest.approx(wanted, abs=1e-12)


@given(_class_pairs(2))
def test_f1_agrees_with_scikit_learn(pair: Pair) -> None:
    labels, predicted = pair
    wanted = sklearn.metrics.f1_score(labels, predicted, labels=[0, 1], zero_division=0.0)
    assert f1(labels, predicted) == pytest.approx(wanted)


@given(st.integers(2, 5).flatmap(_class_pairs))
def test_macro_f1_agrees_with_scikit_learn(pair: Pair) -> None:
    wanted = sklearn.metrics.f1_score(*pair, average="macro", zero_division=0.0)
    assert macro_f1(*pair) == pytest.approx(wanted)


def test_macro_f1_counts_every_class_alike_and_only_those_there() -> None:
    labels = np.array([0] * 8 + [1, 2])
    always = np.zeros(10, dtype=int)
    assert macro_f1(labels, always) == pytest.approx(f1(1 - (labels > 0), 1 - always) / 3)
    assert macro_f1(labels, labels) == 1.0
    # A class that is nowhere is left out, one that is only said counts as 0.
    assert macro_f1(np.array([0, 3]), np.array([0, 3])) == 1.0
    assert macro_f1(np.array([0, 3]), np.array([0, 5])) == pytest.approx(1 / 3)


@given(_value_pairs(), st.randoms(use_true_random=False))
def test_roc_auc_agrees_with_scikit_learn(pair: Pair, random: Any) -> None:
    labels = np.array([random.randrange(2) for _ in pair[0]])
    assume(len(set(labels)) == 2)
    assert roc_auc(labels, pair[1]) == pytest.approx(sklearn.metrics.roc_auc_score(labels, pair[1]), abs=1e-12)


@given(_value_pairs())
def test_roc_auc_reads_the_difference_of_two_outputs(pair: Pair) -> None:
    labels = np.arange(len(pair[0])) % 2
    outputs = np.stack(pair, axis=1)
    found = evaluate("roc_auc", labels, outputs)
    assert found == pytest.approx(sklearn.metrics.roc_auc_score(labels, pair[1] - pair[0]), abs=1e-12)
    # Either class may be taken for the positive one.
    assert evaluate("roc_auc", 1 - labels, outputs[:, ::-1]) == pytest.approx(found, abs=1e-12)


def test_roc_auc_sees_an_order_that_accuracy_does_not() -> None:
    labels, outputs = np.array([0, 0, 1, 1]), np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [0.0, 4.0]])
    assert (evaluate("roc_auc", labels, outputs), evaluate("accuracy", labels, outputs)) == (1.0, 0.5)
    assert evaluate("roc_auc", labels, outputs[::-1]) == 0.0


@pytest.mark.parametrize("label", [0, 1])
def test_roc_auc_of_one_class_is_chance_not_nan(label: int) -> None:
    assert roc_auc(np.full(5, label), np.arange(5.0)) == 0.5


@given(_value_pairs())
def test_r2_and_rmse_agree_with_scikit_learn(pair: Pair) -> None:
    labels, predicted = pair
    wanted = 0.0 if len(set(labels)) == 1 else sklearn.metrics.r2_score(labels, predicted)
    assert r2(labels, predicted) == pytest.approx(wanted, abs=1e-9)
    assert rmse(labels, predicted) == pytest.approx(np.sqrt(sklearn.metrics.mean_squared_error(labels, predicted)))


@given(_value_pairs(), st.floats(-3, 3))
def test_r2_ranks_answers_as_rmse_does(pair: Pair, shift: float) -> None:
    labels, predicted = pair
    assume(len(set(labels)) > 1)
    first, second = rmse(labels, predicted), rmse(labels, predicted + shift)
    assume(abs(first - second) > 1e-6)
    assert (r2(labels, predicted) > r2(labels, predicted + shift)) == (first < second)


def test_r2_is_finite_for_labels_that_hardly_differ() -> None:
    assert r2(np.array([0.0, 1e-160]), np.array([1.0, 1.0])) < -1e300
    assert np.isfinite(r2(np.array([0.0, 1e-160]), np.array([1e30, 1e30])))
    assert r2(np.array([0.1, 0.1, 0.1]), np.array([1.0, 2.0, 3.0])) == 0.0


@given(_class_pairs(2))
def test_mcc_of_two_classes_is_the_correlation_of_their_numbers(pair: Pair) -> None:
    assert mcc(*pair) == pytest.approx(pearson(*pair), abs=1e-12)


@given(_value_pairs())
def test_correlations_agree_with_scipy(pair: Pair) -> None:
    labels, predicted = pair
    assume(len(set(labels)) > 1 and len(set(predicted)) > 1)
    assert pearson(labels, predicted) == pytest.approx(scipy.stats.pearsonr(labels, predicted).statistic, abs=1e-12)
    assert spearman(labels, predicted) == pytest.approx(scipy.stats.spearmanr(labels, predicted).statistic, abs=1e-12)


@pytest.mark.parametrize("metric", [pearson, spearman])
@pytest.mark.parametrize("constant", [0.1, 1 / 3, 1e300, -0.0, 0.0])
def test_a_constants_correlation_is_zero_not_nan(metric: Callable[[Array, Array], float], constant: float) -> None:
    values = np.linspace(0.0, 5.0, 7)
    assert metric(values, np.full(7, constant)) == 0.0
    assert metric(np.full(7, constant), values) == 0.0


@given(_value_pairs(), st.sampled_from([1e-200, 1e-3, 1.0, 1e200]))
def test_correlation_does_not_depend_on_the_unit(pair: Pair, unit: float) -> None:
    assert pearson(pair[0], pair[1] * unit) == pytest.approx(pearson(*pair), abs=1e-9)


def test_spearman_is_one_for_every_rising_curve_and_pearson_is_not() -> None:
    values = np.arange(1.0, 9.0)
    assert spearman(values, np.exp(values)) == pytest.approx(1.0, abs=1e-12)
    assert spearman(values, -np.exp(values)) == pytest.approx(-1.0, abs=1e-12)
    assert pearson(values, np.exp(values)) < 0.9


def test_ties_share_their_average_rank() -> None:
    values, others = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])
    ranks = np.array([1.0, 2.5, 2.5, 4.0])
    assert spearman(values, others) == pytest.approx(pearson(ranks, others))


def test_f1_counts_class_one_alone() -> None:
    labels, predicted = np.array([1, 1, 1, 0, 0]), np.array([1, 1, 0, 1, 0])
    assert f1(labels, predicted) == pytest.approx(2 / 3)
    assert f1(1 - labels, 1 - predicted) == pytest.approx(1 / 2)
    assert f1(np.zeros(4, dtype=int), np.zeros(4, dtype=int)) == 0.0


@given(_class_pairs(3), st.sampled_from(["accuracy", "mcc"]))
def test_evaluate_reads_the_largest_output_as_the_class(pair: Pair, name: str) -> None:
    labels, predicted = pair
    assert evaluate(name, labels, _one_hot(predicted, 3)) == METRICS[name].of(labels, predicted)


def test_evaluate_reads_the_only_column_of_a_regression() -> None:
    labels, said = np.array([0.0, 1.0, 2.5, 5.0]), np.array([[0.1], [0.9], [2.0], [4.0]], dtype=np.float32)
    assert evaluate("pearson", labels, said) == pytest.approx(scipy.stats.pearsonr(labels, said[:, 0]).statistic)


@pytest.mark.parametrize(
    ("name", "labels", "outputs"),
    [
        ("pearson", np.zeros(32), np.zeros(32)),
        ("pearson", np.zeros((32, 1)), np.zeros((32, 1))),
        ("pearson", np.zeros(32), np.zeros((32, 2))),
        ("pearson", np.zeros(32), np.zeros((31, 1))),
        ("spearman", np.zeros(32), np.zeros((1, 32))),
        ("accuracy", np.zeros(8, dtype=int), np.zeros(8)),
        ("accuracy", np.zeros(8, dtype=int), np.zeros((7, 2))),
        ("accuracy", np.zeros(8, dtype=int), np.zeros((8, 1))),
        ("accuracy", np.full(8, 2), np.zeros((8, 2))),
        ("accuracy", np.full(8, -1), np.zeros((8, 2))),
        ("accuracy", np.zeros(8), np.zeros((8, 2))),
        ("accuracy", np.zeros((8, 1), dtype=int), np.zeros((8, 2))),
        ("accuracy", np.zeros(0, dtype=int), np.zeros((0, 2))),
        ("f1", np.zeros(8, dtype=int), np.zeros((8, 3))),
        ("roc_auc", np.zeros(8, dtype=int), np.zeros((8, 3))),
        ("roc_auc", np.full(8, 2), np.zeros((8, 2))),
        ("r2", np.zeros(8), np.zeros((8, 2))),
    ],
)
def test_shapes_that_do_not_fit_are_refused(name: str, labels: Array, outputs: Array) -> None:
    with pytest.raises(UsageError, match=r"shape|labels"):
        evaluate(name, labels, outputs)


def test_the_broadcast_that_is_refused_would_have_given_a_wrong_number() -> None:
    labels = np.arange(32.0)
    broadcast = np.broadcast_to(labels[:, None], (32, 32)).ravel(), np.broadcast_to(labels, (32, 32)).ravel()
    assert pearson(*broadcast) == pytest.approx(0.0, abs=1e-12)
    assert evaluate("pearson", labels, labels[:, None]) == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_outputs_that_are_not_finite_are_refused(bad: float) -> None:
    outputs = np.zeros((4, 2))
    assert evaluate("accuracy", np.zeros(4, dtype=int), outputs) == 1.0
    outputs[2, 1] = bad
    with pytest.raises(UsageError, match="1 of 8 outputs are not finite"):
        evaluate("accuracy", np.zeros(4, dtype=int), outputs)
    with pytest.raises(UsageError, match="labels are not finite"):
        evaluate("pearson", np.array([0.0, bad]), np.zeros((2, 1)))


def test_an_unknown_metric_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'pearson'"):
        evaluate("pearsn", np.zeros(2), np.zeros((2, 1)))


def test_chance_is_what_the_definitions_say() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    assert chance("accuracy", labels) == 3 / 5
    assert chance("accuracy", np.array([0, 0, 0, 1])) == 3 / 4
    assert chance("f1", labels) == pytest.approx(2 * 3 / (3 + 5))
    assert chance("f1", np.zeros(3, dtype=int)) == 0.0
    assert chance("mcc", labels) == 0.0
    assert chance("pearson", np.array([0.1, 0.1, 0.3])) == 0.0
    assert chance("spearman", np.array([0.1, 0.1, 0.3])) == 0.0
    # Guessing classes by their shares is better than the best constant, which has 0.375 here.
    assert chance("macro_f1", labels) == pytest.approx(0.5)
    assert chance("macro_f1", np.arange(100) % 5) == pytest.approx(0.2)
    assert chance("roc_auc", labels) == 0.5
    assert chance("rmse", np.array([0.0, 2.0])) == 1.0


@given(_value_pairs(), st.floats(-5, 5), st.sampled_from([np.float32, np.float64]))
def test_chance_under_r2_is_exactly_zero_and_no_constant_beats_it(pair: Pair, constant: float, dtype: type) -> None:
    labels: Array = pair[0].astype(dtype)
    assert chance("r2", labels) == 0.0
    assert r2(labels, np.full(len(labels), constant)) <= 1e-9


def test_chance_of_mrpc_is_the_published_one() -> None:
    # 279 of 408 dev pairs are paraphrases: "all positive" has an F1 of 0.812 (PAPER.md).
    assert chance("f1", np.repeat([1, 0], [279, 129])) == pytest.approx(0.812, abs=5e-4)


@given(_class_pairs(3), st.sampled_from(["accuracy", "macro_f1", "mcc"]))
def test_no_constant_class_beats_chance(pair: Pair, name: str) -> None:
    labels = pair[0]
    scores = [evaluate(name, labels, _one_hot(np.full(len(labels), answer), 3)) for answer in range(3)]
    shares = np.bincount(labels) / len(labels)
    guessed = 1 / np.count_nonzero(shares) if name == "macro_f1" else 0.0
    assert chance(name, labels) == pytest.approx(max(*scores, guessed))


def test_a_new_metric_is_one_entry() -> None:
    def concordance(labels: Array, predicted: Array) -> float:
        apart = labels.var() + predicted.var() + (labels.mean() - predicted.mean()) ** 2
        return float(2 * np.cov(labels, predicted, bias=True)[0, 1] / apart)

    kind = dataclasses.replace(REGRESSION, metrics={"concordance": Metric(of=concordance, answers=values_of)})
    labels = np.array([0.0, 1.0, 5.0])
    assert kind.chance("concordance", labels) == 0.0
    assert kind.score("concordance", labels, labels[:, None]) == pytest.approx(1.0)


def test_what_own_data_is_measured_by_the_score_first() -> None:
    assert CLASSIFICATION.metric_names(2) == ("accuracy", "f1", "macro_f1", "mcc", "roc_auc")
    assert CLASSIFICATION.metric_names(3) == ("accuracy", "macro_f1", "mcc")
    assert REGRESSION.metric_names(None) == ("pearson", "spearman", "r2", "rmse")


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("macro-f1", "macro_f1"),
        ("macrof1", "macro_f1"),
        ("Macro_F1", "macro_f1"),
        ("ROC-AUC", "roc_auc"),
        ("rocauc", "roc_auc"),
        ("R^2", "r2"),
        ("MCC", "mcc"),
        ("accuracy", "accuracy"),
        ("auc", "auc"),
        ("f1_macro", "f1_macro"),
        ("", ""),
    ],
)
def test_a_metric_however_written(given_name: str, name: str) -> None:
    assert spelled(given_name, METRICS) == name


@pytest.mark.parametrize(
    ("given_name", "meant"),
    [
        ("auc", "roc_auc"),
        ("f1_macro", "macro_f1"),
        ("Matthews", "mcc"),
        ("matthews_corrcoef", "mcc"),
        ("acc", "accuracy"),
        ("pearsn", "pearson"),
        ("r2_score", "r2"),
    ],
)
def test_an_unknown_score_is_answered_by_the_known_ones_and_what_was_meant(given_name: str, meant: str) -> None:
    (fault,) = score_faults(given_name, METRICS, " for own")
    known = "accuracy, f1, macro_f1, mcc, roc_auc, pearson, spearman, r2"
    assert fault == f"unknown metric {given_name!r} for own; known: {known}. Did you mean {meant!r}?"


def test_only_what_is_measured_can_be_the_score() -> None:
    measured = {name: METRICS[name] for name in ("accuracy", "mcc")}
    assert score_faults(None, measured) == score_faults("accuracy", measured) == []
    assert score_faults("auc", measured) == ["unknown metric 'auc'; known: accuracy, mcc."]


def test_rmse_is_never_the_score_and_r2_is_named_instead() -> None:
    for measured in (METRICS, REGRESSION.metrics):
        (fault,) = score_faults("rmse", measured)
        assert "lower is better; use r2" in fault
    assert score_faults("r2", REGRESSION.metrics) == []
    assert score_faults("rmse", {"accuracy": METRICS["accuracy"]}) == ["unknown metric 'rmse'; known: accuracy."]


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.of_tables is not None])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_of_tables_are_those_of_the_rows(name: str, n_classes: int) -> None:
    metric = METRICS[name]
    if metric.is_binary and n_classes > 2:
        return
    assert metric.of_tables is not None
    drawn = np.random.default_rng(n_classes)
    cases = [(drawn.integers(n_classes, size=9), drawn.integers(n_classes, size=9)) for _ in range(200)]
    cases += [
        (np.zeros(9, int), np.zeros(9, int)),
        (np.zeros(9, int), np.ones(9, int)),
        (np.ones(9, int), np.zeros(9, int)),
    ]
    tables = np.zeros((len(cases), n_classes, n_classes))
    for number, (labels, said) in enumerate(cases):
        np.add.at(tables[number], (labels, said), 1)
    wanted = [metric.of(labels, said) for labels, said in cases]
    assert metric.of_tables(tables) == pytest.approx(wanted, abs=1e-12)
