"""A worker process: specs come in on stdin, epochs and outcomes go out on a pipe, one JSON object a line.

It ends when its parent does: the end of stdin ends it, in the middle of a run too.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import IO, TYPE_CHECKING

from frostline.records.environment import circumstances
from frostline.records.results import Crash, EpochRecord, Leg, Paused
from frostline.records.specs import RunSpec

if TYPE_CHECKING:
    from frostline.training.run import Runner


def main() -> None:
    """Does runs until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    answers = os.fdopen(int(sys.argv[2]), "w", encoding="utf-8")
    specs: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(specs,), daemon=True).start()

    from frostline.training.run import Runner

    runner = Runner(max_cache_bytes=int(sys.argv[1]))
    while True:
        asked = json.loads(specs.get())
        runner.preparer.beside = tuple(asked["beside"])
        leg = None if asked["leg"] is None else Leg.from_json(asked["leg"])
        _do(runner, RunSpec.from_json(asked["spec"]), leg, answers)


def _do(runner: Runner, spec: RunSpec, leg: Leg | None, answers: IO[str]) -> None:
    def on_epoch(record: EpochRecord) -> None:
        _answer(answers, "epoch", record.to_json())

    try:
        outcome = runner.run(spec, on_epoch) if leg is None else runner.run_leg(spec, leg, on_epoch)
    except Exception as error:  # noqa: BLE001 - the per-run guard: recorded, and the sweep goes on
        crash = Crash(
            spec=spec,
            error=f"{type(error).__name__}: {error}",
            traceback=traceback.format_exc(),
            circumstances=circumstances(spec.device),
        )
        _answer(answers, "crash", crash.to_json())
    else:
        _answer(answers, "paused" if isinstance(outcome, Paused) else "result", outcome.to_json())


def _answer(answers: IO[str], name: str, content: object) -> None:
    answers.write(json.dumps({name: content}, allow_nan=False) + "\n")
    answers.flush()


def _read(specs: queue.Queue[str]) -> None:
    for line in sys.stdin:
        specs.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
