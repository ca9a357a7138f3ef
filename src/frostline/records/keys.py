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
    digests: list[tuple[str, str]] = []
    for role, path in files:
        with path.open("rb") as stream:
            digests.append((role, hashlib.file_digest(stream, "sha256").hexdigest()))
    return fingerprint_of_digests(digests)


def fingerprint_of_digests(digests: Iterable[tuple[str, str]]) -> str:
    """The same key for files whose sha256, in hexadecimal digits, is known."""
    return _digest(f"{role}:{sha256}".encode() for role, sha256 in digests)


def derived_seed(seed: int, purpose: str) -> int:
    """A seed of its own for one purpose of one replicate: `head`, `order`, …"""
    return int(_digest([f"{purpose}/{seed}".encode()]), 16) % 2**31


def checksum_of(parts: Iterable[bytes | memoryview]) -> str:
    """A 128-bit checksum of large content, as 32 hexadecimal digits."""
    digest = hashlib.sha256()  # most processors compute it in hardware: 0.8 GB/s here, BLAKE2 0.3
    for part in parts:
        digest.update(memoryview(part).nbytes.to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[: 2 * _DIGEST_BYTES]


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
