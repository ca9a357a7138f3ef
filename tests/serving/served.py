"""Servers for tests: tiny tasks over a tiny trunk, in a thread of this process, and how to talk to them."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.serving.bundle import Bundle, seal_bundle
from frostline.serving.rows import Text
from frostline.serving.server.run import TaskServer
from frostline.serving.server.settings import ServerSettings

from .tasks import ToyTask, make_task, make_trunk, softmax

SECONDS = 20
"""no test waits longer for an answer"""


@dataclass(frozen=True)
class Toys:
    """A trunk and bundles over it."""

    trunk: Path
    tasks: Mapping[str, ToyTask]

    @property
    def folders(self) -> list[str]:
        """The bundles' folders."""
        return [str(task.bundle.folder) for task in self.tasks.values()]

    def probabilities(self, task: str, *texts: str, second: str | None = None) -> NDArray[np.float64]:
        """What the task's own model says, (texts, classes)."""
        return softmax(self.tasks[task].expected([Text(text, second) for text in texts]))


def make_toys(folder: Path) -> Toys:
    """Tasks of all sorts: two depths, a number, pairs, and one that shares only storage."""
    trunk = make_trunk(folder / "trunk")
    made = {
        "sentiment": make_task(folder / "sentiment", trunk, "freeze:2", seed=1),
        "topic": make_task(folder / "topic", trunk, "freeze:1", n_outputs=4, seed=2),
        "stars": make_task(folder / "stars", trunk, "freeze:2", n_outputs=1, seed=3),
        "biased": make_task(folder / "biased", trunk, "bitfit", seed=4),
        "pairs": of_pairs(make_task(folder / "pairs", trunk, "freeze:2", seed=5)),
    }
    return Toys(trunk, made)


def of_pairs(task: ToyTask) -> ToyTask:
    """The same task, which says that it was trained on pairs, and how well."""
    folder = task.bundle.folder
    manifest = task.bundle.manifest.replace(text_pair="text_pair", metric="accuracy", score=0.875)
    return dataclasses.replace(task, bundle=Bundle(folder, seal_bundle(folder, manifest)))


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be JSON without NaN."""
        return json.loads(self.body, parse_constant=_refuse)

    @property
    def message(self) -> str:
        """What an error says, in either shape."""
        error = self.json["error"]
        return str(error if isinstance(error, str) else error["message"])


def _refuse(constant: str) -> None:
    raise AssertionError(f"JSON with {constant}")


@dataclass(frozen=True)
class Client:
    """Talks to a server."""

    address: str
    token: str | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        parts = urllib.parse.urlsplit(self.address)
        assert parts.hostname == "127.0.0.1"
        assert parts.port is not None
        return parts.hostname, parts.port

    def get(self, path: str, **headers: str) -> Answer:
        """Asks for a page."""
        return self.request("GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        """Sends JSON; bytes are sent as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, content, {"Content-Type": "application/json", **headers})

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(*self.place, timeout=SECONDS)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        with contextlib.closing(connection):
            connection.request(method, path, body, sent)
            got = connection.getresponse()
            return Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read())

    @contextlib.contextmanager
    def socket(self) -> Iterator[socket.socket]:
        """A plain connection."""
        with socket.create_connection(self.place, timeout=SECONDS) as made:
            yield made

    def raw(self, content: bytes) -> bytes:
        """What the server says to these bytes until it closes the connection."""
        with self.socket() as made:
            made.sendall(content)
            return received(made)


def wait_until(is_so: Callable[[], bool], seconds: float = 15) -> None:
    """Returns when something is so; fails if it takes too long."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def received(made: socket.socket) -> bytes:
    """All bytes until the other side closes; a timeout fails the test."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := made.recv(65536):
            parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def serving(
    toys: Toys, *, bundles: list[str] | None = None, token_file: Path | None = None, **settings: Any
) -> Iterator[tuple[Client, TaskServer]]:
    """A server in a thread, which ends when the test does."""
    chosen = ServerSettings(**{"port": 0, "n_threads": 2, "deadline_seconds": 10.0, **settings})
    server = TaskServer(str(toys.trunk), toys.folders if bundles is None else bundles, chosen, token_file)
    addresses: list[str] = []
    is_listening = threading.Event()

    def announce(address: str) -> None:
        addresses.append(address)
        is_listening.set()

    thread = threading.Thread(target=server.run, args=(announce,))
    thread.start()
    try:
        assert is_listening.wait(SECONDS)
        yield Client(addresses[0]), server
    finally:
        server.end()
        thread.join(SECONDS)
        assert not thread.is_alive()
