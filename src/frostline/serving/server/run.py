"""A server from its start to its end: it listens, reloads on SIGHUP, and drains on SIGTERM and Ctrl-C.

Signals only set flags, so they are safe at any moment. A first SIGTERM or SIGINT ends the server when all admitted
requests are answered; a second one ends it at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import final

import torch
import uvicorn

from frostline.errors import FrostlineError, UsageError, one_line
from frostline.serving.engine import Engine
from frostline.serving.server.compute import Service
from frostline.serving.server.http.gate import Gate
from frostline.serving.server.http.protocol import protocol_for
from frostline.serving.server.http.tokens import Tokens, check_address
from frostline.serving.server.metrics import Metrics
from frostline.serving.server.routes import Parts, endpoints, make_app
from frostline.serving.server.settings import ServerSettings
from frostline.serving.server.tasks import Source, Tasks
from frostline.serving.trunk import load_trunk
from frostline.training.memory import release_memory

_ENDING = (signal.SIGTERM, signal.SIGINT)
_FILES_FOR_OTHERS = 400
"""open files that connections leave for bundles, libraries, logs, and connections that are refused"""
_BACKLOG = 2048
"""connections that the system keeps until the server accepts them"""
_SWITCH_SECONDS = 0.00001
"""how long a thread may keep Python from the others. A thread that computes needs it for a moment before each of its
many short steps: with 1 ms instead, the event loop delayed it so often that a quarter of the throughput was lost"""

log = logging.getLogger("frostline.server")


@final
class TaskServer:
    """Tasks over a trunk, ready to serve. Everything is loaded and checked before it listens."""

    def __init__(
        self, trunk: str, bundles: Sequence[str], settings: ServerSettings, token_file: Path | None = None
    ) -> None:
        """Loads trunk and bundles; a DataError or UsageError that names everything that cannot be used."""
        settings.check()
        self._settings = settings
        self._tokens = Tokens(token_file)
        check_address(settings.host, _addresses(settings), self._tokens)
        self._listening = _bound(settings)
        try:
            self.parts = _load(trunk, bundles, settings)
        except BaseException:
            self._listening.close()
            raise
        self._service = self.parts.service
        self._reloading = _Reloading(self._reload)
        self._server: _Server | None = None

    def run(self, announce: Callable[[str], None]) -> int | None:
        """Serves until a signal ends it; the number of the signal if it was the second one.

        Args:
            announce: called with the address, once requests are accepted.
        """
        app = make_app(self.parts)
        metrics, check_room = self.parts.metrics, self._service.check_room
        gate = Gate(app, endpoints(app), self._tokens, metrics, check_room, self._settings)
        config = uvicorn.Config(
            gate,
            http=protocol_for(_with_room(self._settings)),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=max(1, int(self._settings.read_seconds)),
            timeout_graceful_shutdown=int(self._settings.deadline_seconds + self._settings.read_seconds) + 2,
        )
        # The gate logs what goes wrong. uvicorn would add a line for every malformed request.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        with contextlib.closing(self._listening) as listening, _switching_often():
            self._server = server = _Server(config, gate.lag.start, self._drain, self._reloading.ask)
            self._service.start()
            self._reloading.start()
            listening.listen(_BACKLOG)
            announce(_url(listening))
            try:
                server.run(sockets=[listening])
            finally:
                self._reloading.stop()
                self._service.stop(at_once=server.force_exit)
        return server.last_signal if server.force_exit else None

    def end(self) -> None:
        """Does what a SIGTERM does; for servers that run in a thread of a program."""
        if self._server is not None:
            self._server.handle_exit(signal.SIGTERM, None)

    def reload(self) -> None:
        """Does what a SIGHUP does."""
        self._reloading.ask()

    def _drain(self) -> None:
        self.parts.is_ready = False

    def _reload(self) -> None:
        """Loads bundles and tokens again; what cannot be used stays as it was, with a line in the log."""
        faults = self.parts.tasks.reload()
        try:
            self._tokens.reload()
        except FrostlineError as error:
            faults.append(f"the tokens stay as they were: {error}")
        for fault in faults:
            log.error("reload: %s", fault)
        self.parts.metrics.reloads.labels("refused" if faults else "done").inc()
        # Modules refer to each other, so the old tasks would stay for a while. And without this, five reloads of 60 MB
        # left 250 MB with the allocator.
        release_memory()
        served = ", ".join(f"{name} {task.hash[:12]}" for name, task in self.parts.tasks.current.items())
        log.info("reloaded: %s", served)


@final
class _Server(uvicorn.Server):
    """uvicorn's server with our signals."""

    def __init__(
        self,
        config: uvicorn.Config,
        begin: Callable[[], None],
        drain: Callable[[], None],
        reload: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._begin, self._drain, self._reload = begin, drain, reload
        self.last_signal = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to serve."""
        await super().startup(sockets)
        self._begin()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals inside; afterwards they do again what they did before."""
        if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _ENDING}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda _, __: self._reload())
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """The first signal drains, the second ends."""
        self._drain()
        self.force_exit = self.should_exit
        self.should_exit = True
        self.last_signal = sig


@final
class _Reloading:
    """A thread that reloads when asked. Several wishes while it reloads are one."""

    def __init__(self, reload: Callable[[], None]) -> None:
        self._reload = reload
        self._is_asked = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="reload", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def ask(self) -> None:
        """Asks for a reload; safe in a signal handler."""
        self._is_asked.set()

    def stop(self) -> None:
        """Ends the thread; a reload under way is not waited for."""
        self._is_over = True
        self._is_asked.set()

    def _run(self) -> None:
        torch.set_num_threads(1)  # of this thread alone: more would take the cores from those that compute
        while self._is_asked.wait() and not self._is_over:
            self._is_asked.clear()
            try:
                self._reload()
            except Exception as error:  # noqa: BLE001 - recorded: the server goes on with what it has
                log.error("reload: everything stays as it was: %s: %s", type(error).__name__, one_line(error))


def _addresses(settings: ServerSettings) -> list[str]:
    """The addresses that a host name stands for."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {settings.host} is not an address of this machine: {one_line(error)}") from error
    return [str(address[0]).partition("%")[0] for *_, address in found]


def _load(trunk: str, bundles: Sequence[str], settings: ServerSettings) -> Parts:
    """Everything that the routes need."""
    metrics = Metrics()
    loaded = load_trunk(trunk)
    service = Service(Engine(loaded), settings, metrics)
    tasks = Tasks(loaded, [Source.parse(given) for given in bundles], service.probe)
    service.calibrate(next(iter(tasks.current.values())))
    release_memory()
    return Parts(
        trunk=Path(trunk).name if Path(trunk).is_dir() else trunk,
        trunk_hash=loaded.chain[-1],
        n_layers=loaded.n_layers,
        tasks=tasks,
        service=service,
        metrics=metrics,
        settings=settings,
    )


def _bound(settings: ServerSettings) -> socket.socket:
    """A socket with the first address of the host. It does not listen yet, but an address in use is noticed."""
    family, _, _, _, address = socket.getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        where = f"--host {settings.host} --port {settings.port}"
        raise UsageError(f"{where} cannot be used: {os.strerror(error.errno or 0)}; give another port") from error
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _with_room(settings: ServerSettings) -> ServerSettings:
    """The settings with no more connections than this process may have open files."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    allowed = settings.max_connections if most == resource.RLIM_INFINITY else max(1, most - _FILES_FOR_OTHERS)
    return settings.replace(max_connections=min(settings.max_connections, allowed))


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
