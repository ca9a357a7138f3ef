"""From what a request asks to the outputs of its tasks: tokens, the queue, and the threads that compute.

The event loop never waits for a model, nor for the tokenizer of a long text: a thread does that. The other threads
compute, one per core, each with a single torch thread: two threads in each of two passes would wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import statistics
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from starlette.types import Receive

from frostline.serving.engine import Engine
from frostline.serving.rows import Limits, Text, TokenRow
from frostline.serving.server.http.body import until_gone
from frostline.serving.server.jobs import Batch, Job, Line, Outputs, Queue
from frostline.serving.server.metrics import Metrics
from frostline.serving.server.refusals import ClientGoneError, Refusal, too_late
from frostline.serving.server.settings import ServerSettings
from frostline.serving.server.shapes import Asked
from frostline.serving.server.tasks import Served, Snapshot, n_layer_passes

Value = TypeVar("Value")
_FEW_CHARACTERS = 2000
"""texts of a request, all together, that the event loop tokenises itself: in about 0.3 ms"""
_CALIBRATION_ROWS = 16
_JOIN_SECONDS = 5.0
"""how long an ending server waits for the batches under way"""

log = logging.getLogger("frostline.server")


@final
class Service:
    """Computes what requests ask for. `start` and `stop` are called by the server, `outputs` by its routes."""

    def __init__(self, engine: Engine, settings: ServerSettings, metrics: Metrics) -> None:
        self._engine, self._settings, self._metrics = engine, settings, metrics
        self._queue: Queue[TokenRow, Served] = Queue(settings)
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokens")
        # What requests end with. A batch hands over all of them at once: to wake up the event loop for each would stop
        # the thread that computes as often.
        self._ends: deque[tuple[asyncio.Future[Outputs], Outputs | Exception]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._n_encoding = 0  # requests that this thread has; only the event loop changes it
        self._threads = [
            threading.Thread(target=self._work, name=f"compute-{number}", daemon=True)
            for number in range(settings.n_threads)
        ]
        metrics.watch("queued_rows", "Rows that wait.", lambda: len(self._queue))
        metrics.watch("seconds_ahead", "Time that the work under way will take.", self._queue.seconds_ahead)

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, *, at_once: bool = False) -> None:
        """Ends the threads when the queue is empty; `at_once` drops what waits."""
        self._queue.close(at_once=at_once)
        self._tokenizing.shutdown(wait=False, cancel_futures=at_once)
        until = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    @property
    def is_alive(self) -> bool:
        """Whether all threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def check_room(self) -> None:
        """Raises a Refusal (429) if too much is waiting."""
        self._queue.check_room()

    def probe(self, task: Served, text: Text) -> NDArray[np.float32]:
        """The outputs (classes,) of one task for one text, computed by the calling thread."""
        torch.set_num_threads(1)
        rows = self._engine.encode([text], {task.name: task.tail})
        outputs: NDArray[np.float32] = self._engine.outputs(rows, {task.name: task.tail})[task.name][0]
        return outputs

    def calibrate(self, task: Served) -> None:
        """Measures how many tokens take as long as what a batch takes however small it is; see `jobs.py`."""
        (row,) = self._engine.encode([Text("The ground froze early.")], {task.key: task.tail})[task.key]
        # Of different lengths, because equal rows are computed once.
        lengths = range(8, 8 + min(_CALIBRATION_ROWS, max(1, task.limits.max_length - 8)))
        rows = [TokenRow((row.tokens * 24)[:length], _repeated(row.token_types, length), length) for length in lengths]
        seconds = [self._seconds(rows[:1], task), self._seconds(rows, task)]
        n_tokens = [len(rows[0].tokens), sum(lengths)]
        per_token = (seconds[1] - seconds[0]) / max(1, n_tokens[1] - n_tokens[0])
        fixed = seconds[0] - per_token * n_tokens[0]
        fixed_tokens = max(0.0, fixed / per_token) if per_token > 0 else float(self._settings.batch_tokens)
        self._queue.calibrate(fixed_tokens, n_tokens[1] * n_layer_passes([task]), seconds[1])

    def _seconds(self, rows: Sequence[TokenRow], task: Served) -> float:
        """The median time to compute these rows, once everything is warm."""
        torch.set_num_threads(1)
        found = []
        for _ in range(4):
            started = time.perf_counter()
            self._engine.outputs({task.key: rows}, {task.key: task.tail})
            found.append(time.perf_counter() - started)
        return statistics.median(found[1:])

    async def outputs(self, asked: Asked, tasks: Snapshot, receive: Receive) -> tuple[Outputs, int]:
        """The outputs of all tasks for all texts, and how many tokens were read.

        A Refusal if texts are too long (422), too much is waiting (429) or the deadline passes (504). A ClientGoneError
        if the client leaves. Rows that nobody waits for are not computed.
        """
        self._loop = loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.deadline_seconds
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            rows = await self._rows(asked, tasks, gone, deadline)
            if not asked.truncate:
                _check_lengths(rows, tasks)
            lines = _lines(rows, tasks, len(asked.texts))
            computing: asyncio.Future[Outputs] = loop.create_future()
            job = Job(lines, len(asked.texts), deadline, lambda end: self._ends.append((computing, end)))
            self._queue.put(job)
            try:
                outputs = await self._in_time(computing, gone, deadline)
            finally:
                job.drop()
        finally:
            gone.cancel()
        n_tokens = sum(line.n_tokens for line in lines)
        self._count(tasks, len(asked.texts), n_tokens)
        return outputs, n_tokens

    async def _rows(
        self, asked: Asked, tasks: Snapshot, gone: asyncio.Future[None], deadline: float
    ) -> Mapping[Limits, Sequence[TokenRow]]:
        """The texts as tokens, for each way in which these tasks read them."""
        limits = {task.limits for task in tasks.values()}
        n_characters = sum(len(text.first) + len(text.second or "") for text in asked.texts)
        encode = self._engine.trunk.texts.rows
        # A few sentences take less time than handing them to another thread and back. But while that thread works on
        # a long text, the tokenizer is locked, and the event loop must not wait for it.
        if n_characters <= _FEW_CHARACTERS and not self._n_encoding:
            return encode(asked.texts, limits)
        self._n_encoding += 1
        work = asyncio.get_running_loop().run_in_executor(self._tokenizing, encode, asked.texts, limits)
        work.add_done_callback(self._encoded)
        return await self._in_time(work, gone, deadline)

    def _encoded(self, _: object) -> None:
        self._n_encoding -= 1

    async def _in_time(self, work: asyncio.Future[Value], gone: asyncio.Future[None], deadline: float) -> Value:
        """The result of some work, unless the client leaves or the deadline passes before."""

        def give_up(_: object = None) -> None:
            work.cancel()

        loop = asyncio.get_running_loop()
        timer = loop.call_at(deadline, give_up)
        gone.add_done_callback(give_up)
        try:
            return await work
        except asyncio.CancelledError:
            if gone.done():
                raise ClientGoneError from None
            if loop.time() >= deadline:
                raise too_late(self._settings.deadline_seconds) from None
            raise
        finally:
            timer.cancel()
            gone.remove_done_callback(give_up)

    def _count(self, tasks: Iterable[str], n_texts: int, n_tokens: int) -> None:
        for name in tasks:
            self._metrics.texts.labels(name).inc(n_texts)
        self._metrics.tokens.inc(n_tokens)

    def _work(self) -> None:
        """What a thread does until the queue is closed and empty."""
        torch.set_num_threads(1)  # of this thread alone
        while (batch := self._queue.take()) is not None:
            started = time.monotonic()
            self._compute(batch)
            self._wake_up_loop()
            seconds = time.monotonic() - started
            self._queue.done(batch, seconds)
            self._metrics.batch_rows.observe(len(batch))
            self._metrics.batch_seconds.observe(seconds)

    def _wake_up_loop(self) -> None:
        """Lets the event loop take what has ended."""
        if self._ends and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server ended at once, and nobody waits
                self._loop.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        """Ends the requests whose outputs are there."""
        while self._ends:
            computing, end = self._ends.popleft()
            if computing.done():  # the client left, or the deadline passed
                continue
            if isinstance(end, Exception):
                computing.set_exception(end)
            else:
                computing.set_result(end)

    def _compute(self, batch: Batch[TokenRow, Served]) -> None:
        """Answers the lines of a batch. Where that fails, each is done alone, so that one does not harm the others."""
        try:
            answers = self._answers([line for _, line in batch])
        except Exception as error:  # noqa: BLE001 - recorded: the job ends with it, the thread goes on
            if len(batch) > 1:
                for one in batch:
                    self._compute([one])
                return
            for job, _ in batch:
                job.fail(error)
            return
        for (job, line), outputs in zip(batch, answers, strict=True):
            job.answer(line, outputs)

    def _answers(self, lines: Sequence[Line[TokenRow, Served]]) -> list[dict[str, NDArray[np.float32]]]:
        """For each line the outputs (classes,) of its tasks by name."""
        # By tail, not by name: during a reload a name may stand for two bundles.
        rows: dict[str, list[TokenRow]] = defaultdict(list)
        tails: dict[str, Any] = {}
        for line in lines:
            for task in line.tasks.values():
                rows[task.key].append(line.row)
                tails[task.key] = task.tail
        outputs = {key: iter(values) for key, values in self._engine.outputs(rows, tails).items()}
        return [{name: next(outputs[task.key]) for name, task in line.tasks.items()} for line in lines]


