"""Packed batches: all rows of a batch in one long row of tokens, without padding.

Linear layers and norms work on each token separately, so they need no padding at all: their cost falls with the share
of padding in the batch. Only attention must know where one row ends and the next begins. It is replaced by the
function in `added/attention.py`, which looks up the packing of the current batch here.

For the attention product itself, rows of similar length are padded together and unpadded again. This is faster than
one product per row and wastes little, because batches are sorted by length.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

_MAX_LENGTH_RATIO = 2
"""Rows are padded together while the longest has at most this many times the tokens of the shortest."""


@dataclass(frozen=True)
class RowGroup:
    """Neighbouring rows of similar length that are padded together for attention.

    It holds the indices that convert between the packed row and the padded batch of the group.
    """

    is_real: Tensor
    """(rows, tokens) true at tokens, false at padding"""
    source: Tensor
    """(rows × tokens,) for each place in the padded batch, its token's place in the packed row"""
    target: Tensor
    """(all tokens,) for each token of the packed row, its place in the padded batch"""
    _by_head: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, is_real: Tensor) -> RowGroup:
        """The group of rows with this mask."""
        flat = is_real.reshape(-1)
        return cls(is_real, (flat.cumsum(0) - 1).clamp(min=0), flat.nonzero()[:, 0])

    def by_head(self, n_heads: int) -> tuple[Tensor, Tensor]:
        """Source and target with one entry per attention head: (rows × heads × tokens,) and (all tokens × heads,)."""
        # Computed once per batch: every layer asks for the same indices.
        if n_heads not in self._by_head:
            n_rows, n_tokens = self.is_real.shape
            heads = torch.arange(n_heads, device=self.source.device)
            source = self.source.view(n_rows, 1, n_tokens) * n_heads + heads[:, None]
            rows, places = self.target // n_tokens, self.target % n_tokens
            target = (rows[:, None] * n_heads + heads) * n_tokens + places[:, None]
            self._by_head[n_heads] = source.view(-1), target.view(-1)
        return self._by_head[n_heads]


@dataclass(frozen=True)
class Packing:
    """Where each row of a batch lies in the packed row."""

    is_real: Tensor
    """(batch, tokens) true at tokens, false at padding, as in a padded batch"""
    groups: tuple[RowGroup, ...]
    """all rows, in their order"""
    is_varlen: bool = False
    """use torch's variable-length attention where possible, which needs no padding"""

    @classmethod
    def of(cls, is_real: Tensor, *, is_varlen: bool = False) -> Packing:
        """The packing of a batch with this mask. Rows sorted by length give few groups."""
        spans = _similar_spans(is_real.sum(1).tolist())
        return cls(is_real, tuple(RowGroup.of(is_real[a:b, :longest]) for a, b, longest in spans), is_varlen)

    @property
    def n_tokens(self) -> list[int]:
        """The number of tokens in each group."""
        return [len(group.target) for group in self.groups]

    @property
    def n_rows(self) -> list[int]:
        """The number of rows in each group."""
        return [len(group.is_real) for group in self.groups]


def _similar_spans(lengths: list[int]) -> Iterator[tuple[int, int, int]]:
    """Spans of neighbouring rows of similar length: (first, last + 1, longest).

    >>> list(_similar_spans([3, 4, 6, 7, 9, 30]))
    [(0, 3, 6), (3, 5, 9), (5, 6, 30)]
    """
    start = 0
    for end in range(1, len(lengths) + 1):
        inside = lengths[start:end]
        if end == len(lengths) or max(*inside, lengths[end]) > _MAX_LENGTH_RATIO * min(*inside, lengths[end]):
            yield start, end, max(inside)
            start = end


# A context variable, because transformers calls attention deep inside the model and passes no argument of ours.
_current: contextvars.ContextVar[Packing | None] = contextvars.ContextVar("packing", default=None)


@contextlib.contextmanager
def packed(packing: Packing | None) -> Iterator[None]:
    """Inside this context, attention treats its input as one packed row; with None, as an ordinary batch."""
    token = _current.set(packing)
    try:
        yield
    finally:
        _current.reset(token)


def current_packing() -> Packing | None:
    """The packing of the batch that is being computed; None for an ordinary batch."""
    return _current.get()
