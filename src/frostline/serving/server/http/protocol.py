"""uvicorn's HTTP protocol with an end to everything: slow senders, slow readers, idle and surplus connections.

uvicorn itself waits for ever for the first byte of a connection, for the rest of a head and for a client that does not
read its answer. h11 keeps the state of both sides, so one timer is enough: it runs while the client has to send.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast, final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from frostline.serving.server.refusals import Refusal
from frostline.serving.server.settings import ServerSettings

_MOST_REFUSED = 250
"""connections above the limit that are answered with 429; even more are closed at once"""
_GRACE_SECONDS = 0.3
"""how long an idle connection may still send a request after the server was asked to end"""


@final
class _OneWrite:
    """A transport that sends what is written in one step of the event loop with one system call.

    uvicorn writes the head, the body and the end of an answer one after another. Each call gives the interpreter to the
    threads that compute, and the event loop waits until it gets it back.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Sends the data at the end of this step."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)

    def close(self) -> None:
        """Closes the connection when everything is sent."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))


class TimedProtocol(H11Protocol):
    """One connection. A subclass with the settings of a server is what uvicorn gets."""

    settings: ClassVar[ServerSettings] = ServerSettings()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._timed_state: object = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._is_ending = False
        self._n_unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the first wait for a request, or turns the client away."""
        super().connection_made(cast("asyncio.Transport", _OneWrite(transport, self.loop)))
        n_connections, most = len(self.connections), self.settings.max_connections
        if n_connections > most + _MOST_REFUSED:
            self.transport.abort()
        elif n_connections > most:
            self.app = _refuse
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Takes what the client sent; what follows an early answer, such as 413, is read and forgotten for a while."""
        super().data_received(data)
        if self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY:
            self._n_unread += len(data)
            if self._n_unread > 4 * self.settings.max_body_bytes:
                self.transport.abort()
        self._watch()

    def on_response_complete(self) -> None:
        """Starts the wait for the next request."""
        super().on_response_complete()
        self._n_unread = 0
        self._watch()

    def shutdown(self) -> None:
        """Ends the connection after the request under way; an idle one may send one more for a moment.

        A client may have sent a request that was not read yet. Closing at once would lose it.
        """
        self._is_ending = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self.loop.call_later(_GRACE_SECONDS, self._close_if_idle)

    def pause_writing(self) -> None:
        """Starts the time in which the client has to read."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.settings.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def _close_if_idle(self) -> None:
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()

    def _watch(self) -> None:
        """Times the client while it is its turn: from a state's beginning, however many bytes drip in."""
        if self._is_ending and self.cycle is not None:
            self.cycle.keep_alive = False
        state = self.conn.their_state
        if state is self._timed_state:
            return
        self._timed_state = state
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing():
            # A slow body is answered with 408 first; this ends connections where that did not help.
            extra = 1.0 if state is h11.SEND_BODY else 0.0
            self._timer = self.loop.call_later(self.settings.read_seconds + extra, self.transport.abort)


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    """The app of a connection too many. It answers: a connection that is just closed may look like a broken network."""
    refusal = Refusal(429, "overloaded", "there are too many connections", {"Retry-After": "1", "Connection": "close"})
    await refusal.answer(scope["path"])(scope, receive, send)


def protocol_for(settings: ServerSettings) -> type[TimedProtocol]:
    """The protocol of a server with these settings."""

    @final
    class Protocol(TimedProtocol):
        """A connection of one server."""

    Protocol.settings = settings
    return Protocol
