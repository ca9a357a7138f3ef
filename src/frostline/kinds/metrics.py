"""The metrics of GLUE and of own data on plain arrays, and the level a constant answer reaches.

Written in numpy for speed: a bootstrap calls them thousands of times. Knows nothing of tasks or models.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from frostline.errors import UsageError, check_choice, suggestion
from frostline.records.specs import Kind

Array = NDArray[Any]


def accuracy(labels: Array, predicted: Array) -> float:
    """The share of rows whose class is right."""
    return float(np.mean(labels == predicted))


def f1(labels: Array, predicted: Array) -> float:
    """The F1 of class 1 against class 0; 0 where nothing is positive."""
    hits = np.count_nonzero((labels == 1) & (predicted == 1))
    positives = np.count_nonzero(labels == 1) + np.count_nonzero(predicted == 1)
    return 2 * hits / positives if positives else 0.0


def macro_f1(labels: Array, predicted: Array) -> float:
    """The mean F1 of the classes that are there, in labels or predictions."""
    n_classes = int(max(labels.max(), predicted.max())) + 1
    hits = np.bincount(labels[labels == predicted], minlength=n_classes)
    total = np.bincount(labels, minlength=n_classes) + np.bincount(predicted, minlength=n_classes)
    is_there = total > 0
    return float(np.mean(2 * hits[is_there] / total[is_there]))


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


def accuracy_of_tables(tables: Array) -> Array:
    """`accuracy` of tables of counts (…, true class, said class)."""
    return _ratio(_hits(tables).sum(axis=-1), tables.sum(axis=(-2, -1)))


def f1_of_tables(tables: Array) -> Array:
    """`f1` of tables of counts (…, true class, said class)."""
    positives = tables[..., 1, :].sum(axis=-1) + tables[..., :, 1].sum(axis=-1)
    return _ratio(2 * tables[..., 1, 1], positives)


def macro_f1_of_tables(tables: Array) -> Array:
    """`macro_f1` of tables of counts (…, true class, said class)."""
    totals = tables.sum(axis=-1) + tables.sum(axis=-2)
    by_class = _ratio(2 * _hits(tables), totals)
    return _ratio(by_class.sum(axis=-1), (totals > 0).sum(axis=-1))


def mcc_of_tables(tables: Array) -> Array:
    """`mcc` of tables of counts (…, true class, said class)."""
    true, said, n_rows = tables.sum(axis=-1), tables.sum(axis=-2), tables.sum(axis=(-2, -1))
    covariance = n_rows * _hits(tables).sum(axis=-1) - (true * said).sum(axis=-1)
    variances = [n_rows**2 - (side * side).sum(axis=-1) for side in (true, said)]
    return _ratio(covariance, np.sqrt(variances[0]) * np.sqrt(variances[1]))


def _hits(tables: Array) -> Array:
    """The diagonals (…, class)."""
    return np.diagonal(tables, axis1=-2, axis2=-1)


def _ratio(above: Array, below: Array) -> Array:
    """0 where there is nothing below."""
    return np.divide(above, below, out=np.zeros_like(below, dtype=np.float64), where=below != 0)


def roc_auc(labels: Array, margins: Array) -> float:
    """How often a row of class 1 stands above one of class 0, ties counting half; 0.5 where a class has no row."""
    # Without a row of a class there is no pair to compare. A resample of dev may come to that: it then counts as
    # chance, which makes the interval wider rather than narrower.
    is_positive = labels == 1
    n_positive = int(np.count_nonzero(is_positive))
    n_pairs = n_positive * (len(labels) - n_positive)
    if not n_pairs:
        return 0.5
    n_above = float(_ranks(margins)[is_positive].sum()) - n_positive * (n_positive + 1) / 2
    return n_above / n_pairs


def pearson(labels: Array, predicted: Array) -> float:
    """The linear correlation; 0 where either side is constant."""
    true, said = _standardised(labels), _standardised(predicted)
    # Sums, not dot products: those go to BLAS, whose threads cost more than they save and move the last bits.
    return float(np.clip((true * said).sum(), -1.0, 1.0))


def spearman(labels: Array, predicted: Array) -> float:
    """The correlation of ranks, ties sharing their average rank; 0 where either side is constant."""
    return pearson(_ranks(labels), _ranks(predicted))


def r2(labels: Array, predicted: Array) -> float:
    """The share of the labels' variance that is explained, below 0 where their mean does better; 0 for a constant."""
    total = _sum_of_squares(labels - labels.mean(dtype=np.float64))
    if not total or labels.min() == labels.max():
        return 0.0
    # Bounded: labels that hardly differ would give an infinity, which no record may hold.
    return max(1.0 - _sum_of_squares(labels - predicted) / total, -sys.float_info.max)


