"""Full fine-tuning, the reference for all other strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, read_nothing

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Full(Strategy):
    """Train everything."""

    forms = "full"
    example = "full"

    @classmethod
    def read(cls, argument: str) -> Full:
        """`full`."""
        read_nothing(argument)
        return cls()

    @property
    def name(self) -> str:
        """`full`."""
        return "full"

    def plan(self, stack: Stack) -> Plan:
        """All parameters, nothing cached."""
        return Plan.one_phase(trained=stack.all_parameters)
