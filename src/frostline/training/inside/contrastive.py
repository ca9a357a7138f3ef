"""Runs that the setfit library trains: the run's rows go in, and the stack holds what came out."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from frostline import strategies
from frostline.errors import FrostlineError
from frostline.model.added.readers import CHOSEN
from frostline.model.inside.setfit import Contrast, Contrasted, EmbeddingReader, train_setfit
from frostline.model.stack import FrozenMovedError
from frostline.records.results import EpochRecord
from frostline.training.fit import for_classes
from frostline.training.loop import Trained, Training, scores
from frostline.training.prepare import Prepared, seed_for

_NEAR = 1e-3
"""largest difference between the library's probabilities and those of the model that was taken over from it"""


def contrasted(training: Training, prepared: Prepared, trained: tuple[str, ...]) -> Trained:
    """Trains with the library on the run's rows, and scores the model that the stack then holds."""
    stack, kind = training.forward.stack, training.kind
    assert isinstance(stack.reader, EmbeddingReader)
    began = time.perf_counter()
    before = stack.digest((*trained, CHOSEN))
    found = train_setfit(stack, _contrast(training, prepared))
    weight, bias = for_classes(found.weight, found.bias, found.classes, stack.reader.linear.out_features)
    stack.reader.choose(found.pooling, weight, bias, is_normalised=found.is_normalised)
    if stack.digest((*trained, CHOSEN)) != before:
        raise FrozenMovedError("a frozen parameter or buffer changed in training; the result is not stored")
    outputs, train_outputs = training.predict(training.dev), training.predict(training.train)
    _check_taken_over(train_outputs, found)
    record = EpochRecord(
        epoch=1,
        train_loss=kind.mean_loss(training.train.labels, train_outputs),
        metrics=scores(kind, training.metric_names, training.dev.labels, outputs),
        learning_rate=0.0,
        n_steps=found.n_steps,
        seconds=time.perf_counter() - began,
    )
    training.on_epoch(record)
    return Trained([record], outputs, train_outputs)


def _contrast(training: Training, prepared: Prepared) -> Contrast:
    """The texts and labels of the run's training rows, and how the library trains on them."""
    spec, strategy = training.spec, strategies.parse(training.spec.strategy)
    assert isinstance(strategy, strategies.SetFit)
    rows = prepared.data.train
    chosen = rows.take(np.searchsorted(rows.ids, training.train.row_ids))
    return Contrast(
        model=spec.model,
        revision=spec.model_revision,
        texts=chosen.texts,
        labels=chosen.labels.astype(np.int64),
        max_length=spec.max_length,
        n_iterations=strategy.n_iterations,
        seed=seed_for(spec, "contrast"),
    )


def _check_taken_over(outputs: NDArray[np.float32], found: Contrasted) -> None:
    """Raises unless the model that was taken over gives the training rows the library's own probabilities."""
    known = outputs[:, found.classes].astype(np.float64)
    raised = np.exp(known - known.max(axis=1, keepdims=True))
    apart = float(np.abs(raised / raised.sum(axis=1, keepdims=True) - found.shares).max())
    if not apart < _NEAR:
        raise FrostlineError(
            f"the model taken over from setfit answers otherwise than setfit's: probabilities are {apart:.2g} apart"
        )
