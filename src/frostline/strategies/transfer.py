"""How much of the pretrained model is worth transferring (GPT, figure 2)."""

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
    """Train everything; only the embeddings and the lowest `n_kept` layers start from pretrained weights."""

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
        """All parameters train; all above the kept layers is drawn anew, pooler and final norm too."""
        from frostline.model.parts import pretrained_above

        check_layers(self, self.n_kept, stack.n_layers)
        edits = pretrained_above(stack, self.n_kept, with_norm=True)
        return Plan.one_phase(trained=stack.all_parameters, edits=edits)

    def settled(self, n_layers: int, kind: str) -> Transfer:  # noqa: ARG002
        """Itself, if the model has so many layers."""
        check_layers(self, self.n_kept, n_layers)
        return self
