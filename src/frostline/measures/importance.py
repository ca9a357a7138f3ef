"""How important each attention head is (Michel, Levy and Neubig 2019).

Each head's output is multiplied by a gate of 1 before the output projection. The importance of a head is the mean over
rows of |dL/dgate|, the first-order estimate of what pruning the head does to a row's loss. A gate for each row and head
gives the derivatives of all rows in one backward pass: the loss of a row depends on no other row's gates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch

from frostline.measures.measure import Arrays, Measure, Subject, read_numbers, written
from frostline.model.inside.gates import gated, open_gates
from frostline.model.inside.heads import attention_heads
from frostline.model.stack import Stack

_ROWS = 1000


@final
@dataclass(frozen=True)
class Importance(Measure):
    """The importance of every attention head, from one pass with gradients over training rows."""

    rows: int = _ROWS
    """at most this many, a fixed sample"""

    forms = "importance or importance:rows=R"
    example = "importance:rows=1000"

    @classmethod
    def read(cls, argument: str) -> Importance:
        """`importance`, `importance:rows=200`."""
        return cls(**read_numbers(argument, rows=_ROWS))

    @property
    def name(self) -> str:
        """`importance`, `importance:rows=R`."""
        return written("importance", {"rows": _ROWS}, {"rows": self.rows})

    def check(self, stack: Stack) -> None:
        """Raises if the attention heads cannot be told apart."""
        attention_heads(stack)

    def of(self, subject: Subject) -> Arrays:
        """`importance` (layers, heads): the mean over rows of |dL/dgate|; a layer with fewer heads ends in zeros."""
        stack, layers = subject.stack, attention_heads(subject.stack)
        for parameter in stack.model.parameters():
            parameter.requires_grad_(False)  # only the gates need gradients
        like = next(stack.model.parameters())
        chosen = subject.train.sample("importance", self.rows)
        sums = np.zeros((len(layers), max(layer.n_heads for layer in layers)))
        for batch in subject.train.batches(chosen):
            gates = open_gates(layers, len(batch.places), like)
            with torch.enable_grad(), gated(stack, layers, gates):
                loss = subject.mean_loss(batch) * len(batch.places)
            gradients = torch.autograd.grad(loss, list(gates.values()), allow_unused=True)
            for row, gradient in enumerate(gradients):
                if gradient is not None:  # a head may read a lower layer than this one
                    sums[row, : gradient.shape[1]] += gradient.abs().sum(0).double().cpu().numpy()
        return {"importance": sums / len(chosen)}
