"""The pretrained model as a fixed feature extractor, with a new classifier on the outputs of its layers.

The closed-form variant is a common suggestion on CrossValidated; the LSTM variant is from BERT's paper, table 7.
"""

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
    """Fit an L2-regularised logistic or ridge regression to the pooled states of one layer; the model stays frozen.

    Layer, pooling (mean, first or last token) and regularisation are chosen on rows held out of train.
    """

    fit: Literal["logreg", "ridge"] | None = None
    """None: chosen by the kind of task"""

    forms = "features, features:logreg, features:ridge or features:bilstm"
    example = "features"
    is_closed_form = True

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
        raise UnreadableError("takes logreg, ridge, bilstm or no argument")

    @property
    def name(self) -> str:
        """`features`, `features:logreg`, `features:ridge`."""
        return "features" if self.fit is None else f"features:{self.fit}"

    def plan(self, stack: Stack) -> Plan:
        """A linear reader over one layer's states, fitted in closed form. All layers may be cached."""
        from frostline.model.added.readers import LINEAR_PARAMETERS, READER

        return Plan.one_phase(
            cached_layers=stack.n_layers, trained=LINEAR_PARAMETERS, added=(READER,), fit="closed_form"
        )

    def add_modules(self, stack: Stack) -> None:
        """Adds a linear reader that is not fitted yet."""
        from frostline.model.added.readers import add_linear

        add_linear(stack)

    def merge_modules(self, stack: Stack) -> bool:  # noqa: ARG002
        """False: the model's class has no place for another head."""
        return False

    def resolved(self, n_layers: int, kind: str) -> Features:  # noqa: ARG002
        """With the fit that suits the kind of task."""
        fit = kind_named(kind).fit
        if self.fit not in (None, fit):
            raise UsageError(f"strategy {self.name!r} is not for {kind}; write features, or features:{fit}")
        return Features(fit)

    def n_prefix_layers(self, n_layers: int) -> int:
        """All layers: nothing in the model trains."""
        return n_layers


@final
@dataclass(frozen=True)
class BiLstm(Strategy):
    """Train a two-layer bidirectional LSTM over the states of the last four layers; the model stays frozen."""

    forms = Features.forms
    example = Features.example
    rates = "large"

    @classmethod
    def read(cls, argument: str) -> Strategy:
        """The same forms as `features`."""
        return Features.read(argument)

    @property
    def name(self) -> str:
        """`features:bilstm`."""
        return "features:bilstm"

    def plan(self, stack: Stack) -> Plan:
        """The LSTM and its output layer. All layers may be cached."""
        from frostline.model.added.readers import READER, bilstm_parameters

        return Plan.one_phase(
            cached_layers=stack.n_layers,
            trained=bilstm_parameters(stack, self.reader_depths(stack.n_layers)),
            added=(READER,),
        )

    def add_modules(self, stack: Stack) -> None:
        """Adds a new LSTM."""
        from frostline.model.added.readers import add_bilstm

        add_bilstm(stack, self.reader_depths(stack.n_layers))

    def merge_modules(self, stack: Stack) -> bool:  # noqa: ARG002
        """False: the model's class has no place for another head."""
        return False

    def reader_depths(self, n_layers: int) -> tuple[int, ...]:
        """The last four layers."""
        return tuple(range(max(1, n_layers - 3), n_layers + 1))

    def n_prefix_layers(self, n_layers: int) -> int:
        """All layers: nothing in the model trains."""
        return n_layers
