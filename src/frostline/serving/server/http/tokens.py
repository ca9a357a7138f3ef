"""Who may ask: bearer tokens from a file, and which addresses may be used without one."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import final

from frostline.errors import DataError, UsageError

_SHORTEST = 16
"""characters of a token: shorter ones can be guessed"""
_MOST_BYTES = 2**16
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


@final
class Tokens:
    """Bearer tokens, one per line of a file. Read again on reload, so that they can be changed without a restart."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._digests: Sequence[bytes] = [] if file is None else _read(file)

    @property
    def are_needed(self) -> bool:
        """Whether a request needs one."""
        return self._file is not None

    def reload(self) -> None:
        """Reads the file again; raises a DataError, and keeps the tokens of before, if there are none in it."""
        if self._file is not None:
            self._digests = _read(self._file)

    def allow(self, authorization: str) -> bool:
        """Whether an Authorization header has one of the tokens: `Bearer TOKEN`, or as the password of `Basic`.

        Browsers ask people for `Basic`; that is how the page is opened on a server with tokens.
        """
        scheme, _, given = authorization.strip().partition(" ")
        given = given.strip()
        if scheme.lower() == "basic":
            given = _password(given)
        elif scheme.lower() != "bearer":
            return False
        # Digests have one length, and all are compared: the time says nothing about the token or its place.
        digest = _digest(given)
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)


def check_address(host: str, addresses: Sequence[str], tokens: Tokens) -> None:
    """Raises a UsageError if others could reach an address and no token is needed."""
    if tokens.are_needed or all(ipaddress.ip_address(address).is_loopback for address in addresses):
        return
    raise UsageError(
        f"--host {host} can be reached by others; give --token-file FILE with a token, or use 127.0.0.1. A token: "
        "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
    )


@functools.lru_cache(maxsize=16)
def is_loopback_name(host: str) -> bool:
    """Whether a Host header names this machine; a page elsewhere whose name leads here (DNS rebinding) does not."""
    name = host.strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _read(file: Path) -> list[bytes]:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=file) from error
    if len(content) > _MOST_BYTES:
        raise DataError(f"is larger than {_MOST_BYTES:,} bytes; it should have one token per line", path=file)
    lines = content.decode("utf-8", errors="replace").splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if len(token) < _SHORTEST or not _PRINTABLE.fullmatch(token):
            what = f"is not a token: a token has at least {_SHORTEST} characters, letters, digits and signs only"
            raise DataError(what, path=file, line=number)
        found.append(_digest(token))
    if not found:
        raise DataError("has no token; write one per line", path=file)
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", errors="replace")).digest()


def _password(given: str) -> str:
    try:
        decoded = base64.b64decode(given, validate=True).decode("utf-8", errors="replace")
    except (binascii.Error, ValueError):
        return ""
    return decoded.partition(":")[2]
