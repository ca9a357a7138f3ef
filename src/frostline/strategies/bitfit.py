"""Training only biases (BitFit, Ben Zaken 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, read_nothing

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class BitFit(Strategy):
    """Train the head and the biases of all layers."""

    forms = "bitfit"
    example = "bitfit"
    rates = "large"

    @classmethod
    def read(cls, argument: str) -> BitFit:
        """`bitfit`."""
        read_nothing(argument)
        return cls()

    @property
    def name(self) -> str:
        """`bitfit`."""
        return "bitfit"

    def plan(self, stack: Stack) -> Plan:
        """All biases in the layers, including those of norms; refused if the model has none."""
        from frostline.model.parts import biases

        return Plan.one_phase(cached_layers=0, trained=(*biases(stack), *stack.parameters_of(())))
