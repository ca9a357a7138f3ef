"""The bytes of a user's file, hashed while they are read: rows and fingerprint come from the same bytes.

A large file does not stay in memory. Where a part of it is needed a second time, it is read again and compared with
the hash of the first reading, so a file that changed in between is refused and never mixed.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from frostline.errors import DataError

PIECE = 2**16
"""Bytes that are read and hashed together."""
KEPT = 2**24
"""Bytes at the beginning of a file that stay in memory: smaller files are opened only once."""

_DIGEST = hashlib.sha256


@final
class Content:
    """The bytes of one version of a file: read once from beginning to end, then any part of them again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_bytes = 0
        """bytes read so far"""
        self._whole = _DIGEST()
        self._kept: list[bytes] = []
        self._digests = bytearray()  # not a list: a file of 5 GB has 80,000 pieces

    @property
    def sha256(self) -> str:
        """The digest of the whole file, once it has been read."""
        return self._whole.hexdigest()

    def first_read(self) -> Iterator[bytes]:
        """All pieces in order; a DataError if the file cannot be read."""
        try:
            with self.path.open("rb") as stream:
                while piece := stream.read(PIECE):
                    self._whole.update(piece)
                    self._digests += _DIGEST(piece).digest()
                    self.n_bytes += len(piece)
                    if self.n_bytes <= KEPT:
                        self._kept.append(piece)
                    yield piece
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", path=self.path) from error

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, as they were in the first reading; a DataError if they changed."""
        first, last = start // PIECE, -(-end // PIECE)
        pieces = self._kept[first:last]
        if missing := range(first + len(pieces), last):
            pieces += self._read_again(missing)
        return b"".join(pieces)[start - first * PIECE : end - first * PIECE]

    def _read_again(self, numbers: range) -> Iterator[bytes]:
        size = _DIGEST().digest_size
        try:
            with self.path.open("rb") as stream:
                stream.seek(numbers.start * PIECE)
                for number in numbers:
                    # What was added to the end of the file since then is not part of this content.
                    piece = stream.read(min(PIECE, self.n_bytes - number * PIECE))
                    if _DIGEST(piece).digest() != self._digests[number * size : (number + 1) * size]:
                        raise DataError("changed while it was read; run the command again", path=self.path)
                    yield piece
        except OSError as error:
            raise DataError(f"cannot be read again ({error.strerror})", path=self.path) from error


@final
class ContentStream(io.RawIOBase):
    """A content that was read once, as a file for libraries that read where they like."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._position = 0

    def readable(self) -> bool:
        """True: it can be read."""
        return True

    def seekable(self) -> bool:
        """True: it can be read anywhere."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a place, given as for any file."""
        before = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._content.n_bytes}
        self._position = before[whence] + offset
        return self._position

    def tell(self) -> int:
        """The place of the next byte."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer as far as there are bytes."""
        room = memoryview(buffer).cast("B")
        end = min(self._position + len(room), self._content.n_bytes)
        found = self._content.read(self._position, max(end, self._position))
        room[: len(found)] = found
        self._position += len(found)
        return len(found)
