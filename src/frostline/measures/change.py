"""What fine-tuning changed: attention maps, states and weights of a model beside those of its pretrained twin.

Maps and states are compared on dev rows, tokens only, padding left out:
- The cosine of two attention maps is taken for each row and attention head over the row's own tokens, as one long
  vector, and then averaged over rows (Kovaleva 2019).
- The entropy of attention, in nats, is that of each token's weights, averaged over the tokens of a row, then over rows.
- Linear CKA compares the states of all tokens of all rows after a layer. It is accumulated as sums of products, so
  memory does not grow with the rows.

What is the same to the bit in both models has a cosine and a CKA of exactly 1: equality is looked at first, because
rounding could give 0.9999999.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.errors import UsageError
from frostline.measures.measure import Arrays, Measure, RowBatch, Subject, read_numbers, written
from frostline.model.inside.maps import Seen, seen, showing_attention
from frostline.model.parts import norms, sublayer_parameters
from frostline.model.stack import Stack

ROWS = 1000
"""Most dev rows that are looked at, unless asked."""


@final
@dataclass(frozen=True)
class Change(Measure):
    """Cosine and entropy of attention, CKA of states and distance of weights, against the pretrained model."""

    rows: int = ROWS
    """most dev rows"""

    forms = "change or change:rows=N"
    example = "change"

    @classmethod
    def read(cls, argument: str) -> Measure:
        """`change`, `change:rows=500`."""
        return cls(**read_numbers(argument, rows=ROWS))

    @property
    def name(self) -> str:
        """`change`, `change:rows=500`."""
        return written("change", {"rows": ROWS}, {"rows": self.rows})

    def of(self, subject: Subject) -> Arrays:
        """By layer and attention head, by layer, or by depth; see `activity_change` and `weight_distances`."""
        before, after = subject.pretrained(), subject.stack
        batches = subject.dev.batches(subject.dev.sample("change", self.rows))
        return weight_distances(before, after) | activity_change(before, after, batches)


def activity_change(before: Stack, after: Stack, batches: Iterable[RowBatch]) -> Arrays:
    """How differently two models treat the same rows.

    `cka` is by depth (0: after the embeddings); `attention_cosine`, `entropy_before` and `entropy_after` are by layer
    and attention head, and are missing if the model gives no attention maps.
    """
    attention, states = _Attention(), _Alignment()
    with showing_attention(before), showing_attention(after):
        for batch in batches:
            one, other = seen(before, batch.inputs), seen(after, batch.inputs)
            states.add(one.states, other.states, batch.mask)
            attention.add(one, other, batch.mask)
    return {"cka": states.cka} | attention.arrays


def weight_distances(before: Stack, after: Stack) -> Arrays:
    """How far the weights moved: the norm of the difference, divided by the norm of the pretrained weights.

    `distance` is by layer, `distance_embeddings` one number. `distance_attention`, `distance_ffn` and `distance_norms`
    are by layer, and are missing where a layer's parts cannot be told apart.
    """
    found, n_layers = before.structure, before.n_layers
    groups: dict[str, list[Sequence[str]]] = {
        "distance_embeddings": [found.below_parameters],
        "distance": list(found.layer_parameters),
    }
    for part, names in _parts(before).items():
        groups[f"distance_{part}"] = [
            [name for name in found.layer_parameters[layer] if name in names] for layer in range(n_layers)
        ]
    one, other = (dict(stack.model.named_parameters()) for stack in (before, after))
    return {
        what: np.array([_distance([(one[name], other[name]) for name in names if name in other]) for names in group])
        for what, group in groups.items()
    }


def _parts(stack: Stack) -> dict[str, set[str]]:
    """Names of the parameters of each part of the layers; only the parts that the model lets us tell apart."""
    parts: dict[str, Callable[[], tuple[str, ...]]] = {
        "attention": lambda: sublayer_parameters(stack, "attention"),
        "ffn": lambda: sublayer_parameters(stack, "ffn"),
        "norms": lambda: norms(stack),
    }
    found: dict[str, set[str]] = {}
    for part, names in parts.items():
        try:
            found[part] = set(names())
        except UsageError:  # this family's layers have no such part; the layer as a whole is still measured
            continue
    return found


def _distance(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    moved, norm = 0.0, 0.0
    for one, other in pairs:
        base = one.detach().double()
        moved += float((other.detach().double() - base).square().sum())
        norm += float(base.square().sum())
    # Weights that are all 0, such as biases of a new model, have no relative distance: theirs is absolute.
    return math.sqrt(moved / norm) if norm else math.sqrt(moved)


@dataclass
class _Attention:
    """Sums over rows of what is said about attention maps."""

    n_rows: int = 0
    sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def add(self, before: Seen, after: Seen, mask: Tensor) -> None:
        """Counts the rows of a batch."""
        if not before.maps or not after.maps:
            return
        self.n_rows += len(mask)
        layers = list(zip(before.maps, after.maps, strict=True))
        self._add("attention_cosine", [_cosine(one, other, mask) for one, other in layers])
        self._add("entropy_before", [_entropy(one, mask) for one, _ in layers])
        self._add("entropy_after", [_entropy(other, mask) for _, other in layers])

    def _add(self, name: str, by_layer: list[Tensor]) -> None:
        total = torch.stack(by_layer).double().sum(1).cpu().numpy()  # (layers, batch, heads) → (layers, heads)
        self.sums[name] = self.sums.get(name, 0.0) + total

    @property
    def arrays(self) -> Arrays:
        """Means over rows (layers, attention heads)."""
        return {name: total / self.n_rows for name, total in self.sums.items()}


def _cosine(before: Tensor, after: Tensor, mask: Tensor) -> Tensor:
    """The cosine of the maps of each row and attention head (batch, heads), over the tokens of the row."""
    is_real = mask[:, None, :, None] & mask[:, None, None, :]
    one, other = before * is_real, after * is_real
    places = (2, 3)
    norms = one.square().sum(places).sqrt() * other.square().sum(places).sqrt()
    cosine = ((one * other).sum(places) / norms).clamp(max=1.0)
    return torch.where((one == other).all(3).all(2), torch.ones_like(cosine), cosine)


def _entropy(maps: Tensor, mask: Tensor) -> Tensor:
    """The entropy of a token's attention (batch, heads), averaged over the tokens of each row."""
    by_token: Tensor = torch.special.entr(maps).sum(3) * mask[:, None, :]
    return by_token.sum(2) / mask.sum(1)[:, None]


