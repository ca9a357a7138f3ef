"""Training some attention heads. How many of them need fine-tuning?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final, get_args

from frostline.errors import UsageError
from frostline.records.depth import Rank
from frostline.records.parameters import AttentionHead, read_heads, written_heads
from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, UnreadableError, check_layers, read_number

if TYPE_CHECKING:
    from frostline.model.inside.heads import LayerHeads
    from frostline.model.stack import Stack

_FORMS = (
    "heads:3.0+3.5 (layer from 1, attention head from 0), or heads:K@importance, heads:K@change, heads:K@random or "
    "heads:K@top for the first K of a ranking"
)
RANKS: tuple[Rank, ...] = get_args(Rank)


@final
@dataclass(frozen=True)
class Heads(Strategy):
    """Train the task head and these attention heads: their slices of query, key, value and output weights."""

    trained: frozenset[AttentionHead]

    forms = _FORMS
    example = "heads:12@importance"

    @classmethod
    def read(cls, argument: str) -> Strategy:
        """`heads:3.0+3.5`, `heads:12@importance`."""
        number, at, rank = argument.partition("@")
        if at:
            by = next((known for known in RANKS if known == rank), None)
            if by is None:
                raise UnreadableError(f"is ranked by {', '.join(RANKS[:-1])} or {RANKS[-1]}, not by {rank!r}")
            return RankedHeads(read_number(number, least=1), by)
        heads = read_heads(argument)
        if heads is None:
            raise UnreadableError("needs attention heads as layer.head, layers from 1 and heads from 0, each once")
        return cls(frozenset(heads))

    @property
    def name(self) -> str:
        """`heads:3.0+3.5`."""
        return f"heads:{written_heads(sorted(self.trained))}"

    def plan(self, stack: Stack) -> Plan:
        """The slices and the task head. The state below the lowest layer with a trained attention head may be cached.

        The output bias belongs to no attention head and stays frozen, as do norms and the feed-forward part.
        """
        from frostline.model.inside.slices import slice_parameters, sliced_modules

        layers = self._found(stack)
        return Plan.one_phase(
            cached_layers=self.n_prefix_layers(stack.n_layers),
            trained=(*slice_parameters(layers, self.trained), *stack.parameters_of(())),
            added=sliced_modules(layers, self.trained),
        )

    def add_modules(self, stack: Stack) -> None:
        """Makes the slices parameters of their own."""
        from frostline.model.inside.slices import add_slices

        add_slices(stack, self._found(stack), self.trained)

    def merge_modules(self, stack: Stack) -> bool:
        """Writes the slices into the weights that they are part of."""
        from frostline.model.inside.slices import merge_slices

        merge_slices(stack)
        return True

    def resolved(self, n_layers: int, kind: str) -> Heads:  # noqa: ARG002
        """The same strategy; raises if the model has too few layers."""
        check_layers(self, max(head.layer for head in self.trained), n_layers, least=1)
        return self

    def n_prefix_layers(self, n_layers: int) -> int:  # noqa: ARG002
        """The layers below the lowest one with a trained attention head."""
        return min(head.layer for head in self.trained) - 1

    def n_trained_layers(self, n_layers: int) -> int:  # noqa: ARG002
        """The layers with a trained attention head."""
        return len({head.layer for head in self.trained})

    def _found(self, stack: Stack) -> tuple[LayerHeads, ...]:
        """The attention heads of the model; raises if one of those to train is not among them."""
        from frostline.model.inside.heads import attention_heads

        self.resolved(stack.n_layers, "")
        layers = attention_heads(stack)
        known = {head for layer in layers for head in layer.heads}
        if wrong := sorted(self.trained - known):
            most = layers[wrong[0].layer - 1].n_heads - 1
            raise UsageError(
                f"layer {wrong[0].layer} has no attention head {wrong[0].number}; its attention heads are numbered 0 "
                f"to {most}. Did you mean 'heads:{wrong[0].layer}.{most}'?"
            )
        return layers


@final
@dataclass(frozen=True)
class RankedHeads(Strategy):
    """Train the task head and the first attention heads of a ranking, which is made on training rows before any run."""

    number: int
    rank: Rank

    forms = _FORMS
    example = Heads.example

    @classmethod
    def read(cls, argument: str) -> Strategy:
        """The same forms as `heads`."""
        return Heads.read(argument)

    @property
    def name(self) -> str:
        """`heads:K@RANK`."""
        return f"heads:{self.number}@{self.rank}"

    def first_of(self, ranking: tuple[AttentionHead, ...]) -> Heads:
        """The strategy that names its attention heads: the first of a ranking, best first."""
        if self.number > len(ranking):
            raise UsageError(
                f"strategy {self.name!r}: the model has {len(ranking)} attention heads; write {self.forms}. "
                f"Did you mean 'heads:{len(ranking)}@{self.rank}'?"
            )
        return Heads(frozenset(ranking[: self.number]))

    def plan(self, stack: Stack) -> Plan:
        """Refused: which attention heads these are depends on training rows, which a model does not have."""
        raise UsageError(
            f"strategy {self.name!r} is not ranked yet, so {type(stack.model).__name__} cannot be planned; name the "
            "attention heads, for example heads:3.0+3.5"
        )
