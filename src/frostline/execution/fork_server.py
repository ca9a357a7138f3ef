"""A fork server: one process imports torch and transformers, and forks all workers.

Importing takes 5 to 8 seconds of CPU, a fork 25 milliseconds. So the second worker, and each one that replaces a dead
worker, is ready at once, and all workers share the memory of what was imported. The fork server itself never trains: a
process that has used its threads must not be forked.

`ForkServer` and `ForkedProcess` are used by the driver; `serve` runs in the fork server. Messages are `start N`, with
the folder to work in and the worker's pipes, and `kill N`. The driver chooses the number N. A process id would not do:
it may belong to another process by the time it is used.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

_STATUS_BYTES = 4
_MESSAGE_BYTES = 32
"""a message to the server is padded to this length: macOS has no sockets that keep messages apart"""
_N_FILES = 5
"""the files that come with `start`: the folder to work in, and four ends of pipes"""
_PR_SET_PDEATHSIG = 1
_LOG_BYTES = 2**16
_SECONDS_TO_PRINT = 5.0
"""how long a process that has ended may leave its last lines in the pipe, or to a child of its own"""


@final
class Log:
    """The end of what processes print. They print into a pipe, so that no amount of it fills memory or disk."""

    def __init__(self) -> None:
        end, self.file = os.pipe()
        self._kept = bytearray()
        self._reader = threading.Thread(target=self._read, args=(end,), daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Closes this process's copy of `file`, once those that print have theirs."""
        os.close(self.file)

    def text(self, timeout: float) -> str:
        """The end of what was printed. Waits up to `timeout` seconds for those that print to end."""
        self._reader.join(timeout)
        return self._kept[-_LOG_BYTES:].decode("utf-8", errors="replace")

    def _read(self, end: int) -> None:
        with os.fdopen(end, "rb", buffering=0) as stream:
            while printed := stream.read(_LOG_BYTES):
                self._kept += printed
                if len(self._kept) > 2 * _LOG_BYTES:
                    del self._kept[:-_LOG_BYTES]


@final
class ForkServer:
    """A process that forks workers. A new one takes its place if it dies."""

    def __init__(self, max_cache_bytes: int, environment: Mapping[str, str]) -> None:
        self._max_cache_bytes, self._environment = max_cache_bytes, dict(environment)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._log: Log | None = None

    def begin(self) -> None:
        """Starts the process, which imports its libraries while the caller goes on. `fork` starts it too."""
        with self._lock:
            self._begin_once()

    def fork(self, jobs: int, answers: int, log: int) -> ForkedProcess:
        """A new worker that reads jobs from one pipe, writes answers to another, and prints into a log."""
        ended, status = os.pipe()
        folder = os.open(".", os.O_RDONLY)  # paths in specs may be relative
        number, files = next(self._numbers), (folder, jobs, answers, log, status)
        try:
            with self._lock:
                try:
                    self._send(b"start %d" % number, files)
                except OSError:  # the server died
                    self._end()
                    self._send(b"start %d" % number, files)
                process = self._process
        finally:
            os.close(status)
            os.close(folder)
        assert process is not None
        return ForkedProcess(self, process, number, ended)

    def kill(self, number: int) -> None:
        """Kills a worker, if it is alive."""
        with self._lock:
            if self._control is None:  # the server has ended, and its workers with it
                return
            try:
                self._send(b"kill %d" % number)
            except OSError:  # the server died
                self._end()

    def end(self) -> None:
        """Ends the server and all its workers at once, even while it is still importing."""
        with self._lock:
            self._end()

    @property
    def log(self) -> str:
        """The end of what the server printed, for example why an import failed."""
        with self._lock:
            is_alive = self._process is not None and self._process.poll() is None
        return "" if self._log is None else self._log.text(0 if is_alive else _SECONDS_TO_PRINT)

    def _send(self, message: bytes, files: tuple[int, ...] = ()) -> None:
        self._begin_once()
        assert self._control is not None
        socket.send_fds(self._control, [message.ljust(_MESSAGE_BYTES)], files)

    def _begin_once(self) -> None:
        if self._control is None:
            self._log = Log()
            try:
                self._begin(self._log.file)
            finally:
                self._log.close()

    def _begin(self, log: int) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "frostline.execution.worker", str(self._max_cache_bytes), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env=self._environment,
            )

    def _end(self) -> None:
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.kill()
            self._process.wait()
        self._process = self._control = None


