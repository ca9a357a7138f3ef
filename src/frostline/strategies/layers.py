"""Training any set of layers, instead of all layers above a depth."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.errors import UsageError
from frostline.records.plans import Plan
from frostline.strategies.freeze import Freeze
from frostline.strategies.strategy import Strategy, UnreadableError

if TYPE_CHECKING:
    from frostline.model.stack import Stack

_MOST_LAYERS = 10_000


@final
@dataclass(frozen=True)
class Layers(Strategy):
    """Train the head and these layers, counted from 1; freeze the embeddings and all other layers."""

    trained: frozenset[int]

    forms = "layers:1+2+11 or layers:1-2+11"
    example = "layers:1-2+6"

    @classmethod
    def read(cls, argument: str) -> Layers:
        """`layers:1+2+11`, `layers:1-2+11`."""
        if not argument:
            raise UnreadableError("names no layers")
        layers: set[int] = set()
        for part in argument.split("+"):
            ends = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
            first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
            if not 1 <= first <= last <= _MOST_LAYERS:
                raise UnreadableError(
                    f"needs layer numbers from 1, ranges with the lower number first; {part!r} is not valid"
                )
            layers.update(range(first, last + 1))
        return cls(frozenset(layers))

    @property
    def name(self) -> str:
        """`layers:1+2+11`."""
        return f"layers:{'+'.join(map(str, sorted(self.trained)))}"

    def plan(self, stack: Stack) -> Plan:
        """The layers and the head. The state below the lowest trained layer may be cached."""
        self._check(stack.n_layers)
        below, depth = min(self.trained) - 1, self._depth(stack.n_layers)
        return Plan.one_phase(n_frozen=depth, cached_layers=below, trained=stack.parameters_of(self.trained))

    def resolved(self, n_layers: int, kind: str) -> Strategy:  # noqa: ARG002
        """`freeze:N` if these are the last layers; otherwise the same strategy."""
        self._check(n_layers)
        depth = self._depth(n_layers)
        return self if depth is None else Freeze(depth)

    def n_prefix_layers(self, n_layers: int) -> int:  # noqa: ARG002
        """The layers below the lowest trained one."""
        return min(self.trained) - 1

    def n_trained_layers(self, n_layers: int) -> int:  # noqa: ARG002
        """The named layers."""
        return len(self.trained)

    def _depth(self, n_layers: int) -> int | None:
        """How many layers are frozen if the trained ones are the last layers; otherwise None."""
        below = min(self.trained) - 1
        return below if self.trained == set(range(below + 1, n_layers + 1)) else None

    def _check(self, n_layers: int) -> None:
        if not self.trained:
            raise UsageError(f"no layers to train are named; to train only the head, freeze all {n_layers} layers")
        if wrong := sorted(layer for layer in self.trained if not 1 <= layer <= n_layers):
            kept = [layer for layer in sorted(self.trained) if layer not in wrong] or [n_layers]
            raise UsageError(
                f"the model has no layer {', '.join(map(str, wrong))}; its layers are numbered 1 to {n_layers}: write "
                f"{self.forms}. Did you mean 'layers:{'+'.join(map(str, kept))}'?"
            )
