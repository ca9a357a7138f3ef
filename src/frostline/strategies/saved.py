"""A fine-tuned model as it was saved: nothing trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, read_nothing

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Saved(Strategy):
    """Train nothing; score a fine-tuned folder with the head that it was saved with."""

    forms = "saved"
    example = "saved"
    is_closed_form = True
    keeps_head = True

    @classmethod
    def read(cls, argument: str) -> Saved:
        """`saved`."""
        read_nothing(argument)
        return cls()

    @property
    def name(self) -> str:
        """`saved`."""
        return "saved"

    def plan(self, stack: Stack) -> Plan:  # noqa: ARG002
        """Nothing trains, and nothing is cached."""
        return Plan.one_phase(trained=(), fit="none")

    def n_trained_layers(self, n_layers: int) -> int:  # noqa: ARG002
        """None."""
        return 0
