"""Pooled states of every layer: mean, first and last token of each row, for all depths in one forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError
from frostline.model.added.readers import POOLINGS, pooled
from frostline.model.stack import Stack
from frostline.storage.prefix_cache import Origin
from frostline.storage.shelf import Entry, Shelf
from frostline.training.batches import Encoded, evaluation_batches
from frostline.training.memory import returning_memory
from frostline.training.prefix import Prefixes

Pooled = NDArray[np.float32]
"""(rows, depths, poolings, width)"""


def pooled_states(
    prefixes: Prefixes, encoded: Encoded, origin: Origin, load_stack: Callable[[], Stack], *, is_kept: bool = True
) -> Pooled:
    """The pooled states of a split: mapped from the cache, or computed and stored there if there is room.

    With `is_kept` off they are computed even if the cache has them.
    """
    stack = load_stack()
    shape = (len(encoded), (stack.n_layers + 1) * len(POOLINGS) * stack.structure.width)
    entry = Entry(model=origin.model, task=origin.task, split=origin.split, depth=stack.n_layers, dtype="fp32")
    values = None
    if is_kept and prefixes.max_bytes:
        shelf = prefixes.cache.shelf(origin.key(encoded.key, pooled=list(POOLINGS)))
        values = _on_disk(prefixes, shelf, entry, stack, encoded, shape)
    if values is None:
        values = np.empty(shape, dtype=np.float32)
        with prefixes.timed():
            _fill(values, stack, encoded)
    return values.reshape(len(encoded), stack.n_layers + 1, len(POOLINGS), -1)


def _on_disk(
    prefixes: Prefixes, shelf: Shelf, entry: Entry, stack: Stack, encoded: Encoded, shape: tuple[int, int]
) -> NDArray[Any] | None:
    """The array in the cache, computed first if it is missing; None, and a note, if there is no room for it."""
    n_bytes = shape[0] * shape[1] * 4
    try:
        with shelf.locked(prefixes.say):
            found = _opened(prefixes, shelf, entry.depth, encoded)
            if found is None:
                if not prefixes.cache.make_room(shelf, {entry.depth: n_bytes}, prefixes.max_bytes, entry):
                    raise OSError(0, "it has no room for them")
                with shelf.writing(entry, shape, np.dtype(np.float32), encoded.row_ids) as found, prefixes.timed():
                    _fill(found, stack, encoded)
                found.flags.writeable = False
            return found
    except OSError as error:  # no space, or no permission to write
        prefixes.notes.append(f"the cache in {prefixes.cache.folder} was not used: {error.strerror or error}")
        return None


def _opened(prefixes: Prefixes, shelf: Shelf, depth: int, encoded: Encoded) -> NDArray[Any] | None:
    try:
        found = shelf.open(depth)
        if found is not None and not np.array_equal(found[1], encoded.row_ids):
            raise DataError("they belong to other rows", path=shelf.folder)
        return None if found is None else found[0]
    except DataError as error:
        prefixes.notes.append(f"damaged pooled states were computed again: {error}")
        shelf.remove(depth)
        return None


def _fill(values: NDArray[Any], stack: Stack, encoded: Encoded) -> None:
    """Writes the pooled states of each row: one pass over the rows, each layer computed once."""
    depths = range(stack.n_layers + 1)
    by_depth = values.reshape(len(values), len(depths), len(POOLINGS), -1)
    for batch in returning_memory(evaluation_batches(encoded)):
        inputs = {name: tensor.to(stack.device) for name, tensor in batch.padded_inputs().items()}
        mask = batch.mask.to(stack.device)
        for depth, state in zip(depths, stack.frozen_states_at(depths, inputs), strict=True):
            by_depth[batch.positions, depth] = pooled(state, mask).transpose(0, 1).cpu().numpy()
