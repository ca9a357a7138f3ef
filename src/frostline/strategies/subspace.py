"""Training in a random subspace of the weights, which measures the intrinsic dimension (Aghajanyan 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.errors import UsageError
from frostline.records.plans import Plan
from frostline.strategies.strategy import Strategy, read_number

if TYPE_CHECKING:
    from frostline.model.stack import Stack

DEFAULT_DIMENSIONS = (100, 1_000, 10_000, 100_000)
"""Sizes to try where none are given; Aghajanyan 2020 needs 200 for RoBERTa on MRPC."""


@final
@dataclass(frozen=True)
class Subspace(Strategy):
    """Train the head, and the layers only within a random subspace of `n_dimensions`; embeddings stay frozen.

    The head trains as in all other strategies: it is new, so there is no pretrained point to move it from. The paper
    moves it inside the subspace too.
    """

    n_dimensions: int

    forms = "subspace:D"
    example = "subspace:1000"

    @classmethod
    def read(cls, argument: str) -> Subspace:
        """`subspace:1000`."""
        return cls(read_number(argument, least=0))

    @property
    def name(self) -> str:
        """`subspace:D`."""
        return f"subspace:{self.n_dimensions}"

    def plan(self, stack: Stack) -> Plan:
        """D numbers and the new head. The output of the embeddings never changes; with D = 0 no layer's does."""
        from frostline.model.inside.subspace import moved_parameters, subspace_parameter

        moved = moved_parameters(stack)
        head = tuple(name for name in stack.parameters_of(()) if name not in moved)
        if not self.n_dimensions:
            return Plan.one_phase(cached_layers=stack.n_layers, trained=head)
        if self.n_dimensions > (n_weights := stack.count(moved)):
            raise UsageError(
                f"strategy {self.name!r}: the subspace has more dimensions than the {n_weights:,} weights it moves; "
                f"use at most {n_weights}, or full"
            )
        z = subspace_parameter(stack)
        return Plan.one_phase(cached_layers=0, trained=(z, *head), added=(z.rpartition(".")[0],))

    def add_modules(self, stack: Stack) -> None:
        """Lets z move the weights; the projection's seed is the one that torch's generator was given."""
        import torch

        from frostline.model.inside.subspace import add_subspace

        # The seed itself, not a number drawn from the generator: draws may differ between versions and machines.
        add_subspace(stack, self.n_dimensions, torch.initial_seed())

    def merge_modules(self, stack: Stack) -> bool:
        """Adds the movement to the weights."""
        from frostline.model.inside.slices import merge_slices

        merge_slices(stack)
        return True

    def n_prefix_layers(self, n_layers: int) -> int:
        """None, or all layers where the subspace has no dimension."""
        return 0 if self.n_dimensions else n_layers
