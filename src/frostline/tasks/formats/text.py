"""The text of a file, with a one-line error for each way in which it can fail to be text.

Reading stops at the first line that is too long, so a file of another type costs neither time nor memory.
"""

from __future__ import annotations

from pathlib import Path

from frostline.errors import DataError

MOST_CHARACTERS = 10_000_000
"""in one line or field"""
_CHUNK = 2**20
_SIGNATURES = (
    (b"PAR1", "is a Parquet file; rename it to .parquet"),
    (b"PK\x03\x04", "is a zip or Excel file; unpack it, or save the sheet as CSV"),
    (b"\x1f\x8b", "is compressed by gzip; unpack it"),
    (b"\xff\xfe", "is UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16; save it as UTF-8"),
)


def read_utf8(path: Path, *, lines_are_short: bool = True) -> str:
    """The file's text without a byte order mark; a DataError if it is missing, empty, binary or not UTF-8."""
    content = _read(path, lines_are_short)
    for signature, what in _SIGNATURES:
        if content.startswith(signature):
            raise DataError(what, path=path)
    if (place := content.find(b"\0")) >= 0:
        message = "looks binary, not like text: it contains a NUL byte"
        raise DataError(message, path=path, line=_line_of(content, place))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = _line_of(content, error.start)
        raise DataError("is not UTF-8 text; save it as UTF-8", path=path, line=line) from error
    if not text.strip():
        raise DataError("is empty", path=path)
    return text


def too_long(what: str) -> str:
    """The message for a line or field above the limit."""
    return f"{what} is longer than {MOST_CHARACTERS:,} characters; is it a text file with one row per line?"


def _read(path: Path, lines_are_short: bool) -> bytearray:
    content = bytearray()
    line_begins = 0
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                content += chunk
                end = max(content.rfind(b"\n", -len(chunk)), content.rfind(b"\r", -len(chunk)))
                line_begins = max(line_begins, end + 1)
                # Checked once per chunk, so a line may exceed the limit by up to one chunk.
                if lines_are_short and len(content) - line_begins > MOST_CHARACTERS:
                    raise DataError(too_long("a line"), path=path, line=_line_of(content, line_begins))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path=path) from error
    return content


def _line_of(content: bytearray, place: int) -> int:
    return content.count(b"\n", 0, place) + 1
