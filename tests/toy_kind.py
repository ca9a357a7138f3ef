"""A kind of task of our own: stars. Classes in order, scored by how near the answer is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.kinds import CLASSIFICATION, LabelError, Metric
from frostline.kinds.classification import classes_of

Array = NDArray[Any]


def star_names(labels: Sequence[str]) -> tuple[str, ...]:
    """From one star to the most that occur, also those in between without a row."""
    for place, label in enumerate(labels):
        if set(label) != {"*"}:
            raise LabelError(f"{label!r} is not a number of stars; write e.g. ***", place)
    return tuple("*" * n for n in range(1, max(map(len, labels)) + 1))


def nearness(labels: Array, answers: Array) -> float:
    """1 minus the mean distance, as a share of the largest possible."""
    return float(1 - np.mean(np.abs(labels - answers)) / max(int(labels.max()), 1))


def star_prediction(outputs: Array, names: Sequence[str]) -> dict[str, str | float]:
    """The stars, and the mean number of them."""
    shares = np.exp(outputs - outputs.max())
    expected = float(shares @ np.arange(1, len(names) + 1) / shares.sum())
    return {"prediction": names[int(outputs.argmax())], "stars": expected}


STARS = dataclasses.replace(
    CLASSIFICATION,
    name="stars",
    class_names=star_names,
    metrics={"nearness": Metric(of=nearness, answers=classes_of), "accuracy": CLASSIFICATION.metrics["accuracy"]},
    prediction=star_prediction,
)
