"""What is left of a model when more and more of its attention heads are pruned, in a given order.

The order is part of the measure's name, so that a stored result says what was pruned. A pruned head contributes
nothing: its output is 0 before the output projection, as if its slices of the weights were deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from frostline.errors import UsageError
from frostline.measures.measure import Arrays, Measure, RowSource, Subject, UnreadableMeasureError
from frostline.model.inside.gates import pruned
from frostline.model.inside.heads import attention_heads
from frostline.model.stack import Stack
from frostline.records.parameters import AttentionHead, pruning_steps, read_heads, written_heads


@final
@dataclass(frozen=True)
class Pruning(Measure):
    """The model's outputs on dev after each tenth of its attention heads was pruned, as far as this order goes."""

    order: tuple[AttentionHead, ...]
    """attention heads of the model, the first to be pruned first"""

    forms = "pruning:1.3+2.0+…, attention heads in the order in which they are pruned"
    example = "pruning:1.0+1.1"

    @classmethod
    def read(cls, argument: str) -> Pruning:
        """`pruning:1.3+2.0+…`."""
        order = read_heads(argument)
        if order is None:
            raise UnreadableMeasureError("needs each attention head once, as layer.head")
        return cls(order)

    @property
    def name(self) -> str:
        """`pruning:1.3+2.0+…`."""
        return f"pruning:{written_heads(self.order)}"

    def check(self, stack: Stack) -> None:
        """Raises if the order names an attention head that the model does not have."""
        known = {head for layer in attention_heads(stack) for head in layer.heads}
        if unknown := sorted({*self.order} - known):
            raise UsageError(f"the order names the attention head {unknown[0]}, which the model does not have")

    def of(self, subject: Subject) -> Arrays:
        """`outputs` (steps, dev rows, outputs) on the scale of the labels, and `n_pruned` (steps,)."""
        self.check(subject.stack)
        layers = attention_heads(subject.stack)
        steps = pruning_steps(sum(layer.n_heads for layer in layers))
        numbers = [number for number in steps if number <= len(self.order)]
        found: dict[int, NDArray[np.float32]] = {}
        for number in numbers:
            with pruned(subject.stack, layers, frozenset(self.order[:number])):
                found[number] = subject.on_label_scale(outputs_of(subject, subject.dev))
        return {"outputs": np.stack([found[number] for number in numbers]), "n_pruned": np.array(numbers)}


def outputs_of(subject: Subject, rows: RowSource) -> NDArray[np.float32]:
    """The model's outputs (rows, outputs) for all rows of a split, in their order."""
    found: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
    with torch.no_grad():
        for batch in rows.batches():
            found.append((batch.places, subject.logits(batch).float().cpu().numpy()))
    order = np.argsort(np.concatenate([places for places, _ in found]))
    outputs: NDArray[np.float32] = np.concatenate([values for _, values in found])[order]
    return outputs
