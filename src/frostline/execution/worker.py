"""The process that forks workers (`starter.py` says why), and what a worker does.

A worker reads jobs from its standard input and writes epochs and outcomes to a pipe of its own. It ends with the
driver: the end of its input ends it, even in the middle of a run. It also ends with the process that forked it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import queue
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from frostline.execution.executor import Job
from frostline.execution.starter import status_message
from frostline.execution.transport import Message, job_from_message, receive, send
from frostline.records.environment import current_environment
from frostline.records.results import Crash, EpochRecord, PausedRun

if TYPE_CHECKING:
    from frostline.training.run import Runner

_PR_SET_PDEATHSIG = 1
_N_FILES = 5
"""the files that come with a request for a worker: its folder, and four ends of pipes"""


@dataclass(frozen=True)
class _Child:
    """A forked worker, seen from the process that forked it."""

    pid: int
    process: int
    """a file that is readable when the process has ended"""
    status: int
    """the pipe that tells the driver how it ended"""

    def reap(self) -> None:
        """Tells the driver how the process ended."""
        _, wait_status = os.waitpid(self.pid, 0)
        with contextlib.suppress(BrokenPipeError):  # the driver no longer asks
            os.write(self.status, status_message(wait_status))
        self.close()

    def close(self) -> None:
        """Closes its files."""
        os.close(self.process)
        os.close(self.status)


def main() -> None:
    """Forks workers until the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the driver decides
    max_cache_bytes, control = int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))

    from frostline.training.run import Runner

    # Every run collects garbage first. What was imported is there for good: it need not be looked through each time,
    # and looking would copy the memory that the workers share.
    gc.freeze()
    serve(control, lambda *files: _work(Runner(max_cache_bytes), *files))


def serve(control: socket.socket, work: Callable[..., None]) -> None:
    """Forks processes that do `work` with the files they are given, until the driver is gone."""
    children: dict[bytes, _Child] = {}
    while (asked := _next_start(control, children)) is not None:
        number, files = asked
        if pid := os.fork():
            *others, status = files
            children[number] = _Child(pid, os.pidfd_open(pid), status)
            for file in others:
                os.close(file)
        else:
            control.close()
            for child in children.values():
                child.close()
            work(*files)
            os._exit(0)


def _next_start(control: socket.socket, children: dict[bytes, _Child]) -> tuple[bytes, list[int]] | None:
    """The number and the pipes of the next worker that the driver wants; None if the driver is gone."""
    while True:
        by_file = {child.process: number for number, child in children.items()}
        ready, _, _ = select.select([control.fileno(), *by_file], [], [])
        for number in [by_file[file] for file in ready if file in by_file]:
            children.pop(number).reap()
        if control.fileno() in ready:
            message, files, _, _ = socket.recv_fds(control, 64, _N_FILES)
            if not message:
                return None
            what, number = message.split()
            if what == b"start":
                return number, files
            if number in children:
                os.kill(children[number].pid, signal.SIGKILL)


def _work(runner: Runner, folder: int, jobs: int, answers: int, log: int, status: int) -> None:
    """Does jobs until the input ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the system ends this process with its parent
    for file, standard in ((jobs, 0), (log, 1), (log, 2)):
        os.dup2(file, standard)
    os.fchdir(folder)
    for file in (folder, jobs, log, status):
        os.close(file)
    messages: queue.Queue[Message] = queue.Queue()
    threading.Thread(target=_read, args=(messages,), daemon=True).start()
    with os.fdopen(answers, "wb") as stream:
        while True:
            _do(runner, job_from_message(*messages.get()), stream)


def _do(runner: Runner, job: Job, answers: IO[bytes]) -> None:
    def on_epoch(record: EpochRecord) -> None:
        send(answers, {"epoch": record.to_json()})

    try:
        outcome = runner.advance(job.spec, on_epoch, until=job.until, checkpoint=job.checkpoint, nearby=job.nearby)
    except Exception as error:  # noqa: BLE001 - the per-run guard: the crash is recorded and the sweep goes on
        crash = Crash(
            spec=job.spec,
            error=f"{type(error).__name__}: {error}",
            traceback=traceback.format_exc(),
            environment=current_environment(job.spec.device),
        )
        send(answers, {"crash": crash.to_json()})
    else:
        if isinstance(outcome, PausedRun):
            send(answers, {"paused": outcome.to_json()}, outcome.checkpoint or b"")
        else:
            send(answers, {"result": outcome.to_json()})


def _read(messages: queue.Queue[Message]) -> None:
    while (message := receive(sys.stdin.buffer)) is not None:
        messages.put(message)
    os._exit(0)


if __name__ == "__main__":
    main()
