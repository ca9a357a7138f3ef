"""Re-initialising the top layers, whose pretrained weights are often a poor starting point (Zhang 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, check_layers, read_number

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Reinit(Strategy):
    """Re-initialise the pooler and the top `n_new` layers, then train everything."""

    n_new: int

    forms = "reinit:K"
    example = "reinit:2"

    @classmethod
    def read(cls, argument: str) -> Reinit:
        """`reinit:2`."""
        return cls(read_number(argument, least=0))

    @property
    def name(self) -> str:
        """`reinit:K`."""
        return f"reinit:{self.n_new}"

    def plan(self, stack: Stack) -> Plan:
        """All parameters train. The head is not re-initialised here: it is new in every run."""
        from frostline.model.parts import pretrained_above

        check_layers(self, self.n_new, stack.n_layers)
        edits = pretrained_above(stack, stack.n_layers - self.n_new, with_norm=False)
        return Plan.one_phase(trained=stack.all_parameters, edits=edits)

    def resolved(self, n_layers: int, kind: str) -> Reinit:  # noqa: ARG002
        """The same strategy; raises if the model has too few layers."""
        check_layers(self, self.n_new, n_layers)
        return self
