"""A model and rows → raw outputs → the task's metrics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from frostline.errors import FrostlineError
from frostline.kinds import Kind, Labels
from frostline.training.batches import evaluation_batches
from frostline.training.forward import Forward
from frostline.training.prefix import Split


def predict(forward: Forward, split: Split) -> NDArray[np.float32]:
    """The model's raw outputs (rows, outputs) for every row of a split, in the split's order.

    The model is in evaluation mode afterwards.
    """
    positions = split.positions
    forward.stack.eval()
    found: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
    with torch.no_grad():
        for batch in evaluation_batches(split.encoded, positions):
            found.append((batch.positions, forward.logits(batch, split).cpu().numpy()))
    order = np.concatenate([rows for rows, _ in found])
    by_position = np.concatenate([outputs for _, outputs in found])[np.argsort(order)]
    outputs = by_position[np.argsort(np.argsort(positions))]
    if not np.isfinite(outputs).all():
        raise FrostlineError("the model's outputs are not finite; try a lower learning rate")
    return outputs


def scores(kind: Kind, names: Sequence[str], labels: Labels, outputs: NDArray[np.float32]) -> dict[str, float]:
    """The scores of these outputs by each of the named metrics."""
    return {name: kind.score(name, labels, outputs) for name in names}
