"""Freezing the lowest layers, the paper's strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, check_layers, read_number

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Freeze(Strategy):
    """Train the head and the top layers; freeze the embeddings and the lowest `n_frozen` layers."""

    n_frozen: int

    forms = "freeze:N, or freeze:+N to train the last N layers"
    example = "freeze:3"

    @classmethod
    def read(cls, argument: str) -> Strategy:
        """`freeze:3`, or `freeze:+3`."""
        if argument.startswith("+"):
            return FreezeRest(read_number(argument[1:], least=0))
        return cls(read_number(argument, least=0))

    @property
    def name(self) -> str:
        """`freeze:N`."""
        return f"freeze:{self.n_frozen}"

    def plan(self, stack: Stack) -> Plan:
        """The layers above `n_frozen` and the head; the state after `n_frozen` layers may be cached."""
        check_layers(self, self.n_frozen, stack.n_layers)
        trained = stack.parameters_above(self.n_frozen)
        return Plan.one_phase(n_frozen=self.n_frozen, cached_layers=self.n_frozen, trained=trained)

    def resolved(self, n_layers: int, kind: str) -> Freeze:  # noqa: ARG002
        """The same strategy; raises if the model has too few layers."""
        check_layers(self, self.n_frozen, n_layers)
        return self

    def n_prefix_layers(self, n_layers: int) -> int:  # noqa: ARG002
        """The frozen layers."""
        return self.n_frozen


@final
@dataclass(frozen=True)
class FreezeRest(Strategy):
    """Train the head and the last `n_last` layers; freeze the rest."""

    n_last: int

    forms = Freeze.forms
    example = Freeze.example

    @classmethod
    def read(cls, argument: str) -> Strategy:
        """The same forms as `freeze`."""
        return Freeze.read(argument)

    @property
    def name(self) -> str:
        """`freeze:+N`."""
        return f"freeze:+{self.n_last}"

    def plan(self, stack: Stack) -> Plan:
        """The plan of the equivalent `freeze:N`."""
        return self._as_depth(stack.n_layers).plan(stack)

    def resolved(self, n_layers: int, kind: str) -> Freeze:  # noqa: ARG002
        """The equivalent `freeze:N` for a model with this many layers."""
        return self._as_depth(n_layers)

    def n_prefix_layers(self, n_layers: int) -> int:
        """The frozen layers."""
        return n_layers - self.n_last

    def _as_depth(self, n_layers: int) -> Freeze:
        check_layers(self, self.n_last, n_layers)
        return Freeze(n_layers - self.n_last)
