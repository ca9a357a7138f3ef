"""Runs a stack from any depth up: the whole model, or from states that were kept or are computed on the spot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from frostline.batches import Batch
from frostline.prefix import Split
from frostline.stack import Stack


@dataclass(frozen=True)
class Forward:
    """How logits come out of a batch, in training and in evaluation alike.

    With `depth` the layers up to it are left out of the gradient: their output is read from the split where it keeps
    states, else computed on the spot. Nothing else differs between the two, dropout draws included.
    """

    stack: Stack
    depth: int | None = None
    """layers that are not part of the training pass; None: the whole model is"""
    autocast: bool = False
    """bf16 where the device can"""

    def logits(self, batch: Batch, split: Split) -> Tensor:
        """The model's outputs (batch, classes), fp32."""
        device = self.stack.device
        inputs = {name: tensor.to(device) for name, tensor in batch.inputs.items()}
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.autocast):
            if self.depth is None:
                return self.stack.logits(inputs).float()
            state = self._state(self.depth, inputs, batch, split)
            return self.stack.logits_from(self.depth, state, inputs).float()

    def _state(self, depth: int, inputs: dict[str, Tensor], batch: Batch, split: Split) -> Tensor:
        if split.states is not None:
            return split.states.padded(batch, split.encoded).to(self.stack.device)
        with torch.no_grad():
            state = self.stack.state_at(depth, inputs)
        return state * batch.mask.to(state.device)[..., None]
