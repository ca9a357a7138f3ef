"""The default executor: processes of this machine, with one thread of ours per process.

A worker is not a fork of the user's process, and it does not import the user's script again, so a plain script or a
notebook can call frostline. Workers are forked by a fork server (`fork_server.py`). A worker that dies is one crashed
run; a new worker takes its place.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

from frostline.execution.events import Listener
from frostline.execution.executor import Job, Outcome
from frostline.execution.fork_server import ForkServer, Log
from frostline.execution.transport import Answer, answer_from_message, job_message, receive, send
from frostline.records.environment import current_environment, n_cores
from frostline.records.requests import Device, RunOptions
from frostline.records.results import Crash, EpochRecord
from frostline.records.specs import RunSpec

# glibc's allocator: use large pages if the system offers them, and return no memory before the end, because the next
# step needs again what the last one freed. Together they save 5% of a step that reads and writes all weights.
_MEMORY = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {"hugetlb": 1, "mmap_threshold": 2**25, "trim_threshold": 2**40, "top_pad": 2**26}.items()
)
_SECONDS_TO_DIE = 10.0
_SECONDS_TO_PRINT = 1.0
_LOG_SHOWN = 4000
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def worker_variables(threads: int) -> dict[str, str]:
    """Environment variables of a worker. The user's own GLIBC_TUNABLES win over ours."""
    memory = os.environ.get("GLIBC_TUNABLES", _MEMORY)
    limits = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return {**limits, "TOKENIZERS_PARALLELISM": "false", "GLIBC_TUNABLES": memory}


STARTS_AT_ONCE = True
"""Starting a process takes milliseconds; what it imports, it imports while the caller goes on."""


def from_options(options: RunOptions, *, n_workers: int | None, threads: int, device: Device) -> LocalProcesses:
    """The executor that options ask for."""
    most = n_workers or functools.partial(default_workers, threads, device)
    return LocalProcesses(most, threads=threads, max_cache_bytes=options.max_cache_bytes)


def places_of(options: RunOptions, *, n_workers: int | None, threads: int, device: Device) -> tuple[int, ...]:  # noqa: ARG001
    """How many runs this machine could do at the same time."""
    return (n_workers or default_workers(threads, device),)


