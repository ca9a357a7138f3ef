"""Work in processes of their own: one that answers one question, and one a core, kept alive, that start together."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from frostline.execution.local import THREAD_VARIABLES, worker_variables
from frostline.records.environment import n_cores

Answer = dict[str, Any]


def environment(cache: str, threads: int | None = None) -> dict[str, str]:
    """The variables of this process, with the prefix states in `cache`; threads as given, or as the command decides."""
    plain = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
    limits = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
    return {**plain, **limits, "FROSTLINE_CACHE": cache, "TOKENIZERS_PARALLELISM": "false"}


def answer_of(module: str, question: object, *, cache: str, threads: int | None = None) -> Answer:
    """What `python -m <module> <question>` prints, both as JSON; with as many threads, or as a worker of ours."""
    variables = worker_variables(threads=1) if threads is None else {}
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(question)],
        stdout=subprocess.PIPE,
        env={**environment(cache, threads), **variables},
        text=True,
        check=True,
    )
    answer: Answer = json.loads(done.stdout)
    return answer


@contextlib.contextmanager
def answering() -> Iterator[Callable[[object], None]]:
    """Within the block, what is given to the function goes to stdout as a line of JSON, and all else to stderr."""
    stdout = sys.stdout

    def answer(content: object) -> None:
        stdout.write(json.dumps(content, allow_nan=False) + "\n")
        stdout.flush()

    with contextlib.redirect_stdout(sys.stderr):
        yield answer


class Together:
    """One process a core, one thread each; what they are asked they do at the same time.

    All are there when the `with` block begins. A process makes itself ready, waits for the others, works until it has
    done enough, and goes on until all have: so that nothing is timed while a core is idle.
    """

    def __init__(self, module: str, question: object, cache: str) -> None:
        self._command = [sys.executable, "-m", module, json.dumps(question)]
        self._environment = {**environment(cache), **worker_variables(threads=1)}
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        for _ in range(n_cores()):
            self._started.append(
                subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=self._environment,
                    text=True,
                )
            )
        self._hear_all()  # that they are there: nobody else is timed while they start
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):  # a line it died before reading
                    stream.close()

    def do(self, question: object) -> list[Answer]:
        """What each of them measured."""
        self._tell_all(question)
        self._hear_all()
        self._tell_all("go")
        self._hear_all()
        self._tell_all("stop")
        return self._hear_all()

    def _tell_all(self, content: object) -> None:
        for process in self._started:
            assert process.stdin is not None
            process.stdin.write(json.dumps(content) + "\n")
            process.stdin.flush()

    def _hear_all(self) -> list[Any]:
        return [self._hear(process) for process in self._started]

    def _hear(self, process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of {self._command[2]} died (exit code {process.wait()}); see above")
        return json.loads(line)


class Inbox:
    """The far end: questions as they come; ends the process when nobody can ask any more."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> Any:
        """The next question; waits for it."""
        return json.loads(self._lines.get())

    def timed(
        self, work: Callable[[], object], n_times: int, seconds: float, answer: Callable[[object], None]
    ) -> list[float]:
        """How long the work took each time, done at least so often and so long, while all others did theirs."""
        answer("ready")
        assert self.next() == "go"
        took: list[float] = []
        began = before = time.perf_counter()
        is_enough = False
        while self._lines.empty():
            work()
            now = time.perf_counter()
            took.append(now - before)
            before = now
            if not is_enough and len(took) >= n_times and now - began >= seconds:
                is_enough = True
                answer("enough")
        assert self.next() == "stop"
        return took

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        os._exit(0)
