"""The GLUE metrics on plain arrays, and the level a constant answer reaches.

Written in numpy for speed: a bootstrap calls them thousands of times. Knows nothing of tasks or models.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from frostline.errors import UsageError, check_choice
from frostline.records import Kind

Array = NDArray[Any]


def accuracy(labels: Array, predicted: Array) -> float:
    """The share of rows whose class is right."""
    return float(np.mean(labels == predicted))


def f1(labels: Array, predicted: Array) -> float:
    """The F1 of class 1 against class 0; 0 where nothing is positive."""
    hits = np.count_nonzero((labels == 1) & (predicted == 1))
    positives = np.count_nonzero(labels == 1) + np.count_nonzero(predicted == 1)
    return 2 * hits / positives if positives else 0.0


def mcc(labels: Array, predicted: Array) -> float:
    """Matthews' correlation of classes, two or more; 0 where either side is constant."""
    n_rows = len(labels)
    n_classes = int(max(labels.max(), predicted.max())) + 1
    true, said = np.bincount(labels, minlength=n_classes), np.bincount(predicted, minlength=n_classes)
    covariance = n_rows * np.count_nonzero(labels == predicted) - int(true @ said)
    true_variance, said_variance = n_rows**2 - int(true @ true), n_rows**2 - int(said @ said)
    if not true_variance or not said_variance:
        return 0.0
    return covariance / float(np.sqrt(true_variance) * np.sqrt(said_variance))


def pearson(labels: Array, predicted: Array) -> float:
    """The linear correlation; 0 where either side is constant."""
    true, said = _standardised(labels), _standardised(predicted)
    # Sums, not dot products: those go to BLAS, whose threads cost more than they save and move the last bits.
    return float(np.clip((true * said).sum(), -1.0, 1.0))


def spearman(labels: Array, predicted: Array) -> float:
    """The correlation of ranks, ties sharing their average rank; 0 where either side is constant."""
    return pearson(_ranks(labels), _ranks(predicted))


def _standardised(values: Array) -> Array:
    """The values less their mean, of length 1; all zeros for a constant."""
    # A constant's mean may be off by a rounding, which would leave noise to correlate.
    if values.min() == values.max():
        return np.zeros(len(values))
    centred = values - values.mean(dtype=np.float64)
    # Scaled first: the squares of very large or small values leave the range of a float.
    centred /= np.abs(centred).max()
    scaled: Array = centred / np.sqrt((centred * centred).sum())
    return scaled


def _ranks(values: Array) -> Array:
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    is_new = np.concatenate(([True], ascending[1:] != ascending[:-1]))
    first = np.append(np.flatnonzero(is_new), len(values))
    group = np.empty(len(values), dtype=np.intp)
    group[order] = np.cumsum(is_new) - 1
    ranks: Array = (first[group] + first[group + 1] + 1) / 2
    return ranks


def _classes(outputs: Array) -> Array:
    classes: Array = outputs.argmax(axis=1)
    return classes


def _values(outputs: Array) -> Array:
    values: Array = outputs[:, 0].astype(np.float64)
    return values


@final
@dataclass(frozen=True, kw_only=True)
class Metric:
    """A score of what a model puts out; a new one is one entry in `METRICS`."""

    kind: Kind
    """the tasks it serves"""
    of: Callable[[Array, Array], float]
    """the score of labels (rows,) and answers (rows,)"""
    answers: Callable[[Array], Array]
    """a model's raw outputs (rows, columns) as the answers (rows,) that are scored"""
    is_binary: bool = False
    """it means something for two classes only"""

    def score(self, labels: Array, outputs: Array) -> float:
        """The score of a model's raw outputs; a UsageError where shapes do not fit or a number is not finite."""
        return self.of(labels, self.checked_answers(labels, outputs))

    def checked_answers(self, labels: Array, outputs: Array) -> Array:
        """The answers in raw outputs that fit the labels; a UsageError where they do not."""
        self._check_labels(labels)
        self._check_outputs(labels, outputs)
        return self.answers(outputs)

    def chance(self, labels: Array) -> float:
        """The best score of a constant answer on these labels."""
        self._check_labels(labels)
        # Among constant values the mean stands for all: a correlation does not tell constants apart.
        constants = np.unique(labels) if self.answers is _classes else [labels.mean()]
        return max(self.of(labels, np.full(len(labels), constant)) for constant in constants)

    def _check_labels(self, labels: Array) -> None:
        if labels.ndim != 1 or len(labels) == 0:
            raise UsageError(f"labels have shape {labels.shape}; they must be one row each: (rows,), at least one")
        if self.kind == "regression":
            _check_finite("labels", labels)
        elif labels.dtype.kind not in "iu" or labels.min() < 0:
            raise UsageError(f"labels are {labels.dtype} from {labels.min()}; classes are integers counted from 0")
        elif self.is_binary and labels.max() > 1:
            raise UsageError(
                f"labels go up to {labels.max()}; this metric knows classes 0 and 1 only: use accuracy or mcc"
            )

    def _check_outputs(self, labels: Array, outputs: Array) -> None:
        if self.kind == "regression":
            is_right, wanted = outputs.shape == (len(labels), 1), f"({len(labels)}, 1)"
        else:
            n_classes = int(labels.max()) + 1
            wanted = f"({len(labels)}, {'2' if self.is_binary else f'{max(n_classes, 2)} or more'})"
            is_right = outputs.ndim == 2 and len(outputs) == len(labels) and outputs.shape[1] >= max(n_classes, 2)
            is_right = is_right and not (self.is_binary and outputs.shape[1] != 2)
        if not is_right:
            raise UsageError(f"outputs have shape {outputs.shape}; for these {self.kind} labels it must be {wanted}")
        _check_finite("outputs", outputs)


def _check_finite(what: str, values: Array) -> None:
    n_bad = values.size - int(np.count_nonzero(np.isfinite(values)))
    if n_bad:
        raise UsageError(
            f"{n_bad} of {values.size} {what} are not finite numbers; did training diverge? Try a lower rate"
        )


METRICS: Mapping[str, Metric] = types.MappingProxyType(
    {
        "accuracy": Metric(kind="classification", of=accuracy, answers=_classes),
        "f1": Metric(kind="classification", of=f1, answers=_classes, is_binary=True),
        "mcc": Metric(kind="classification", of=mcc, answers=_classes),
        "pearson": Metric(kind="regression", of=pearson, answers=_values),
        "spearman": Metric(kind="regression", of=spearman, answers=_values),
    }
)
"""Every metric by the name used in flags, tasks and JSON."""


def metric_named(name: str) -> Metric:
    """The metric of that name; a UsageError that lists the known ones otherwise."""
    return METRICS[check_choice("metric", name, METRICS)]


def evaluate(metric_name: str, labels: Array, outputs: Array) -> float:
    """The score of a model's raw outputs, (rows, classes) or for regression (rows, 1)."""
    return metric_named(metric_name).score(labels, outputs)


def chance(metric_name: str, labels: Array) -> float:
    """The best score of a constant answer on these labels."""
    return metric_named(metric_name).chance(labels)
