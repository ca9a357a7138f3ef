"""Freezing by choice: a set of layers instead of a depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.errors import UsageError
from frostline.records import Plan
from frostline.strategies.strategy import Strategy

if TYPE_CHECKING:
    from frostline.stack import Stack


@final
@dataclass(frozen=True)
class Layers(Strategy):
    """Train the head and these layers, counted from 1; leave the embeddings and all other layers alone."""

    trained: frozenset[int]

    def plan(self, stack: Stack) -> Plan:
        """The layers and the head; the state below the lowest of them may be cached."""
        n_layers = stack.n_layers
        if not self.trained:
            raise UsageError(f"no layer to train is named; to train the head alone, freeze all {n_layers} layers")
        if wrong := sorted(layer for layer in self.trained if not 1 <= layer <= n_layers):
            raise UsageError(f"no layer {', '.join(map(str, wrong))}; the model's layers are numbered 1 to {n_layers}")
        below = min(self.trained) - 1
        is_depth = self.trained == set(range(below + 1, n_layers + 1))
        return Plan.one_phase(
            n_frozen=below if is_depth else None, cached_layers=below, trained=stack.parameters_of(self.trained)
        )

    @property
    def name(self) -> str:
        """`layers:1,2,11`."""
        return f"layers:{','.join(map(str, sorted(self.trained)))}"
