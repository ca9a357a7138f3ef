"""Processes of this machine: spawned, one thread of ours watching each, talking in lines of JSON.

A worker is its own interpreter (`python -m frostline.execution.worker`), not a fork and not a re-import of the user's
script, so a plain script or a notebook may call frostline. One that dies is one crashed run; another takes its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

from frostline.execution.executor import Listener, Outcome
from frostline.records.environment import circumstances
from frostline.records.results import Crash, EpochRecord, Leg, Paused, RunResult
from frostline.records.specs import RunSpec

# Large pages where the system has them for the asking, and none given back before the end: what a step frees, the next
# one wants again. Together a twentieth of a step that reads and writes all weights.
_MEMORY = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {"hugetlb": 1, "mmap_threshold": 2**25, "trim_threshold": 2**40, "top_pad": 2**26}.items()
)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def worker_variables(threads: int) -> dict[str, str]:
    """What is set in the environment of a worker; how memory is taken, only where the user does not say."""
    memory = os.environ.get("GLIBC_TUNABLES", _MEMORY)
    limits = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return {**limits, "TOKENIZERS_PARALLELISM": "false", "GLIBC_TUNABLES": memory}


@dataclass
class _Ticket:
    """A run that was asked for."""

    spec: RunSpec
    beside: Sequence[str]
    leg: Leg | None
    worker: _Worker | None = None
    """who does it"""
    outcome: Outcome | None = None
    is_stopped: bool = False


class LocalProcesses:
    """An executor of `n_workers` processes; use it as a context manager, they start at once and end with it."""

    def __init__(self, n_workers: int, *, threads: int, max_cache_bytes: int) -> None:
        self._max_cache_bytes = max_cache_bytes
        self._environment = {**os.environ, **worker_variables(threads)}
        self._n_workers = n_workers
        self._workers: list[_Worker] = []
        self._idle: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._watchers = ThreadPoolExecutor(n_workers)
        self._tickets: dict[str, _Ticket] = {}
        self._ended: queue.SimpleQueue[Future[_Ticket]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    def __enter__(self) -> Self:
        for index in range(self._n_workers):
            self._workers.append(self._new_worker())
            self._idle.put(index)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_closed.set()
        for worker in self._workers:
            worker.kill()
        self._watchers.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    @property
    def n_free(self) -> int:
        """How many runs could be begun at once."""
        return max(0, self._n_workers - len(self._tickets))

    def start(self, spec: RunSpec, listener: Listener, beside: Sequence[str] = (), leg: Leg | None = None) -> None:
        """Begins a run, or a part of it, as soon as a worker is free."""
        ticket = self._tickets[spec.key] = _Ticket(spec, beside, leg)
        self._watchers.submit(self._do, ticket, listener).add_done_callback(self._ended.put)

    def outcome(self) -> Outcome:
        """What came of the run that ends next."""
        while (ticket := self._ended.get().result()).is_stopped:
            pass
        del self._tickets[ticket.spec.key]
        assert ticket.outcome is not None
        return ticket.outcome

    def stop(self, spec: RunSpec) -> None:
        """Ends a run that is under way, with its process, or that waits."""
        with self._lock:
            ticket = self._tickets.pop(spec.key)
            ticket.is_stopped = True
            if ticket.worker is not None:
                ticket.worker.kill()

    def _do(self, ticket: _Ticket, listener: Listener) -> _Ticket:
        """Does a run in one worker's place; there are as many places as watching threads."""
        index = self._idle.get()
        try:
            with self._lock:
                if ticket.is_stopped:
                    return ticket
                ticket.worker = self._workers[index]
            listener.started(ticket.spec)
            ticket.outcome = ticket.worker.run(ticket, listener)
            with self._lock:
                ticket.worker = None
            return ticket
        finally:
            if self._workers[index].is_dead and not self._is_closed.is_set():
                self._workers[index].close()
                self._workers[index] = self._new_worker()
            self._idle.put(index)

    def _new_worker(self) -> _Worker:
        return _Worker(self._max_cache_bytes, self._environment)


class _Worker:
    """One process. Answers have a pipe of their own: whatever a library prints goes to a log."""

    def __init__(self, max_cache_bytes: int, environment: dict[str, str]) -> None:
        self._log: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        answers, far_end = os.pipe()
        self._answers: IO[str] = os.fdopen(answers, encoding="utf-8")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "frostline.execution.worker", str(max_cache_bytes), str(far_end)],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(far_end,),
                env=environment,
                text=True,
                encoding="utf-8",
            )
        finally:
            os.close(far_end)

    @property
    def is_dead(self) -> bool:
        return self._process.poll() is not None

    def run(self, ticket: _Ticket, listener: Listener) -> Outcome:
        """What came of a run."""
        assert self._process.stdin is not None
        spec, leg = ticket.spec, None if ticket.leg is None else ticket.leg.to_json()
        asked = {"spec": spec.to_json(), "beside": ticket.beside, "leg": leg}
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._death(spec)
        for line in self._answers:
            message: dict[str, Any] = json.loads(line)
            if "result" in message:
                return RunResult.from_json(message["result"])
            if "paused" in message:
                return Paused.from_json(message["paused"])
            if "crash" in message:
                return Crash.from_json(message["crash"])
            listener.epoch(spec, EpochRecord.from_json(message["epoch"]))
        return self._death(spec)

    def kill(self) -> None:
        """Ends the process, whatever it is doing; who waits for its answer learns of its death."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Ends the process and lets go of it, once nobody waits for its answer."""
        self.kill()
        self._answers.close()
        self._log.close()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a spec it died before reading
            self._process.stdin.close()

    def _death(self, spec: RunSpec) -> Crash:
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        hint = "; often the machine ran out of memory" if code == -signal.SIGKILL else ""
        self._log.seek(0)
        return Crash(
            spec=spec,
            error=f"the process of this run died ({how}{hint})",
            traceback=self._log.read()[-4000:],
            circumstances=circumstances(spec.device),
        )
