"""Training only layer norms: the baseline in the adapter paper (Houlsby 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, read_nothing

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Norms(Strategy):
    """Train the head and the norms of all layers."""

    forms = "norms"
    example = "norms"
    rates = "large"

    @classmethod
    def read(cls, argument: str) -> Norms:
        """`norms`."""
        read_nothing(argument)
        return cls()

    @property
    def name(self) -> str:
        """`norms`."""
        return "norms"

    def plan(self, stack: Stack) -> Plan:
        """Scale and shift of every norm in the layers. A norm above the last layer is part of the head."""
        from frostline.model.parts import norms

        return Plan.one_phase(cached_layers=0, trained=(*norms(stack), *stack.parameters_of(())))
