"""Predictions come back in the order asked for, and only if they are numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from frostline.errors import FrostlineError
from frostline.kinds import CLASSIFICATION, REGRESSION
from frostline.model.stack import Stack
from frostline.testing.models import Family
from frostline.training.forward import Forward, predict
from frostline.training.loop import scores
from frostline.training.prefix import Split, compute_states
from tiny import BASIC, TEETH, Case

N_ROWS = 150  # more than two batches, whose layout sorts the rows


def _forward(family: Family) -> Forward:
    stack = Case(family).stack()
    stack.allow_packing()
    return Forward(stack, layout="packed")


def _one_by_one(stack: Stack, split: Split) -> NDArray[np.float32]:
    encoded = split.encoded
    answers = []
    with torch.no_grad():
        for start, end in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True):
            row = {"input_ids": torch.from_numpy(encoded.tokens[start:end])[None]}
            answers.append(stack.model(**row).logits.numpy())
    return np.concatenate(answers)


@pytest.mark.parametrize("family", BASIC)
def test_predictions_are_in_the_rows_order(family: Family) -> None:
    forward, split = _forward(family), Split(Case(family).encoded(N_ROWS))
    found = predict(forward, split)
    alone = _one_by_one(forward.stack, split)
    assert found.dtype == np.float32
    assert np.abs(found - alone).max() < 1e-4
    assert np.abs(found[::-1] - alone).max() > TEETH


@pytest.mark.parametrize("family", BASIC)
def test_predictions_of_some_rows_are_in_the_order_asked_for(family: Family) -> None:
    forward, split = _forward(family), Split(Case(family).encoded(N_ROWS))
    everything = predict(forward, split)
    rng = np.random.default_rng(0)
    for positions in (rng.permutation(N_ROWS), rng.permutation(N_ROWS)[:70], np.array([3]), np.array([9, 2, 9])):
        assert np.abs(predict(forward, dataclasses.replace(split, rows=positions)) - everything[positions]).max() < 1e-4


@pytest.mark.parametrize("family", BASIC)
@pytest.mark.parametrize("is_packed", [False, True])
def test_predictions_from_kept_states_are_the_same(family: Family, is_packed: bool) -> None:
    stack, encoded = _forward(family).stack, Case(family).encoded(N_ROWS)
    kept = compute_states(stack, encoded, 1)
    from_states = predict(Forward(stack, 1, layout="packed" if is_packed else "padded"), Split(encoded, kept))
    assert np.abs(from_states - predict(Forward(stack), Split(encoded))).max() < 1e-4


def test_predicting_switches_dropout_off() -> None:
    forward, split = _forward("bert"), Split(Case("bert").encoded(N_ROWS))
    right = predict(forward, split)
    forward.stack.apply(forward.stack.all_parameters)
    forward.stack.train()
    assert np.array_equal(predict(forward, split), right)
    assert not any(module.training for module in forward.stack.model.modules())


def test_outputs_that_are_not_numbers_are_refused() -> None:
    forward, split = _forward("bert"), Split(Case("bert").encoded(N_ROWS))
    forward.stack.model.classifier.bias.data[1] = torch.nan
    with pytest.raises(FrostlineError, match="not finite; try a lower learning rate"):
        predict(forward, split)


def test_each_metric_is_scored() -> None:
    outputs = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=np.float32)
    found = scores(CLASSIFICATION, ("accuracy", "f1"), np.array([1, 0, 0, 1]), outputs)
    assert found == {"accuracy": 0.75, "f1": pytest.approx(0.8)}


def test_the_mean_loss_is_torchs() -> None:
    drawn = np.random.default_rng(0)
    outputs = drawn.normal(0, 5, (20, 3)).astype(np.float32)
    labels = drawn.integers(3, size=20)
    wanted = torch.nn.functional.cross_entropy(torch.from_numpy(outputs), torch.from_numpy(labels))
    assert CLASSIFICATION.mean_loss(labels, outputs) == pytest.approx(float(wanted), rel=1e-6)
    values, answers = drawn.normal(size=20), drawn.normal(size=(20, 1)).astype(np.float32)
    squared = torch.nn.functional.mse_loss(torch.from_numpy(answers[:, 0]).double(), torch.from_numpy(values))
    assert REGRESSION.mean_loss(values, answers) == pytest.approx(float(squared), rel=1e-6)
    huge = np.array([[1000.0, -1000.0]], dtype=np.float32)
    assert CLASSIFICATION.mean_loss(np.array([1]), huge) == pytest.approx(2000.0)
