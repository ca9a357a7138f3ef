"""Bottleneck adapters: small new modules inside every layer (Houlsby 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, read_number

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Adapter(Strategy):
    """Train the head, the norms of all layers, and two new bottlenecks of this width in every layer."""

    width: int

    forms = "adapter:D"
    example = "adapter:16"
    rates = "large"

    @classmethod
    def read(cls, argument: str) -> Adapter:
        """`adapter:16`."""
        return cls(read_number(argument, least=1))

    @property
    def name(self) -> str:
        """`adapter:D`."""
        return f"adapter:{self.width}"

    def plan(self, stack: Stack) -> Plan:
        """One adapter after attention and one after the feed-forward part, each before the residual addition."""
        from frostline.model.added.adapters import adapter_parameters
        from frostline.model.parts import norms, sublayer_outputs

        added = sublayer_outputs(stack)
        trained = (*adapter_parameters(added), *norms(stack), *stack.parameters_of(()))
        return Plan.one_phase(cached_layers=0, trained=trained, added=added)

    def add_modules(self, stack: Stack) -> None:
        """Attaches an adapter to the output of attention and of the feed-forward part."""
        from frostline.model.added.adapters import add_adapters
        from frostline.model.parts import sublayer_outputs

        add_adapters(stack, sublayer_outputs(stack), self.width)

    def merge_modules(self, stack: Stack) -> bool:  # noqa: ARG002
        """False: the model's class has no place for adapters."""
        return False