@final
class ForkedProcess:
    """A process that the server forked: it can be killed and waited for."""

    def __init__(self, server: ForkServer, parent: subprocess.Popen[bytes], number: int, ended: int) -> None:
        # The server may have been replaced by the time this process ends, so its parent is remembered.
        self._server, self._parent, self._number = server, parent, number
        self._ended = os.fdopen(ended, "rb", buffering=0)
        self._code: int | None = None
        self._lock = threading.Lock()

    def kill(self) -> None:
        """Ends the process, and waits until it has ended."""
        if self.code(timeout=0) is None:
            self._server.kill(self._number)
            self.code()

    def code(self, timeout: float | None = None) -> int | None:
        """The exit code of the process, negative for a signal; None if it is still alive after `timeout` seconds."""
        if self._code is None and select.select([self._ended], [], [], timeout)[0]:
            with self._lock:
                if self._code is None:
                    status = self._ended.read(_STATUS_BYTES)
                    # Nothing is written if the server died: then the system killed its workers.
                    self._code = int.from_bytes(status, "little", signed=True) if status else self._parent.wait()
        return self._code

    def close(self) -> None:
        """Ends the process and forgets it."""
        self.kill()
        self._ended.close()


@dataclass(frozen=True)
class _Child:
    """A forked process, as the server sees it."""

    pid: int
    process: int
    """the end of a pipe that is readable when the process has ended; a pidfd would be Linux only"""
    status: int
    """the pipe to the driver for the exit code"""

    def reap(self) -> None:
        """Sends the exit code of the process to the driver."""
        _, wait_status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(wait_status)
        with contextlib.suppress(BrokenPipeError):  # the driver does not wait for it
            os.write(self.status, code.to_bytes(_STATUS_BYTES, "little", signed=True))
        self.close()

    def close(self) -> None:
        """Closes its files."""
        os.close(self.process)
        os.close(self.status)


def serve(control: socket.socket, work: Callable[..., None]) -> None:
    """Forks processes that call `work` with the files they are given, until the driver is gone."""
    children: dict[bytes, _Child] = {}
    server = os.getpid()
    while (asked := _next_start(control, children)) is not None:
        number, files = asked
        ended, alive = os.pipe()
        if pid := os.fork():
            *others, status = files
            children[number] = _Child(pid, ended, status)
            for file in (*others, alive):
                os.close(file)
        else:
            os.close(ended)  # `alive` stays open until this process ends
            _end_with(server)
            control.close()
            for child in children.values():
                child.close()
            work(*files)
            os._exit(0)


def _end_with(parent: int) -> None:
    """Has the system kill this process when its parent ends; elsewhere than on Linux it ends with the driver only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def _next_start(control: socket.socket, children: dict[bytes, _Child]) -> tuple[bytes, list[int]] | None:
    """The number and the pipes of the next worker that the driver wants; None if the driver is gone."""
    while True:
        by_file = {child.process: number for number, child in children.items()}
        ready, _, _ = select.select([control.fileno(), *by_file], [], [])
        for number in [by_file[file] for file in ready if file in by_file]:
            children.pop(number).reap()
        if control.fileno() in ready:
            message, files, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, _N_FILES)
            if not message:
                return None
            what, number = message.split()
            if what == b"start":
                return number, files
            if number in children:
                os.kill(children[number].pid, signal.SIGKILL)
