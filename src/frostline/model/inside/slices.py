"""Training a part of a weight matrix: the slices of some attention heads.

An optimizer knows whole parameters. With a masked gradient, Adam's moments and weight decay would still reach the
masked places (TRAPS 37). So the slices become small parameters of their own, and the matrix that the model computes
with is put together in every step: frozen numbers with the slices in their places. The optimizer never sees the frozen
ones. torch calls this a parametrization; the module keeps its class, its weight and its hooks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from frostline.model.inside.heads import LayerHeads, Part
from frostline.records.parameters import AttentionHead

if TYPE_CHECKING:
    from frostline.model.stack import Stack

_HELD = ".parametrizations."
"""in the names of what torch keeps for a weight that is put together"""


class TrainedSlices(nn.Module):
    """Puts trained slices into their places in a frozen weight."""

    def __init__(self, weight: Tensor, dim: int, places: Sequence[int]) -> None:
        super().__init__()
        self.dim = dim
        self.places: Tensor
        self.register_buffer("places", torch.tensor(places, device=weight.device))
        self.trained = nn.Parameter(weight.detach().index_select(dim, self.places))

    def forward(self, frozen: Tensor) -> Tensor:
        """The weight (…) with the slices as they are now."""
        return frozen.index_copy(self.dim, self.places, self.trained)


def _slices(layers: Sequence[LayerHeads], trained: Collection[AttentionHead]) -> Iterator[tuple[Part, list[int]]]:
    """Each parameter of which heads are trained, and the places that are theirs."""
    for layer in layers:
        numbers = [head.number for head in layer.heads if head in trained]
        if numbers:
            for part in layer.parts:
                yield part, sorted(place for number in numbers for place in part.places[number])


def sliced_modules(layers: Sequence[LayerHeads], trained: Collection[AttentionHead]) -> tuple[str, ...]:
    """Names of the modules that have slices of these heads."""
    return tuple(dict.fromkeys(part.module for part, _ in _slices(layers, trained)))


def slice_parameters(layers: Sequence[LayerHeads], trained: Collection[AttentionHead]) -> tuple[str, ...]:
    """Names of the parameters that hold the slices of these heads, once they were added."""
    return tuple(f"{part.module}{_HELD}{part.name}.0.trained" for part, _ in _slices(layers, trained))


def add_slices(stack: Stack, layers: Sequence[LayerHeads], trained: Collection[AttentionHead]) -> None:
    """Makes the slices of these heads parameters of their own; the model computes the same as before."""
    for part, places in list(_slices(layers, trained)):
        module = stack.model.get_submodule(part.module)
        slices = TrainedSlices(module.get_parameter(part.name), part.dim, places)
        parametrize.register_parametrization(module, part.name, slices)
    stack.forget_structure()


def merge_slices(stack: Stack) -> None:
    """Writes every slice into its weight: an ordinary model again, with the same numbers."""
    for module, name in list(_assembled(stack.model)):
        parametrize.remove_parametrizations(module, name, leave_parametrized=True)
    stack.forget_structure()


def _assembled(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """The modules with weights that are put together, and the names of those weights."""
    for module in model.modules():
        if parametrize.is_parametrized(module):
            held = module.get_submodule("parametrizations")
            yield from ((module, name) for name, _ in held.named_children())


def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The state dict that a model would have if all slices were merged; all other tensors are its own."""
    merged: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        module, held, rest = name.partition(_HELD)
        if not held:
            merged[name] = tensor
        elif (whole := f"{module}.{rest.partition('.')[0]}") not in merged:
            merged[whole] = getattr(model.get_submodule(module), whole.rpartition(".")[2]).detach()
    return merged
