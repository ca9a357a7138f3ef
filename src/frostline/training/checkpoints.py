"""Paused runs, and checkpoints as bytes: what travels between a worker and the driver, and what the store keeps.

Nothing is unpickled but tensors and plain values (`weights_only`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import pickle
from zipfile import BadZipFile

import torch

from frostline.analysis import row_variance
from frostline.records.results import PausedRun
from frostline.training.loop import Checkpoint, PausedTraining, Training, scores


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """The content of a checkpoint."""
    buffer = io.BytesIO()
    torch.save(vars(checkpoint), buffer)
    return buffer.getvalue()


def from_bytes(content: bytes | None, until: int | None = None) -> Checkpoint | None:
    """The checkpoint to go on from; None where the run must start at its first step.

    That is the case without content, with content that cannot be read, and with a checkpoint beyond the next pause.
    """
    names = {field.name for field in dataclasses.fields(Checkpoint)}
    with contextlib.suppress(OSError, RuntimeError, EOFError, BadZipFile, pickle.UnpicklingError):
        found = torch.load(io.BytesIO(content or b""), map_location="cpu", weights_only=True)
        if isinstance(found, dict) and found.keys() == names and (until is None or found["n_steps"] <= until):
            return Checkpoint(**found)
    return None


def paused_run(training: Training, paused: PausedTraining) -> PausedRun:
    """The record of a pause: what the run scores on a sample of dev, and what it goes on from."""
    kind, names = training.kind, training.metric_names
    labels, outputs = training.dev_sample.labels, paused.outputs
    found = scores(kind, names, labels, outputs)
    return PausedRun(
        spec=training.spec,
        n_steps=paused.checkpoint.n_steps,
        metrics=found,
        score=found[names[0]],
        noise=math.sqrt(row_variance(kind, names[0], labels, [outputs])),
        loss=kind.mean_loss(labels, outputs),
        seconds=paused.checkpoint.all_seconds,
        checkpoint=to_bytes(paused.checkpoint),
    )
