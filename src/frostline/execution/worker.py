"""A worker process: jobs come in on stdin; epochs and outcomes go out on a pipe of their own.

It ends with its parent: the end of stdin ends it, even in the middle of a run.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from typing import IO, TYPE_CHECKING

from frostline.execution.executor import Job
from frostline.execution.transport import Message, job_from_message, receive, send
from frostline.records.environment import current_environment
from frostline.records.results import Crash, EpochRecord, PausedRun

if TYPE_CHECKING:
    from frostline.training.run import Runner


def main() -> None:
    """Does jobs until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    answers = os.fdopen(int(sys.argv[2]), "wb")
    messages: queue.Queue[Message] = queue.Queue()
    threading.Thread(target=_read, args=(messages,), daemon=True).start()

    # After the reader has started: importing torch takes seconds, and the parent may be gone by then.
    from frostline.training.run import Runner

    runner = Runner(max_cache_bytes=int(sys.argv[1]))
    while True:
        _do(runner, job_from_message(*messages.get()), answers)


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
