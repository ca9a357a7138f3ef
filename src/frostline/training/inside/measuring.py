"""Measures of a run's model, taken after it was trained and scored."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from frostline import measures
from frostline.errors import FrostlineError
from frostline.measures import RowBatch, RowSource, Subject
from frostline.model.stack import FrozenMovedError, Stack
from frostline.records.arrays import StoredArray
from frostline.records.results import Measured
from frostline.training.batches import evaluation_batches, make_batch
from frostline.training.loop import Training, loss_of
from frostline.training.pooled import Pooled
from frostline.training.prefix import Split
from frostline.training.prepare import Prepared, load_stack, seed_for

LabelScale = tuple[float, float] | None
"""mean and spread of the labels, if the model learned standardised ones"""


def measured(prepared: Prepared, training: Training, scale: LabelScale) -> tuple[Measured, ...]:
    """What the spec's measures find in the trained model, in their order."""
    spec, stack = training.spec, training.forward.stack
    if not spec.measures:
        return ()
    subject = subject_of(prepared, training, scale)
    before = stack.digest(())
    found = tuple(_taken(name, subject) for name in spec.measures)
    if stack.digest(()) != before:
        raise FrozenMovedError("a weight changed while the model was measured; the result is not stored")
    return found


def subject_of(prepared: Prepared, training: Training, scale: LabelScale) -> Subject:
    """What measures look at: the model of a run, and the run's rows."""
    spec, stack, data = training.spec, training.forward.stack, prepared.data
    train, dev = (
        row_source(split, stack, scale, prepared.pooled.get(split.source)) for split in (prepared.train, prepared.dev)
    )
    return Subject(
        stack=stack,
        pretrained=lambda: load_stack(spec, prepared),
        train=train,
        dev=dev,
        loss=loss_of(data.kind),
        kind=data.kind,
        metric=data.task.metrics[0],
        on_label_scale=lambda outputs: _unscaled(outputs, scale),
        seed=seed_for(spec, "measures"),
    )


def _taken(name: str, subject: Subject) -> Measured:
    began = time.perf_counter()
    measure = measures.parse(name)
    measure.check(subject.stack)
    subject.stack.eval()
    arrays = measure.of(subject)
    for what, values in arrays.items():
        if not np.isfinite(values).all():
            raise FrostlineError(f"{name}: {what} is not finite; the result is not stored")
    stored = {what: StoredArray.of(values) for what, values in arrays.items()}
    return Measured(measure=name, arrays=stored, seconds=time.perf_counter() - began)


def row_source(split: Split, stack: Stack, scale: LabelScale = None, pooled: Pooled | None = None) -> RowSource:
    """The rows of a split. Places count its own rows; a split may have only some of the rows of its tokens."""
    encoded, positions = split.encoded, split.positions
    order = np.argsort(positions)

    def cut(places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        for batch in evaluation_batches(encoded, positions[places]):
            yield order[np.searchsorted(positions[order], batch.positions)]

    def batch(places: NDArray[np.int64]) -> RowBatch:
        rows = make_batch(encoded, positions[places])
        return RowBatch(
            places=places,
            inputs={name: tensor.to(stack.device) for name, tensor in rows.padded_inputs().items()},
            mask=rows.mask.to(stack.device),
            labels=rows.labels if scale is None else (rows.labels - scale[0]) / scale[1],
        )

    return RowSource(
        labels=split.labels,
        lengths=encoded.lengths[positions],
        batch=batch,
        cut=cut,
        pooled=None if pooled is None else pooled[positions],
    )


def _unscaled(outputs: NDArray[np.float32], scale: LabelScale) -> NDArray[np.float32]:
    return outputs if scale is None else (outputs.astype(np.float64) * scale[1] + scale[0]).astype(np.float32)
