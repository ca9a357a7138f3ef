"""The executor of `--on ray`: runs on the nodes of a Ray cluster, with plain actors.

The store, the claims and the output folder belong to the driver. A job goes to an idle actor: first the trees of files
that its node lacks, then the job itself; epochs and the outcome come back as a stream. A job prefers a node that has
its prefix states already. A job whose actor or node dies is done again elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, final

import numpy as np

from frostline.errors import UsageError, one_line
from frostline.execution.cluster.connection import connected
from frostline.execution.cluster.content import Contents, Parcel
from frostline.execution.cluster.nodes import Share, living_nodes, no_room
from frostline.execution.cluster.places import Hiring, Place, Places
from frostline.execution.cluster.stream import Received
from frostline.execution.events import Listener
from frostline.execution.executor import Job, Outcome
from frostline.execution.progress import label
from frostline.execution.transport import Answer, answer_from_message, job_message, receive
from frostline.records.environment import current_environment
from frostline.records.requests import Device, RunOptions
from frostline.records.results import Crash, EpochRecord
from frostline.records.specs import RunSpec

JobT = TypeVar("JobT")

DEATHS = 3
"""A run whose worker dies this often is a crash."""
LOSSES = 20
"""So is a run whose node is lost this often."""
_SECONDS_TO_END = 10.0


STARTS_AT_ONCE = False
"""Connecting to a cluster takes seconds, and no mistake in the data should wait for it."""


def from_options(options: RunOptions, *, n_workers: int | None, threads: int, device: Device) -> RayCluster:
    """The executor that options ask for."""
    share = _share(options, threads, device)
    hiring = Hiring(share=share, most=n_workers, threads=threads, max_cache_bytes=options.max_cache_bytes)
    return RayCluster(hiring, address=options.ray_address, waits=not options.no_wait)


def places_of(options: RunOptions, *, n_workers: int | None, threads: int, device: Device) -> tuple[int, ...]:
    """How many runs each node could do at the same time, if nobody else used the cluster."""
    share = _share(options, threads, device)
    with connected(options.ray_address) as ray:
        nodes = living_nodes(ray)
        turns = sorted((turn, node.id) for node in nodes for turn in range(share.fits(node.total)))[:n_workers]
    if not turns:
        raise UsageError(no_room(share, nodes, {}))
    return tuple(Counter(node for _, node in turns).values())


def _share(options: RunOptions, threads: int, device: Device) -> Share:
    """What a run takes: as many CPUs as it has threads, and a GPU if it trains on one, unless the options say it."""
    import torch

    has_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    return Share(
        cpus=float(threads) if options.cpus_per_run is None else options.cpus_per_run,
        gpus=float(has_gpu) if options.gpus_per_run is None else options.gpus_per_run,
        memory=options.memory_per_run or 0,
    )


@dataclass(eq=False)
class _Ticket:
    """A job that was started."""

    number: int
    job: Job
    listener: Listener
    place: Place | None = None
    """where it is done, while it is"""
    outcome: Outcome | None = None
    error: Exception | None = None
    """what the listener raised; it is raised again in the caller's thread"""
    is_stopped: bool = False
    is_begun: bool = False
    last_epoch: int = 0
    """the last one that was reported: a run that is done again repeats epochs, but not their reports"""
    deaths: int = 0
    losses: int = 0


