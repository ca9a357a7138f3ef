"""The forward pass of training and evaluation: a stack run from any depth up, on packed or padded batches.

The state it starts from is read from the prefix cache, or computed on the spot.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.errors import EXIT_CRASHED_RUNS, FrostlineError
from frostline.model.added.readers import Reader
from frostline.model.layouts.inner import Meeting, find_meeting, without_padding
from frostline.model.packing import Packing, packed
from frostline.model.stack import Stack
from frostline.records.specs import Layout
from frostline.training.batches import Batch, evaluation_batches
from frostline.training.prefix import Split, States, tokens_read


class DivergedError(FrostlineError):
    """The loss or the outputs are not finite."""

    exit_code = EXIT_CRASHED_RUNS


@dataclass(frozen=True)
class Forward:
    """Computes the logits of a batch, in training and in evaluation alike.

    With `depth`, the layers up to it get no gradient: their output is read from the split's cached states, or else
    computed on the spot. Nothing else differs between the two, dropout draws included.
    """

    stack: Stack
    depth: int | None = None
    """number of layers below the training pass; None: the whole model is part of it"""
    layout: Layout = "padded"
    """packed, varlen: the layers see the rows of a batch as one long row; mixed: all of a layer but attention does"""
    autocast: bool = False
    """use bf16 where the device supports it"""

    @functools.cached_property
    def _device(self) -> torch.device:
        return self.stack.device

    def logits(self, batch: Batch, split: Split) -> Tensor:
        """The model's outputs (batch, classes), fp32."""
        with self._precision():
            if self.stack.reader is not None:
                return self._read(self.stack.reader, batch, split).float()
            if split.states is not None and split.states.is_one_token:
                return self._from_one_token(batch, split, split.states).float()
            if self.layout in ("packed", "varlen"):
                return self._packed(batch, split).float()
            with self._without_padding(batch):
                return self._padded(batch, split).float()

    @functools.cached_property
    def _meeting(self) -> Meeting:
        meeting = find_meeting(self.stack)
        assert meeting is not None, "a model gets this layout only where it was found"
        return meeting

    def _without_padding(self, batch: Batch) -> contextlib.AbstractContextManager[None]:
        if self.layout == "padded":
            return contextlib.nullcontext()
        return without_padding(self.stack, self._meeting, batch.mask.to(self._device))

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        return torch.autocast(self._device.type, dtype=torch.bfloat16) if self.autocast else contextlib.nullcontext()

    def _from_one_token(self, batch: Batch, split: Split, states: States) -> Tensor:
        """The logits where only the head is left and the cache holds the one token per row that it reads."""
        tokens = batch.tokens[tokens_read(self.stack, batch)].to(self._device)
        return self._head_of_one(tokens, states.of(batch, split.encoded).to(self._device))

    def _read(self, reader: Reader, batch: Batch, split: Split) -> Tensor:
        """The logits of a head that reads the states of several layers."""
        if split.read:
            states = [batch.padded(kept.of(batch, split.encoded)).to(self._device) for kept in split.read]
        else:
            states = self.stack.frozen_states_at(reader.depths, self._moved(batch.padded_inputs()))
        logits: Tensor = reader(states, batch.mask.to(self._device))
        return logits

    def _padded(self, batch: Batch, split: Split) -> Tensor:
        stack = self.stack
        inputs = self._moved(batch.padded_inputs())
        start = self._padded_start(batch, split, inputs)
        if stack.head_reads == "all":
            return self._whole(start, inputs)
        # Positions come from the mask. A head that looks for the pad token would take an end token that also serves
        # as the pad token for padding.
        return self._head(batch, self._top(start, inputs)[batch.mask.to(self._device)])

    def _packed(self, batch: Batch, split: Split) -> Tensor:
        stack = self.stack
        inputs = self._moved(batch.packed_inputs(stack.first_position))
        with packed(Packing.of(batch.mask.to(self._device), is_varlen=self.layout == "varlen")):
            start = self._start(batch, split, inputs)
            if self.depth == stack.n_layers or not stack.can_read_one_token:
                state = self._top(start, inputs)[0]
                return self._head(batch, state)
            with stack.top_layer_on(batch.ends[0].to(self._device)):
                return self._whole(start, inputs)

    def _padded_start(self, batch: Batch, split: Split, inputs: dict[str, Tensor]) -> Tensor | None:
        """The state the training pass starts from (batch, tokens, width), 0 at padding."""
        if self.depth is None:
            return None
        if split.states is not None:
            return batch.padded(split.states.of(batch, split.encoded)).to(self._device)
        return self.stack.frozen_state_at(self.depth, inputs) * batch.mask.to(self._device)[..., None]

    def _start(self, batch: Batch, split: Split, inputs: dict[str, Tensor]) -> Tensor | None:
        """The state the training pass starts from (1, all tokens, width); None: it starts from the tokens."""
        if self.depth is None:
            return None
        if split.states is not None:
            return split.states.of(batch, split.encoded)[None].to(self._device)
        return self.stack.frozen_state_at(self.depth, inputs)

    def _whole(self, start: Tensor | None, inputs: dict[str, Tensor]) -> Tensor:
        """The logits from the model's own head, which reads all tokens."""
        if start is None or self.depth is None:
            return self.stack.logits(inputs)
        return self.stack.logits_from(self.depth, start, inputs)

    def _top(self, start: Tensor | None, inputs: dict[str, Tensor]) -> Tensor:
        """The state after the last layer (batch, tokens, width)."""
        if start is None or self.depth is None:
            return self.stack.state_at(self.stack.n_layers, inputs)
        return self.stack.state_between(self.depth, start, self.stack.n_layers, inputs)

    def _head(self, batch: Batch, state: Tensor) -> Tensor:
        """The logits from the last layer's states (all tokens, width)."""
        stack = self.stack
        if stack.head_reads == "all":
            return stack.logits_from(stack.n_layers, batch.padded(state), self._moved(batch.padded_inputs()))
        read = tokens_read(stack, batch).to(self._device)
        return self._head_of_one(batch.tokens.to(self._device)[read], state[read])

    def _head_of_one(self, tokens: Tensor, state: Tensor) -> Tensor:
        """The logits from the one token of each row that the head reads, (batch,) and (batch, width)."""
        # No mask: there is nothing to mask, and building one costs time in many models.
        return self.stack.logits_from(self.stack.n_layers, state[:, None], {"input_ids": tokens[:, None]})

    def _moved(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self._device) for name, tensor in inputs.items()}


def predict(forward: Forward, split: Split) -> NDArray[np.float32]:
    """The model's raw outputs (rows, classes) for every row of a split, in the split's order.

    Leaves the model in evaluation mode.
    """
    positions = split.positions
    forward.stack.eval()
    found: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
    with torch.no_grad():
        for batch in evaluation_batches(split.encoded, positions):
            found.append((batch.positions, forward.logits(batch, split).cpu().numpy()))
    # Batches are sorted by length: put the rows back into the order of `positions`.
    order = np.concatenate([rows for rows, _ in found])
    by_position = np.concatenate([outputs for _, outputs in found])[np.argsort(order)]
    outputs = by_position[np.argsort(np.argsort(positions))]
    if not np.isfinite(outputs).all():
        raise DivergedError("the model's outputs are not finite; try a lower learning rate")
    return outputs
