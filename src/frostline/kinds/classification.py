"""Classification: every row belongs to one of several classes."""

from __future__ import annotations

import itertools
import re
import types
from collections.abc import Iterator, Sequence
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from frostline.errors import UsageError, listed
from frostline.kinds.kind import Kind, each_row
from frostline.kinds.labels import LabelError, Labels, as_number, unsupported
from frostline.kinds.metrics import (
    Array,
    Metric,
    accuracy,
    accuracy_of_tables,
    check_finite,
    check_rows,
    f1,
    f1_of_tables,
    macro_f1,
    macro_f1_of_tables,
    mcc,
    mcc_of_tables,
    roc_auc,
    row_parts,
)

_LONGEST = 80
"""characters of a label that a message shows"""
_MISSING = ("nan", "na", "n/a", "null", "none")
"""what programs write for a missing number, in lower case"""
_LIST = re.compile(r",|\d\s+\d", re.ASCII)
"""occurs in a list of several labels"""
_LARGEST_SHARE = 0.8
"""if one class has more than this share of the training rows, a constant answer looks good"""
_RAREST_SHARE = 0.1
"""a class with less than this share is rare; with many classes, one with less than half of an equal share"""


def class_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The classes in order: by value if all are numbers, otherwise by alphabet."""
    # Each label once, in the order of the rows: there may be millions of rows.
    distinct = list(dict.fromkeys(labels))
    _check_missing(labels, distinct)
    _check_lists(labels, distinct)
    names = sorted(distinct)
    if any(as_number(name) is None for name in names):
        return tuple(names)
    names.sort(key=Decimal)
    for name, other in itertools.pairwise(names):
        if Decimal(name) == Decimal(other):
            raise LabelError(f"the labels {name!r} and {other!r} are the same number; write it in one way")
    return tuple(names)


def _check_missing(labels: Sequence[str], distinct: Sequence[str]) -> None:
    """Raise if a label such as `nan` stands among numbers. Among words, `none` is a class like any other."""
    missing = next((label for label in distinct if label.lower() in _MISSING), None)
    others = [label for label in distinct if label.lower() not in _MISSING]
    if missing is not None and others and all(as_number(label) is not None for label in others):
        what = f"the label {missing!r} among numbers means that it is missing"
        raise LabelError(f"{what}; leave such rows out", labels.index(missing))


def _check_lists(labels: Sequence[str], distinct: Sequence[str]) -> None:
    several = next((label for label in distinct if _LIST.search(label)), None)
    if several is not None and all(label.startswith("[") and label.endswith("]") for label in distinct):
        raise LabelError(f"the label {unsupported('a list')}", labels.index(several))


def encode(written: Sequence[str], classes: Sequence[str]) -> Labels:
    """The class number of each label."""
    numbers = {name: number for number, name in enumerate(classes)}
    if (unknown := next((label for label in written if label not in numbers), None)) is not None:
        raise LabelError(f"unknown label {unknown[:_LONGEST]!r}; known: {listed(classes)}", written.index(unknown))
    return np.fromiter((numbers[label] for label in written), dtype=np.int64, count=len(written))


def warnings(train: Labels, dev: Labels, names: Sequence[str], metrics: Sequence[str]) -> Iterator[str]:
    """Classes that lack rows, and classes of very different size."""
    n_train, n_dev = (np.bincount(labels.astype(np.int64), minlength=len(names)) for labels in (train, dev))
    if not n_train.all():
        n_lost = int(n_dev[n_train == 0].sum())
        outcome = f"; {n_lost} of {len(dev)} dev rows belong to them and cannot be answered correctly" if n_lost else ""
        yield f"classes without a training row: {_named(names, n_train == 0)}{outcome}"
    if (is_unseen := (n_train > 0) & (n_dev == 0)).any():
        yield f"classes without a dev row, so the score does not cover them: {_named(names, is_unseen)}"
    yield from _imbalance(n_train, names, metrics)


def _named(names: Sequence[str], is_meant: NDArray[np.bool_]) -> str:
    return listed([name for name, is_one in zip(names, is_meant, strict=True) if is_one])


def _imbalance(counts: NDArray[np.int64], names: Sequence[str], metrics: Sequence[str]) -> Iterator[str]:
    present = np.flatnonzero(counts)
    shares = counts / counts.sum()
    largest, rarest = present[counts[present].argmax()], present[counts[present].argmin()]
    if shares[largest] <= _LARGEST_SHARE and shares[rarest] >= min(_RAREST_SHARE, 0.5 / len(present)):
        return
    advice = ""
    if metrics[0] == "accuracy":
        better = " or ".join(name for name in ("macro_f1", "mcc") if name in metrics)
        advice = "; accuracy rewards the majority: " + (f"use --metric {better}" if better else "read it above chance")
    yield (
        f"imbalanced classes: {names[largest]} has {100 * shares[largest]:.3g}% of the training rows, "
        f"{names[rarest]} {100 * shares[rarest]:.3g}%{advice}"
    )


def stratified_order(labels: Labels, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random order in which every beginning has the classes in their shares."""
    # Each class is shuffled and spread evenly over [0, 1]; sorting by these ranks merges the classes in proportion.
    rank = np.empty(len(labels))
    for members in _by_class(labels):
        rank[rng.permutation(members)] = (np.arange(len(members)) + 0.5) / len(members)
    # Classes of the same size have equal ranks. Without random ties the lowest class would always come first.
    ties = rng.random(len(labels))
    return np.lexsort((ties, rank)).astype(np.int64, copy=False)


