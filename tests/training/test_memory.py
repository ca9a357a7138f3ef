"""Freed memory goes back to the system while batches pass."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import pytest

from frostline.training.memory import private_bytes, release_memory, returning_memory

N_BLOCKS = 2000
BLOCK_BYTES = 2**16
LEFT = 2**25


def _gaps() -> list[bytearray]:
    """Memory with gaps: every eighth block is in use, the others are free. It cannot shrink from its end."""
    blocks = [bytearray(BLOCK_BYTES) for _ in range(N_BLOCKS)]
    return blocks[::8]


def _left_after(batches: Iterable[int], *, n_batches: int) -> int:
    """Bytes by which private memory is larger than before, once so many batches have passed over a heap with gaps."""
    release_memory()
    before = private_bytes()
    assert before is not None
    passing = iter(batches)
    next(passing)  # the gaps come after the first batch
    blocks = _gaps()
    seen = sum(1 for _ in zip(range(n_batches - 1), passing, strict=False))
    after = private_bytes()
    assert after is not None
    assert seen == n_batches - 1
    return after - before - sum(map(len, blocks))


def _batches() -> Iterator[int]:
    return iter(range(20))


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc returns memory when asked")
def test_freed_memory_is_returned_after_ten_batches_and_at_the_end() -> None:
    assert _left_after(returning_memory(_batches()), n_batches=20) < LEFT
    assert _left_after(returning_memory(iter(range(3))), n_batches=3) > 2 * LEFT, "the end was not reached"


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc returns memory when asked")
def test_twin_without_it_the_gaps_stay() -> None:
    assert _left_after(_batches(), n_batches=20) > 2 * LEFT


def test_batches_are_those_given() -> None:
    assert list(returning_memory(range(25))) == list(range(25))
