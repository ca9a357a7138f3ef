from __future__ import annotations

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
from frostline.metrics import METRICS, Metric, accuracy, chance, evaluate, f1, mcc, pearson, spearman

Array = NDArray[Any]
Pair = tuple[Array, Array]


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


def test_chance_of_mrpc_is_the_published_one() -> None:
    # 279 of 408 dev pairs are paraphrases: "all positive" has an F1 of 0.812 (PAPER.md).
    assert chance("f1", np.repeat([1, 0], [279, 129])) == pytest.approx(0.812, abs=5e-4)


@given(_class_pairs(3), st.sampled_from(["accuracy", "mcc"]))
def test_no_constant_class_beats_chance(pair: Pair, name: str) -> None:
    labels = pair[0]
    scores = [evaluate(name, labels, _one_hot(np.full(len(labels), answer), 3)) for answer in range(3)]
    assert chance(name, labels) == max(scores)


def test_a_new_metric_is_one_entry() -> None:
    def r2(labels: Array, predicted: Array) -> float:
        return 1.0 - float(np.sum((labels - predicted) ** 2) / np.sum((labels - labels.mean()) ** 2))

    metric = Metric(kind="regression", of=r2, answers=METRICS["pearson"].answers)
    labels = np.array([0.0, 1.0, 5.0])
    assert metric.chance(labels) == 0.0
    assert metric.score(labels, labels[:, None]) == 1.0
