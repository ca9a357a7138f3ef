"""Texts → token arrays → batches: un-padded rows with offsets, an order from a seed, padding only in the batch.

Knows tokenizers and tensors; nothing of models or training.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from frostline.kinds import Labels
from frostline.records.keys import derived_seed
from frostline.records.specs import RunSpec
from frostline.tasks import Rows

EVALUATION_TOKENS = 1024
"""Tokens, padding included, of a batch in evaluation (prefix, dev): long rows take no more memory than short ones.
Fixed, because the batch shape changes the last bits."""


_TOKENISED_AT_ONCE = 1000
_DIGESTED_AT_ONCE = 2**20

Numbers = NDArray[np.signedinteger[Any]]
"""Whole numbers. Tokens are stored small: a large data set has millions of them."""


@dataclass(frozen=True)
class Padding:
    """The tokens a tokenizer pads rows with."""

    token: int
    token_type: int

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Padding:
        """The padding of a tokenizer."""
        return cls(int(tokenizer.pad_token_id), int(tokenizer.pad_token_type_id))


@dataclass(frozen=True)
class Encoded:
    """The rows of one split as tokens: un-padded, one after another."""

    row_ids: NDArray[np.int64]
    """(rows,) row numbers in the source file"""
    labels: Labels
    """(rows,) class numbers or values"""
    tokens: Numbers
    """(all tokens,)"""
    token_types: Numbers | None
    """(all tokens,) if the model uses them"""
    offsets: NDArray[np.int64]
    """(rows + 1,) start of each row"""
    padding: Padding
    n_cut: int
    """texts cut at the length limit"""

    @functools.cached_property
    def lengths(self) -> NDArray[np.int64]:
        """(rows,) number of tokens of each row."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.row_ids)

    @functools.cached_property
    def key(self) -> str:
        """A key of these tokens, row by row."""
        digest = hashlib.sha256()
        for array in (self.row_ids, self.offsets, self.tokens, self.token_types):
            if array is None:
                digest.update(b"none")
                continue
            for start in range(0, len(array), _DIGESTED_AT_ONCE):
                digest.update(array[start : start + _DIGESTED_AT_ONCE].astype(np.int64).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Batch:
    """Some rows of a split, un-padded, one after another."""

    positions: NDArray[np.int64]
    """(batch,) positions of the rows in the split"""
    tokens: Tensor
    """(all tokens,)"""
    token_types: Tensor | None
    """(all tokens,) if the model uses them"""
    mask: Tensor
    """(batch, tokens), true where a padded batch has a token"""
    labels: Tensor
    """(batch,)"""
    padding: Padding

    def padded_inputs(self) -> dict[str, Tensor]:
        """The model's inputs, each (batch, tokens)."""
        inputs = {"input_ids": self.padded(self.tokens, self.padding.token), "attention_mask": self.mask.long()}
        if self.token_types is not None:
            inputs["token_type_ids"] = self.padded(self.token_types, self.padding.token_type)
        return inputs

    def packed_inputs(self, first_position: int) -> dict[str, Tensor]:
        """The model's inputs with all rows joined into one, each (1, all tokens)."""
        inputs = {"input_ids": self.tokens[None], "position_ids": self.places[None] + first_position}
        if self.token_types is not None:
            inputs["token_type_ids"] = self.token_types[None]
        return inputs

    def padded(self, values: Tensor, fill: float = 0) -> Tensor:
        """(all tokens, …) → (batch, tokens, …)."""
        table = values.new_full((*self.mask.shape, *values.shape[1:]), fill)
        mask = self.mask.to(values.device)
        return table.masked_scatter(mask.view(*mask.shape, *[1] * (values.ndim - 1)), values)

    @property
    def places(self) -> Tensor:
        """(all tokens,) position of each token in its row, from 0."""
        columns = self.mask.cumsum(1) - 1
        return columns[self.mask]

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """(batch,) each: positions of the first and the last token of each row among all tokens."""
        after = self.mask.sum(1).cumsum(0)
        return torch.cat([after.new_zeros(1), after[:-1]]), after - 1


def encode(rows: Rows, tokenizer: PreTrainedTokenizerBase, *, max_length: int, pair_joiner: str | None) -> Encoded:
    """The rows as tokens, cut at `max_length`."""
    texts, pairs = rows.texts, rows.pairs
    if pairs is not None and pair_joiner is not None:
        texts, pairs = [f"{a}{pair_joiner}{b}" for a, b in zip(texts, pairs, strict=True)], None
    # In chunks: a tokenizer's output takes many times the memory of the tokens.
    starts = range(0, len(texts), _TOKENISED_AT_ONCE)
    parts = [
        _tokenised(tokenizer, texts[some], None if pairs is None else pairs[some], max_length)
        for some in (slice(start, start + _TOKENISED_AT_ONCE) for start in starts)
    ]
    types = [part.token_types for part in parts if part.token_types is not None]
    return Encoded(
        row_ids=rows.ids,
        labels=rows.labels,
        tokens=np.concatenate([part.tokens for part in parts]),
        token_types=np.concatenate(types) if types else None,
        offsets=np.concatenate([[0], np.cumsum([n for part in parts for n in part.lengths])]).astype(np.int64),
        padding=Padding.of(tokenizer),
        n_cut=sum(part.n_cut for part in parts),
    )


class _Tokenised(NamedTuple):
    """Some rows as tokens."""

    tokens: Numbers
    token_types: Numbers | None
    lengths: list[int]
    n_cut: int


def _tokenised(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], pairs: list[str] | None, max_length: int
) -> _Tokenised:
    encoded = tokenizer(texts, pairs, return_attention_mask=False, verbose=False)
    long = [row for row, tokens in enumerate(encoded["input_ids"]) if len(tokens) > max_length]
    cut = _cut(tokenizer, texts, pairs, long, max_length)
    padding = Padding.of(tokenizer)
    # Without special tokens an empty text has no token, and no state that a head could read.
    lists = [cut["input_ids"].get(row, tokens) or [padding.token] for row, tokens in enumerate(encoded["input_ids"])]
    types = [
        cut["token_type_ids"].get(row, kinds) or [padding.token_type]
        for row, kinds in enumerate(encoded.get("token_type_ids", []))
    ]
    lengths = [len(tokens) for tokens in lists]
    kinds = _concatenated(types, np.int8) if types else None
    return _Tokenised(_concatenated(lists, np.int32), kinds, lengths, len(long))