@final
class RayCluster:
    """An executor whose places are actors of a Ray cluster."""

    def __init__(self, hiring: Hiring, *, address: str | None = None, waits: bool = True) -> None:
        self._hiring, self._address, self._waits = hiring, address, waits
        self._resources = contextlib.ExitStack()
        self._numbers = itertools.count()
        self._tickets: dict[str, _Ticket] = {}
        self._waiting: list[_Ticket] = []
        self._ended: queue.SimpleQueue[_Ticket] = queue.SimpleQueue()
        self._prefixes: dict[str, set[object]] = {}
        """by node: the prefix states that it has"""
        self._threads: list[threading.Thread] = []
        self._unsaid: list[str] = []
        self._listener: Listener | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        self._ray = self._resources.enter_context(connected(self._address))
        self._contents = Contents(lambda pieces: [self._ray.put(np.frombuffer(one, np.uint8)) for one in pieces])
        self._places = Places(self._ray, self._hiring, self._hand_out, self._say)
        self._resources.callback(self._join)
        self._places.open()
        self._resources.callback(self._places.close)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_closed = True
        self._resources.close()

    def _join(self) -> None:
        """Waits for the threads that watch jobs; their actors have ended."""
        for thread in self._threads:
            thread.join(_SECONDS_TO_END)

    @property
    def n_free(self) -> int:
        """How many jobs could start at once; one waits even where there is no room."""
        return max(0, max(1, len(self._places.all)) - len(self._tickets))

    def start(self, job: Job, listener: Listener) -> None:
        """Starts a job as soon as a place is free."""
        assert job.spec.key not in self._tickets, "one job per key"
        self._contents.of(job.spec)
        with self._places.lock:
            self._listener = listener
            ticket = self._tickets[job.spec.key] = _Ticket(next(self._numbers), job, listener)
            self._waiting.append(ticket)
            self._say_all()
            self._hand_out()

    def outcome(self, timeout: float | None = None) -> Outcome | None:
        """The outcome of the next job to end; None after `timeout` seconds, or if no job is under way."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._tickets:
            self._check_room()
            left = 1.0 if deadline is None else max(0.0, min(1.0, deadline - time.monotonic()))
            try:
                ticket = self._ended.get(timeout=left)
            except queue.Empty:
                if deadline is not None and time.monotonic() >= deadline:
                    return None
                continue
            if ticket.is_stopped:
                continue
            del self._tickets[ticket.job.spec.key]
            if ticket.error is not None:
                raise ticket.error
            assert ticket.outcome is not None
            return ticket.outcome
        return None

    def stop(self, spec: RunSpec) -> None:
        """Ends a job that waits or runs; a place that did it is free when its process has ended."""
        with self._places.lock:
            ticket = self._tickets.pop(spec.key)
            ticket.is_stopped = True
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            if ticket.place is not None:
                ticket.place.actor.stop.remote(ticket.number)

    def _check_room(self) -> None:
        """Raises where the cluster is gone, or has no room and the user does not want to wait."""
        if self._places.error is not None:
            raise UsageError(f"the Ray cluster is gone: {one_line(self._places.error)}") from self._places.error
        if not self._waits and self._places.no_room is not None:
            raise UsageError(f"{self._places.no_room}; use less per run, or leave out --no-wait")

    def _say(self, text: str) -> None:
        with self._places.lock:
            self._unsaid.append(text)
            self._say_all()

    def _say_all(self) -> None:
        while self._listener is not None and self._unsaid:
            self._listener.message(self._unsaid.pop(0))

    def _hand_out(self) -> None:
        """Gives waiting jobs to idle places: to one whose node has the job's prefix states, if there is one."""
        with self._places.lock:
            idle = [] if self._is_closed else [place for place in self._places.all if place.is_idle]
            for ticket, place in matched(self._waiting, idle, self._has_prefix):
                self._waiting.remove(ticket)
                ticket.place, place.is_taken = place, True
                self._prefixes.setdefault(place.node.id, set()).update(prefixes_of(ticket.job))
                thread = threading.Thread(target=self._do, args=(ticket, place), daemon=True)
                self._threads = [one for one in self._threads if one.is_alive()] + [thread]
                thread.start()

    def _has_prefix(self, ticket: _Ticket, place: Place) -> bool:
        return prefix_of(ticket.job.spec) in self._prefixes.get(place.node.id, set())

    def _do(self, ticket: _Ticket, place: Place) -> None:
        """Does a job at a place, and frees the place."""
        is_lost, outcome = False, None
        try:
            outcome = self._ask(ticket, place)
            if outcome is None and not ticket.is_stopped:
                outcome = _death(ticket.job.spec, "it sent no answer that can be read")
        except self._ray.exceptions.RayError as error:
            if self._is_closed:
                return
            is_lost = not place.node.answers
            if is_lost:
                self._places.lose(place.node)
            else:
                self._places.replace(place)
            outcome = _death(ticket.job.spec, str(error))
        except Exception as error:  # noqa: BLE001 - a listener failed; `outcome` raises it again
            ticket.error = error
            self._places.replace(place)  # its answers to this job must not become those to the next one
        with self._places.lock:
            ticket.place, place.is_taken = None, False
            if not self._is_again(ticket, place, outcome, is_lost=is_lost):
                ticket.outcome = outcome
                self._ended.put(ticket)
            self._hand_out()

    def _ask(self, ticket: _Ticket, place: Place) -> Outcome | None:
        """The outcome of a job, done at a place; None if it was stopped."""
        job, parcel = ticket.job, self._contents.of(ticket.job.spec)
        self._send_trees(parcel, place)
        if not ticket.is_begun:
            ticket.is_begun = True
            ticket.listener.started(job.spec)
        ticket.listener.placed(job.spec, place.node.name)
        for answer in self._answers(ticket.number, Job(parcel.spec, job.until, job.checkpoint, job.nearby), place):
            if isinstance(answer, EpochRecord):
                if answer.epoch > ticket.last_epoch:
                    ticket.last_epoch = answer.epoch
                    ticket.listener.epoch(job.spec, answer)
            elif isinstance(answer, str):
                ticket.listener.message(f"{place.node.name}: {answer}")
            else:
                assert place.folder is not None
                return parcel.outcome(answer, job.spec, place.folder)
        return None

    def _answers(self, number: int, job: Job, place: Place) -> Iterator[Answer]:
        """What a worker says while it does a job."""
        message, _ = job_message(Job(job.spec, job.until, None, job.nearby))
        checkpoint = None if job.checkpoint is None else np.frombuffer(job.checkpoint, np.uint8)
        run = place.actor.run.options(num_returns="streaming", name=label(job.spec))
        pieces = iter(run.remote(number, json.dumps(message), checkpoint))
        stream = io.BufferedReader(Received(lambda: self._next_piece(pieces)))
        while (received := receive(stream)) is not None:
            if (answer := answer_from_message(*received)) is not None:
                yield answer

    def _next_piece(self, pieces: Iterator[Any]) -> bytes:
        ref = next(pieces, None)
        piece: bytes = b"" if ref is None else self._ray.get(ref)
        return piece

    def _send_trees(self, parcel: Parcel, place: Place) -> None:
        """Sends what the node needs and this actor has not looked for yet."""
        for tree in parcel.trees:
            if tree.digest not in place.trees:
                self._ray.get(place.actor.keep.remote(tree.to_json(), self._contents.pieces[tree.digest]))
                place.trees.add(tree.digest)

    def _is_again(self, ticket: _Ticket, place: Place, outcome: Outcome | None, *, is_lost: bool) -> bool:
        """Whether a job is done again: its worker died, and that has not happened too often."""
        if not isinstance(outcome, Crash) or not outcome.died or ticket.is_stopped:
            return False
        ticket.losses += is_lost
        ticket.deaths += not is_lost
        if ticket.deaths == DEATHS or ticket.losses == LOSSES:
            return False
        what = f"node {place.node.name} was lost" if is_lost else f"its worker on {place.node.name} died"
        ticket.listener.message(f"{label(ticket.job.spec)}: {what}; the run starts again")
        self._waiting.insert(0, ticket)
        return True


