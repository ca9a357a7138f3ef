"""Transferring only the lowest pretrained layers (GPT, figure 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, check_layers, read_number

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Transfer(Strategy):
    """Re-initialise everything above the lowest `n_kept` layers, then train everything."""

    n_kept: int

    forms = "transfer:K"
    example = "transfer:3"

    @classmethod
    def read(cls, argument: str) -> Transfer:
        """`transfer:6`."""
        return cls(read_number(argument, least=0))

    @property
    def name(self) -> str:
        """`transfer:K`."""
        return f"transfer:{self.n_kept}"

    def plan(self, stack: Stack) -> Plan:
        """All parameters train. Everything above the kept layers is re-initialised, with pooler and final norm."""
        from frostline.model.parts import pretrained_above

        check_layers(self, self.n_kept, stack.n_layers)
        edits = pretrained_above(stack, self.n_kept, with_norm=True)
        return Plan.one_phase(trained=stack.all_parameters, edits=edits)

    def resolved(self, n_layers: int, kind: str) -> Transfer:  # noqa: ARG002
        """The same strategy; raises if the model has too few layers."""
        check_layers(self, self.n_kept, n_layers)
        return self
