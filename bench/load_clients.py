"""Clients that load a server: closed loops, where each sends when it was answered, and open ones at a fixed rate.

Written on plain sockets, because clients and server share two cores here: every microsecond of a client is taken from
the server. Answers are kept as bytes and checked after the measurement. Sends to 127.0.0.1 only.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

_HOST = "127.0.0.1"
_PATIENCE = 30.0
"""seconds after which a request counts as lost"""
_LONGEST_IDLE = 5.0
"""seconds after which a connection is not used again"""
LOST = 0
"""the status of a request that got no answer"""


@dataclass(frozen=True)
class Sample:
    """One request and its answer."""

    text: int
    """which text it sent"""
    status: int
    seconds: float
    """from the moment it should have been sent"""
    body: bytes


def request_bytes(body: object) -> bytes:
    """A request with this JSON body."""
    content = json.dumps(body).encode()
    head = f"POST /v1/classify/combined HTTP/1.1\r\nHost: {_HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class _Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._received = b""
        self.transport: asyncio.Transport | None = None
        self.is_closed = False
        self.used_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((LOST, b""))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(rest) >= length and self._answer is not None and not self._answer.done():
            self._received = b""
            self._answer.set_result((int(head[9:12]), rest))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        assert self.transport is not None
        self.used_at = time.perf_counter()
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._answer
        except TimeoutError:
            self.transport.abort()
            return LOST, b""


async def _connect(port: int) -> _Connection:
    _, connection = await asyncio.get_running_loop().create_connection(_Connection, _HOST, port)
    return connection


async def closed_loop(port: int, requests: Sequence[bytes], n_clients: int, seconds: float) -> list[Sample]:
    """So many clients, each of which sends its next request when the last one is answered."""
    end = time.perf_counter() + seconds
    samples: list[Sample] = []

    async def client(number: int) -> None:
        connection = await _connect(port)
        rng = random.Random(number)
        while (started := time.perf_counter()) < end:
            if connection.is_closed:
                connection = await _connect(port)
            text = rng.randrange(len(requests))
            status, body = await connection.ask(requests[text])
            samples.append(Sample(text, status, time.perf_counter() - started, body))
            if status != 200:
                await asyncio.sleep(1.0)  # what Retry-After asks for
        if connection.transport is not None:
            connection.transport.close()

    await asyncio.gather(*(client(number) for number in range(n_clients)))
    return samples


async def open_loop(port: int, requests: Sequence[bytes], rate: float, seconds: float) -> list[Sample]:
    """Requests at random moments, so many per second, whether or not earlier ones were answered."""
    rng = random.Random(0)
    idle: list[_Connection] = []
    samples: list[Sample] = []
    running: set[asyncio.Task[None]] = set()

    async def one(text: int, due: float) -> None:
        connection = idle.pop() if idle else await _connect(port)
        # As good clients do: the server may be about to close one that was idle for long.
        if connection.is_closed or 0 < connection.used_at < time.perf_counter() - _LONGEST_IDLE:
            connection = await _connect(port)
        status, body = await connection.ask(requests[text])
        samples.append(Sample(text, status, time.perf_counter() - due, body))
        if not connection.is_closed:
            idle.append(connection)

    due = time.perf_counter()
    end = due + seconds
    while (due := due + rng.expovariate(rate)) < end:
        if (early := due - time.perf_counter()) > 0:
            await asyncio.sleep(early)
        task = asyncio.create_task(one(rng.randrange(len(requests)), due))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    for connection in idle:
        if connection.transport is not None:
            connection.transport.close()
    return samples
