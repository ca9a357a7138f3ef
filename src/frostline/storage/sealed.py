"""Sealed files: content with a checksum. A file that is damaged or edited is a DataError, never another content.

A record is one JSON object `{"checksum": …, "content": …}`. A checkpoint is such an object on one line, its head, and
then raw bytes; its checksum covers both.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from frostline.errors import DataError
from frostline.records.keys import canonical_json, checksum_of, key_of
from frostline.records.serial import Record

_MOST_HEAD_BYTES = 2**22
"""a head is shorter: it holds the records of epochs, not the losses of steps"""
_MISMATCH = "its checksum does not match its content; it was damaged or edited"


@contextlib.contextmanager
def reading(what: str, path: Path | None) -> Iterator[None]:
    """Turns what a file that is not ours can raise into a DataError that says it is not a `what`."""
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:  # not UTF-8, not JSON, JSON with a NaN, or nested too deeply
        raise DataError(f"not readable as {what}: {error}", path=path) from error


def seal(record: Record, *, indent: int | None = None) -> str:
    """The content of the file that holds a record."""
    content = record.to_json()
    return json.dumps({"checksum": key_of(content), "content": content}, allow_nan=False, indent=indent) + "\n"


def is_sealed(found: object) -> bool:
    """Whether JSON is a sealed record; what it holds may be damaged."""
    return isinstance(found, dict) and found.keys() == {"checksum", "content"}


def unsealed(found: Any, path: Path) -> Any:
    """The content of a sealed record that was read from `path`."""
    with reading("a frostline record", path):
        if not is_sealed(found):
            raise DataError("not a frostline record", path=path)
        if key_of(found["content"]) != found["checksum"]:
            raise DataError(_MISMATCH, path=path)
    return found["content"]


def read_sealed(path: Path) -> Any:
    """The content of a sealed file."""
    with reading("a frostline record", path):
        found = json.loads(path.read_text(encoding="utf-8"))
    return unsealed(found, path)


def seal_bytes(head: Mapping[str, object], body: bytes) -> bytes:
    """A head and raw bytes, sealed together."""
    checksum = checksum_of([canonical_json(head).encode(), body])
    return json.dumps({"checksum": checksum, "content": head}, allow_nan=False).encode() + b"\n" + body


def unseal_bytes(content: bytes | memoryview, path: Path | None = None) -> tuple[dict[str, Any], memoryview]:
    """The head and the bytes that were sealed together."""
    whole = memoryview(content)
    length = bytes(whole[:_MOST_HEAD_BYTES]).find(b"\n") + 1
    with reading("a sealed checkpoint", path):
        found = json.loads(bytes(whole[:length]))
        if not is_sealed(found) or not isinstance(found["content"], dict):
            raise ValueError("it has no head with a checksum")
        checksum = checksum_of([canonical_json(found["content"]).encode(), whole[length:]])
    if checksum != found["checksum"]:
        raise DataError(_MISMATCH, path=path)
    return found["content"], whole[length:]