@dataclass
class _Alignment:
    """Sums of products of the states of two models, by depth: all that linear CKA needs."""

    depths: list[_Products] = field(default_factory=list)

    def add(self, before: Sequence[Tensor], after: Sequence[Tensor], mask: Tensor) -> None:
        """Counts the tokens of a batch."""
        if not self.depths:
            pairs = zip(before, after, strict=True)
            self.depths = [_Products(one[mask].mean(0), other[mask].mean(0)) for one, other in pairs]
        for products, one, other in zip(self.depths, before, after, strict=True):
            products.add(one[mask], other[mask])

    @property
    def cka(self) -> NDArray[np.float64]:
        """Linear CKA by depth."""
        return np.array([products.cka for products in self.depths])


@dataclass
class _Products:
    """Sums over tokens for one depth. States are taken relative to a fixed one, so that few digits cancel out."""

    from_before: Tensor
    """(width,) subtracted from the states of the first model; any vector gives the same CKA"""
    from_after: Tensor
    n_tokens: int = 0
    is_same: bool = True
    """all states were the same to the bit so far"""
    sums: Tensor | None = None
    """(2, width) sums of the states of both models"""
    products: Tensor | None = None
    """(3, width, width): before × before, after × after, before × after"""

    def add(self, before: Tensor, after: Tensor) -> None:
        """Counts tokens (tokens, width)."""
        self.is_same &= torch.equal(before, after)
        one, other = before - self.from_before, after - self.from_after
        sums = torch.stack([one.sum(0), other.sum(0)]).double()
        products = torch.stack([one.T @ one, other.T @ other, one.T @ other]).double()
        self.n_tokens += len(one)
        self.sums = sums if self.sums is None else self.sums + sums
        self.products = products if self.products is None else self.products + products

    @property
    def cka(self) -> float:
        """‖XᵀY‖² / (‖XᵀX‖ ‖YᵀY‖) of the centred states X and Y."""
        if self.is_same:
            return 1.0
        assert self.sums is not None and self.products is not None, "there are rows"  # noqa: PT018
        means = self.sums / self.n_tokens
        pairs = ((0, 0), (1, 1), (0, 1))
        own, others, both = (
            float((products - self.n_tokens * torch.outer(means[one], means[other])).norm())
            for products, (one, other) in zip(self.products, pairs, strict=True)
        )
        return both**2 / (own * others) if own and others else 0.0
