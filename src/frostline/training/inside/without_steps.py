"""Runs without gradient steps: a head that is fitted in closed form, or a model that is scored as it was saved."""

from __future__ import annotations

import time

import torch

from frostline import strategies
from frostline.model.added.readers import CHOSEN, LinearReader
from frostline.model.stack import FrozenMovedError
from frostline.records.results import EpochRecord
from frostline.training.fit import LinearFit
from frostline.training.loop import Trained, Training, scores
from frostline.training.prepare import Prepared, seed_for

TRAIN_SAMPLE = 1000
"""Rows of the fixed sample for the training score."""


def fitted(training: Training, prepared: Prepared, trained: tuple[str, ...]) -> Trained:
    """Fits the linear head, whose parameters are the `trained` ones, in closed form."""
    spec, kind, stack = training.spec, training.kind, training.forward.stack
    train_split, dev = prepared.train, prepared.dev
    assert isinstance(stack.reader, LinearReader)
    began = time.perf_counter()
    before = stack.digest((*trained, CHOSEN))
    fit = LinearFit(
        kind=kind,
        metric=training.metric_names[0],
        n_outputs=stack.reader.linear.out_features,
        train=prepared.pooled[train_split.source][train_split.positions],
        train_labels=train_split.labels,
        dev=prepared.pooled[dev.source][dev.positions],
        dev_labels=dev.labels,
        seed=seed_for(spec, "held out"),
        threads=spec.threads,
        pinned=strategies.parse(spec.strategy).pinned_place,
    )
    found = fit.run()
    weight, bias = (torch.from_numpy(values) for values in (found.model.weight, found.model.bias))
    stack.reader.choose(found.chosen.depth, found.chosen.pooling, weight, bias)
    if stack.digest((*trained, CHOSEN)) != before:
        raise FrozenMovedError("a frozen parameter or buffer changed in a fit; the result is not stored")
    outputs, train_outputs = fit.outputs(found, fit.dev), fit.outputs(found, fit.train)
    record = EpochRecord(
        epoch=1,
        train_loss=kind.mean_loss(fit.train_labels, train_outputs),
        metrics=scores(kind, training.metric_names, fit.dev_labels, outputs),
        learning_rate=0.0,
        n_steps=0,
        seconds=time.perf_counter() - began,
    )
    training.on_epoch(record)
    return Trained([record], outputs, train_outputs, found.probes)


def as_saved(training: Training) -> Trained:
    """Scores a model with the head that it was saved with; its loss is that of the sample for the training score."""
    began, kind = time.perf_counter(), training.kind
    sample = training.train.sample("train sample", TRAIN_SAMPLE)
    outputs = training.predict(training.dev)
    record = EpochRecord(
        epoch=1,
        train_loss=kind.mean_loss(sample.labels, training.predict(sample)),
        metrics=scores(kind, training.metric_names, training.dev.labels, outputs),
        learning_rate=0.0,
        n_steps=0,
        seconds=time.perf_counter() - began,
    )
    training.on_epoch(record)
    return Trained([record], outputs)
