"""Closed-form fits: a regularised linear model on the pooled outputs of a layer, without the training loop.

Layer, pooling and strength are chosen on rows held out of train: the best score, and among those within noise of it
the lowest loss. The chosen model is then fitted to all of train.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from frostline import tasks
from frostline.analysis import row_variance
from frostline.kinds import metrics
from frostline.model.added.readers import POOLINGS
from frostline.records.results import Probe
from frostline.records.specs import Kind
from frostline.tasks import Labels
from frostline.training.pooled import Pooled

STRENGTHS: dict[Kind, tuple[float, ...]] = {
    "classification": (1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    "regression": (1e1, 1e2, 1e3, 1e4, 1e5),
}
"""C of the logistic regression, alpha of the ridge regression; features are scaled to unit variance first."""
_MOST_STEPS = 1000
_UNSEEN = 30.0
"""A class without rows in the fit gets an output this far below all others."""


@dataclass(frozen=True)
class Linear:
    """A linear model of raw features."""

    weight: NDArray[np.float64]
    """(outputs, width)"""
    bias: NDArray[np.float64]
    """(outputs,)"""

    def outputs(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """(rows, outputs)"""
        return (features.astype(np.float64) @ self.weight.T + self.bias).astype(np.float32)


@dataclass(frozen=True)
class Fitted:
    """The outcome of a fit."""

    probes: tuple[Probe, ...]
    """the best probe of every layer"""
    chosen: Probe
    """the best probe of all on the held-out rows"""
    model: Linear
    """the chosen probe, fitted to all of train"""


@dataclass(frozen=True, eq=False)
class _Tried:
    """A fit to a part of train, with its outputs for the held-out rows."""

    probe: Probe
    loss: float
    outputs: NDArray[np.float32]


@dataclass(frozen=True)
class Fit:
    """A fit to be done: pooled states and labels of train, and those of dev for scoring."""

    kind: Kind
    metric: str
    n_outputs: int
    train: Pooled
    train_labels: Labels
    dev: Pooled
    dev_labels: Labels
    seed: int
    """draws the held-out rows"""
    threads: int

    def run(self) -> Fitted:
        """Chooses layer, pooling and strength, and fits."""
        with threadpool_limits(self.threads):  # the bits of linear algebra depend on them
            kept, held = tasks.hold_out(self.train_labels, self.kind, self.seed)
            labels, depths = self.train_labels[held], range(self.train.shape[1])
            best = [_best(list(self._tried(depth, kept, held)), self.metric, labels) for depth in depths]
            models = [self._fitted(tried.probe) for tried in best]
        probes = [self._scored(tried.probe, model) for tried, model in zip(best, models, strict=True)]
        at = best.index(_best(best, self.metric, labels))
        return Fitted(tuple(probes), probes[at], models[at])

    def outputs(self, fitted: Fitted, features: Pooled) -> NDArray[np.float32]:
        """The outputs of the chosen model for pooled states, (rows, outputs)."""
        return fitted.model.outputs(features[:, fitted.chosen.depth, POOLINGS.index(fitted.chosen.pooling)])

    def _tried(self, depth: int, kept: NDArray[np.int64], held: NDArray[np.int64]) -> Iterator[_Tried]:
        """Every pooling and strength of a layer, with its outputs for the held-out rows."""
        for pooling, strength in itertools.product(POOLINGS, STRENGTHS[self.kind]):
            features = self.train[:, depth, POOLINGS.index(pooling)]
            model = fit_linear(features[kept], self.train_labels[kept], self.kind, strength, self.n_outputs)
            outputs, labels = model.outputs(features[held]), self.train_labels[held]
            score = metrics.evaluate(self.metric, labels, outputs)
            probe = Probe(depth=depth, pooling=pooling, strength=strength, held_out_score=score, score=score)
            yield _Tried(probe, metrics.mean_loss(labels, outputs), outputs)

    def _fitted(self, probe: Probe) -> Linear:
        features = self.train[:, probe.depth, POOLINGS.index(probe.pooling)]
        return fit_linear(features, self.train_labels, self.kind, probe.strength, self.n_outputs)

    def _scored(self, probe: Probe, model: Linear) -> Probe:
        outputs = model.outputs(self.dev[:, probe.depth, POOLINGS.index(probe.pooling)])
        return probe.replace(score=metrics.evaluate(self.metric, self.dev_labels, outputs))


def _best(tried: Sequence[_Tried], metric: str, labels: Labels) -> _Tried:
    """The fit with the lowest loss among those whose held-out score is within noise of the best."""
    best = max(tried, key=lambda one: one.probe.held_out_score)
    noise = math.sqrt(row_variance(metric, labels, [best.outputs]))
    leading = [one for one in tried if one.probe.held_out_score >= best.probe.held_out_score - noise]
    return min(leading, key=lambda one: one.loss)


def fit_linear(features: NDArray[Any], labels: Labels, kind: Kind, strength: float, n_outputs: int) -> Linear:
    """scikit-learn's logistic or ridge regression of features (rows, width) scaled to unit variance, unscaled again."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    scaled = scaler.fit_transform(features.astype(np.float64))
    if kind == "regression":
        ridge = Ridge(alpha=strength).fit(scaled, labels)
        weight, bias = np.atleast_2d(ridge.coef_), np.atleast_1d(ridge.intercept_)
    elif len(np.unique(labels)) == 1:  # one class only: nothing to separate
        classes = np.unique(labels)
        weight, bias = _for_classes(np.zeros((1, features.shape[1])), np.zeros(1), classes, n_outputs)
    else:
        logistic = LogisticRegression(C=strength, max_iter=_MOST_STEPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # more steps would only change the last digits
            logistic.fit(scaled, labels)
        weight, bias = _for_classes(logistic.coef_, logistic.intercept_, logistic.classes_, n_outputs)
    weight = weight / scaler.scale_
    return Linear(weight, bias - weight @ scaler.mean_)


def _for_classes(
    weight: NDArray[np.float64], bias: NDArray[np.float64], classes: NDArray[Any], n_outputs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One output per class: for two classes scikit-learn gives their difference, for a class without rows nothing."""
    if len(classes) == 2:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    whole = np.zeros((n_outputs, weight.shape[1])), np.full(n_outputs, bias.min() - _UNSEEN)
    whole[0][classes], whole[1][classes] = weight, bias
    return whole
