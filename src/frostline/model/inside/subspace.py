"""Training inside a random subspace of the weights: θ = θ₀ + P·z, where only the few numbers z train.

Li 2018 and Aghajanyan 2020 measure with it how many numbers a task needs. P is a count sketch: every weight belongs to
one of the D numbers of z, with a random sign. So each row of P has a single entry, and P takes one int32 per weight.

The entries are ±√(N/D) for N weights. AdamW moves each number by about the rate r. To first order the loss of the full
model then falls by r·√N times the length of its gradient g; that of z falls by r·√D times the length of Pᵀ·g, which is
√(N/D) times that of g: the same. So the learning rates of full fine-tuning work at every D. But all weights move by
r·√(N/D), mostly in directions that do not matter, so the factor has a limit (docs/log.md has the measurements).

Which number a weight belongs to is a hash of the seed, the tensor's name and the weight's position in it. It is
computed with whole numbers, so it is the same on any machine and with any version of the libraries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parametrize

from frostline.model.parts import pretrained_above
from frostline.records.keys import derived_seed

if TYPE_CHECKING:
    from frostline.model.stack import Stack


MOST_SCALE = 100.0
"""Largest factor: at the usual rates a step then moves weights by up to a tenth of their size."""


class SubspaceUpdate(nn.Module):
    """Moves one pretrained tensor: adds the numbers of z that its weights belong to, each with its sign."""

    def __init__(self, z: nn.Parameter, places: NDArray[np.int32], scale: float) -> None:
        super().__init__()
        self.scale = scale
        # One parameter for all tensors. Each registers it, so that every layer counts as trained and keeps its dropout.
        self.z = z
        self.places: Tensor
        self.register_buffer("places", torch.from_numpy(places).to(z.device), persistent=False)

    def forward(self, pretrained: Tensor) -> Tensor:
        """The tensor that the model computes with."""
        signed = torch.cat([self.z, -self.z]) * self.scale
        return pretrained + signed.index_select(0, self.places).view_as(pretrained)


def places_of(name: str, n_weights: int, n_dimensions: int, seed: int) -> NDArray[np.int32]:
    """For each weight of a tensor the number of z that it belongs to, plus `n_dimensions` if its sign is minus."""
    bits = _hashed(derived_seed(seed, f"subspace/{name}"), n_weights)
    # The upper half of the bits, scaled to [0, D), chooses the number; the lowest bit, which it does not use, the sign.
    chosen = ((bits >> np.uint64(32)) * np.uint64(n_dimensions)) >> np.uint64(32)
    chosen += (bits & np.uint64(1)) * np.uint64(n_dimensions)
    return chosen.astype(np.int32)


def _hashed(key: int, count: int) -> NDArray[np.uint64]:
    """64 well-mixed bits for each of `count` positions: the output function of SplitMix64 (Steele 2014)."""
    bits = np.arange(1, count + 1, dtype=np.uint64)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits += np.uint64(key << 32 | key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return bits


def scale_of(n_weights: int, n_dimensions: int) -> float:
    """The size of the entries of P."""
    return min(math.sqrt(n_weights / n_dimensions), MOST_SCALE)


def moved_parameters(stack: Stack) -> tuple[str, ...]:
    """Names of the parameters that move in the subspace: all layers, a pretrained pooler and a final norm."""
    return pretrained_above(stack, 0, with_norm=True)


def subspace_parameter(stack: Stack) -> str:
    """The name that z gets in this model: that of its place in the first tensor that torch finds it in."""
    owner, _, tensor = next(_in_order(stack.model, "", set(moved_parameters(stack)))).rpartition(".")
    return f"{owner}.parametrizations.{tensor}.0.z"


def _in_order(module: nn.Module, name: str, moved: Set[str]) -> Iterator[str]:
    """The moved parameters in the order of their parametrizations, which a module keeps behind its other children."""
    for child, inner in module.named_children():
        yield from _in_order(inner, f"{name}{child}.", moved)
    yield from (f"{name}{own}" for own, _ in module.named_parameters(recurse=False) if f"{name}{own}" in moved)


def add_subspace(stack: Stack, n_dimensions: int, seed: int) -> None:
    """Lets a new z = 0 with `n_dimensions` numbers move the model's weights."""
    expected = subspace_parameter(stack)
    moved, z = moved_parameters(stack), nn.Parameter(torch.zeros(n_dimensions, device=stack.device))
    scale = scale_of(stack.count(moved), n_dimensions)
    parameters = dict(stack.model.named_parameters())
    for name in moved:
        owner, _, tensor = name.rpartition(".")
        update = SubspaceUpdate(z, places_of(name, parameters[name].numel(), n_dimensions, seed), scale)
        # Unsafe: not called once to check its shape, which would compute every weight of the model.
        parametrize.register_parametrization(stack.model.get_submodule(owner), tensor, update, unsafe=True)
    stack.forget_structure()
    assert expected in stack.all_parameters, "z is found under the name that the plan trains"
