"""How far training moved the weights of each attention head. Needs no rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from torch import Tensor

from frostline.measures.measure import Arrays, Measure, Subject, read_numbers
from frostline.model.inside.heads import LayerHeads, attention_heads
from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Movement(Measure):
    """The relative distance of every attention head's weights from where they were before the run."""

    forms = "movement"
    example = "movement"

    @classmethod
    def read(cls, argument: str) -> Movement:
        """`movement`."""
        read_numbers(argument)
        return cls()

    @property
    def name(self) -> str:
        """`movement`."""
        return "movement"

    def check(self, stack: Stack) -> None:
        """Raises if the attention heads cannot be told apart."""
        attention_heads(stack)

    def of(self, subject: Subject) -> Arrays:
        """`movement` (layers, heads): |after − before| / |before| over all weights of a head that are its own."""
        layers, before = attention_heads(subject.stack), subject.pretrained()
        found = np.zeros((len(layers), max(layer.n_heads for layer in layers)))
        for row, layer in enumerate(layers):
            for head in layer.heads:
                moved, size = _squared_lengths(layer, head.number, subject.stack, before)
                found[row, head.number] = np.sqrt(moved / size) if size else 0.0
        return {"movement": found}


def _squared_lengths(layer: LayerHeads, number: int, stack: Stack, before: Stack) -> tuple[float, float]:
    """How far the weights of a head moved, and how large they were, both squared."""
    moved = size = 0.0
    for part in layer.parts:
        after, first = (_slice(one, part.module, part.name, part.dim, part.places[number]) for one in (stack, before))
        moved += float((after - first).double().square().sum())
        size += float(first.double().square().sum())
    return moved, size


def _slice(stack: Stack, module: str, name: str, dim: int, places: tuple[int, ...]) -> Tensor:
    weight: Tensor = stack.model.get_submodule(module).get_parameter(name).detach()
    return weight.index_select(dim, weight.new_tensor(places).long())
