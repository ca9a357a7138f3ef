"""What a worker does: it reads jobs from its standard input and writes epochs, messages and outcomes to its own pipe.

`python -m frostline.execution.worker` starts the fork server (`fork_server.py`), which forks the workers. A worker ends
when the driver ends, even in the middle of a run, because its input ends. It also ends when the fork server ends.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from typing import IO, TYPE_CHECKING

from frostline.execution.executor import Job, Outcome
from frostline.execution.fork_server import serve
from frostline.execution.transport import Message, job_from_message, outcome_message, receive, send
from frostline.records.environment import current_environment
from frostline.records.results import Crash, EpochRecord

if TYPE_CHECKING:
    from frostline.training.run import Runner


def main() -> None:
    """Imports what a worker needs, then forks workers until the driver is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they reach the whole group; the driver decides
        signal.signal(number, signal.SIG_IGN)
    max_cache_bytes, control = int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))

    from frostline.training.run import Runner

    # Every run collects garbage first. That took 0.3 s, mostly for objects of torch and transformers, which are never
    # garbage. The collector may ignore them; touching them would also copy memory that the workers share.
    gc.freeze()
    serve(control, lambda *files: _work(Runner(max_cache_bytes), *files))


def _work(runner: Runner, folder: int, jobs: int, answers: int, log: int, status: int) -> None:
    """Does jobs until the input ends."""
    for file, standard in ((jobs, 0), (log, 1), (log, 2)):
        os.dup2(file, standard)
    os.fchdir(folder)
    for file in (folder, jobs, log, status):
        os.close(file)
    messages: queue.Queue[Message] = queue.Queue()
    threading.Thread(target=_read, args=(messages,), daemon=True).start()
    with os.fdopen(answers, "wb") as stream:
        runner.prefixes.say = lambda text: send(stream, {"message": text})
        while True:
            _do(runner, job_from_message(*messages.get()), stream)


def _do(runner: Runner, job: Job, answers: IO[bytes]) -> None:
    def on_epoch(record: EpochRecord) -> None:
        send(answers, {"epoch": record.to_json()})

    outcome: Outcome
    try:
        outcome = runner.advance(job.spec, on_epoch, until=job.until, checkpoint=job.checkpoint, nearby=job.nearby)
    except Exception as error:  # noqa: BLE001 - the per-run guard: the crash is recorded and the sweep goes on
        outcome = Crash(
            spec=job.spec,
            error=f"{type(error).__name__}: {error}",
            traceback=traceback.format_exc(),
            environment=current_environment(job.spec.device),
        )
    send(answers, *outcome_message(outcome))


def _read(messages: queue.Queue[Message]) -> None:
    while (message := receive(sys.stdin.buffer)) is not None:
        messages.put(message)
    os._exit(0)


if __name__ == "__main__":
    main()
