"""Tied tensors: one tensor with several names, or used in several parts of a model.

Most are found by name. A head that uses the embedding matrix without a name of its own is found by gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from frostline.model.stack import Stack
from frostline.model.structure import parameters_behind, probed_row


@dataclass(frozen=True)
class Tie:
    """One tensor that has several names, or belongs to several parts of the model."""

    names: tuple[str, ...]
    """all its names in the model"""
    places: frozenset[int]
    """parts that it belongs to; 0: below the layers, 1…n_layers: that layer, n_layers + 1: the head"""


def find_ties(stack: Stack) -> list[Tie]:
    """The tensors with more than one name or place."""
    names: dict[torch.nn.Parameter, list[str]] = {}
    for name, parameter in stack.model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    read_below = _read_below(stack)
    ties = [Tie(tuple(known), _places(stack, known, read_below)) for known in names.values()]
    return [tie for tie in ties if len(tie.names) > 1 or len(tie.places) > 1]


def _places(stack: Stack, names: list[str], read_below: set[str]) -> frozenset[int]:
    found = stack.structure
    of_layers = {name: number for number, layer in enumerate(found.layer_parameters, start=1) for name in layer}
    places = {of_layers[name] for name in names if name in of_layers}
    if any(name not in of_layers for name in names):
        is_above = any(name in found.above_parameters for name in names)
        is_below = names[0] in read_below or not is_above
        places |= {place for place, is_there in ((0, is_below), (stack.n_layers + 1, is_above)) if is_there}
    return frozenset(places)


def _read_below(stack: Stack) -> set[str]:
    """Names of the parameters that the input of the first layer depends on."""
    row = {"input_ids": probed_row(stack.model)}
    return parameters_behind(stack.model, lambda: [stack.state_at(0, row)])
