"""What a server does when there is too much of something: bytes, texts, time, connections, faults."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from frostline.serving.engine import Engine
from frostline.serving.server import tasks
from frostline.serving.server.compute import Service
from frostline.serving.server.http.gate import Gate
from frostline.serving.server.http.lag import LoopLag
from frostline.serving.server.http.tokens import Tokens
from frostline.serving.server.metrics import Metrics
from frostline.serving.server.refusals import overloaded
from frostline.serving.server.settings import ServerSettings

from .served import Client, Toys, received, serving, wait_until


def test_bodies_have_a_limit_that_holds_while_reading(toys: Toys) -> None:
    with serving(toys, max_body_bytes=1000, max_texts=10) as (client, _):
        answer = client.post("/v1/classify", b" " * 2000)
        assert answer.status == 413
        assert "larger than 1,000 bytes" in answer.message
        head = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with client.socket() as made:  # without a length, and without an end
            made.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"3e8\r\n" + b" " * 1000 + b"\r\n")
            made.sendall(b"3e8\r\n" + b" " * 1000 + b"\r\n")
            assert made.recv(100).startswith(b"HTTP/1.1 413")
        with client.socket() as made:  # the client waits for a sign before it sends
            made.sendall(head + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
            assert made.recv(100).startswith(b"HTTP/1.1 413")
        assert client.post("/v1/classify", {"model": "topic", "input": "so"}).status == 200


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[int]]]:
    """Computing waits until the event is set; the list has the number of rows of every batch that was computed."""
    is_open, computed, plain = threading.Event(), [], Engine.outputs

    def slowly(self: Engine, rows: Any, tails: Any) -> Any:
        assert is_open.wait(20)
        computed.append(max(len(of_task) for of_task in rows.values()))
        return plain(self, rows, tails)

    is_open.set()
    monkeypatch.setattr(Engine, "outputs", slowly)
    yield is_open, computed
    is_open.set()


def _post_later(client: Client, n_requests: int, pool: ThreadPoolExecutor) -> list[Any]:
    body = {"model": "topic", "input": "so good"}
    return [pool.submit(client.post, "/v1/classify", body) for _ in range(n_requests)]


def test_requests_that_wait_too_long_end_with_504_and_are_not_computed(
    toys: Toys, gated: tuple[threading.Event, list[int]]
) -> None:
    is_open, computed = gated
    # A busy machine must not be late by a fifth of the deadline: then requests are refused at once.
    with serving(toys, deadline_seconds=1.5, n_threads=1) as (client, server), ThreadPoolExecutor(8) as pool:
        computed.clear()
        is_open.clear()
        waiting = _post_later(client, 1, pool)
        wait_until(lambda: server.parts.service._queue._n_computing == 1)
        waiting += _post_later(client, 5, pool)
        answers = [one.result() for one in waiting]
        assert {answer.status for answer in answers} == {504}
        assert "not answered within 1.5 seconds" in answers[0].message
        is_open.set()
        assert client.post("/v1/classify", {"model": "topic", "input": "so"}).status == 200
        # The first was under way when its deadline passed. Of the others nothing was computed.
        assert computed == [1, 1]


def test_a_full_queue_answers_429_at_once(toys: Toys, gated: tuple[threading.Event, list[int]]) -> None:
    is_open, _ = gated
    with serving(toys, max_queued=3, n_threads=1) as (client, server), ThreadPoolExecutor(16) as pool:
        is_open.clear()
        waiting = _post_later(client, 1, pool)
        wait_until(lambda: server.parts.service._queue._n_computing == 1)
        waiting += _post_later(client, 3, pool)
        wait_until(lambda: len(server.parts.service._queue) == 3)
        refused = client.post("/v1/classify", {"model": "topic", "input": "so"})
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert client.post("/predict", {"model": "topic", "inputs": "so"}).json["error_type"] == "overloaded"
        assert client.get("/health").status == 200
        is_open.set()
        assert [one.result().status for one in waiting] == [200] * 4
        assert client.post("/v1/classify", {"model": "topic", "input": "so"}).status == 200


def test_a_client_that_leaves_costs_nothing(toys: Toys, gated: tuple[threading.Event, list[int]]) -> None:
    is_open, computed = gated
    body = json.dumps({"model": "topic", "input": ["so good"] * 50}).encode()
    head = f"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    with serving(toys, n_threads=1) as (client, server), ThreadPoolExecutor(4) as pool:
        queue = server.parts.service._queue
        computed.clear()
        is_open.clear()
        blocking = _post_later(client, 1, pool)
        wait_until(lambda: queue._n_computing == 1)
        with client.socket() as made:
            made.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body)
            wait_until(lambda: len(queue) == 50)
        wait_until(lambda: queue._lines[0][0].is_over)
        is_open.set()
        assert blocking[0].result().status == 200
        assert client.post("/v1/classify", {"model": "topic", "input": "so"}).status == 200
        assert computed == [1, 1], "the fifty rows were never computed"
        metrics = client.get("/metrics").body.decode()
        assert 'frostline_requests_total{route="/v1/classify",status="499"} 1.0' in metrics


def test_a_request_that_fails_fails_alone(
    toys: Toys, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, hidden = Engine.outputs, "a se" + "cret text"

    def fragile(self: Engine, rows: Any, tails: Any) -> Any:
        if any(len(row.tokens) == 7 for of_task in rows.values() for row in of_task):
            raise ValueError(hidden)
        return plain(self, rows, tails)

    with serving(toys, n_threads=1, wait_seconds=0.2) as (client, _), ThreadPoolExecutor(8) as pool:
        monkeypatch.setattr(Engine, "outputs", fragile)
        sent = [pool.submit(client.post, "/classify", {"model": "topic", "input": "so " * n}) for n in (3, 4, 5, 6, 7)]
        assert [one.result().status for one in sent] == [200, 200, 500, 200, 200]
        assert "its log says more" in sent[2].result().message
        assert client.get("/health").status == 200
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


def test_an_answer_has_a_limit_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_MOST_NUMBERS", 10)
    assert client.post("/classify", {"model": "topic", "input": ["so"] * 2}).status == 200
    refused = client.post("/classify", {"model": "topic", "input": ["so"] * 3})
    assert refused.status == 422
    assert "would hold 12 probabilities; 10 are allowed" in refused.message
    assert client.post("/classify", {"model": "topic", "input": ["so"] * 3, "top_k": 3}).status == 200


def test_a_server_whose_threads_ended_is_not_healthy(toys: Toys) -> None:
    with serving(toys) as (client, server):
        assert client.get("/health").status == 200
        server.parts.service._queue.close()
        wait_until(lambda: client.get("/health").status == 503)


def test_a_batch_wakes_up_the_event_loop_once(
    toys: Toys, gated: tuple[threading.Event, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_open, computed = gated
    n_ended, plain = [], Service._end_all

    def counted(self: Service) -> None:
        n_ended.append(len(self._ends))
        plain(self)

    monkeypatch.setattr(Service, "_end_all", counted)
    with serving(toys, n_threads=1) as (client, server), ThreadPoolExecutor(8) as pool:
        is_open.clear()
        computed.clear()
        waiting = _post_later(client, 1, pool)
        wait_until(lambda: server.parts.service._queue._n_computing == 1)
        waiting += _post_later(client, 5, pool)
        wait_until(lambda: len(server.parts.service._queue) == 5)
        is_open.set()
        assert {one.result().status for one in waiting} == {200}
    assert (len(computed), len(n_ended), sum(n_ended)) == (2, 2, 6), "once per batch, however late the loop wakes up"


@pytest.mark.parametrize("is_full", [True, False])
def test_work_is_refused_before_its_body_is_read(toys: Toys, monkeypatch: pytest.MonkeyPatch, is_full: bool) -> None:
    def refuse(_: Service) -> None:
        if is_full:
            raise overloaded(1.0)

    monkeypatch.setattr(Service, "check_room", refuse)
    head = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    with serving(toys, read_seconds=0.5) as (client, _), client.socket() as made:
        made.sendall(head)  # the body never comes
        assert made.recv(100).startswith(b"HTTP/1.1 429" if is_full else b"HTTP/1.1 408")


def test_slow_and_silent_clients_are_disconnected(toys: Toys) -> None:
    head = (
        b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    )
    with serving(toys, read_seconds=0.5) as (client, _):
        for sent in (b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"):
            assert client.raw(sent) == b"", "a head that never ends"
        assert client.raw(head + b'{"inp').startswith(b"HTTP/1.1 408")
        with client.socket() as made:  # one byte now and then does not help
            made.sendall(head)
            started = time.monotonic()
            try:
                while time.monotonic() < started + 5:
                    made.sendall(b" ")
                    time.sleep(0.05)
            except OSError:
                pass
            assert time.monotonic() < started + 3
        with client.socket() as made:  # idle after an answer
            made.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in received(made)
        assert client.get("/health").status == 200


def test_there_are_no_more_connections_than_allowed(toys: Toys) -> None:
    with serving(toys, max_connections=3, read_seconds=1.0) as (client, _):
        with client.socket() as one, client.socket() as two, client.socket() as three:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in one.recv(1000)
            refused = client.get("/health")
            assert (refused.status, refused.headers["retry-after"]) == (429, "1")
            assert "too many connections" in refused.message
            assert two.fileno() != three.fileno()
        wait_until(lambda: client.get("/health").status == 200)


def test_a_late_event_loop_is_noticed_and_forgotten() -> None:
    async def seconds() -> list[float]:
        lag, found = LoopLag(), []
        lag.start()
        for is_blocked in (False, True, False):
            if is_blocked:
                time.sleep(0.3)
            await asyncio.sleep(0.05 if is_blocked else 0.5)
            found.append(lag.seconds)
        return found

    before, late, after = asyncio.run(seconds())
    assert late > 0.15
    assert before < 0.1
    assert after < 0.1


@pytest.mark.parametrize(
    ("method", "seconds", "status"), [("POST", 0.0, 200), ("POST", 0.19, 200), ("POST", 0.21, 429), ("GET", 0.21, 200)]
)
def test_a_late_event_loop_refuses_work_at_once(method: str, seconds: float, status: int) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response()(scope, receive, send)

    settings = ServerSettings(deadline_seconds=1.0)
    gate = Gate(app, {"/classify": None}, Tokens(None), Metrics(), lambda: None, settings)
    gate.lag.seconds = seconds
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    scope = {"type": "http", "path": "/classify", "method": method, "headers": [(b"host", b"localhost")]}
    asyncio.run(gate(scope, receive, send))
    assert sent[0]["status"] == status
