"""Full fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records import Plan
from frostline.strategies.strategy import Strategy

if TYPE_CHECKING:
    from frostline.stack import Stack


@final
@dataclass(frozen=True)
class Full(Strategy):
    """Train everything."""

    def plan(self, stack: Stack) -> Plan:
        """All parameters, nothing cached."""
        return Plan.one_phase(n_frozen=None, cached_layers=None, trained=stack.all_parameters)

    @property
    def name(self) -> str:
        """`full`."""
        return "full"
