"""The driver's side of the process that forks workers.

Importing torch and transformers takes seconds of CPU; a fork takes milliseconds. So one process, the starter, imports
them once and forks every worker. The second worker, and each one that replaces a dead one, is there at once, and all
share the memory of what was imported. The starter itself never trains: a process that has used its threads must not be
forked.

The starter's side is in `worker.py`. Messages are `start N` (with the folder to work in and the worker's pipes) and
`kill N`. The number N is the driver's, because a process id may belong to somebody else by the time it is used.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, final

_STATUS_BYTES = 4


@final
class Starter:
    """A process that forks workers. A new one takes its place if it dies."""

    def __init__(self, max_cache_bytes: int, environment: Mapping[str, str]) -> None:
        self._max_cache_bytes, self._environment = max_cache_bytes, dict(environment)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._last_code = 0
        self._log: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115

    def fork(self, jobs: int, answers: int, log: IO[str]) -> Forked:
        """A new worker that reads jobs from one pipe, writes answers to another, and prints into a log."""
        ended, status = os.pipe()
        folder = os.open(".", os.O_RDONLY)  # paths in specs may be relative
        number, files = next(self._numbers), (folder, jobs, answers, log.fileno(), status)
        try:
            with self._lock:
                try:
                    self._send(b"start %d" % number, files)
                except OSError:  # the starter died
                    self._end()
                    self._send(b"start %d" % number, files)
        finally:
            os.close(status)
            os.close(folder)
        return Forked(self, number, ended)

    def kill(self, number: int) -> None:
        """Kills a worker, if it lives."""
        with self._lock:
            try:
                self._send(b"kill %d" % number)
            except OSError:  # the starter died, and its workers with it
                self._end()

    def close(self) -> None:
        """Ends the starter and all its workers."""
        with self._lock:
            self._end()
        self._log.close()

    @property
    def log(self) -> str:
        """What it printed: how importing failed, for example."""
        self._log.seek(0)
        return self._log.read()

    def last_code(self) -> int:
        """How the starter that died last ended; waits for one that is about to."""
        with self._lock:
            return self._last_code if self._process is None else self._process.wait()

    def _send(self, message: bytes, files: tuple[int, ...] = ()) -> None:
        if self._control is None:
            self._begin()
        assert self._control is not None
        socket.send_fds(self._control, [message], files)

    def _begin(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "frostline.execution.worker", str(self._max_cache_bytes), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                env=self._environment,
            )

    def _end(self) -> None:
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.kill()
            self._last_code = self._process.wait()
        self._process = self._control = None


@final
class Forked:
    """A worker, as far as its life and death go."""

    def __init__(self, starter: Starter, number: int, ended: int) -> None:
        self._starter, self._number = starter, number
        self._ended = os.fdopen(ended, "rb", buffering=0)
        self._code: int | None = None
        self._lock = threading.Lock()

    def kill(self) -> None:
        """Ends the process, and waits until it has ended."""
        if self.code(timeout=0) is None:
            self._starter.kill(self._number)
            self.code()

    def code(self, timeout: float | None = None) -> int | None:
        """The exit code of the process, negative for a signal; None if it still lives after so many seconds."""
        if self._code is None and select.select([self._ended], [], [], timeout)[0]:
            with self._lock:
                if self._code is None:
                    status = self._ended.read(_STATUS_BYTES)
                    # Nothing is written if the starter died: then the system killed its workers.
                    self._code = int.from_bytes(status, "little", signed=True) if status else self._starter.last_code()
        return self._code

    def close(self) -> None:
        """Ends the process and forgets it."""
        self.kill()
        self._ended.close()


def status_message(wait_status: int) -> bytes:
    """What `os.waitpid` said, as the starter writes it to a worker's status pipe."""
    return os.waitstatus_to_exitcode(wait_status).to_bytes(_STATUS_BYTES, "little", signed=True)
