"""Training one kind of sublayer: only attention, or only the feed-forward parts, of the top layers."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self, final

from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, UnreadableError, check_layers, read_number

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@dataclass(frozen=True)
class Sublayers(Strategy, abc.ABC):
    """Train the head and one kind of sublayer of the layers above `n_frozen`; the norms stay frozen.

    Norms are left out so that what trains is the same in families that norm before and after a sublayer.
    """

    n_frozen: int = 0

    part: ClassVar[Literal["attention", "ffn"]]
    """which sublayer, and the strategy's name"""

    @classmethod
    def read(cls, argument: str) -> Self:
        """`@3`; nothing: all layers."""
        if argument and not argument.startswith("@"):
            raise UnreadableError("takes the number of frozen layers after an @")
        return cls(read_number(argument[1:], least=0) if argument else 0)

    @property
    def name(self) -> str:
        """`attention@N`, `ffn@N`."""
        return f"{self.part}@{self.n_frozen}"

    def plan(self, stack: Stack) -> Plan:
        """Weights and biases of the sublayers, and the head. The state after `n_frozen` layers may be cached."""
        from frostline.model.parts import sublayer_parameters

        check_layers(self, self.n_frozen, stack.n_layers)
        trained = {*sublayer_parameters(stack, self.part, self.n_frozen), *stack.parameters_of(())}
        in_order = tuple(name for name in stack.all_parameters if name in trained)
        return Plan.one_phase(cached_layers=self.n_frozen, trained=in_order)

    def resolved(self, n_layers: int, kind: str) -> Self:  # noqa: ARG002
        """The same strategy; raises if the model has too few layers."""
        check_layers(self, self.n_frozen, n_layers)
        return self

    def n_prefix_layers(self, n_layers: int) -> int:  # noqa: ARG002
        """The layers below the trained sublayers."""
        return self.n_frozen


@final
@dataclass(frozen=True)
class Attention(Sublayers):
    """Train the head and, in the layers above `n_frozen`, query, key, value and output of attention."""

    forms = "attention@N"
    example = "attention@3"
    part = "attention"


@final
@dataclass(frozen=True)
class FeedForward(Sublayers):
    """Train the head and, in the layers above `n_frozen`, the linear modules of the feed-forward part."""

    forms = "ffn@N"
    example = "ffn@3"
    part = "ffn"
