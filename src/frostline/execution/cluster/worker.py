"""What runs on a node: an actor with one local worker process, which does one job after another.

The actor passes on what comes and goes. Runs are done as they are on one machine (`execution.local`): in the same kind
of process, with the same threads and the same memory, so that bits and speed are the same, and a run can be stopped or
killed without the actor. It never opens a path of the driver. Model and data come as trees of files, which are kept in
this node's own cache.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from frostline.execution.cluster.content import spec_at_node
from frostline.execution.cluster.stream import Pieces
from frostline.execution.cluster.trees import Tree, keep
from frostline.execution.events import Listener
from frostline.execution.executor import Job
from frostline.execution.local import LocalProcesses
from frostline.execution.transport import job_from_message, outcome_message, send
from frostline.records.results import EpochRecord
from frostline.records.specs import RunSpec
from frostline.storage.prefix_cache import default_folder


@final
class Worker:
    """One place of a node where runs are done. `ray.remote` makes it an actor."""

    def __init__(self, max_cache_bytes: int, threads: int) -> None:
        self._folder = default_folder() / "content"
        self._processes = LocalProcesses(1, threads=threads, max_cache_bytes=max_cache_bytes)
        self._processes.__enter__()  # it ends with the actor
        self._lock = threading.Lock()
        self._under_way: tuple[int, RunSpec] | None = None
        self._stopped: set[int] = set()

    def introduce(self) -> tuple[int, str]:
        """The id of this process, and where it keeps trees."""
        return os.getpid(), str(self._folder)

    def keep(self, tree: dict[str, Any], pieces: Sequence[Any]) -> None:
        """Keeps a tree of files on this node; its pieces are fetched only if it is not there already."""
        import ray

        keep(Tree.from_json(tree), self._folder, (memoryview(ray.get(piece)) for piece in pieces))

    def run(self, number: int, message: str, checkpoint: Any) -> Iterator[bytes]:
        """Does a job; its epochs, messages and outcome as a stream of bytes, while it runs. None if it is stopped."""
        job = job_from_message(json.loads(message), [] if checkpoint is None else [memoryview(checkpoint)])
        job = Job(spec_at_node(job.spec, self._folder), job.until, job.checkpoint, job.nearby)
        pieces = Pieces()
        with self._lock:
            if number in self._stopped:
                return
            self._under_way = number, job.spec
            self._processes.start(job, _Sender(pieces))
        threading.Thread(target=self._await, args=(pieces,)).start()
        yield from pieces

    def stop(self, number: int) -> None:
        """Ends the job with this number, under way or about to be."""
        with self._lock:
            self._stopped.add(number)
            if self._under_way is not None and self._under_way[0] == number:
                self._processes.stop(self._under_way[1])
                self._under_way = None

    def _await(self, pieces: Pieces) -> None:
        """Sends the outcome of the job; nothing, if it is stopped."""
        try:
            outcome = self._processes.outcome()
            with self._lock:
                self._under_way = None
            if outcome is not None:
                send(pieces, *outcome_message(outcome))
        finally:
            pieces.end()


@final
@dataclass(frozen=True)
class _Sender(Listener):
    """Sends what happens in a run."""

    pieces: Pieces

    def epoch(self, spec: RunSpec, record: EpochRecord) -> None:  # noqa: ARG002
        """An epoch ended."""
        send(self.pieces, {"epoch": record.to_json()})

    def message(self, text: str) -> None:
        """A line for the user."""
        send(self.pieces, {"message": text})
