"""Prefix states: the outputs of frozen layers, computed once and read by every run that starts from them.

How the cache is built:
- The states of a split at one depth are one array, without padding, row after row.
- They are computed in a fixed batch layout. The same bits come out in every process, and whether a depth is computed
  from the tokens or extended from the states of a lower depth.
- One pass computes several depths: the one asked for and those that other runs will need soon (`nearby`).
- They are stored on disk, where all processes map the same pages, under a lock per split: the first process computes,
  the others wait and then read. Where the disk has no room they are kept in the memory of one process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.errors import DataError, FrostlineError
from frostline.kinds import Labels
from frostline.model.stack import Stack
from frostline.records.keys import derived_seed
from frostline.records.specs import CacheDtype
from frostline.storage.prefix_cache import Cache, Origin, default_folder
from frostline.storage.shelf import Entry, Shelf
from frostline.training.batches import Batch, Encoded, evaluation_batches, token_positions
from frostline.training.memory import returning_memory

_NUMPY: dict[CacheDtype, np.dtype[Any]] = {
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),  # numpy has no bfloat16: its bits
}


@dataclass(frozen=True)
class States:
    """The states after `depth` layers: of every token of a split, or only of the token per row that the head reads."""

    depth: int
    row_ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    """(rows + 1,) where each row begins"""
    values: NDArray[Any]
    """(all tokens or rows, width)"""
    is_one_token: bool = False

    def of(self, batch: Batch, encoded: Encoded) -> Tensor:
        """The states of the batch's tokens (all tokens, width), or of its rows (batch, width); fp32."""
        if not np.array_equal(self.row_ids[batch.positions], encoded.row_ids[batch.positions]):
            raise FrostlineError("prefix states and batch belong to different rows; clear the cache and report this")
        places = batch.positions if self.is_one_token else token_positions(self.offsets, batch.positions)
        values = torch.from_numpy(self.values[places])
        return (values.view(torch.bfloat16) if values.dtype == torch.uint16 else values).float()


@dataclass(frozen=True)
class Split:
    """Rows to train on or to score, with their prefix states, if any."""

    encoded: Encoded
    states: States | None = None
    rows: NDArray[np.int64] | None = None
    """positions of its rows in `encoded`; None: all rows"""
    read: tuple[States, ...] = ()
    """the states that a strategy's own head reads, one per depth, if they are cached"""
    source: str = ""
    """the split whose tokens `encoded` are: train or dev. Rows held out of train have the source train."""

    def __len__(self) -> int:
        return len(self.positions)

    @functools.cached_property
    def positions(self) -> NDArray[np.int64]:
        """(rows,) positions of its rows in `encoded`."""
        return np.arange(len(self.encoded)) if self.rows is None else self.rows

    def sample(self, purpose: str, at_most: int) -> Split:
        """At most this many of its rows, in order; always the same ones for the same purpose."""
        rng = np.random.default_rng(derived_seed(0, purpose))
        return dataclasses.replace(self, rows=self.positions[np.sort(rng.permutation(len(self))[:at_most])])

    @property
    def labels(self) -> Labels:
        """(rows,)"""
        return self.encoded.labels[self.positions]

    @property
    def row_ids(self) -> NDArray[np.int64]:
        """(rows,) row numbers in the source file."""
        return self.encoded.row_ids[self.positions]


def estimated_bytes(encoded: Encoded, width: int, dtype: CacheDtype = "fp32") -> int:
    """Size of the states of one split at one depth."""
    return len(encoded.tokens) * width * _NUMPY[dtype].itemsize


@dataclass(frozen=True)
class _Wanted:
    """The states a run asks for."""

    encoded: Encoded
    origin: Origin
    depth: int
    load_stack: Callable[[], Stack]
    nearby: frozenset[int]

    @property
    def dtype(self) -> np.dtype[Any]:
        return _NUMPY[self.origin.dtype]

    def entry(self, depth: int) -> Entry:
        origin = self.origin
        return Entry(model=origin.model, task=origin.task, split=origin.split, depth=depth, dtype=origin.dtype)


