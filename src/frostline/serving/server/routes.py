"""The routes of a server, as a FastAPI app.

Bodies are read and checked by `http/body.py` and `shapes.py`, not by FastAPI: it would read a body of any size, and put
what a client sent into its error messages. FastAPI gets the same models for the OpenAPI document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from frostline.serving.server import answers
from frostline.serving.server.answers import BUNDLE_HEADER, ClassifyAnswer, CombinedAnswer, Prediction
from frostline.serving.server.compute import Service
from frostline.serving.server.http.body import read_body
from frostline.serving.server.http.gate import Endpoint
from frostline.serving.server.jobs import Outputs
from frostline.serving.server.metrics import CONTENT_TYPE, Metrics
from frostline.serving.server.page.page import docs_page, try_page
from frostline.serving.server.refusals import Refusal, invalid
from frostline.serving.server.settings import ServerSettings
from frostline.serving.server.shapes import Asked, Body, ClassifyBody, CombinedBody, PredictBody, parse
from frostline.serving.server.tasks import Snapshot, Tasks, check_size, chosen, only_task

_REFUSED = {
    400: "the body is not JSON",
    401: "a token is needed",
    404: "there is no such task",
    408: "the body was not complete in time",
    413: "the body is too large",
    415: "the body is not sent as JSON",
    422: "the body asks for something that cannot be done; the message says what is allowed",
    429: "too much is waiting; Retry-After says when to try again",
    504: "not answered before the deadline",
}


@final
@dataclass
class Parts:
    """What the routes use."""

    trunk: str
    """the trunk's name"""
    trunk_hash: str
    n_layers: int
    tasks: Tasks
    service: Service
    metrics: Metrics
    settings: ServerSettings
    is_ready: bool = True
    """false while the server drains"""


def make_app(parts: Parts) -> FastAPI:
    """The app with all routes."""
    app = FastAPI(
        title="frostline",
        summary=f"{len(parts.tasks.current)} tasks on one trunk",
        version=metadata.version("frostline"),
        docs_url=None,  # FastAPI's page loads scripts from elsewhere; ours is below
        redoc_url=None,
        redirect_slashes=False,
    )
    # The framework would answer an exception that has no handler with a plain 500 before the gate sees it.
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(Exception, _failed)
    _add_classify(app, parts)
    _add_predict(app, parts)
    _add_about(app, parts)
    _add_pages(app, parts)
    return app


def endpoints(app: FastAPI) -> dict[str, Endpoint | None]:
    """The paths that the app answers, each with the function that answers a POST there, if it takes one."""
    return {
        route.path: route.endpoint if "POST" in (route.methods or ()) else None
        for route in app.routes
        if isinstance(route, Route)
    }


def _add_classify(app: FastAPI, parts: Parts) -> None:
    async def classify(request: Request) -> Response:
        """One task's answers, as vLLM has them: `["a", "b"]` is two texts."""
        snapshot = parts.tasks.current
        asked = await _asked(request, ClassifyBody, parts)
        tasks = chosen(snapshot, asked.tasks or (only_task(snapshot),), asked.texts)
        outputs, n_tokens = await _outputs(request, asked, tasks, parts)
        (task,) = tasks.values()
        return _answered(answers.classified(task, outputs, asked, n_tokens), tasks)

    for path in ("/v1/classify", "/classify"):
        app.post(
            path,
            operation_id=f"classify{path.count('/')}",
            openapi_extra=_body(ClassifyBody),
            responses=_responses(ClassifyAnswer),
        )(classify)

    @app.post("/v1/classify/combined", openapi_extra=_body(CombinedBody), responses=_responses(CombinedAnswer))
    async def combined(request: Request) -> Response:
        """Several tasks' answers to the same texts, from one pass."""
        snapshot = parts.tasks.current
        asked = await _asked(request, CombinedBody, parts)
        tasks, skipped = _for_all(snapshot, asked) if asked.tasks is None else (snapshot, {})
        tasks = chosen(tasks, asked.tasks, asked.texts)
        outputs, n_tokens = await _outputs(request, asked, tasks, parts)
        return _answered(
            answers.combined(tasks, outputs, asked, n_tokens, trunk=parts.trunk_hash, skipped=skipped), tasks
        )


