"""Metrics on plain arrays: those of GLUE and those for own data.

They are written in numpy because intervals call them thousands of times. Which kind of task uses which metric is
written in the kind (`classification`, `regression`).
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from frostline.errors import UsageError, suggestion

Array = NDArray[Any]

_NUMBERS_AT_ONCE = 2**23


def accuracy(labels: Array, predicted: Array) -> float:
    """The share of rows with the right class."""
    return float(np.mean(labels == predicted))


def f1(labels: Array, predicted: Array) -> float:
    """The F1 of class 1 against class 0; 0 if no label and no prediction is class 1."""
    hits = np.count_nonzero((labels == 1) & (predicted == 1))
    positives = np.count_nonzero(labels == 1) + np.count_nonzero(predicted == 1)
    return 2 * hits / positives if positives else 0.0


def macro_f1(labels: Array, predicted: Array) -> float:
    """The mean F1 of the classes that occur in labels or predictions."""
    n_classes = int(max(labels.max(), predicted.max())) + 1
    hits = np.bincount(labels[labels == predicted], minlength=n_classes)
    total = np.bincount(labels, minlength=n_classes) + np.bincount(predicted, minlength=n_classes)
    is_there = total > 0
    return float(np.mean(2 * hits[is_there] / total[is_there]))


def mcc(labels: Array, predicted: Array) -> float:
    """Matthews' correlation of two or more classes; 0 if labels or predictions are constant."""
    n_rows = len(labels)
    n_classes = int(max(labels.max(), predicted.max())) + 1
    n_true, n_predicted = np.bincount(labels, minlength=n_classes), np.bincount(predicted, minlength=n_classes)
    covariance = n_rows * np.count_nonzero(labels == predicted) - int(n_true @ n_predicted)
    true_variance, predicted_variance = n_rows**2 - int(n_true @ n_true), n_rows**2 - int(n_predicted @ n_predicted)
    if not true_variance or not predicted_variance:
        return 0.0
    return covariance / float(np.sqrt(true_variance) * np.sqrt(predicted_variance))


def accuracy_of_tables(tables: Array) -> Array:
    """`accuracy` of tables of counts (…, true class, predicted class)."""
    return _ratio(_hits(tables).sum(axis=-1), tables.sum(axis=(-2, -1)))


def f1_of_tables(tables: Array) -> Array:
    """`f1` of tables of counts (…, true class, predicted class)."""
    positives = tables[..., 1, :].sum(axis=-1) + tables[..., :, 1].sum(axis=-1)
    return _ratio(2 * tables[..., 1, 1], positives)


def macro_f1_of_tables(tables: Array) -> Array:
    """`macro_f1` of tables of counts (…, true class, predicted class)."""
    totals = tables.sum(axis=-1) + tables.sum(axis=-2)
    by_class = _ratio(2 * _hits(tables), totals)
    return _ratio(by_class.sum(axis=-1), (totals > 0).sum(axis=-1))


def mcc_of_tables(tables: Array) -> Array:
    """`mcc` of tables of counts (…, true class, predicted class)."""
    true, predicted, n_rows = tables.sum(axis=-1), tables.sum(axis=-2), tables.sum(axis=(-2, -1))
    covariance = n_rows * _hits(tables).sum(axis=-1) - (true * predicted).sum(axis=-1)
    variances = [n_rows**2 - (side * side).sum(axis=-1) for side in (true, predicted)]
    return _ratio(covariance, np.sqrt(variances[0]) * np.sqrt(variances[1]))


def _hits(tables: Array) -> Array:
    """The diagonals (…, class)."""
    return np.diagonal(tables, axis1=-2, axis2=-1)


def _ratio(above: Array, below: Array) -> Array:
    """`above / below`, and 0 where `below` is 0."""
    return np.divide(above, below, out=np.zeros_like(below, dtype=np.float64), where=below != 0)


def roc_auc(labels: Array, margins: Array) -> float:
    """How often a row of class 1 ranks above a row of class 0 (ties count half); 0.5 if a class has no row."""
    # If a class has no row, there is no pair to compare. This can happen in a resample of dev. It then counts as
    # chance, which makes the interval wider, never narrower.
    is_positive = labels == 1
    n_positive = int(np.count_nonzero(is_positive))
    n_pairs = n_positive * (len(labels) - n_positive)
    if not n_pairs:
        return 0.5
    n_above = float(_ranks(margins)[is_positive].sum()) - n_positive * (n_positive + 1) / 2
    return n_above / n_pairs


def pearson(labels: Array, predicted: Array) -> float:
    """The linear correlation; 0 if labels or predictions are constant."""
    true, answered = _standardised(labels), _standardised(predicted)
    # A sum, not a dot product: BLAS would use threads, which cost time here and change the last bits.
    return float(np.clip((true * answered).sum(), -1.0, 1.0))


