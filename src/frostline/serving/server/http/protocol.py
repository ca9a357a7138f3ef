"""uvicorn's HTTP protocol with an end to everything: slow senders, slow readers, idle and surplus connections.

uvicorn itself waits for ever for the first byte of a connection, for the rest of a head and for a client that does not
read its answer. Here one timer runs while it is the client's turn to send.

The parser is httptools, written in C: h11, in Python, took a fifth of the event loop's time, which the threads that
compute then lack. It leaves more to us: limits for heads, and requests that are malformed but can be parsed.
"""

from __future__ import annotations

import asyncio
import enum
from typing import Any, ClassVar, cast, final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from frostline.serving.server.refusals import Refusal
from frostline.serving.server.settings import ServerSettings

_MOST_REFUSED = 250
"""connections above the limit that are answered with 429; even more are closed at once"""
_GRACE_SECONDS = 0.3
"""how long an idle connection may still send a request after the server was asked to end"""
_MOST_HEAD_BYTES = 2**16
"""of a request's first line and headers"""
_INVALID = "Invalid HTTP request received."


@final
class _OneWrite:
    """A transport that sends what is written in one step of the event loop with one system call.

    uvicorn writes the head and the body of an answer one after another. Each call gives the interpreter to the threads
    that compute, and the event loop waits until it gets it back.
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


@final
class _Sending(enum.Enum):
    """What a client sends next."""

    HEAD = enum.auto()
    BODY = enum.auto()
    NOTHING = enum.auto()
    """its request is complete"""


class TimedProtocol(HttpToolsProtocol):
    """One connection. A subclass with the settings of a server is what uvicorn gets."""

    settings: ClassVar[ServerSettings] = ServerSettings()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._sending = _Sending.HEAD
        self._timer: asyncio.TimerHandle | None = None
        self._timed: _Sending | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._is_ending = False
        self._is_deaf = False
        self._has_declined = False
        self._n_head = 0
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
        """Stops the timers, and tells requests that wait behind another one."""
        for cycle, _ in self.pipeline:
            cycle.disconnected = True
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Takes what the client sent. After bytes that are not HTTP, nothing more is read."""
        self._unset_keepalive_if_required()
        if self._is_deaf:
            return
        is_head, n_head = self._sending is _Sending.HEAD, self._n_head
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._end_after_answers()
        else:
            if is_head and self._sending is _Sending.HEAD and self._n_head == n_head:
                self._n_head += len(data)  # of a line that has no end yet
                if self._n_head > _MOST_HEAD_BYTES:
                    self._end_after_answers()
        self._watch()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._sending, self._n_head = _Sending.HEAD, 0

    def on_url(self, url: bytes) -> None:
        """A part of the first line."""
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        super().on_header(name, value)
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """The end of a head. An exception makes the parser give up, and the client gets a 400."""
        if self.parser.should_upgrade():
            return
        version = self.parser.get_http_version()
        n_hosts = sum(name == b"host" for name, _ in self.headers)
        if version not in ("1.0", "1.1") or n_hosts > 1 or (version == "1.1" and not n_hosts):
            raise ValueError(version, n_hosts)
        super().on_headers_complete()
        self._sending = _Sending.BODY
        self._n_unread = 0
        # A client that expects a sign, and was refused, may send the body, or another request instead.
        if self.expect_100_continue or self._has_declined:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A part of a body; what follows an early answer, such as 413, is read and forgotten for a while."""
        super().on_body(body)
        if self.cycle.response_complete:
            self._n_unread += len(body)
            if self._n_unread > 4 * self.settings.max_body_bytes:
                self.transport.abort()

    def on_message_complete(self) -> None:
        """The end of a request."""
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self._sending = _Sending.NOTHING

    def on_response_complete(self) -> None:
        """Starts the wait for the next request, or the next request that is already there."""
        super().on_response_complete()
        self._watch()

    def shutdown(self) -> None:
        """Ends the connection after the request under way; an idle one may send one more for a moment.

        A client may have sent a request that was not read yet. Closing at once would lose it.
        """
        self._is_ending = True
        if self._is_answered:
            self.loop.call_later(_GRACE_SECONDS, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        """Starts the time in which the client has to read."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.settings.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    @property
    def _is_answered(self) -> bool:
        """Whether every request so far has its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _parse(self, data: bytes) -> None:
        """Parses bytes; a request for another protocol, such as HTTP/2, is read as if it did not ask for that.

        The parser itself would skip the body of such a request. Java's client sends them.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            method, version = self.parser.get_method(), self.parser.get_http_version().encode()
            if self._has_declined or method == b"CONNECT":
                raise httptools.HttpParserError from upgrade
            self._has_declined = True
            headers = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            first = b"%s %s HTTP/%s\r\n" % (method, self.url, version)
            self.parser.feed_data(b"".join([first, *headers, b"\r\n", data[upgrade.args[0] :]]))

    def _count_head(self, n_bytes: int) -> None:
        self._n_head += n_bytes
        if self._n_head > _MOST_HEAD_BYTES:
            raise ValueError(self._n_head)

    def _end_after_answers(self) -> None:
        """Reads nothing more; complete requests are answered, then the connection ends. 400 if none is."""
        self._is_deaf = True
        if self._sending is not _Sending.BODY:
            if self._is_answered:
                self.send_400_response(_INVALID)
            else:
                self.cycle.keep_alive = False
        elif self.cycle.response_started or self.pipeline:  # a 400 would be read as a part of another answer
            self.transport.close()
        else:
            self.send_400_response(_INVALID)

    def _close_if_idle(self) -> None:
        if self._is_answered and self._sending is not _Sending.BODY and not self.transport.is_closing():
            self.transport.close()

    def _watch(self) -> None:
        """Times the client while it is its turn: from the beginning of a part, however many bytes drip in."""
        if self._is_ending and self.cycle is not None:
            self.cycle.keep_alive = False
        now: _Sending | None = self._sending
        if now is not _Sending.BODY:
            now = _Sending.HEAD if self._is_answered else None
        elif self.pipeline:  # it waits for the answer to an earlier request, and we read no more
            now = None
        if now is self._timed:
            return
        self._timed = now
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if now is not None and not self.transport.is_closing():
            # A slow body is answered with 408 first; this ends connections where that did not help.
            extra = 1.0 if now is _Sending.BODY else 0.0
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