def default_workers(threads: int, device: Device) -> int:
    """One run per core, counting the threads of a run; one run per GPU."""
    # Only torch knows whether there is a GPU, and importing it takes seconds.
    from frostline.training.device.settings import pick_device

    return max(1, n_cores() // threads) if pick_device(device) == "cpu" else 1


@dataclass
class _Ticket:
    """A job that was started."""

    job: Job
    worker: _Worker | None = None
    """the worker that does it, while it runs"""
    outcome: Outcome | None = None
    error: Exception | None = None
    """what the listener raised; it is raised again in the caller's thread"""
    is_stopped: bool = False


class LocalProcesses:
    """An executor of `n_workers` processes; all end with the context.

    The fork server starts with the context, because it must import torch first. The workers are forked when the first
    run starts. If `n_workers` is a function, it is called then.
    """

    def __init__(self, n_workers: int | Callable[[], int], *, threads: int, max_cache_bytes: int) -> None:
        self._fork_server = ForkServer(max_cache_bytes, {**os.environ, **worker_variables(threads)})
        self._asked = n_workers
        self._workers: list[_Worker] = []
        self._watchers: ThreadPoolExecutor | None = None
        self._idle: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._tickets: dict[str, _Ticket] = {}
        self._ended: queue.SimpleQueue[Future[_Ticket]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    def __enter__(self) -> Self:
        self._fork_server.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_closed.set()
        self._fork_server.end()  # at once: a worker could only be killed after seconds of importing
        for worker in self._workers:
            worker.kill()
        if self._watchers is not None:
            self._watchers.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    @functools.cached_property
    def _n_workers(self) -> int:
        return self._asked() if callable(self._asked) else self._asked

    @property
    def n_free(self) -> int:
        """How many jobs could start at once."""
        return max(0, self._n_workers - len(self._tickets))

    def start(self, job: Job, listener: Listener) -> None:
        """Starts a job as soon as a worker is free."""
        assert job.spec.key not in self._tickets, "one job per key"
        ticket = self._tickets[job.spec.key] = _Ticket(job)
        if self._watchers is None:
            self._watchers = self._fork_workers()
        self._watchers.submit(self._do, ticket, listener).add_done_callback(self._ended.put)

    def outcome(self, timeout: float | None = None) -> Outcome | None:
        """The outcome of the next job to end; None after `timeout` seconds, or if no job is under way."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._tickets:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                ticket = self._ended.get(timeout=left).result()
            except queue.Empty:
                return None
            if ticket.is_stopped:
                continue
            del self._tickets[ticket.job.spec.key]
            if ticket.error is not None:
                raise ticket.error
            assert ticket.outcome is not None
            return ticket.outcome
        return None

    def stop(self, spec: RunSpec) -> None:
        """Ends a job that waits, or that runs: then with its process."""
        with self._lock:
            ticket = self._tickets.pop(spec.key)
            ticket.is_stopped = True
            if ticket.worker is not None:
                ticket.worker.kill()

    def _fork_workers(self) -> ThreadPoolExecutor:
        """Forks all workers; one thread watches each of them."""
        for index in range(self._n_workers):
            self._workers.append(_Worker(self._fork_server))
            self._idle.put(index)
        return ThreadPoolExecutor(self._n_workers)

    def _do(self, ticket: _Ticket, listener: Listener) -> _Ticket:
        """Does a job on an idle worker; there are as many workers as watching threads."""
        index = self._idle.get()
        try:
            with self._lock:
                if ticket.is_stopped:
                    return ticket
                ticket.worker = self._workers[index]
            self._ask(ticket.worker, ticket, listener)
            with self._lock:
                ticket.worker = None
            return ticket
        finally:
            if self._workers[index].is_dead and not self._is_closed.is_set():
                self._workers[index].close()
                self._workers[index] = _Worker(self._fork_server)
            self._idle.put(index)

    def _ask(self, worker: _Worker, ticket: _Ticket, listener: Listener) -> None:
        """Has a worker do a job, and notes the outcome."""
        try:
            listener.started(ticket.job.spec)
            ticket.outcome = worker.run(ticket.job, listener)
        except Exception as error:  # noqa: BLE001 - a listener failed; `outcome` raises it again
            ticket.error = error
            worker.kill()  # its answers to this job were not read: they must not become those to the next one


class _Worker:
    """One process. Its answers have a pipe of their own; what libraries print goes to a log."""

    def __init__(self, server: ForkServer) -> None:
        self._fork_server = server
        self._log = Log()
        their_jobs, jobs = os.pipe()
        answers, their_answers = os.pipe()
        self._jobs: IO[bytes] = os.fdopen(jobs, "wb")
        self._answers: IO[bytes] = os.fdopen(answers, "rb")
        try:
            self._process = server.fork(their_jobs, their_answers, self._log.file)
        except OSError:
            self._jobs.close()
            self._answers.close()
            raise
        finally:
            os.close(their_jobs)
            os.close(their_answers)
            self._log.close()

    @property
    def is_dead(self) -> bool:
        return self._process.code(timeout=0) is not None

    def run(self, job: Job, listener: Listener) -> Outcome:
        """The outcome of a job."""
        try:
            send(self._jobs, *job_message(job))
        except BrokenPipeError:
            return self._death(job.spec)
        while (answer := self._answer()) is not None:
            if isinstance(answer, EpochRecord):
                listener.epoch(job.spec, answer)
            elif isinstance(answer, str):
                listener.message(answer)
            elif answer.key == job.spec.key:
                return answer
            else:
                break
        return self._death(job.spec)

    def _answer(self) -> Answer | None:
        """The next answer; None if there is none, or none that can be read."""
        message = receive(self._answers)
        return None if message is None else answer_from_message(*message)

    def kill(self) -> None:
        """Ends the process at once; a thread that waits for its answer gets a Crash."""
        self._process.kill()

    def close(self) -> None:
        """Ends the process and closes its pipes; no thread may be waiting for its answer."""
        self._process.close()
        self._answers.close()
        with contextlib.suppress(BrokenPipeError):  # a job that it died before reading
            self._jobs.close()

    def _death(self, spec: RunSpec) -> Crash:
        code = self._process.code(_SECONDS_TO_DIE)
        if code is None:
            self.kill()
            how = "ended, because it sent no answer that can be read"
        else:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        hint = "; often the machine ran out of memory" if code == -signal.SIGKILL else ""
        return Crash(
            spec=spec,
            error=f"the process of this run died ({how}{hint})",
            traceback=(self._fork_server.log + self._log.text(_SECONDS_TO_PRINT))[-_LOG_SHOWN:],
            died=True,
            environment=current_environment(spec.device),
        )
