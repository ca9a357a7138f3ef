"""The body of a request, read up to a limit and within a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.types import Receive

from frostline.serving.server.refusals import ClientGoneError, Refusal
from frostline.serving.server.settings import ServerSettings


async def read_body(headers: Mapping[str, str], receive: Receive, settings: ServerSettings) -> bytes:
    """The body of a JSON request.

    A Refusal if it is of another type (415), larger than the limit (413) or too slow (408). The limit holds while
    reading: what is too much is never in memory. A ClientGoneError if the client is gone.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # A page of another site can send a plain form without asking the browser first, but not JSON.
        raise Refusal(415, "validation", "send JSON with the header Content-Type: application/json")
    limit = settings.max_body_bytes
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(settings.read_seconds):
            return await _read(receive, limit)
    except TimeoutError as error:
        what = f"the body was not complete within {settings.read_seconds:g} seconds"
        raise Refusal(408, "timeout", what, {"Connection": "close"}) from error


async def _read(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    n_bytes = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        part = message.get("body", b"")
        n_bytes += len(part)
        if n_bytes > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def until_gone(receive: Receive) -> None:
    """Returns when the client closes the connection. Call it after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(limit: int) -> Refusal:
    return Refusal(413, "too_large", f"the body is larger than {limit:,} bytes, the most that is allowed")