def spearman(labels: Array, predicted: Array) -> float:
    """The correlation of ranks (ties get their average rank); 0 if labels or predictions are constant."""
    return pearson(_ranks(labels), _ranks(predicted))


def r2(labels: Array, predicted: Array) -> float:
    """The explained share of the labels' variance; negative if their mean does better, 0 for constant labels."""
    total = _sum_of_squares(labels - labels.mean(dtype=np.float64))
    if not total or labels.min() == labels.max():
        return 0.0
    # Labels that hardly differ would give minus infinity, which JSON cannot hold.
    return max(1.0 - _sum_of_squares(labels - predicted) / total, -sys.float_info.max)


def rmse(labels: Array, predicted: Array) -> float:
    """The root mean squared error, in the unit of the labels; lower is better."""
    return float(np.sqrt(_sum_of_squares(labels - predicted) / len(labels)))


def _sum_of_squares(values: Array) -> float:
    return float((values * values).sum())


def _standardised(values: Array) -> Array:
    """The values minus their mean, scaled to length 1; zeros for constant values."""
    # The mean of equal values may be off by a rounding error; the rest would be noise that correlates with anything.
    if values.min() == values.max():
        return np.zeros(len(values))
    centred = values - values.mean(dtype=np.float64)
    # Scale first: squares of very large or very small values leave the range of a float.
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


@final
@dataclass(frozen=True, kw_only=True)
class Metric:
    """A score. A new one is one entry in the metrics of a kind."""

    of: Callable[[Array, Array], float]
    """labels (rows,) and answers (rows,) → the score"""
    answers: Callable[[Array], Array]
    """a model's raw outputs (rows, outputs) → the answers (rows,) that are scored"""
    of_tables: Callable[[Array], Array] | None = None
    """the same score for many tables of counts (…, true class, predicted class) at once, if it can be computed from
    them; it makes intervals fast"""
    of_guessing: Callable[[Array], float] | None = None
    """rows of each class → the score of guessing classes by their shares; used if a table would be too large"""
    is_binary: bool = False
    """it is defined for two classes only"""
    is_score: bool = True
    """higher is better, so runs can be compared by it; otherwise it is only shown beside the score"""


def check_rows(labels: Array) -> None:
    """Raise a UsageError unless there is one label per row, and at least one."""
    if labels.ndim != 1 or len(labels) == 0:
        raise UsageError(f"labels have shape {labels.shape}; they must have one entry per row: (rows,), at least one")


def row_parts(values: Array) -> Iterator[Array]:
    """The rows in parts of about 8 million numbers, for work that would copy a large array."""
    n_rows = max(1, _NUMBERS_AT_ONCE // max(1, math.prod(values.shape[1:])))
    return (values[first : first + n_rows] for first in range(0, len(values), n_rows))


def check_finite(what: str, values: Array) -> None:
    """Raise a UsageError if some values are infinite or not a number."""
    n_bad = sum(part.size - int(np.count_nonzero(np.isfinite(part))) for part in row_parts(values))
    if n_bad:
        raise UsageError(
            f"{n_bad} of {values.size} {what} are not finite numbers; did training diverge? Try a lower rate"
        )


_OTHER_NAMES = types.MappingProxyType(
    {
        "acc": "accuracy",
        "auc": "roc_auc",
        "auroc": "roc_auc",
        "rocaucscore": "roc_auc",
        "f1macro": "macro_f1",
        "matthews": "mcc",
        "matthewscorrelation": "mcc",
        "matthewscorrcoef": "mcc",
        "rsquared": "r2",
        "r2score": "r2",
    }
)
"""Names that other libraries use for a metric, in lower case and without punctuation."""


def spelled(given: str, known: Iterable[str]) -> str:
    """The known name that differs only in case or punctuation (`Macro-F1`, `R^2`); otherwise what was given."""
    return next((name for name in known if _plain(name) == _plain(given)), given)


def score_faults(given: str | None, measured: Mapping[str, Metric], task: str = "") -> list[str]:
    """Why `given` cannot be the score, if it cannot; `task` is put behind its name, e.g. " for sst2"."""
    scores = [name for name, metric in measured.items() if metric.is_score]
    if given is None or given in scores:
        return []
    if given == "rmse" and "r2" in scores:
        return [
            "metric 'rmse' cannot be the score, because lower is better; use r2, which ranks models in the same order "
            "(rmse is reported beside it)"
        ]
    meant = _OTHER_NAMES.get(_plain(given))
    hint = f" Did you mean {meant!r}?" if meant in scores else suggestion(given, scores)
    return [f"unknown metric {given!r}{task}; known: {', '.join(scores)}.{hint}"]


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