def matched(
    waiting: Sequence[JobT], idle: Sequence[Place], has_prefix: Callable[[JobT, Place], bool]
) -> list[tuple[JobT, Place]]:
    """Pairs of waiting jobs and idle places: first those where the node has the prefix states, then any, in order."""
    pairs: list[tuple[JobT, Place]] = []
    jobs, places = list(waiting), list(idle)
    for fits in (has_prefix, lambda *_: True):
        for job in list(jobs):
            if (place := next((one for one in places if fits(job, one)), None)) is not None:
                pairs.append((job, place))
                jobs.remove(job)
                places.remove(place)
    return pairs


def prefix_of(spec: RunSpec) -> object:
    """What identifies the prefix states that a run starts from; None if it starts from none."""
    if not spec.is_cached:
        return None
    task = spec.task.replace(source=None, data=None, dev=None)
    return (
        spec.model_fingerprint, spec.data_fingerprint, task, spec.max_length, spec.subset_seed, spec.subset_of,
        spec.layout, spec.cache_dtype, spec.threads, spec.strategy,
    )  # fmt: skip


def prefixes_of(job: Job) -> Iterator[object]:
    """The prefix states that a node has after a job: the run's own, and those of other runs computed with them."""
    if job.spec.is_cached:
        yield from (prefix_of(job.spec.replace(strategy=strategy)) for strategy in {job.spec.strategy, *job.nearby})


def _death(spec: RunSpec, why: str) -> Crash:
    error = f"the worker of this run died: {' '.join(why.split())[:300]}"
    return Crash(spec=spec, error=error, traceback=why, died=True, environment=current_environment(spec.device))
