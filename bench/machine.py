"""What the machine can do, and what a training step needs at least: matrix products, counted and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedConfig

CUBE = (1024, 1024, 1024)
"""A product that any machine does well."""

Product = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the arithmetic of a BERT with a pooler and a classifier depends on."""

    n_layers: int
    width: int
    inner: int
    """width between the two feed-forward products"""
    n_heads: int
    n_classes: int

    @classmethod
    def of(cls, config: PreTrainedConfig) -> Shape:
        """That of a model."""
        return cls(
            n_layers=config.num_hidden_layers,
            width=config.hidden_size,
            inner=config.intermediate_size,
            n_heads=config.num_attention_heads,
            n_classes=config.num_labels,
        )


def useful_operations(shape: Shape, lengths: Sequence[int], n_frozen: int | None) -> int:
    """Multiplications and additions that one training step cannot do without, in matrix products.

    Counted over the tokens that are there, no padding. Forward: each trained layer once, frozen ones not at all, their
    output being kept. Backward: the gradient of each trained matrix, and that of its input where something below it
    trains. The top layer only as far as the token that the head reads needs it. No norms, activations, dropout,
    embeddings or optimizer: they are no matrix products.

    One layer of width 2, inner width 3, one head, two classes, one row of one token, layer and head trained; the top
    layer is the only one, nothing below it trains. In multiply-adds, forward + matrices + inputs: query 4 + 4 + 0, keys
    and values of one token 8 + 8 + 0, its score and mean 4 + 8, output 4 + 4 + 4, feed-forward 12 + 12 + 12, pooler
    4 + 4 + 4, classifier 4 + 4 + 4:

    >>> useful_operations(Shape(n_layers=1, width=2, inner=3, n_heads=1, n_classes=2), [1], n_frozen=0)
    216

    Args:
        shape: of the model.
        lengths: tokens of each row of the batch.
        n_frozen: layers below the trained ones; None: the embeddings train too.
    """
    n_trained = shape.n_layers - (n_frozen or 0)
    products = _head(shape, len(lengths), is_lowest=n_trained == 0)
    for above in range(n_trained):
        is_lowest = above == n_trained - 1 and n_frozen is not None
        products += _top(shape, lengths, is_lowest) if above == 0 else _layer(shape, lengths, is_lowest)
    return 2 * products


def _linear(n_rows: int, n_in: int, n_out: int, *, is_lowest: bool = False) -> int:
    """Multiply-adds of a trained matrix: forward, its own gradient, its input's unless it is the lowest."""
    return (2 if is_lowest else 3) * n_rows * n_in * n_out


def _head(shape: Shape, n_rows: int, *, is_lowest: bool) -> int:
    pooler = _linear(n_rows, shape.width, shape.width, is_lowest=is_lowest)
    return pooler + _linear(n_rows, shape.width, shape.n_classes)


def _above_attention(shape: Shape, n_rows: int) -> int:
    """The output projection and the feed-forward part, of so many tokens."""
    return _linear(n_rows, shape.width, shape.width) + 2 * _linear(n_rows, shape.width, shape.inner)


def _layer(shape: Shape, lengths: Sequence[int], is_lowest: bool) -> int:
    """A layer that computes all tokens."""
    n_tokens, n_pairs = sum(lengths), sum(length**2 for length in lengths)
    projections = 3 * _linear(n_tokens, shape.width, shape.width, is_lowest=is_lowest)
    # Scores and means forward; backward two products each, one for either side.
    attention = (2 + 4) * n_pairs * shape.width
    return projections + attention + _above_attention(shape, n_tokens)


def _top(shape: Shape, lengths: Sequence[int], is_lowest: bool) -> int:
    """The top layer, which computes one token a row; keys and values in whichever way takes less."""
    n_rows, n_tokens, width = len(lengths), sum(lengths), shape.width
    query = _linear(n_rows, width, width, is_lowest=is_lowest)
    projected = 2 * _linear(n_tokens, width, width, is_lowest=is_lowest) + (2 + 4) * n_tokens * width
    # Each head's query times the keys' matrix meets the tokens themselves, as does the values' matrix their mean. The
    # matrices' inputs are then a query and a mean, which always pass a gradient on; the tokens only if not the lowest.
    met = (2 + (2 if is_lowest else 4)) * shape.n_heads * n_tokens * width
    folded = 2 * _linear(n_rows, width, width) + met
    return query + min(projected, folded) + _above_attention(shape, n_rows)


def feed_forward(shape: Shape, n_tokens: int) -> Product:
    """The largest product of a layer over so many tokens."""
    return n_tokens, shape.width, shape.inner


def operations(product: Product) -> int:
    """Multiplications and additions of a matrix product."""
    rows, inner, columns = product
    return 2 * rows * inner * columns


def multiplying(product: Product) -> Callable[[], object]:
    """Does the product once a call."""
    rows, inner, columns = product
    one, other = torch.randn(rows, inner), torch.randn(inner, columns)
    return lambda: torch.mm(one, other)
