"""Gradual unfreezing (ULMFiT, Howard and Ruder 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Phase, Plan
from frostline.strategies.strategy import Strategy, read_nothing

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Gradual(Strategy):
    """Unfreeze from the top down, evenly over the epochs; in the last epoch everything trains."""

    forms = "gradual"
    example = "gradual"

    @classmethod
    def read(cls, argument: str) -> Gradual:
        """`gradual`."""
        read_nothing(argument)
        return cls()

    @property
    def name(self) -> str:
        """`gradual`."""
        return "gradual"

    def plan(self, stack: Stack) -> Plan:
        """One phase per layer; with fewer epochs than layers, several layers are unfrozen at once."""
        lower = [
            Phase(cached_layers=n_frozen, trained=stack.parameters_above(n_frozen))
            for n_frozen in range(stack.n_layers - 1, 0, -1)
        ]
        whole = Phase(cached_layers=None, trained=stack.all_parameters)
        return Plan(n_frozen=None, phases=(*lower, whole))

    def is_worth_caching(self, n_layers: int) -> bool:
        """Whether there is a phase with frozen layers: their outputs can be cached for its epochs."""
        return n_layers > 1