def _add_predict(app: FastAPI, parts: Parts) -> None:
    @app.post(
        "/predict",
        openapi_extra=_body(PredictBody),
        responses=_responses(list[Prediction] | list[list[Prediction]]),
    )
    async def predict(request: Request) -> Response:
        """One task's answers, as text-embeddings-inference has them: `["a", "b"]` is one pair."""
        snapshot = parts.tasks.current
        asked = await _asked(request, PredictBody, parts)
        tasks = chosen(snapshot, asked.tasks or (only_task(snapshot),), asked.texts)
        outputs, _ = await _outputs(request, asked, tasks, parts)
        (task,) = tasks.values()
        return _answered(answers.predicted(task, outputs, asked), tasks)


def _add_about(app: FastAPI, parts: Parts) -> None:
    @app.get("/v1/models")
    async def models() -> Response:
        """The tasks: depth, trunk, bundle, labels, score."""
        trunk = {"name": parts.trunk, "hash": parts.trunk_hash, "n_layers": parts.n_layers}
        data = [{**answers.described(task), "trunk": trunk} for task in parts.tasks.current.values()]
        return _json({"object": "list", "data": data})

    @app.get("/health")
    async def health() -> Response:
        """200 while the server works."""
        if not parts.service.is_alive:
            raise Refusal(503, "unhealthy", "a thread that computes has ended; start the server again")
        return _json({"status": "ok"})

    @app.get("/ready")
    async def ready() -> Response:
        """200 while new requests are welcome; 503 when the server is about to end."""
        if not parts.is_ready:
            raise Refusal(503, "unhealthy", "the server is about to end")
        return _json({"status": "ready", "tasks": len(parts.tasks.current)})

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counts and times, as Prometheus reads them."""
        return Response(parts.metrics.as_text(), media_type=CONTENT_TYPE)


def _add_pages(app: FastAPI, parts: Parts) -> None:
    @app.get("/", include_in_schema=False)
    async def try_it() -> Response:
        tasks = [answers.described(task) for task in parts.tasks.current.values()]
        page, headers = try_page(parts.trunk, parts.n_layers, tasks)
        return Response(page, media_type="text/html", headers=headers)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        page, headers = docs_page(
            app.openapi(), request.headers.get("host", "localhost"), next(iter(parts.tasks.current))
        )
        return Response(page, media_type="text/html", headers=headers)


async def _outputs(request: Request, asked: Asked, tasks: Snapshot, parts: Parts) -> tuple[Outputs, int]:
    """The outputs of these tasks, and how many tokens were read."""
    check_size(tasks, len(asked.texts), asked.top_k)
    return await parts.service.outputs(asked, tasks, request.receive)


async def _asked(request: Request, kind: type[Body], parts: Parts) -> Asked:
    """What a request asks for."""
    content = await read_body(request.headers, request.receive, parts.settings)
    return parse(kind, content, parts.settings)


def _for_all(snapshot: Snapshot, asked: Asked) -> tuple[Snapshot, dict[str, str]]:
    """The tasks that can read all the texts, and what the others read."""
    able = {name: task for name, task in snapshot.items() if all(task.can_read(text) for text in asked.texts)}
    skipped = {name: f"it reads {task.reads}" for name, task in snapshot.items() if name not in able}
    if not able:
        raise invalid(f"no task can read this: {'; '.join(f'{name}: {why}' for name, why in skipped.items())}")
    return able, skipped


def _answered(content: Any, tasks: Snapshot) -> Response:
    hashes = ",".join(task.hash for task in tasks.values())
    return _json(content, {BUNDLE_HEADER: hashes} if len(tasks) == 1 else None)


def _json(content: Any, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), media_type="application/json", headers=headers)


async def _unknown(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    messages = {404: "there is no such path; /docs lists them", 405: "this path takes another method; see /docs"}
    message = messages.get(error.status_code, "the request cannot be done")
    return Refusal(error.status_code, "not_found", message, error.headers).answer(request.scope["path"])


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.answer(request.scope["path"])


async def _failed(request: Request, _: Exception) -> Response:
    """A fault of ours; the gate writes it into the log."""
    return Refusal(500, "backend", "an error of the server; its log says more").answer(request.scope["path"])


def _body(kind: type[Body]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _responses(model: Any) -> dict[int | str, dict[str, Any]]:
    refused: dict[int | str, dict[str, Any]] = {status: {"description": why} for status, why in _REFUSED.items()}
    return {200: {"model": model, "description": "the answer"}, **refused}
