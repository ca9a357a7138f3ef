"""The pretrained model as a fixed feature extractor, with a new classifier on the outputs of its layers.

The closed-form variant is a common suggestion on CrossValidated; the LSTM variant is from BERT's paper, table 7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final, get_args

from frostline.errors import UsageError
from frostline.kinds import kind_named
from frostline.records.plans import Plan
from frostline.records.specs import Pooling
from frostline.strategies.strategy import Strategy, UnreadableError, check_layers

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class Features(Strategy):
    """Fit an L2-regularised logistic or ridge regression to the pooled states of one layer; the model stays frozen.

    Layer, pooling (mean, first or last token) and regularisation are chosen on rows held out of train. Layer and
    pooling may be given instead; then only the regularisation is chosen.
    """

    fit: Literal["logreg", "ridge"] | None = None
    """None: chosen by the kind of task"""
    pinned: tuple[int, Pooling] | None = None
    """the layer (0: the embeddings) and the pooling; None: chosen"""

    forms = "features, features:logreg, features:ridge, each also with @LAYER.POOLING, or features:bilstm"
    example = "features"
    is_closed_form = True

    @classmethod
    def read(cls, argument: str) -> Strategy:
        """`features`, `features:logreg`, `features:ridge`, `features:logreg@4.mean`, `features:bilstm`."""
        fit, at, place = argument.partition("@")
        pinned = _read_place(place) if at else None
        match fit:
            case "":
                return cls(None, pinned)
            case "logreg" | "ridge":
                return cls(fit, pinned)
            case "bilstm" if not at:
                return BiLstm()
        raise UnreadableError("takes logreg, ridge, bilstm or no argument")

    @property
    def name(self) -> str:
        """`features`, `features:logreg`, `features:ridge`, `features:logreg@4.mean`."""
        place = "" if self.pinned is None else f"@{self.pinned[0]}.{self.pinned[1]}"
        return ("features" if self.fit is None else f"features:{self.fit}") + place

    @property
    def pinned_place(self) -> tuple[int, Pooling] | None:
        """The layer and the pooling, if they are given."""
        return self.pinned

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

    def resolved(self, n_layers: int, kind: str) -> Features:
        """With the fit that suits the kind of task; raises if the model does not have the layer."""
        fit = kind_named(kind).fit
        if self.pinned is not None:
            check_layers(self, self.pinned[0], n_layers)
        if self.fit not in (None, fit):
            raise UsageError(f"strategy {self.name!r} is not for {kind}; write features, or features:{fit}")
        return Features(fit, self.pinned)

    def n_prefix_layers(self, n_layers: int) -> int:
        """All layers: nothing in the model trains."""
        return n_layers


def _read_place(argument: str) -> tuple[int, Pooling]:
    """`4.mean` → layer 4, mean."""
    found = re.fullmatch(r"([0-9]{1,9})\.([a-z]+)", argument)
    for pooling in get_args(Pooling):
        if found is not None and found[2] == pooling:
            return int(found[1]), pooling
    raise UnreadableError("needs a layer (0: the embeddings), a dot and mean, first or last after the @")


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
