"""The base class of all strategies. A strategy is a value; given a model, it decides what to train."""

from __future__ import annotations

import abc
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from frostline.errors import UsageError
from frostline.records.plans import Plan
from frostline.records.specs import Pooling, TaskSpec

if TYPE_CHECKING:
    from frostline.model.stack import Stack

Rates = Literal["ordinary", "large"]
"""Which learning rates to try: the usual ones for fine-tuning, or larger ones for few or new parameters."""


class UnreadableError(UsageError):
    """The argument after a strategy's name is not valid. The message continues `strategy 'name:argument' …`."""


@dataclass(frozen=True)
class Strategy(abc.ABC):
    """An idea of what to train, independent of any model."""

    forms: ClassVar[str]
    """how to write it, shown in messages"""
    example: ClassVar[str]
    """a valid example"""
    rates: ClassVar[Rates] = "ordinary"
    """learning rates to try; not used by a closed-form strategy"""
    is_closed_form: ClassVar[bool] = False
    """the result is computed directly, without gradient steps; its specs have learning rate 0"""
    keeps_head: ClassVar[bool] = False
    """the model has the head that it was saved with, not a new one"""

    @classmethod
    @abc.abstractmethod
    def read(cls, argument: str) -> Strategy:
        """The strategy with the argument after the colon (`""` if there is none); raises UnreadableError if invalid."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The strategy as written on the command line and in a spec."""

    @abc.abstractmethod
    def plan(self, stack: Stack) -> Plan:
        """What to train in this model. Changes no weight.

        Raises a UsageError if the model lacks the parts that the strategy trains.
        """

    def add_modules(self, stack: Stack) -> None:
        """Adds the modules that the plan lists as added. Initial weights come from torch's global generator."""
        raise AssertionError(f"{self.name} adds nothing to {type(stack.model).__name__}")

    def merge_modules(self, stack: Stack) -> bool:  # noqa: ARG002
        """Merges the added modules into the trained model's own weights, so that transformers can load it.

        Returns False if that is impossible: then only frostline can load the saved model.
        """
        return True

    def resolved(self, n_layers: int, kind: str) -> Strategy:  # noqa: ARG002 - for subclasses
        """The same strategy in its one canonical form for this model and kind of task.

        Two spellings that mean the same (`freeze:+2` and `freeze:4` on 6 layers) resolve to one, so that their runs are
        shared. Raises a UsageError if the strategy does not fit.
        """
        return self

    @property
    def has_rate(self) -> bool:
        """Whether it trains at a learning rate of ours, which is searched for; in other specs it is 0."""
        return not self.is_closed_form

    def check_task(self, task: TaskSpec) -> None:  # noqa: B027 - most strategies train on any rows
        """Raises a UsageError if the strategy cannot train on such rows."""

    def reader_depths(self, n_layers: int) -> tuple[int, ...]:  # noqa: ARG002
        """Depths whose states, of all tokens, an added head reads. Empty if the model's own head is used."""
        return ()

    @property
    def pinned_place(self) -> tuple[int, Pooling] | None:
        """The layer and the pooling that a closed-form fit reads, if they are given; None: it chooses them."""
        return None

    def n_prefix_layers(self, n_layers: int) -> int:  # noqa: ARG002
        """How many of the lowest layers stay frozen during the whole run. Above 0, the embeddings do too."""
        return 0

    def n_trained_layers(self, n_layers: int) -> int:
        """How many layers have at least one trained parameter."""
        return n_layers - self.n_prefix_layers(n_layers)

    def is_worth_caching(self, n_layers: int) -> bool:
        """Whether caching the outputs of frozen layers saves time. Embeddings alone are too cheap to cache."""
        return self.n_prefix_layers(n_layers) > 0


def read_nothing(argument: str) -> None:
    """Raises if there is an argument."""
    if argument:
        raise UnreadableError("takes no argument")


def read_number(argument: str, least: int) -> int:
    """The argument as a whole number of at least `least`."""
    if not re.fullmatch(r"[0-9]{1,9}", argument) or int(argument) < least:
        raise UnreadableError(f"needs a whole number of at least {least}")
    return int(argument)


def check_layers(strategy: Strategy, given: int, n_layers: int, *, least: int = 0) -> None:
    """Raises if a strategy names a layer, or a number of layers, that the model does not have."""
    if not least <= given <= n_layers:
        before, _, after = strategy.name.rpartition(str(given))
        nearest = f"{before}{min(max(given, least), n_layers)}{after}"
        raise UsageError(
            f"strategy {strategy.name!r}: the model has {n_layers} layers; write {strategy.forms} with {least} to "
            f"{n_layers}. Did you mean {nearest!r}?"
        )
