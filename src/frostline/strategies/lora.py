"""Low-rank updates of the query and value projections, with peft (LoRA, Hu 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, check_layers, read_number

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Lora(Strategy):
    """Train the head and low-rank updates (alpha = 2 × rank) of query and value in the layers above `n_frozen`."""

    rank: int
    n_frozen: int = 0

    forms = "lora:R, or lora:R@N to freeze the lowest N layers"
    example = "lora:8"
    rates = "large"

    @classmethod
    def read(cls, argument: str) -> Lora:
        """`lora:8`, `lora:8@3`."""
        rank, at, below = argument.partition("@")
        return cls(read_number(rank, least=1), read_number(below, least=0) if at else 0)

    @property
    def name(self) -> str:
        """`lora:R`, `lora:R@N`."""
        return f"lora:{self.rank}" + (f"@{self.n_frozen}" if self.n_frozen else "")

    def plan(self, stack: Stack) -> Plan:
        """The updates and the head. The state after `n_frozen` layers may be cached."""
        from frostline.model.added.adapters import check_peft, lora_parameters
        from frostline.model.parts import query_and_value

        check_peft()
        check_layers(self, self.n_frozen, stack.n_layers)
        added = query_and_value(stack, self.n_frozen)
        trained = (*lora_parameters(added), *stack.parameters_of(()))
        return Plan.one_phase(cached_layers=self.n_frozen, trained=trained, added=added)

    def add_modules(self, stack: Stack) -> None:
        """Wraps the projections with peft's LoRA layers."""
        from frostline.model.added.adapters import add_lora
        from frostline.model.parts import query_and_value

        add_lora(stack, query_and_value(stack, self.n_frozen), rank=self.rank, alpha=2 * self.rank)

    def merge_modules(self, stack: Stack) -> bool:
        """Adds each update to the weight matrix that it belongs to."""
        from frostline.model.added.adapters import merge_lora

        merge_lora(stack)
        return True

    def resolved(self, n_layers: int, kind: str) -> Lora:  # noqa: ARG002
        """The same strategy; raises if the model has too few layers."""
        check_layers(self, self.n_frozen, n_layers)
        return self

    def n_prefix_layers(self, n_layers: int) -> int:  # noqa: ARG002
        """The layers without updates."""
        return self.n_frozen