def _by_class(labels: Labels) -> list[NDArray[np.intp]]:
    """The positions of each class, ascending."""
    positions = np.argsort(labels, kind="stable")
    return np.split(positions, np.flatnonzero(np.diff(labels[positions])) + 1)


def check_labels(metric: Metric, labels: Array) -> None:
    """Raise unless labels are class numbers that the metric can score."""
    check_rows(labels)
    if labels.dtype.kind not in "iu" or labels.min() < 0:
        raise UsageError(f"labels are {labels.dtype} from {labels.min()}; classes are integers counted from 0")
    if metric.is_binary and labels.max() > 1:
        raise UsageError(
            f"labels go up to {labels.max()}; this metric needs classes 0 and 1 only: use accuracy, macro_f1 or mcc"
        )


def check_outputs(metric: Metric, labels: Array, outputs: Array) -> None:
    """Raise unless there is one row of outputs per label and one column per class."""
    n_classes = max(int(labels.max()) + 1, 2)
    is_right = outputs.ndim == 2 and len(outputs) == len(labels) and outputs.shape[1] >= n_classes
    if not is_right or (metric.is_binary and outputs.shape[1] != 2):
        allowed = f"({len(labels)}, {'2' if metric.is_binary else f'{n_classes} or more'})"
        raise UsageError(f"outputs have shape {outputs.shape}; for these class labels it must be {allowed}")
    check_finite("outputs", outputs)


def cross_entropy(labels: Labels, outputs: Array) -> float:
    """The mean cross-entropy in nats."""
    right = outputs[np.arange(len(outputs)), labels].astype(np.float64)
    return float(np.mean(np.concatenate([_log_totals(part) for part in row_parts(outputs)]) - right))


def _log_totals(outputs: Array) -> NDArray[np.float64]:
    """The logarithm of the sum of exponentials, per row."""
    wide = outputs.astype(np.float64)
    highest = wide.max(axis=1, keepdims=True)
    totals: NDArray[np.float64] = highest[:, 0] + np.log(np.exp(wide - highest).sum(axis=1))
    return totals


def constants(labels: Labels) -> Array:
    """The classes that may be the best constant answer: of classes with equally many rows, the first.

    With three classes or more, a metric here treats all classes alike.
    """
    classes, counts = np.unique(labels, return_counts=True)
    return classes if len(classes) < 3 else np.sort(classes[np.unique(counts, return_index=True)[1]])


def prediction(outputs: Array, names: Sequence[str]) -> dict[str, str | float]:
    """The class with the largest output, and the probability of every class."""
    exponents = np.exp(outputs - outputs.max())
    shares = exponents / exponents.sum()
    probabilities = {f"probability_{name}": float(share) for name, share in zip(names, shares, strict=True)}
    return {"prediction": names[int(outputs.argmax())], **probabilities}


def classes_of(outputs: Array) -> Array:
    """The class with the largest output, per row."""
    # In parts, because numpy copies an array that it may not write to.
    return np.concatenate([part.argmax(axis=1) for part in row_parts(outputs)])


def margins_of(outputs: Array) -> Array:
    """By how much class 1 exceeds class 0, per row."""
    margins: Array = outputs[:, 1].astype(np.float64) - outputs[:, 0]
    return margins


CLASSIFICATION = Kind(
    name="classification",
    class_names=class_names,
    encode=encode,
    decode=lambda label, names: names[int(label)],
    warnings=warnings,
    order=stratified_order,
    units=each_row,
    metrics=types.MappingProxyType(
        {
            "accuracy": Metric(
                of=accuracy,
                answers=classes_of,
                of_tables=accuracy_of_tables,
                of_guessing=lambda counts: float(((counts / counts.sum()) ** 2).sum()),
            ),
            "f1": Metric(of=f1, answers=classes_of, of_tables=f1_of_tables, is_binary=True),
            "macro_f1": Metric(
                of=macro_f1,
                answers=classes_of,
                of_tables=macro_f1_of_tables,
                of_guessing=lambda counts: 1 / np.count_nonzero(counts),
            ),
            "mcc": Metric(of=mcc, answers=classes_of, of_tables=mcc_of_tables, of_guessing=lambda _: 0.0),
            "roc_auc": Metric(of=roc_auc, answers=margins_of, is_binary=True),
        }
    ),
    check_labels=check_labels,
    check_outputs=check_outputs,
    constants=constants,
    mean_loss=cross_entropy,
    torch_loss="torch.nn.functional:cross_entropy",
    head_class="transformers:AutoModelForSequenceClassification",
    problem_type="single_label_classification",
    n_outputs=None,
    fit="logreg",
    fit_strengths=(1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    prediction=prediction,
)
