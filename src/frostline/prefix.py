"""Computes, extends, keeps and reads what the frozen layers put out.

The states of a split lie un-padded in one array, row after row, and are computed in a fixed batch layout, so that the
same bits come out whoever computes them and from whichever depth they are extended. Kept in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.batches import Batch, Encoded, evaluation_batches, token_positions
from frostline.errors import FrostlineError
from frostline.stack import Stack

BYTES_PER_NUMBER = 4


@dataclass(frozen=True)
class States:
    """The state after `depth` layers of every token of a split."""

    depth: int
    row_ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    values: NDArray[np.float32]
    """(all tokens, width)"""

    def of(self, batch: Batch, encoded: Encoded) -> Tensor:
        """The states of the batch's tokens (all tokens, width)."""
        if not np.array_equal(self.row_ids[batch.positions], encoded.row_ids[batch.positions]):
            raise FrostlineError("the prefix states are of other rows than the batch; clear the cache and report this")
        return torch.from_numpy(self.values[token_positions(self.offsets, batch.positions)])


@dataclass(frozen=True)
class Split:
    """The rows of train or dev, with the prefix states kept for them, if any."""

    encoded: Encoded
    states: States | None = None


def estimated_bytes(encoded: Encoded, width: int) -> int:
    """Size of the states of one split at one depth."""
    return len(encoded.tokens) * width * BYTES_PER_NUMBER


@dataclass
class PrefixMemory:
    """The prefix states of one process, by split and depth. When space is short, deeper ones replace shallower."""

    max_bytes: int
    seconds: float = 0.0
    """spent computing, so far"""
    _kept: dict[tuple[str, int], States] = field(default_factory=dict)

    def states(self, encoded: Encoded, model: str, depth: int, load_stack: Callable[[], Stack]) -> States:
        """The states of a split after `depth` layers, computed if they are not there.

        Args:
            model: fingerprint of the pretrained model.
            load_stack: called only when something must be computed.
        """
        key = f"{model} {encoded.key}"
        if (key, depth) not in self._kept:
            start = max((d for k, d in self._kept if k == key and d < depth), default=None)
            began = time.perf_counter()
            states = _compute(load_stack(), encoded, depth, None if start is None else self._kept[key, start])
            self.seconds += time.perf_counter() - began
            self._make_room(depth, states.values.nbytes)
            self._kept[key, depth] = states
        return self._kept[key, depth]

    def _make_room(self, depth: int, n_bytes: int) -> None:
        held = sum(states.values.nbytes for states in self._kept.values())
        for kept in sorted((kept for kept in self._kept if kept[1] != depth), key=lambda kept: kept[1]):
            if held + n_bytes > self.max_bytes:
                held -= self._kept.pop(kept).values.nbytes


def _compute(stack: Stack, encoded: Encoded, depth: int, below: States | None) -> States:
    stack.eval()
    values: NDArray[np.float32] | None = None
    with torch.no_grad():
        for batch in evaluation_batches(encoded):
            inputs = {name: tensor.to(stack.device) for name, tensor in batch.padded_inputs().items()}
            if below is None:
                state = stack.state_at(depth, inputs)
            else:
                start = batch.padded(below.of(batch, encoded)).to(stack.device)
                state = stack.state_between(below.depth, start, depth, inputs)
            rows = state.cpu()[batch.mask].numpy()
            if values is None:
                values = np.empty((len(encoded.tokens), rows.shape[-1]), dtype=np.float32)
            values[token_positions(encoded.offsets, batch.positions)] = rows
    assert values is not None
    return States(depth, encoded.row_ids, encoded.offsets, values)