def _repeated(values: tuple[int, ...] | None, length: int) -> tuple[int, ...] | None:
    return None if values is None else (values * 24)[:length]


def _check_lengths(rows: Mapping[Limits, Sequence[TokenRow]], tasks: Snapshot) -> None:
    """Raises a Refusal if a text is longer than a task reads."""
    for name, task in tasks.items():
        for place, row in enumerate(rows[task.limits]):
            if row.is_cut:
                what = f"text {place} has {row.n_tokens} tokens; the task {name} reads at most {task.limits.max_length}"
                raise Refusal(422, "tokenizer", f'{what}. Shorten it, or send "truncate": true to have it cut')


def _lines(rows: Mapping[Limits, Sequence[TokenRow]], tasks: Snapshot, n_texts: int) -> list[Line[TokenRow, Served]]:
    """One line per text; more only where tasks read different tokens of it."""
    lines = []
    for place in range(n_texts):
        by_row: dict[TokenRow, dict[str, Served]] = defaultdict(dict)
        for name, task in tasks.items():
            by_row[rows[task.limits][place]][name] = task
        for row, of_row in by_row.items():
            cost = len(row.tokens) * n_layer_passes(of_row.values())
            lines.append(Line(place, row, of_row, len(row.tokens), cost))
    return lines