@dataclass
class Prefixes:
    """The prefix states that a process uses: mapped from the cache, or computed and put there."""

    max_bytes: int
    """size limit of the whole cache; 0: states are kept in memory only"""
    cache: Cache = field(default_factory=lambda: Cache(default_folder()))
    seconds: float = 0.0
    """time spent computing so far"""
    notes: list[str] = field(default_factory=list)
    """problems with the cache that were repaired"""
    say: Callable[[str], None] = field(default=lambda _: None)
    """hears of a long wait for another process, while it lasts; may be called from another thread"""
    _used: dict[tuple[str, int], States] = field(default_factory=dict)

    def states(
        self,
        encoded: Encoded,
        origin: Origin,
        depth: int,
        load_stack: Callable[[], Stack],
        nearby: Collection[int] = (),
    ) -> States:
        """The states of a split after `depth` layers, computed if they are not in the cache.

        Args:
            load_stack: called only when something must be computed.
            nearby: depths that other runs will need; they are computed in the same pass if there is room.
        """
        key = origin.key(encoded.key)
        if (key, depth) not in self._used:
            wanted = _Wanted(encoded, origin, depth, load_stack, frozenset(nearby))
            states = self._on_disk(self.cache.shelf(key), wanted) if self.max_bytes else None
            self._used[key, depth] = states or self._in_memory(key, wanted)
        return self._used[key, depth]

    def _on_disk(self, shelf: Shelf, wanted: _Wanted) -> States | None:
        """The states from the cache, computed first if needed; None, and a note, if the cache cannot be used."""
        try:
            with shelf.locked(self.say):
                return self._opened(shelf, wanted.encoded, wanted.depth) or self._computed(shelf, wanted)
        except OSError as error:  # no space, or no permission to write
            self.notes.append(f"the prefix cache in {self.cache.folder} was not used: {error.strerror or error}")
            return None

    def _in_memory(self, key: str, wanted: _Wanted) -> States:
        lower = [kept for known, kept in self._used if known == key and kept < wanted.depth]
        below = self._used[key, max(lower)] if lower and wanted.origin.is_exact else None
        stack, dtype = wanted.load_stack(), wanted.origin.dtype
        with self.timed():
            return compute_states(stack, wanted.encoded, wanted.depth, below, dtype, is_whole=wanted.origin.is_whole)

    def _opened(self, shelf: Shelf, encoded: Encoded, depth: int) -> States | None:
        """The cached states, mapped; None if there are none. Damaged ones are removed."""
        try:
            found = shelf.open(depth)
            return None if found is None else _states_of(encoded, depth, *found, shelf)
        except DataError as error:
            self.notes.append(f"damaged prefix states were computed again: {error}")
            shelf.remove(depth)
            return None

    def _computed(self, shelf: Shelf, wanted: _Wanted) -> States:
        stack = wanted.load_stack()
        depths = sorted({wanted.depth, *wanted.nearby.difference(shelf.entries())})
        # At most half of the limit: the other split needs as much.
        values = self._kept(shelf, wanted, stack, depths, self.max_bytes // 2)
        values = values or self._kept(shelf, wanted, stack, [wanted.depth], self.max_bytes)
        if not values:
            raise OSError(0, "it has no room for them")
        # The array that was just written, not the one in the cache: another process may have removed that already.
        return _states_of(wanted.encoded, wanted.depth, values[wanted.depth], wanted.encoded.row_ids, shelf)

    def _kept(
        self, shelf: Shelf, wanted: _Wanted, stack: Stack, depths: Sequence[int], most: int
    ) -> Mapping[int, NDArray[Any]]:
        """Computes the states of these depths in one pass and stores them; none of them if there is no room.

        Args:
            most: limit of their total size in bytes.
        """
        encoded = wanted.encoded
        is_whole = wanted.origin.is_whole
        shapes = {depth: _shape(stack, encoded, depth, is_whole=is_whole) for depth in depths}
        sizes = {depth: math.prod(shape) * wanted.dtype.itemsize for depth, shape in shapes.items()}
        if sum(sizes.values()) > most:
            return {}
        lower = [depth for depth in shelf.entries() if depth < depths[0]]
        below = self._opened(shelf, encoded, lower[-1]) if lower and wanted.origin.is_exact else None
        # An array that is opened above stays mapped, even if it is removed here to make room.
        if not self.cache.make_room(shelf, sizes, self.max_bytes, wanted.entry(depths[0])):
            return {}
        with contextlib.ExitStack() as writing:
            values = {
                depth: writing.enter_context(shelf.writing(wanted.entry(depth), shape, wanted.dtype, encoded.row_ids))
                for depth, shape in shapes.items()
            }
            with self.timed():
                _fill(values, stack, encoded, below, is_whole=is_whole)
        return values

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Adds the duration of the block to `seconds`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began


def _states_of(encoded: Encoded, depth: int, values: NDArray[Any], row_ids: NDArray[np.int64], shelf: Shelf) -> States:
    """An array from the cache as states; a DataError if it belongs to other rows."""
    if len(values) not in (len(encoded.tokens), len(encoded)) or not np.array_equal(row_ids, encoded.row_ids):
        raise DataError("they belong to other rows", path=shelf.folder)
    values.flags.writeable = False
    return States(depth, row_ids, encoded.offsets, values, is_one_token=len(values) != len(encoded.tokens))


def _is_one_token(stack: Stack, depth: int, *, is_whole: bool) -> bool:
    return not is_whole and depth == stack.n_layers and stack.head_reads != "all"


def _shape(stack: Stack, encoded: Encoded, depth: int, *, is_whole: bool) -> tuple[int, int]:
    n_states = len(encoded) if _is_one_token(stack, depth, is_whole=is_whole) else len(encoded.tokens)
    return n_states, stack.structure.width


def compute_states(
    stack: Stack,
    encoded: Encoded,
    depth: int,
    below: States | None = None,
    dtype: CacheDtype = "fp32",
    *,
    is_whole: bool = False,
) -> States:
    """The states of a split after `depth` layers, in memory; extended from those of a lower depth if given."""
    values: NDArray[Any] = np.empty(_shape(stack, encoded, depth, is_whole=is_whole), dtype=_NUMPY[dtype])
    _fill({depth: values}, stack, encoded, below, is_whole=is_whole)
    return States(depth, encoded.row_ids, encoded.offsets, values, _is_one_token(stack, depth, is_whole=is_whole))


def _fill(
    values: Mapping[int, NDArray[Any]], stack: Stack, encoded: Encoded, below: States | None, *, is_whole: bool
) -> None:
    """Writes the states of each depth into its array: one pass over the rows, each layer computed once."""
    stack.eval()
    with torch.no_grad():
        for batch in returning_memory(evaluation_batches(encoded)):
            for depth, state in _of_batch(stack, batch, encoded, sorted(values), below):
                kept, places = state[batch.mask], token_positions(encoded.offsets, batch.positions)
                if _is_one_token(stack, depth, is_whole=is_whole):
                    kept, places = kept[tokens_read(stack, batch)], batch.positions
                values[depth][places] = _kept_as(kept, values[depth].dtype)


def _of_batch(
    stack: Stack, batch: Batch, encoded: Encoded, depths: Sequence[int], below: States | None
) -> Iterator[tuple[int, Tensor]]:
    """Yields each depth, ascending, with its state (batch, tokens, width)."""
    inputs = {name: tensor.to(stack.device) for name, tensor in batch.padded_inputs().items()}
    if below is None:
        reached, state = depths[0], stack.state_at(depths[0], inputs)
    else:
        reached, state = below.depth, batch.padded(below.of(batch, encoded)).to(stack.device)
    for depth in depths:
        state = stack.state_between(reached, state, depth, inputs)
        reached = depth
        yield depth, state.cpu()


def tokens_read(stack: Stack, batch: Batch) -> Tensor:
    """(batch,) position of the token that the head reads, for each row, among all tokens of the batch."""
    first, last = batch.ends
    return first if stack.head_reads == "first" else last


def _kept_as(values: Tensor, dtype: np.dtype[Any]) -> NDArray[Any]:
    kept: NDArray[Any]
    if dtype == np.uint16:
        kept = values.to(torch.bfloat16).view(torch.uint16).numpy()
    else:
        kept = values.numpy().astype(dtype, copy=False)
    return kept
