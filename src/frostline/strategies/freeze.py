"""Freezing by depth, the paper's strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.errors import check_between
from frostline.records import Plan
from frostline.strategies.strategy import Strategy

if TYPE_CHECKING:
    from frostline.stack import Stack


@final
@dataclass(frozen=True)
class Freeze(Strategy):
    """Train the head and the top layers; leave the embeddings and the lowest `n_frozen` layers alone."""

    n_frozen: int

    def plan(self, stack: Stack) -> Plan:
        """The layers above `n_frozen` and the head; the state after `n_frozen` layers may be cached."""
        check_between("n_frozen", self.n_frozen, 0, stack.n_layers)
        trained = stack.parameters_above(self.n_frozen)
        return Plan.one_phase(n_frozen=self.n_frozen, cached_layers=self.n_frozen, trained=trained)

    @property
    def name(self) -> str:
        """`freeze:N`."""
        return f"freeze:{self.n_frozen}"
