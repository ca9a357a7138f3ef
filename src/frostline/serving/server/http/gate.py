"""The outermost layer of the app: who may come in, what goes out with every answer, and what is counted.

Whatever goes wrong inside ends here: a Refusal becomes an answer in the shape of its endpoint, and anything unexpected
a 500 and a traceback in the log. Neither holds a text: messages show nothing of a body, and log lines have names of
routes, not the path that a client wrote.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frostline.serving.server.http.lag import LoopLag
from frostline.serving.server.http.tokens import Tokens, is_loopback_name
from frostline.serving.server.metrics import Metrics
from frostline.serving.server.refusals import ClientGoneError, Refusal, overloaded
from frostline.serving.server.settings import ServerSettings

OPEN_ROUTES = frozenset({"/health", "/ready"})
"""what orchestrators ask without a token"""
_PAGES = frozenset({"/", "/docs"})
_LATEST = 0.2
"""share of the deadline by which the event loop may be late"""
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)

Endpoint = Callable[[Request], Awaitable[Response]]

log = logging.getLogger("frostline.server")


@final
class Gate:
    """An ASGI app around another."""

    def __init__(
        self,
        app: ASGIApp,
        routes: Mapping[str, Endpoint | None],
        tokens: Tokens,
        metrics: Metrics,
        check_room: Callable[[], None],
        settings: ServerSettings,
    ) -> None:
        """A gate.

        Args:
            app: what is behind it.
            routes: the paths that the app knows. Where a POST has an endpoint, it is called directly: the app's own
                way to it takes a quarter of a millisecond.
            tokens: who may come in.
            metrics: where requests are counted.
            check_room: raises a Refusal (429) while too much is waiting.
            settings: of the server.
        """
        self._app, self._routes, self._tokens, self._metrics = app, routes, tokens, metrics
        self._check_room = check_room
        self._latest = _LATEST * settings.deadline_seconds
        self.lag = LoopLag()
        metrics.watch("loop_lag_seconds", "How late the event loop is.", lambda: self.lag.seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        route = scope["path"] if scope["path"] in self._routes else "other"
        started = time.monotonic()
        answer = _Sending(send)
        endpoint: Endpoint | None = None
        try:
            self._check(route, dict(scope["headers"]))
            if scope["method"] == "POST":  # work: refused here, before its body is read, it costs least
                if self.lag.seconds > self._latest:
                    raise overloaded(self.lag.seconds)
                self._check_room()
                endpoint = self._routes.get(route)
            if endpoint is None:
                await self._app(scope, receive, answer.send)
            else:
                response = await endpoint(Request(scope, receive))
                await response(scope, receive, answer.send)
        except Refusal as refusal:
            await refusal.answer(route)(scope, receive, answer.send)
        except ClientGoneError:  # nobody reads an answer, but it is counted
            answer.status = ClientGoneError.status
        except Exception as error:  # noqa: BLE001 - the server's outer frame: one request fails, the others go on
            log.error("%s: this is a fault of frostline; please report it\n%s", route, _places(error))
            if not answer.status:
                failed = Refusal(500, "backend", "an error of the server; its log says more")
                await failed.answer(route)(scope, receive, answer.send)
        seconds = time.monotonic() - started
        self._metrics.requests.labels(route, str(answer.status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        log.debug("%s %s %d %.1f ms", scope["method"], route, answer.status, 1000 * seconds)

    def _check(self, route: str, headers: Mapping[bytes, bytes]) -> None:
        """Raises a Refusal unless the request may come in."""
        if not self._tokens.are_needed:
            if not is_loopback_name(headers.get(b"host", b"").decode("latin-1")):
                what = "this server answers only requests to localhost, because it has no token"
                raise Refusal(403, "unauthorized", what)
        elif route not in OPEN_ROUTES and not self._tokens.allow(headers.get(b"authorization", b"").decode("latin-1")):
            ask = 'Basic realm="frostline: any name, the token as password", charset="UTF-8"'
            raise Refusal(
                401,
                "unauthorized",
                "this server needs a token: send the header Authorization: Bearer TOKEN",
                {"WWW-Authenticate": ask if route in _PAGES else "Bearer"},
            )


@final
class _Sending:
    """An answer on its way: its status, and the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        """0 until the answer begins"""

    async def send(self, message: Message) -> None:
        """Sends a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await self._send(message)


def _places(error: BaseException) -> str:
    """Where an error happened and of what type it is. Not its message, which may hold a text."""
    lines = traceback.format_list(traceback.extract_tb(error.__traceback__))
    return f"{''.join(lines)}{type(error).__name__}"
