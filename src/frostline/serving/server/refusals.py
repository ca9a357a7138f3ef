"""The answer to a request that is not done, in the shape that the endpoint's clients read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from starlette.responses import JSONResponse, Response

from frostline.errors import suggestion

Why = Literal[
    "validation", "tokenizer", "not_found", "unauthorized", "too_large", "overloaded", "timeout", "unhealthy", "backend"
]  # fmt: skip
_MOST_NAMED = 80
"""characters of a client's own name for something that an answer shows"""


class Refusal(Exception):  # noqa: N818 - most are the client's mistake, not ours
    """A request that ends with an HTTP status other than 200, and the sentence that says why."""

    def __init__(self, status: int, why: Why, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.why, self.message = status, why, message
        self.headers = dict(headers or {})

    def answer(self, path: str) -> Response:
        """The answer at this path: as text-embeddings-inference has it at `/predict`, elsewhere as OpenAI and vLLM."""
        said: Any = {"message": self.message, "type": self.why, "param": None, "code": self.status}
        content = {"error": self.message, "error_type": self.why} if path == "/predict" else {"error": said}
        return JSONResponse(content, self.status, self.headers)


class ClientGoneError(Exception):
    """The client closed the connection; nobody reads an answer."""

    status = 499
    """what nginx calls it"""


def invalid(message: str) -> Refusal:
    """422: the request is JSON, but not what the endpoint takes."""
    return Refusal(422, "validation", message)


def unknown_task(given: str, known: Mapping[str, object]) -> Refusal:
    """404: there is no such task. It is never answered by another one."""
    names = ", ".join(sorted(known)) or "none"
    return Refusal(404, "not_found", f"unknown task {shown(given)}; known: {names}.{suggestion(given, known)}")


def overloaded(seconds: float) -> Refusal:
    """429: too much work is waiting; try again after the given number of seconds."""
    wait = max(1, math.ceil(seconds))
    what = f"too many texts are waiting; try again in {wait} second{'s' if wait > 1 else ''}"
    return Refusal(429, "overloaded", what, {"Retry-After": str(wait)})


def too_late(seconds: float) -> Refusal:
    """504: the answer was not there at the deadline."""
    return Refusal(
        504, "timeout", f"not answered within {seconds:g} seconds; send fewer or shorter texts, or try later"
    )


def shown(given: str) -> str:
    """A client's own word in quotes, the beginning of a long one."""
    return repr(given if len(given) <= _MOST_NAMED else f"{given[:_MOST_NAMED]}…")
