"""Both kinds keep the promises, and broken ones do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from frostline.analysis import row_variance
from frostline.errors import FrostlineError
from frostline.kinds import CLASSIFICATION, KINDS, REGRESSION, Kind, Metric, kind_of, kind_of_model
from frostline.records.specs import TaskSpec
from frostline.testing.kinds import check_kind

BROKEN: Mapping[str, tuple[Kind, dict[str, Any]]] = {
    "decoding and encoding": (CLASSIFICATION, {"decode": lambda label, names: names[-1 - int(label)]}),
    "one label per row": (REGRESSION, {"encode": lambda written, _: np.zeros(len(written) - 1)}),
    "every row once": (CLASSIFICATION, {"order": lambda labels, _: np.zeros(len(labels), dtype=np.int64)}),
    "the same seed": (REGRESSION, {"order": lambda labels, _: np.random.default_rng().permutation(len(labels))}),
    "right outputs score best": (
        REGRESSION, {"metrics": {"wrong": Metric(of=lambda y, x: -float(np.corrcoef(y, x)[0, 1]),
                                                 answers=lambda outputs: outputs[:, 0])}},
    ),
    "the loss in numpy is that in torch": (CLASSIFICATION, {"mean_loss": lambda *_: 0.0}),
    "first metric is a score": (REGRESSION, {"metrics": {"rmse": REGRESSION.metrics["rmse"]}}),
    "units are numbered in order": (REGRESSION, {"units": lambda labels: 2 * np.arange(len(labels))}),
    "the first column": (CLASSIFICATION, {"prediction": lambda *_: {"answer": 1.0}}),
    "predictions follow": (REGRESSION, {"prediction": lambda *_: {"prediction": 1.0}}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_kind_keeps_its_promises(kind: Kind) -> None:
    check_kind(kind)


@pytest.mark.parametrize("promise", BROKEN)
def test_a_broken_kind_is_caught(promise: str) -> None:
    kind, changes = BROKEN[promise]
    with pytest.raises(AssertionError, match=promise):
        check_kind(dataclasses.replace(kind, **changes))


def test_a_kind_follows_from_a_model_s_configuration() -> None:
    assert kind_of_model("regression", 1) is kind_of_model(None, 1) is kind_of_model("regression", 2) is REGRESSION
    assert kind_of_model("single_label_classification", 3) is kind_of_model(None, 2) is CLASSIFICATION


def test_a_task_that_is_not_resolved_has_no_kind() -> None:
    task = TaskSpec(name="own", source=None, data=None, dev=None)
    with pytest.raises(FrostlineError, match="not resolved"):
        kind_of(task)
    assert kind_of(task.replace(kind="regression")) is REGRESSION


def test_whole_units_are_resampled() -> None:
    """Rows in pairs with the same answer: half as many units, so about twice the variance."""
    labels = np.repeat(np.random.default_rng(0).integers(2, size=200), 2)
    outputs = np.eye(2)[labels ^ np.repeat(np.random.default_rng(1).random(200) < 0.3, 2)]
    pairs = dataclasses.replace(CLASSIFICATION, units=lambda labels: np.arange(len(labels)) // 2)
    by_row = row_variance(CLASSIFICATION, "accuracy", labels, [outputs])
    assert row_variance(pairs, "accuracy", labels, [outputs]) / by_row == pytest.approx(2, rel=0.2)
