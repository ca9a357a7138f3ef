"""The engine: many tasks over one trunk, each text computed once as far as tasks share layers.

One call goes like this. Rows with equal tokens are taken once. They are sorted by length and go up the trunk together,
without padding where the family allows it. At each depth where some task leaves the trunk, the states are noted; rows
that nobody needs above that depth stay behind. Then each task's own layers run on its own rows.

**Threads.** Calls may run at the same time in any number of threads, and tails may be added and dropped meanwhile: a
call uses the tails that it was given. The engine sets nothing in torch. For throughput, run one call per core, each in
a thread of its own that called `torch.set_num_threads(1)` itself: the number of threads belongs to the calling thread.
"""

from __future__ import annotations

import itertools
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.errors import UsageError, check_choice
from frostline.serving.rows import RowBatch, Text, TokenRow, joined
from frostline.serving.tail import Tail
from frostline.serving.trunk import Trunk
from frostline.training.batches import Encoded
from frostline.training.memory import return_freed_memory

__all__ = ["Engine", "Text", "TokenRow"]

_TOKENS_AT_ONCE = 1024
"""Tokens that go up the trunk together, padding included: more need more memory and are no faster."""
_MOST_PADDING = 1.25
"""Rows are padded together while the longest has at most this many times the tokens of the shortest."""

_CALLS_PER_RETURN = 200
"""Calls after which freed memory goes back to the system. The allocator would keep about 100 MB of it for MiniLM."""

_Wanted = NDArray[np.bool_]
"""(rows,) which rows a task wants"""


@final
class Engine:
    """Answers of many tasks over one trunk."""

    def __init__(self, trunk: Trunk) -> None:
        self.trunk = trunk
        self._tails: Mapping[str, Tail] = types.MappingProxyType({})
        self._changing = threading.Lock()
        self._calls = itertools.count(1)

    @property
    def tails(self) -> Mapping[str, Tail]:
        """The tasks by name, as they are now. This mapping never changes: later changes make a new one."""
        return self._tails

    def add(self, tail: Tail, name: str) -> None:
        """Adds a task, or replaces the one of that name. Calls under way go on with the one they began with."""
        with self._changing:
            self._set({**self._tails, name: tail})

    def drop(self, name: str) -> None:
        """Removes a task; a UsageError if there is none of that name."""
        with self._changing:
            check_choice("task", name, self._tails)
            self._set({known: tail for known, tail in self._tails.items() if known != name})

    def replace(self, tails: Mapping[str, Tail]) -> None:
        """Puts these tasks in the place of all others, at once."""
        with self._changing:
            self._set(dict(tails))

    def _set(self, tails: dict[str, Tail]) -> None:
        if others := [name for name, tail in tails.items() if tail.trunk is not self.trunk]:
            raise UsageError(f"the task {others[0]!r} was loaded over another trunk than this engine's")
        self._tails = types.MappingProxyType(tails)

    def encode(self, texts: Sequence[Text], tails: Mapping[str, Tail]) -> dict[str, tuple[TokenRow, ...]]:
        """The texts as rows of tokens for each of these tasks, cut at the task's limit; see `TokenRow.is_cut`."""
        by_limits = self.trunk.texts.rows(texts, [tail.limits for tail in tails.values()])
        return {name: by_limits[tail.limits] for name, tail in tails.items()}

    def outputs(
        self, rows: Mapping[str, Sequence[TokenRow]], tails: Mapping[str, Tail]
    ) -> dict[str, NDArray[np.float32]]:
        """The raw outputs (rows, outputs) of each task for its own rows; safe from any thread.

        Tasks may ask for different rows. The names are labels: the same task may appear under several.

        Args:
            rows: the rows that each task is asked about, by name.
            tails: the tasks, by the same names.
        """
        if next(self._calls) % _CALLS_PER_RETURN == 0:
            return_freed_memory()  # before this call allocates: nothing of its own is in the way
        distinct, places = _distinct(rows)
        encoded = joined(distinct, self.trunk.texts.padding)
        wanted = {name: np.zeros(len(distinct), dtype=np.bool_) for name in rows}
        outputs = {name: np.zeros((len(distinct), tails[name].n_outputs), dtype=np.float32) for name in rows}
        for name in rows:
            wanted[name][places[name]] = True
        is_packed = self.trunk.model.first_position is not None
        with torch.inference_mode():
            for order in _passes(encoded.lengths, is_packed=is_packed):
                one = _Pass(self.trunk, encoded, order)
                names = [name for name in rows if wanted[name][order].any()]
                states = one.climb([(tails[name], wanted[name]) for name in names])
                for name in names:
                    mine = one.rows(wanted[name])
                    outputs[name][mine.positions] = one.outputs(tails[name], mine, states).numpy()
        return {name: outputs[name][places[name]] for name in rows}


