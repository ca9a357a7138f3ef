"""Closed-form fits: a regularised linear model on the pooled states of one layer, without gradient steps.

Layer, pooling and strength are chosen on rows held out of train: the best score, and among those within noise of it the
lowest loss. The chosen combination is then fitted to all of train.
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
from frostline.kinds import Kind, Labels
from frostline.model.added.readers import POOLINGS
from frostline.records.results import Probe
from frostline.records.specs import Pooling
from frostline.training.pooled import Pooled

_MOST_STEPS = 1000
_UNSEEN = 30.0
"""how far the output of a class without a training row lies below all others"""


@dataclass(frozen=True)
class Linear:
    """A linear model on unscaled features."""

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
    """the best fit of every layer; of the given one, if a layer is given"""
    chosen: Probe
    """the best of all layers on the held-out rows"""
    model: Linear
    """the chosen one, fitted to all of train"""


@dataclass(frozen=True, eq=False)
class _Tried:
    """A fit to part of train, with its outputs for the held-out rows."""

    probe: Probe
    loss: float
    outputs: NDArray[np.float32]


@dataclass(frozen=True)
class LinearFit:
    """A fit: pooled states and labels of train to fit to, and of dev to be scored on."""

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
    pinned: tuple[int, Pooling] | None = None
    """the layer and the pooling; None: chosen"""

    def run(self) -> Fitted:
        """Choose layer and pooling, unless they are given, and strength, then fit."""
        with threadpool_limits(self.threads):  # linear algebra gives other last bits with other numbers of threads
            kept, held = tasks.hold_out(self.train_labels, self.kind, self.seed)
            labels = self.train_labels[held]
            depths = range(self.train.shape[1]) if self.pinned is None else [self.pinned[0]]
            best = [self._best(list(self._tried(depth, kept, held)), labels) for depth in depths]
            models = [self._fitted(tried.probe) for tried in best]
        probes = [self._scored(tried.probe, model) for tried, model in zip(best, models, strict=True)]
        at = best.index(self._best(best, labels))
        return Fitted(tuple(probes), probes[at], models[at])

    def outputs(self, fitted: Fitted, features: Pooled) -> NDArray[np.float32]:
        """The outputs (rows, outputs) of the chosen model for pooled states."""
        return fitted.model.outputs(features[:, fitted.chosen.depth, POOLINGS.index(fitted.chosen.pooling)])

    def _tried(self, depth: int, kept: NDArray[np.int64], held: NDArray[np.int64]) -> Iterator[_Tried]:
        """All poolings and strengths for a layer, with their outputs for the held-out rows."""
        poolings = POOLINGS if self.pinned is None else (self.pinned[1],)
        for pooling, strength in itertools.product(poolings, self.kind.fit_strengths):
            features = self.train[:, depth, POOLINGS.index(pooling)]
            model = fit_linear(features[kept], self.train_labels[kept], self.kind.fit, strength, self.n_outputs)
            outputs, labels = model.outputs(features[held]), self.train_labels[held]
            score = self.kind.score(self.metric, labels, outputs)
            probe = Probe(depth=depth, pooling=pooling, strength=strength, held_out_score=score, score=score)
            yield _Tried(probe, self.kind.mean_loss(labels, outputs), outputs)

    def _fitted(self, probe: Probe) -> Linear:
        features = self.train[:, probe.depth, POOLINGS.index(probe.pooling)]
        return fit_linear(features, self.train_labels, self.kind.fit, probe.strength, self.n_outputs)

    def _scored(self, probe: Probe, model: Linear) -> Probe:
        outputs = model.outputs(self.dev[:, probe.depth, POOLINGS.index(probe.pooling)])
        return probe.replace(score=self.kind.score(self.metric, self.dev_labels, outputs))

    def _best(self, tried: Sequence[_Tried], labels: Labels) -> _Tried:
        """The fit with the best held-out score; among those within noise of it, the one with the lowest loss."""
        best = max(tried, key=lambda one: one.probe.held_out_score)
        noise = math.sqrt(row_variance(self.kind, self.metric, labels, [best.outputs]))
        leading = [one for one in tried if one.probe.held_out_score >= best.probe.held_out_score - noise]
        return min(leading, key=lambda one: one.loss)


Weights = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Weight (outputs, width) and bias (outputs,)."""


def fit_linear(features: NDArray[Any], labels: Labels, fit: str, strength: float, n_outputs: int) -> Linear:
    """A `logreg` or `ridge` fit by scikit-learn on features (rows, width) that are scaled to unit variance first."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    weight, bias = _FITS[fit](scaler.fit_transform(features.astype(np.float64)), labels, strength, n_outputs)
    weight = weight / scaler.scale_
    return Linear(weight, bias - weight @ scaler.mean_)


def _ridge(scaled: NDArray[np.float64], labels: Labels, strength: float, _: int) -> Weights:
    from sklearn.linear_model import Ridge

    ridge = Ridge(alpha=strength).fit(scaled, labels)
    return np.atleast_2d(ridge.coef_), np.atleast_1d(ridge.intercept_)


def _logistic(scaled: NDArray[np.float64], labels: Labels, strength: float, n_outputs: int) -> Weights:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classes = np.unique(labels)
    if len(classes) == 1:  # there is nothing to separate
        return for_classes(np.zeros((1, scaled.shape[1])), np.zeros(1), classes, n_outputs)
    logistic = LogisticRegression(C=strength, max_iter=_MOST_STEPS)
    with warnings.catch_warnings():
        # With a weak penalty the last digits converge slowly; they are not worth more steps.
        warnings.simplefilter("ignore", ConvergenceWarning)
        logistic.fit(scaled, labels)
    return for_classes(logistic.coef_, logistic.intercept_, logistic.classes_, n_outputs)


_FITS = {"logreg": _logistic, "ridge": _ridge}


def for_classes(
    weight: NDArray[np.float64], bias: NDArray[np.float64], classes: NDArray[Any], n_outputs: int
) -> Weights:
    """One output per class. For two classes scikit-learn gives only their difference; for unseen classes nothing."""
    if len(classes) == 2:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    whole = np.zeros((n_outputs, weight.shape[1])), np.full(n_outputs, bias.min() - _UNSEEN)
    whole[0][classes], whole[1][classes] = weight, bias
    return whole