def _cut(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], pairs: list[str] | None, rows: list[int], max_length: int
) -> dict[str, dict[int, list[int]]]:
    """The tokens of each row, and token types if the tokenizer gives them."""
    if not rows:
        return {"input_ids": {}, "token_type_ids": {}}
    some, seconds = [texts[row] for row in rows], None if pairs is None else [pairs[row] for row in rows]
    encoded = tokenizer(some, seconds, truncation=True, max_length=max_length, return_attention_mask=False)
    return {
        name: dict(zip(rows, encoded[name], strict=True)) if name in encoded else {}
        for name in ("input_ids", "token_type_ids")
    }


def training_batches(
    encoded: Encoded, batch_size: int, *, seed: int, epoch: int, positions: NDArray[np.int64] | None = None
) -> Iterator[Batch]:
    """All rows (or those at `positions`) once, in random batches from seed and epoch; each has short rows first."""
    chosen = np.arange(len(encoded)) if positions is None else positions
    order = chosen[np.random.default_rng(derived_seed(seed, f"epoch {epoch}")).permutation(len(chosen))]
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        # The order within a batch does not change its mean loss; rows of similar length are attended to together.
        yield make_batch(encoded, rows[np.argsort(encoded.lengths[rows], kind="stable")])


def evaluation_batches(encoded: Encoded, positions: NDArray[np.int64] | None = None) -> Iterator[Batch]:
    """All rows (or those at `positions`) once, short ones first, always in the same layout."""
    chosen = np.arange(len(encoded)) if positions is None else positions
    order = chosen[np.lexsort((chosen, encoded.lengths[chosen]))]
    start = 0
    while start < len(order):
        lengths = encoded.lengths[order[start : start + EVALUATION_TOKENS]]
        # Lengths ascend: take as many rows as fit if each were as long as the last one, but at least one.
        n_rows = max(1, int(np.sum(np.arange(1, len(lengths) + 1) * lengths <= EVALUATION_TOKENS)))
        yield make_batch(encoded, order[start : start + n_rows])
        start += n_rows


def make_batch(encoded: Encoded, positions: NDArray[np.int64]) -> Batch:
    """The rows at these positions."""
    source = token_positions(encoded.offsets, positions)
    types = encoded.token_types
    return Batch(
        positions=positions,
        tokens=torch.from_numpy(encoded.tokens[source]).long(),
        token_types=None if types is None else torch.from_numpy(types[source]).long(),
        mask=torch.from_numpy(_mask(encoded.lengths[positions])),
        labels=torch.from_numpy(np.ascontiguousarray(encoded.labels[positions])),
        padding=encoded.padding,
    )


def token_positions(offsets: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the tokens of these rows in an un-padded array, row after row."""
    spans = [np.arange(offsets[row], offsets[row + 1]) for row in positions]
    return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)


def _mask(lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    # On the right whatever the tokenizer's side: positions then count from each row's first token in every family, a
    # decoder's real tokens never see the padding, and the token a head reads is found by the mask.
    return np.asarray(np.arange(lengths.max())[None, :] < lengths[:, None])


def _concatenated(lists: list[list[int]], dtype: type[np.signedinteger[Any]]) -> Numbers:
    return np.concatenate([np.asarray(tokens, dtype=dtype) for tokens in lists])


def n_steps(spec: RunSpec, n_rows: int) -> int:
    """Steps of a whole run on this number of rows."""
    return spec.max_steps or spec.epochs * _steps_per_epoch(spec, n_rows)


def n_epochs(spec: RunSpec, n_rows: int) -> int:
    """Epochs of a whole run; the last one may be cut short by `max_steps`."""
    return math.ceil(n_steps(spec, n_rows) / _steps_per_epoch(spec, n_rows))


def _steps_per_epoch(spec: RunSpec, n_rows: int) -> int:
    return spec.passes * math.ceil(n_rows / spec.batch_size)
