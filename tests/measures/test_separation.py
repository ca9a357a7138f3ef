"""Scores of separation, each against its definition written out with whole matrices."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats
from sklearn.covariance import LedoitWolf

from frostline.measures.separation import grouped, h_score, logme, variability

Floats = NDArray[np.float64]


def drawn(n_rows: int, width: int, n_classes: int = 3) -> tuple[Floats, NDArray[np.int64]]:
    """Features with a shifted mean for each class; classes of unequal size."""
    rng = np.random.default_rng(5)
    classes = rng.choice(n_classes, size=n_rows, p=np.arange(1, n_classes + 1) / sum(range(1, n_classes + 1)))
    classes[:n_classes] = range(n_classes)
    means = rng.normal(size=(n_classes, width))
    return means[classes] + rng.normal(size=(n_rows, width)) @ rng.normal(size=(width, width)) + 3.0, classes


def covariances(features: Floats, classes: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Within and between classes, each class with the same weight."""
    known = sorted(set(classes.tolist()))
    groups = [features[classes == one] for one in known]
    within = sum(np.cov(group.T, bias=True) for group in groups) / len(known)
    means = np.stack([group.mean(0) for group in groups])
    return np.asarray(within), np.cov(means.T, bias=True)


@pytest.mark.parametrize("width", [4, 12])
def test_variability_is_the_trace_of_its_definition(width: int) -> None:
    features, classes = drawn(40, width)
    within, between = covariances(features, classes)
    wanted = np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / 3
    assert variability(features, classes) == pytest.approx(wanted, rel=1e-8)
    turned = np.trace(between @ np.linalg.pinv(within, rcond=1e-10)) / 3
    assert abs(turned - wanted) > 1e-2 * wanted, "the test sees which covariance is inverted"


def test_equal_class_means_are_the_worst_variability_and_finite() -> None:
    features = np.tile([[1.0, 2.0], [3.0, 1.0]], (2, 1))
    classes = np.array([0, 0, 1, 1])
    apart = variability(features + 0.001 * classes[:, None], classes)
    assert apart < variability(features, classes) < np.inf


def test_h_score_is_the_trace_of_its_definition() -> None:
    features, classes = drawn(60, 6)
    means = np.stack([features[classes == one].mean(0) for one in classes])
    wanted = np.trace(np.linalg.inv(LedoitWolf().fit(features).covariance_) @ np.cov(means.T, bias=True))
    assert h_score(features, classes) == pytest.approx(wanted, rel=1e-8)
    unshrunk = np.trace(np.linalg.inv(np.cov(features.T, bias=True)) @ np.cov(means.T, bias=True))
    assert abs(unshrunk - wanted) > 1e-3 * wanted, "the test sees the shrinkage"


def evidence(features: Floats, target: Floats, alpha: float, beta: float) -> float:
    """The log evidence log p(y | F, α, β) / rows, from the normal distribution of y itself."""
    covariance = np.eye(len(target)) / beta + features @ features.T / alpha
    return float(stats.multivariate_normal(np.zeros(len(target)), covariance).logpdf(target)) / len(target)


@pytest.mark.parametrize("width", [5, 45], ids=["fewer columns than rows", "more"])
def test_logme_is_the_largest_evidence(width: int) -> None:
    features, classes = drawn(30, width)
    features, target = features / 5, (classes == 1).astype(float) + np.random.default_rng(1).normal(size=30)

    def loss(logs: Floats) -> float:
        return -evidence(features, target, *np.exp(logs))

    best = min(optimize.minimize(loss, start, method="Nelder-Mead").fun for start in ([0, 0], [2, 1], [-2, 2]))
    assert logme(features, target, None) == pytest.approx(-best, abs=1e-5)
    assert evidence(features, target, 1.0, 1.0) < -best - 1e-3, "the test sees that it is maximised"


def test_logme_of_classes_is_the_mean_over_this_one_or_not() -> None:
    features, classes = drawn(50, 4)
    apart = [logme(features, (classes == one).astype(float), None) for one in range(3)]
    assert logme(features, classes, 3) == pytest.approx(np.mean(apart), rel=1e-12)
    assert np.ptp(apart) > 1e-3


def test_features_that_tell_classes_apart_score_better_everywhere() -> None:
    rng = np.random.default_rng(0)
    classes = np.arange(100) % 2
    noise = rng.normal(size=(100, 6))
    clear = noise + 4.0 * classes[:, None]
    assert variability(clear, classes) < variability(noise, classes)
    assert h_score(clear, classes) > h_score(noise, classes)
    assert logme(clear, classes, 2) > logme(noise, classes, 2)


def test_values_are_grouped_into_equal_parts_in_their_order() -> None:
    values = np.random.default_rng(0).normal(size=100)
    groups = grouped(values, 5)
    assert np.bincount(groups).tolist() == [20] * 5
    assert (np.diff(groups[np.argsort(values)]) >= 0).all()
