"""Processes of this machine: spawned, one thread of ours watching each, talking in lines of JSON.

A worker is its own interpreter (`python -m frostline.executors.worker`), not a fork and not a re-import of the user's
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
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import IO, Any, Self

from frostline.circumstances import circumstances
from frostline.executors import Listener
from frostline.records import Crash, EpochRecord, RunResult, RunSpec

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class LocalProcesses:
    """An executor of `n_workers` processes; use it as a context manager, they start at once and end with it."""

    def __init__(self, n_workers: int, *, threads: int, max_cache_bytes: int) -> None:
        self._arguments = [str(max_cache_bytes)]
        self._environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
        self._environment["TOKENIZERS_PARALLELISM"] = "false"
        self._n_workers = n_workers
        self._workers: list[_Worker] = []
        self._watchers: list[threading.Thread] = []
        self._is_closed = threading.Event()

    def __enter__(self) -> Self:
        self._workers = [_Worker(self._arguments, self._environment) for _ in range(self._n_workers)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_closed.set()
        for worker in self._workers:
            worker.kill()
        for watcher in self._watchers:  # each sees its process dead and ends
            watcher.join()
        for worker in self._workers:
            worker.close()

    def run(self, specs: Sequence[RunSpec], listener: Listener) -> Iterator[RunResult | Crash]:
        """One outcome a spec, as they finish."""
        waiting = deque(specs)
        outcomes: queue.Queue[RunResult | Crash] = queue.Queue()
        for index in range(min(self._n_workers, len(specs))):
            arguments = (index, waiting, outcomes, listener)
            self._watchers.append(threading.Thread(target=self._serve, args=arguments, daemon=True))
            self._watchers[-1].start()
        for _ in specs:
            yield outcomes.get()

    def _serve(
        self, index: int, waiting: deque[RunSpec], outcomes: queue.Queue[RunResult | Crash], listener: Listener
    ) -> None:
        """Gives one worker's place its runs, until none is left."""
        while not self._is_closed.is_set():
            try:
                spec = waiting.popleft()
            except IndexError:
                return
            listener.started(spec)
            outcome = self._workers[index].run(spec, listener)
            if self._workers[index].is_dead and not self._is_closed.is_set():
                self._workers[index].close()
                self._workers[index] = _Worker(self._arguments, self._environment)
            outcomes.put(outcome)


class _Worker:
    """One process."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._errors: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "frostline.executors.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
            encoding="utf-8",
        )

    @property
    def is_dead(self) -> bool:
        return self._process.poll() is not None

    def run(self, spec: RunSpec, listener: Listener) -> RunResult | Crash:
        """What came of a spec."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(spec.to_json()) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._death(spec)
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)
            if "result" in message:
                return RunResult.from_json(message["result"])
            if "crash" in message:
                return Crash.from_json(message["crash"])
            listener.epoch(spec, EpochRecord.from_json(message["epoch"]))
        return self._death(spec)

    def kill(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Lets go of what belongs to a dead process."""
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # a spec it no longer took
                stream.close()

    def _death(self, spec: RunSpec) -> Crash:
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        hint = "; often the machine ran out of memory" if code == -signal.SIGKILL else ""
        self._errors.seek(0)
        error = f"the process of this run died ({how}{hint})"
        return Crash(
            spec=spec,
            error=error,
            traceback=self._errors.read()[-4000:],
            circumstances=circumstances(spec.device),
        )
