"""Texts as rows of tokens, for many tasks at once and from any thread; rows as batches.

A text is tokenised once for all tasks that join pairs in the same way, and cut once for all that have the same limit.
Rows with equal tokens are equal, so the engine computes them once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from frostline.model.packing import Packing, packed
from frostline.tasks import Rows
from frostline.training.batches import Encoded, Padding, encode, make_batch, token_positions

_NO_LIMIT = 2**31
"""More tokens than any text has."""


@final
@dataclass(frozen=True)
class Text:
    """A text, or a pair of texts."""

    first: str
    second: str | None = None


@final
@dataclass(frozen=True)
class Limits:
    """How a task joins and cuts its texts."""

    max_length: int
    """longest row in tokens"""
    pair_joiner: str | None
    """put between the texts of a pair; None if the tokenizer separates them"""


@final
@dataclass(frozen=True)
class TokenRow:
    """One text, or pair of texts, as tokens. Rows are equal if a model cannot tell them apart."""

    tokens: tuple[int, ...]
    token_types: tuple[int, ...] | None
    """if the tokenizer gives them"""
    n_tokens: int = dataclasses.field(compare=False)
    """tokens of the whole text, special ones included; more than there are `tokens` if it was cut"""

    @property
    def is_cut(self) -> bool:
        """Whether the text was longer than the limit."""
        return self.n_tokens > len(self.tokens)


@final
class Texts:
    """Turns texts into rows of tokens; may be called from any thread."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        # Cutting changes a setting inside the tokenizer, which every thread would see.
        self._lock = threading.Lock()
        self.padding = Padding.of(tokenizer)

    def rows(self, texts: Sequence[Text], limits: Iterable[Limits]) -> dict[Limits, tuple[TokenRow, ...]]:
        """The rows of all texts for each of these limits, in the order of the texts."""
        whole: dict[str | None, list[TokenRow]] = {}
        found: dict[Limits, tuple[TokenRow, ...]] = {}
        for limit in dict.fromkeys(limits):
            if limit.pair_joiner not in whole:
                whole[limit.pair_joiner] = self._encoded(texts, Limits(_NO_LIMIT, limit.pair_joiner))
            found[limit] = tuple(self._cut(texts, whole[limit.pair_joiner], limit))
        return found

    def _cut(self, texts: Sequence[Text], whole: Sequence[TokenRow], limits: Limits) -> list[TokenRow]:
        rows = list(whole)
        long = [place for place, row in enumerate(whole) if row.n_tokens > limits.max_length]
        for place, row in zip(long, self._encoded([texts[place] for place in long], limits), strict=True):
            rows[place] = dataclasses.replace(row, n_tokens=whole[place].n_tokens)
        return rows

    def _encoded(self, texts: Sequence[Text], limits: Limits) -> list[TokenRow]:
        """The rows of single texts and of pairs, each kind tokenised together."""
        rows: dict[int, TokenRow] = {}
        for is_pair in (False, True):
            places = [place for place, text in enumerate(texts) if (text.second is not None) == is_pair]
            if places:
                some = [texts[place] for place in places]
                rows.update(zip(places, self._of_one_kind(some, limits, is_pair=is_pair), strict=True))
        return [rows[place] for place in range(len(texts))]

    def _of_one_kind(self, texts: Sequence[Text], limits: Limits, *, is_pair: bool) -> list[TokenRow]:
        pairs = [text.second or "" for text in texts] if is_pair else None
        numbers = _numbers(texts)
        plain = Rows(ids=numbers, texts=[text.first for text in texts], pairs=pairs, labels=numbers)
        with self._lock:
            encoded = encode(plain, self._tokenizer, max_length=limits.max_length, pair_joiner=limits.pair_joiner)
        types = encoded.token_types
        ends = zip(encoded.offsets[:-1].tolist(), encoded.offsets[1:].tolist(), strict=True)
        return [
            TokenRow(
                tokens=tuple(encoded.tokens[start:end].tolist()),
                token_types=None if types is None else tuple(types[start:end].tolist()),
                n_tokens=end - start,
            )
            for start, end in ends
        ]


def joined(rows: Sequence[TokenRow], padding: Padding) -> Encoded:
    """Rows one after another, as batches are made from them."""
    types = None if any(row.token_types is None for row in rows) else [row.token_types or () for row in rows]
    return Encoded(
        row_ids=_numbers(rows),
        labels=_numbers(rows),
        tokens=_concatenated([row.tokens for row in rows]),
        token_types=None if types is None else _concatenated(types),
        offsets=np.cumsum([0, *(len(row.tokens) for row in rows)], dtype=np.int64),
        padding=padding,
        n_cut=0,
    )


@final
class RowBatch:
    """Some rows in the form that a model reads: joined without padding where its family allows that, else padded.

    Between models, states are (all tokens, width), without padding.
    """

    def __init__(self, encoded: Encoded, positions: NDArray[np.int64], first_position: int | None) -> None:
        """The rows at these positions.

        Args:
            encoded: all rows.
            positions: of the rows in `encoded`; short rows first, because attention pads rows of similar length.
            first_position: as in `ConcurrentStack`; None: the rows are padded.
        """
        self.positions = positions
        self._encoded = encoded
        self._batch = make_batch(encoded, positions)
        self.mask = self._batch.mask
        self.tokens = self._batch.tokens
        self.packing = None if first_position is None else Packing.of(self.mask)
        self.inputs = (
            self._batch.padded_inputs() if first_position is None else self._batch.packed_inputs(first_position)
        )

    def packed(self) -> contextlib.AbstractContextManager[None]:
        """Inside this context, attention knows where each row begins and ends."""
        return packed(self.packing)

    @functools.cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """(rows,) each: places of the first and the last token of each row among all tokens."""
        return self._batch.ends

    @functools.cached_property
    def padded_inputs(self) -> dict[str, Tensor]:
        """The model's inputs, each (rows, tokens)."""
        return self._batch.padded_inputs()

    def padded(self, state: Tensor) -> Tensor:
        """(all tokens, width) → (rows, tokens, width), 0 at padding."""
        return self._batch.padded(state)

    def shaped(self, state: Tensor) -> Tensor:
        """(all tokens, width) → the form that a model reads."""
        return self.padded(state) if self.packing is None else state[None]

    def flat(self, state: Tensor) -> Tensor:
        """The form that a model gives → (all tokens, width), or (rows, width) if it computed one token per row."""
        return state[self.mask] if self.packing is None else state.flatten(0, 1)

    def state_of(self, positions: NDArray[np.int64], state: Tensor) -> Tensor:
        """What belongs to some of its rows, in their order, of a state (all tokens, width) or (rows, width)."""
        if len(positions) == len(self.positions):
            return state
        places = np.flatnonzero(np.isin(self.positions, positions))
        if len(state) == len(self.positions):
            return state[torch.from_numpy(places)]
        offsets = np.concatenate([[0], np.cumsum(self._encoded.lengths[self.positions])])
        return state[torch.from_numpy(token_positions(offsets, places))]


def _concatenated(parts: Sequence[tuple[int, ...]]) -> NDArray[np.int64]:
    return np.fromiter((number for part in parts for number in part), dtype=np.int64)


def _numbers(items: Sequence[object]) -> NDArray[np.int64]:
    return np.arange(len(items), dtype=np.int64)
