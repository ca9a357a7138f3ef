"""The pretrained model as it is: a classifier on what its layers put out (a CrossValidated answer; BERT, table 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from frostline.errors import UsageError
from frostline.kinds import kind_named
from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, UnreadableError

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Features(Strategy):
    """Fit an L2 logistic or ridge regression to the pooled states of one layer; train nothing in the model.

    Layer, pooling (mean, first or last token) and strength are chosen on rows held out of train.
    """

    fit: Literal["logreg", "ridge"] | None = None
    """None: by the kind of the task"""

    forms = "features, features:logreg, features:ridge or features:bilstm"
    example = "features"
    rates = "none"

    @classmethod
    def read(cls, argument: str) -> Strategy:
        """`features`, `features:logreg`, `features:ridge`, `features:bilstm`."""
        match argument:
            case "":
                return cls()
            case "logreg" | "ridge":
                return cls(argument)
            case "bilstm":
                return BiLstm()
        raise UnreadableError("wants logreg, ridge or bilstm behind it, or nothing")

    @property
    def name(self) -> str:
        """`features`, `features:logreg`, `features:ridge`."""
        return "features" if self.fit is None else f"features:{self.fit}"

    def plan(self, stack: Stack) -> Plan:
        """A linear reader of one layer's states, fitted in one go; everything below it may be cached."""
        from frostline.model.added.readers import LINEAR_PARAMETERS, READER

        return Plan.one_phase(
            cached_layers=stack.n_layers, trained=LINEAR_PARAMETERS, added=(READER,), fit="closed_form"
        )

    def put_in(self, stack: Stack) -> None:
        """A reader that is still to be fitted."""
        from frostline.model.added.readers import add_linear

        add_linear(stack)

    def take_out(self, stack: Stack) -> bool:  # noqa: ARG002
        """No: the model's class has no place for another head."""
        return False

    def settled(self, n_layers: int, kind: str) -> Features:  # noqa: ARG002
        """The strategy with the fit for the kind of task."""
        fit = kind_named(kind).fit
        if self.fit not in (None, fit):
            raise UsageError(f"strategy {self.name!r} is not for {kind}; write features, or features:{fit}")
        return Features(fit)

    def n_below(self, n_layers: int) -> int:
        """All."""
        return n_layers


@final
@dataclass(frozen=True)
class BiLstm(Strategy):
    """Train a two-layer bidirectional LSTM over the states of the last four layers; nothing in the model."""

    forms = Features.forms
    example = Features.example
    rates = "large"

    @classmethod
    def read(cls, argument: str) -> Strategy:
        """As for `features`."""
        return Features.read(argument)

    @property
    def name(self) -> str:
        """`features:bilstm`."""
        return "features:bilstm"

    def plan(self, stack: Stack) -> Plan:
        """The LSTM and its output; all states may be cached."""
        from frostline.model.added.readers import READER, bilstm_parameters

        return Plan.one_phase(
            cached_layers=stack.n_layers, trained=bilstm_parameters(stack, self.reads(stack.n_layers)), added=(READER,)
        )

    def put_in(self, stack: Stack) -> None:
        """A new LSTM."""
        from frostline.model.added.readers import add_bilstm

        add_bilstm(stack, self.reads(stack.n_layers))

    def take_out(self, stack: Stack) -> bool:  # noqa: ARG002
        """No: the model's class has no place for another head."""
        return False

    def reads(self, n_layers: int) -> tuple[int, ...]:
        """The last four layers."""
        return tuple(range(max(1, n_layers - 3), n_layers + 1))

    def n_below(self, n_layers: int) -> int:
        """All."""
        return n_layers
