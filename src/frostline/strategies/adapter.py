"""Bottleneck adapters: small new modules inside the layers (Houlsby 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, check_layers, read_number

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Adapter(Strategy):
    """Train the head and, in each layer above `n_frozen`, its norms and two new bottlenecks of this width."""

    width: int
    n_frozen: int = 0

    forms = "adapter:D, or adapter:D@N to freeze the lowest N layers"
    example = "adapter:16"
    rates = "large"

    @classmethod
    def read(cls, argument: str) -> Adapter:
        """`adapter:16`, `adapter:16@3`."""
        width, at, below = argument.partition("@")
        return cls(read_number(width, least=1), read_number(below, least=0) if at else 0)

    @property
    def name(self) -> str:
        """`adapter:D`, `adapter:D@N`."""
        return f"adapter:{self.width}" + (f"@{self.n_frozen}" if self.n_frozen else "")

    def plan(self, stack: Stack) -> Plan:
        """One adapter after attention and one after the feed-forward part, each before the residual addition.

        The state after `n_frozen` layers may be cached.
        """
        from frostline.model.added.adapters import adapter_parameters
        from frostline.model.parts import norms, sublayer_outputs

        check_layers(self, self.n_frozen, stack.n_layers)
        added = sublayer_outputs(stack, self.n_frozen)
        trained = (*adapter_parameters(added), *norms(stack, self.n_frozen), *stack.parameters_of(()))
        return Plan.one_phase(cached_layers=self.n_frozen, trained=trained, added=added)

    def add_modules(self, stack: Stack) -> None:
        """Attaches an adapter to the output of attention and of the feed-forward part."""
        from frostline.model.added.adapters import add_adapters
        from frostline.model.parts import sublayer_outputs

        add_adapters(stack, sublayer_outputs(stack, self.n_frozen), self.width)

    def merge_modules(self, stack: Stack) -> bool:  # noqa: ARG002
        """False: the model's class has no place for adapters."""
        return False

    def resolved(self, n_layers: int, kind: str) -> Adapter:  # noqa: ARG002
        """The same strategy; raises if the model has too few layers."""
        check_layers(self, self.n_frozen, n_layers)
        return self

    def n_prefix_layers(self, n_layers: int) -> int:  # noqa: ARG002
        """The layers without adapters."""
        return self.n_frozen
