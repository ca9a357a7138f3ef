"""The messages of `execution.transport` as a stream of pieces, which Ray carries from a worker to the driver."""

from __future__ import annotations

import io
import queue
from collections.abc import Callable, Iterator
from typing import Any, final

PIECE = 2**24
"""bytes that travel together"""
_WAITING = 4
"""pieces that wait to be taken; more than that, and who writes waits"""


@final
class Pieces:
    """A file to write to in one thread, whose content another thread takes piece by piece."""

    def __init__(self) -> None:
        self._pieces: queue.Queue[bytes | None] = queue.Queue(_WAITING)

    def write(self, content: Any) -> int:
        """Adds content, cut into pieces."""
        view = memoryview(content).cast("B")
        for start in range(0, len(view), PIECE):
            self._pieces.put(bytes(view[start : start + PIECE]))
        return len(view)

    def flush(self) -> None:
        """Does nothing: every piece is there to be taken."""

    def end(self) -> None:
        """No more content."""
        self._pieces.put(None)

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self._pieces.get()) is not None:
            yield piece


@final
class Received(io.RawIOBase):
    """Pieces as a file to read from; `take` gives the next piece, and an empty one at the end."""

    def __init__(self, take: Callable[[], bytes]) -> None:
        self._take = take
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """True: it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer with what there is of one piece; 0 at the end."""
        if not self._left:
            self._left = memoryview(self._take())
        room = memoryview(buffer).cast("B")
        n_bytes = min(len(room), len(self._left))
        room[:n_bytes] = self._left[:n_bytes]
        self._left = self._left[n_bytes:]
        return n_bytes
