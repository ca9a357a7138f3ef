"""Gates on attention heads: what a head hands to the output projection is multiplied by a number.

A gate of 0 prunes the head: its slices of query, key, value and output could be deleted. The derivative of a loss with
respect to a gate of 1 is the head's importance (Michel 2019). The model is not rewritten: a hook multiplies the input
of the output projection.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from frostline.model.inside.heads import LayerHeads
from frostline.records.parameters import AttentionHead

if TYPE_CHECKING:
    from frostline.model.stack import Stack

Gates = Mapping[int, Tensor]
"""by layer, counted from 1: (rows, heads), or (1, heads) for all rows alike"""


@contextlib.contextmanager
def gated(stack: Stack, layers: Sequence[LayerHeads], gates: Gates) -> Iterator[None]:
    """Inside this context, the heads of these layers are multiplied by their gates, in padded batches."""
    handles = [
        stack.model.get_submodule(layer.output).register_forward_pre_hook(_Gate(gates[layer.layer]))
        for layer in layers
        if layer.layer in gates
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Gate:
    """A hook that multiplies each head's part of (rows, tokens, heads × width) by its gate."""

    def __init__(self, gate: Tensor) -> None:
        self.gate = gate

    def __call__(self, _module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        values, *rest = args
        n_rows, n_tokens, _ = values.shape
        assert len(self.gate) in (1, n_rows), "a gate is for all rows alike, or for each row of a padded batch"
        heads = values.reshape(n_rows, n_tokens, self.gate.shape[1], -1) * self.gate[:, None, :, None]
        return (heads.view(values.shape), *rest)


def open_gates(layers: Sequence[LayerHeads], n_rows: int, like: Tensor) -> dict[int, Tensor]:
    """Gates of 1 that record gradients, one for each row and head."""
    return {layer.layer: like.new_ones(n_rows, layer.n_heads).requires_grad_() for layer in layers}


def pruned(
    stack: Stack, layers: Sequence[LayerHeads], heads: Collection[AttentionHead]
) -> contextlib.AbstractContextManager[None]:
    """Inside this context, these heads contribute nothing."""
    weight = next(stack.model.parameters())
    gates: dict[int, Tensor] = {}
    for layer in layers:
        kept = [float(head not in heads) for head in layer.heads]
        if not all(kept):
            gates[layer.layer] = torch.tensor([kept], dtype=weight.dtype, device=weight.device)
    return gated(stack, layers, gates)
