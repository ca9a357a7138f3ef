"""Regression: every row has a number."""

from __future__ import annotations

import types
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.errors import UsageError
from frostline.kinds.kind import Kind, each_row
from frostline.kinds.labels import LabelError, Labels, as_number
from frostline.kinds.metrics import Array, Metric, check_finite, check_rows, pearson, r2, rmse, spearman

_LONGEST = 80
"""characters of a label that a message shows"""
_LARGEST = float(np.finfo(np.float32).max)
_FAR = 10.0
"""labels this many times off the standard scale (mean 0, deviation 1) are far from it"""


def encode(written: Sequence[str], _: Sequence[str]) -> Labels:
    """The number that each label writes."""
    values = array("d")  # 8 bytes per row; a list of numbers takes 32
    for place, label in enumerate(written):
        value = as_number(label)
        if value is None:
            raise LabelError(f"the label {label[:_LONGEST]!r} is not a finite number", place)
        if abs(value) > _LARGEST:
            what = f"the label {label[:_LONGEST]} is larger than {_LARGEST:.2g}"
            raise LabelError(f"{what}, too large to train on", place)
        values.append(value)
    return np.array(values, dtype=np.float64)


def warnings(train: Labels, _dev: Labels, _names: Sequence[str], _metrics: Sequence[str]) -> Iterator[str]:
    """Labels far from the scale on which models start."""
    mean, deviation = float(train.mean()), float(train.std())
    if abs(mean) > _FAR * min(1.0, deviation) or not 1 / _FAR <= deviation <= _FAR:
        yield (
            f"training labels have mean {mean:.3g} and standard deviation {deviation:.3g}; models start near 0 and "
            "learn labels as they are under protocol paper: use --protocol tuned, which standardises them"
        )


def random_order(labels: Labels, rng: np.random.Generator) -> NDArray[np.int64]:
    """Any random order: without classes there is nothing to stratify."""
    return rng.permutation(len(labels)).astype(np.int64, copy=False)


def check_labels(_: Metric, labels: Array) -> None:
    """Raise unless labels are finite numbers."""
    check_rows(labels)
    check_finite("labels", labels)


def check_outputs(_: Metric, labels: Array, outputs: Array) -> None:
    """Raise unless there is exactly one output per row: (rows,) against (rows, 1) would broadcast (TRAPS 17)."""
    if outputs.shape != (len(labels), 1):
        raise UsageError(f"outputs have shape {outputs.shape}; for these number labels it must be ({len(labels)}, 1)")
    check_finite("outputs", outputs)


def squared_error(labels: Labels, outputs: Array) -> float:
    """The mean squared error."""
    return float(np.mean((outputs.astype(np.float64)[:, 0] - labels) ** 2))


def values_of(outputs: Array) -> Array:
    """The only output of each row."""
    values: Array = outputs[:, 0].astype(np.float64)
    return values


def _mean(labels: Labels) -> Array:
    # The mean is the best constant for r2 and rmse; correlations give 0 for every constant.
    return np.array([labels.mean(dtype=np.float64)])


def _decoded(label: Any, _: Sequence[str]) -> str:
    return repr(float(label))


def _prediction(outputs: Array, _: Sequence[str]) -> dict[str, str | float]:
    return {"prediction": float(outputs[0])}


REGRESSION = Kind(
    name="regression",
    class_names=None,
    encode=encode,
    decode=_decoded,
    warnings=warnings,
    order=random_order,
    units=each_row,
    metrics=types.MappingProxyType(
        {
            "pearson": Metric(of=pearson, answers=values_of),
            "spearman": Metric(of=spearman, answers=values_of),
            "r2": Metric(of=r2, answers=values_of),
            "rmse": Metric(of=rmse, answers=values_of, is_score=False),
        }
    ),
    check_labels=check_labels,
    check_outputs=check_outputs,
    constants=_mean,
    mean_loss=squared_error,
    torch_loss="frostline.training.loop:squared_error",
    head_class="transformers:AutoModelForSequenceClassification",
    problem_type="regression",
    n_outputs=1,
    fit="ridge",
    fit_strengths=(1e1, 1e2, 1e3, 1e4, 1e5),
    prediction=_prediction,
)