_States = dict[int, tuple[RowBatch, Tensor]]
"""by depth: the rows that came so far, and their state (all tokens, width)"""


@final
class _Pass:
    """Some rows on their way up the trunk and through the tails."""

    def __init__(self, trunk: Trunk, encoded: Encoded, order: NDArray[np.int64]) -> None:
        self._trunk = trunk
        self._encoded = encoded
        self._order = order
        self._batches: dict[bytes, RowBatch] = {}

    def rows(self, wanted: _Wanted) -> RowBatch:
        """Those of the rows that are wanted; tasks with the same rows share one batch."""
        positions = self._order[wanted[self._order]]
        key = positions.tobytes()
        if key not in self._batches:
            self._batches[key] = RowBatch(self._encoded, positions, self._trunk.model.first_position)
        return self._batches[key]

    def climb(self, asked: Sequence[tuple[Tail, _Wanted]]) -> _States:
        """The states of the trunk at all depths that are asked for; each layer runs at most once per row.

        Each of the tasks wants at least one of the rows.
        """
        depths = sorted({depth for tail, _ in asked for depth in tail.read_depths})
        # A row goes as far up as the highest task that wants it.
        needed = {
            depth: self.rows(np.any([w for tail, w in asked if max(tail.read_depths, default=-1) >= depth], axis=0))
            for depth in depths
        }
        found: _States = {}
        start = 0
        for rows, run in itertools.groupby(depths, key=needed.__getitem__):
            wanted, given = list(run), None
            if found:
                batch, state = found[start]
                given = rows.shaped(batch.state_of(rows.positions, state))
            top_tokens = rows.ends[0] if self._is_read_at_first_tokens(asked) else None
            with rows.packed():
                states = self._trunk.model.states(wanted, rows.inputs, start, given, top_tokens=top_tokens)
            found |= {depth: (rows, rows.flat(states[depth])) for depth in wanted}
            start = wanted[-1]
        return found

    def _is_read_at_first_tokens(self, asked: Sequence[tuple[Tail, _Wanted]]) -> bool:
        """Whether no task reads more than the first tokens of the trunk's last layer, so that it computes no others."""
        top = self._trunk.n_layers
        return self._trunk.model.can_read_one_token and all(
            tail.reads_first_tokens for tail, _ in asked if top in tail.read_depths
        )

    def outputs(self, tail: Tail, rows: RowBatch, states: _States) -> Tensor:
        """The raw outputs of a task for its rows."""
        own = {depth: states[depth][0].state_of(rows.positions, states[depth][1]) for depth in tail.read_depths}
        return tail.outputs(rows, own)


def _distinct(rows: Mapping[str, Sequence[TokenRow]]) -> tuple[list[TokenRow], dict[str, NDArray[np.int64]]]:
    """All rows once, and for each task the places of its rows among them."""
    known: dict[TokenRow, int] = {}
    places = {
        name: np.array([known.setdefault(row, len(known)) for row in of_task], dtype=np.int64)
        for name, of_task in rows.items()
    }
    return list(known), places


def _passes(lengths: NDArray[np.int64], *, is_packed: bool) -> Iterator[NDArray[np.int64]]:
    """Positions of rows that go up the trunk together, short rows first; each row once."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        some = lengths[order[start : start + _TOKENS_AT_ONCE]]
        if is_packed:
            fits = np.cumsum(some) <= _TOKENS_AT_ONCE
        else:
            fits = (np.arange(1, len(some) + 1) * some <= _TOKENS_AT_ONCE) & (some <= _MOST_PADDING * some[0])
        n_rows = max(1, int(fits.sum()))
        yield order[start : start + n_rows]
        start += n_rows
