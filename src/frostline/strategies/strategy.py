"""What a strategy is: a value that decides, for one model, what trains."""

from __future__ import annotations

import abc
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from frostline.errors import UsageError
from frostline.records.plans import Plan

if TYPE_CHECKING:
    from frostline.model.stack import Stack

Rates = Literal["ordinary", "large", "none"]
"""Which learning rates are tried: those of a whole model, larger ones, or none because nothing descends."""


class UnreadableError(UsageError):
    """What stands behind a strategy's name is not what it takes."""


@dataclass(frozen=True)
class Strategy(abc.ABC):
    """An idea of what to train."""

    forms: ClassVar[str]
    """how it is written, for people"""
    example: ClassVar[str]
    """one that can be run"""
    rates: ClassVar[Rates] = "ordinary"

    @classmethod
    @abc.abstractmethod
    def read(cls, argument: str) -> Strategy:
        """The strategy with what stands behind the colon (nothing: `""`); an UnreadableError where it is no such."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """How it is written on the command line and in a spec."""

    @abc.abstractmethod
    def plan(self, stack: Stack) -> Plan:
        """What it decides for this model; touches no weight. A UsageError where the model has not what it takes."""

    def put_in(self, stack: Stack) -> None:
        """Puts the modules into the model that its plan calls added; random numbers come from torch's generator."""
        raise AssertionError(f"{self.name} adds nothing to {type(stack.model).__name__}")

    def take_out(self, stack: Stack) -> bool:  # noqa: ARG002
        """Makes a trained model one of its own class again; False where it cannot be, and only we can open it."""
        return True

    def settled(self, n_layers: int, kind: str) -> Strategy:  # noqa: ARG002 - those that depend on them use them
        """The same in its one way of writing for a model and a kind of task; a UsageError where it cannot be."""
        return self

    def reads(self, n_layers: int) -> tuple[int, ...]:  # noqa: ARG002
        """Depths whose states, of all tokens, a head of its own reads; mostly the model's own head reads."""
        return ()

    def n_below(self, n_layers: int) -> int:  # noqa: ARG002
        """How many of the lowest layers, embeddings included, nothing ever changes in; 0: none of them."""
        return 0

    def n_trained(self, n_layers: int) -> int:
        """In how many layers something trains."""
        return n_layers - self.n_below(n_layers)

    def may_keep(self, n_layers: int) -> bool:
        """Whether it pays to keep what frozen layers put out; the embeddings alone cost nothing to compute again."""
        return self.n_below(n_layers) > 0


def read_nothing(argument: str) -> None:
    """Raises unless nothing stands behind the name."""
    if argument:
        raise UnreadableError("takes nothing behind its name")


def read_number(argument: str, least: int) -> int:
    """A whole number that is at least this."""
    if not re.fullmatch(r"[0-9]{1,9}", argument) or int(argument) < least:
        raise UnreadableError(f"wants a whole number from {least}")
    return int(argument)


def check_layers(strategy: Strategy, given: int, n_layers: int, *, least: int = 0) -> None:
    """Raises where a strategy names a layer, or a number of layers, that the model has not."""
    if not least <= given <= n_layers:
        before, _, after = strategy.name.rpartition(str(given))
        nearest = f"{before}{min(max(given, least), n_layers)}{after}"
        raise UsageError(
            f"strategy {strategy.name!r}: the model has {n_layers} layers; write {strategy.forms} with {least} to "
            f"{n_layers}. Did you mean {nearest!r}?"
        )
