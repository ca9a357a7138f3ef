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
    _check_missing(labels)
    _check_lists(labels)
    names = sorted(set(labels))
    if any(as_number(name) is None for name in names):
        return tuple(names)
    names.sort(key=Decimal)
    for name, other in itertools.pairwise(names):
        if Decimal(name) == Decimal(other):
            raise LabelError(f"the labels {name!r} and {other!r} are the same number; write it in one way")
    return tuple(names)


def _check_missing(labels: Sequence[str]) -> None:
    """Raise if a label such as `nan` stands among numbers. Among words, `none` is a class like any other."""
    missing = [place for place, label in enumerate(labels) if label.lower() in _MISSING]
    others = {label for label in labels if label.lower() not in _MISSING}
    if missing and others and all(as_number(label) is not None for label in others):
        what = f"the label {labels[missing[0]]!r} among numbers means that it is missing"
        raise LabelError(f"{what}; leave such rows out", missing[0])


def _check_lists(labels: Sequence[str]) -> None:
    place = next((place for place, label in enumerate(labels) if _LIST.search(label)), None)
    if place is not None and all(label.startswith("[") and label.endswith("]") for label in labels):
        raise LabelError(f"the label {unsupported('a list')}", place)


def encode(written: Sequence[str], classes: Sequence[str]) -> Labels:
    """The class number of each label."""
    numbers = {name: number for number, name in enumerate(classes)}
    for place, label in enumerate(written):
        if label not in numbers:
            raise LabelError(f"unknown label {label[:_LONGEST]!r}; known: {listed(classes)}", place)
    return np.array([numbers[label] for label in written], dtype=np.int64)


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
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        rank[rng.permutation(members)] = (np.arange(len(members)) + 0.5) / len(members)
    # Classes of the same size have equal ranks. Without random ties the lowest class would always come first.
    ties = rng.random(len(labels))
    return np.lexsort((ties, rank)).astype(np.int64)


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
    wide = outputs.astype(np.float64)
    highest = wide.max(axis=1, keepdims=True)
    totals = highest[:, 0] + np.log(np.exp(wide - highest).sum(axis=1))
    return float(np.mean(totals - wide[np.arange(len(wide)), labels]))


def prediction(outputs: Array, names: Sequence[str]) -> dict[str, str | float]:
    """The class with the largest output, and the probability of every class."""
    exponents = np.exp(outputs - outputs.max())
    shares = exponents / exponents.sum()
    probabilities = {f"probability_{name}": float(share) for name, share in zip(names, shares, strict=True)}
    return {"prediction": names[int(outputs.argmax())], **probabilities}


def classes_of(outputs: Array) -> Array:
    """The class with the largest output, per row."""
    classes: Array = outputs.argmax(axis=1)
    return classes


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
            "accuracy": Metric(of=accuracy, answers=classes_of, of_tables=accuracy_of_tables),
            "f1": Metric(of=f1, answers=classes_of, of_tables=f1_of_tables, is_binary=True),
            "macro_f1": Metric(of=macro_f1, answers=classes_of, of_tables=macro_f1_of_tables),
            "mcc": Metric(of=mcc, answers=classes_of, of_tables=mcc_of_tables),
            "roc_auc": Metric(of=roc_auc, answers=margins_of, is_binary=True),
        }
    ),
    check_labels=check_labels,
    check_outputs=check_outputs,
    constants=np.unique,
    mean_loss=cross_entropy,
    torch_loss="torch.nn.functional:cross_entropy",
    head_class="transformers:AutoModelForSequenceClassification",
    problem_type="single_label_classification",
    n_outputs=None,
    fit="logreg",
    fit_strengths=(1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    prediction=prediction,
)
