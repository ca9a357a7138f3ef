"""The lines of a text file, read in pieces, with a one-line error for each way in which it can fail to be text.

Only one piece is in memory at a time. Reading stops at the first line that is too long, so a file of another type
costs neither time nor memory. The index of a file says where its rows begin, so that some of them can be read again.
"""

from __future__ import annotations

import bisect
import io
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError
from frostline.tasks.content import PIECE, Content
from frostline.tasks.formats.columns import Line, Table, no_rows, shared

MOST_CHARACTERS = 10_000_000
"""in one line or field"""
_SIGNATURES = (
    (b"PAR1", "is a Parquet file; rename it to .parquet"),
    (b"PK\x03\x04", "is a zip or Excel file; unpack it, or save the sheet as CSV"),
    (b"\x1f\x8b", "is compressed by gzip; unpack it"),
    (b"\xff\xfe", "is UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16; save it as UTF-8"),
)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def too_long(what: str) -> str:
    """The message for a line or field above the limit."""
    return f"{what} is longer than {MOST_CHARACTERS:,} characters; is it a text file with one row per line?"


@final
class Lines:
    """The lines of a content, read for the first time; a DataError if it is empty, binary or not UTF-8.

    The file is closed at the end of a `with` block.

    Args:
        content: the file.
        newline: where lines end, as in `open`: `"\\n"`, or `""` for `\\n`, `\\r` and `\\r\\n`.
        are_short: whether a line that is too long is an error.
    """

    def __init__(self, content: Content, newline: str, *, are_short: bool = True) -> None:
        self.content = content
        self.newline = newline
        self.number = 1
        """number of the next line"""
        self.position = 0
        """the byte at which the next line begins"""
        self._are_short = are_short
        self._n_newlines = 0  # before the present head: faults of bytes count these, whatever ends a line
        self._lines = self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def _read(self) -> Generator[str, None, None]:
        is_blank = True
        for head in self._heads():
            text = self._decoded(head)
            is_blank = is_blank and not text.strip()
            for line in io.StringIO(text, newline=self.newline):
                self.number += 1
                self.position += len(line) if line.isascii() else len(line.encode())
                yield line
            self._n_newlines += head.count(b"\n")
        if is_blank:
            raise DataError("is empty", path=self.content.path)

    def _heads(self) -> Iterator[bytes]:
        """The bytes of the file without a byte order mark, cut where lines end."""
        rest: list[bytes] = []
        n_rest, is_blank = 0, True
        for piece in self.content.first_read():
            if not self.position and not rest:
                piece = self._checked_beginning(piece)
            self._check_binary(rest, piece)
            is_blank = is_blank and (not piece or piece.isspace())
            # White space at the beginning waits: an empty file must be called empty before anyone reads a row.
            cut = 0 if is_blank else self._last_end(piece)
            if cut:
                yield b"".join([*rest, piece[:cut]])
                rest, n_rest = [], 0
            rest.append(piece[cut:])
            n_rest += len(piece) - cut
            if self._are_short and n_rest > MOST_CHARACTERS:
                raise DataError(too_long("a line"), path=self.content.path, line=self._n_newlines + 1)
        if not is_blank:
            yield b"".join(rest)

    def _last_end(self, piece: bytes) -> int:
        end = piece.rfind(b"\n")
        # A \r at the end of the piece may be the first half of \r\n.
        return 1 + (end if self.newline else max(end, piece.rfind(b"\r", 0, len(piece) - 1)))

    def _checked_beginning(self, piece: bytes) -> bytes:
        for signature, what in _SIGNATURES:
            if piece.startswith(signature):
                raise DataError(what, path=self.content.path)
        if piece.startswith(_BYTE_ORDER_MARK):
            self.position = len(_BYTE_ORDER_MARK)
        return piece.removeprefix(_BYTE_ORDER_MARK)

    def _check_binary(self, rest: Sequence[bytes], piece: bytes) -> None:
        if (place := piece.find(b"\0")) >= 0:
            before = b"".join([*rest, piece[:place]]).count(b"\n")
            message = "looks binary, not like text: it contains a NUL byte"
            raise DataError(message, path=self.content.path, line=self._n_newlines + before + 1)

    def _decoded(self, head: bytes) -> str:
        try:
            return head.decode()
        except UnicodeDecodeError as error:
            line = self._n_newlines + head.count(b"\n", 0, error.start) + 1
            raise DataError("is not UTF-8 text; save it as UTF-8", path=self.content.path, line=line) from error


def read_text(content: Content, *, lines_are_short: bool) -> str:
    """The whole text of a file."""
    with Lines(content, newline="\n", are_short=lines_are_short) as lines:
        return "".join(lines)


Parse = Callable[[Iterable[str], int], Iterator[Line]]
"""Lines, and the number of the first → the rows that they hold."""


@final
class IndexedFile(Table):
    """Rows of a text file: the labels are in memory, other columns are read again where they are needed."""

    def __init__(
        self,
        lines: Lines,
        parse: Parse,
        places: Mapping[str, int],
        label: str,
        parsing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Reads all rows.

        Args:
            lines: the file, read up to its first row.
            parse: gives the rows of some lines.
            places: where a row holds each column.
            label: the column that stays in memory.
            parsing: entered when rows are parsed again.
        """
        self.path = lines.content.path
        self._content, self._newline, self._places = lines.content, lines.newline, places
        self._parse, self._parsing = parse, parsing
        # Rows are read again in blocks. A block begins at a byte and a line, after a number of rows.
        self._starts, self._first_lines, self._n_before = array("q"), array("q"), array("q")
        self._label, self._labels = label, shared(self._indexed(lines, places[label]))
        self._starts.append(lines.position)
        self.sha256 = lines.content.sha256
        if not self._labels:
            raise no_rows(self.path)

    def column(self, name: str) -> list[str]:
        """All fields of a column."""
        return self._labels if name == self._label else self.fields_at([name], np.arange(len(self._labels)))[name]

    def fields_at(self, names: Sequence[str], places: NDArray[np.int64]) -> dict[str, list[str]]:
        """The fields of some columns at these places, which ascend; a DataError if the file has changed."""
        found: dict[str, list[str]] = {name: [] for name in names}
        blocks, first = np.unique(np.searchsorted(self._n_before, places, side="right") - 1, return_index=True)
        for block, some in zip(blocks.tolist(), np.split(places, first[1:]), strict=True):
            rows = self._rows_of(block)
            for place in (some - self._n_before[block]).tolist():
                for name, fields in found.items():
                    fields.append(rows[place][1][self._places[name]])
        return found

    def numbers_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row numbers: no row is skipped."""
        return places

    def line(self, place: int) -> int:
        """The line on which the row begins."""
        block = bisect.bisect_right(self._n_before, place) - 1
        return self._rows_of(block)[place - self._n_before[block]][0]

    def _indexed(self, lines: Lines, label: int) -> Iterator[str]:
        """The label of each row; notes where blocks begin."""
        self._begin_block(lines, 0)
        for n_rows, (_, fields) in enumerate(self._parse(lines, lines.number), start=1):
            yield fields[label]
            if lines.position - self._starts[-1] >= PIECE:
                self._begin_block(lines, n_rows)

    def _begin_block(self, lines: Lines, n_rows: int) -> None:
        self._starts.append(lines.position)
        self._first_lines.append(lines.number)
        self._n_before.append(n_rows)

    def _rows_of(self, block: int) -> list[Line]:
        text = self._content.read(self._starts[block], self._starts[block + 1]).decode()
        with self._parsing():
            return list(self._parse(io.StringIO(text, newline=self._newline), self._first_lines[block]))
