"""What identifies a result: a hash of canonical JSON, and seeds derived from it.

Knows nothing of what is hashed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

RESULTS_VERSION = 4
"""Part of every run's key. A change that moves any stored number raises it (CHANGELOG, Results)."""

_DIGEST_BYTES = 16


def canonical_json(value: object) -> str:
    """The one JSON text of a value: keys sorted, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def key_of(value: object) -> str:
    """A 128-bit key of any JSON value, as 32 hexadecimal digits."""
    return _digest([canonical_json(value).encode()])


def fingerprint_of_files(files: Iterable[tuple[str, Path]]) -> str:
    """A 128-bit key of the bytes of files, each with the role it plays (`train`, `dev`)."""
    parts: list[bytes] = []
    for role, path in files:
        with path.open("rb") as stream:
            parts.append(f"{role}:{hashlib.file_digest(stream, 'sha256').hexdigest()}".encode())
    return _digest(parts)


def derived_seed(seed: int, purpose: str) -> int:
    """A seed of its own for one purpose of one replicate: `head`, `order`, …"""
    return int(_digest([f"{purpose}/{seed}".encode()]), 16) % 2**31


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