def rmse(labels: Array, predicted: Array) -> float:
    """The root of the mean squared error, in the unit of the labels; lower is better."""
    return float(np.sqrt(_sum_of_squares(labels - predicted) / len(labels)))


def _sum_of_squares(values: Array) -> float:
    return float((values * values).sum())


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


def _margins(outputs: Array) -> Array:
    margins: Array = outputs[:, 1].astype(np.float64) - outputs[:, 0]
    return margins


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
    of_tables: Callable[[Array], Array] | None = None
    """the same score of many tables of counts (…, true class, said class) at once, where it follows from one"""
    is_binary: bool = False
    """it means something for two classes only"""
    is_score: bool = True
    """higher is better, so that runs may be compared by it; otherwise it only stands beside the score"""

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
        # Among constant values the mean is the best for r2 and rmse; the others do not tell constants apart.
        constants = np.unique(labels) if self.answers is _classes else [labels.mean(dtype=np.float64)]
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
                f"labels go up to {labels.max()}; this metric knows classes 0 and 1 only: use accuracy, macro_f1 or mcc"
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
        "accuracy": Metric(kind="classification", of=accuracy, answers=_classes, of_tables=accuracy_of_tables),
        "f1": Metric(kind="classification", of=f1, answers=_classes, of_tables=f1_of_tables, is_binary=True),
        "macro_f1": Metric(kind="classification", of=macro_f1, answers=_classes, of_tables=macro_f1_of_tables),
        "mcc": Metric(kind="classification", of=mcc, answers=_classes, of_tables=mcc_of_tables),
        "roc_auc": Metric(kind="classification", of=roc_auc, answers=_margins, is_binary=True),
        "pearson": Metric(kind="regression", of=pearson, answers=_values),
        "spearman": Metric(kind="regression", of=spearman, answers=_values),
        "r2": Metric(kind="regression", of=r2, answers=_values),
        "rmse": Metric(kind="regression", of=rmse, answers=_values, is_score=False),
    }
)
"""Every metric by the name used in flags, tasks and JSON; of each kind, the first is the score unless another is asked
for."""

_OTHERS_CALL_IT = types.MappingProxyType(
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
"""What other libraries call a metric, without case and punctuation."""


def names_for(kind: Kind, n_classes: int | None) -> tuple[str, ...]:
    """What own data is measured by, the score first; `n_classes` is None for regression."""
    return tuple(
        name for name, metric in METRICS.items() if metric.kind == kind and (n_classes == 2 or not metric.is_binary)
    )


def spelled(given: str) -> str:
    """The metric's own name where only case or punctuation differ (`Macro-F1`, `R^2`); otherwise what was given."""
    return next((name for name in METRICS if _plain(name) == _plain(given)), given)


def score_faults(given: str | None, measured: Iterable[str], whose: str = "") -> list[str]:
    """What is wrong with the score asked for, of the metrics that are measured; `whose`: " for sst2"."""
    scores = [name for name in measured if METRICS[name].is_score]
    if given is None or given in scores:
        return []
    if given == "rmse" and "r2" in scores:
        return [
            "metric 'rmse' is no score, because lower is better; use r2, which ranks alike (rmse is told beside it)"
        ]
    meant = _OTHERS_CALL_IT.get(_plain(given))
    hint = f" Did you mean {meant!r}?" if meant in scores else suggestion(given, scores)
    return [f"unknown metric {given!r}{whose}; known: {', '.join(scores)}.{hint}"]


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def metric_named(name: str) -> Metric:
    """The metric of that name; a UsageError that lists the known ones otherwise."""
    return METRICS[check_choice("metric", name, METRICS)]


def evaluate(metric_name: str, labels: Array, outputs: Array) -> float:
    """The score of a model's raw outputs, (rows, classes) or for regression (rows, 1)."""
    return metric_named(metric_name).score(labels, outputs)


def chance(metric_name: str, labels: Array) -> float:
    """The best score of a constant answer on these labels."""
    return metric_named(metric_name).chance(labels)


def mean_loss(labels: NDArray[Any], outputs: NDArray[Any]) -> float:
    """Cross-entropy of outputs (rows, classes) in nats, or the squared error of (rows, 1)."""
    wide = outputs.astype(np.float64)
    if wide.shape[1] == 1:
        return float(np.mean((wide[:, 0] - labels) ** 2))
    highest = wide.max(axis=1, keepdims=True)
    totals = highest[:, 0] + np.log(np.exp(wide - highest).sum(axis=1))
    return float(np.mean(totals - wide[np.arange(len(wide)), labels]))
