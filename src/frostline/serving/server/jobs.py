"""Requests that wait to be computed, and which rows of them are computed together.

A job is one request. Its lines are rows of tokens, each with the tasks that read it. Threads take lines in their order,
from any number of jobs, up to a number of tokens. So a large request is spread over threads, and small ones share a
batch, whatever their tasks.

**When to wait.** A batch takes a fixed time, however small it is, and then some time per token. `fixed_tokens` says how
many tokens take as long as the fixed part: a hundred in a small model, few in a large one. While a batch would have
fewer than twice as many, a thread waits for more rows, but never longer than `wait_seconds`. It waits only if more rows
were under way a moment ago than there are now: their clients will soon send the next. A lone row does not wait.

**How much at once.** At most `batch_tokens`, and at most what takes a fifth of the deadline, because a row is answered
when its batch is done. But a machine that is slow for a moment must not make batches so small that the fixed part makes
it slower still: four times that part is always allowed, and the speed of batches counts it as work. Threads that are
idle share what waits, unless their parts would be smaller than the fixed part: two small batches at once are then
slower than one.

**When to refuse.** In a queue that is longer than the deadline, every row would be computed just too late to be of use.
So a request is refused while the work before it would take longer than two fifths of the deadline, at the speed
measured last.

Knows no engine and no HTTP. Rows and tasks are whatever the caller puts in.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from frostline.serving.server.refusals import overloaded
from frostline.serving.server.settings import ServerSettings

Row = TypeVar("Row")
Task = TypeVar("Task")
Outputs = dict[str, list[NDArray[np.float32]]]
"""for each task, the outputs (classes,) of each text of a request"""

_LONGEST_WAIT = 0.4
"""share of the deadline that the work before a new request may take"""
_LONGEST_BATCH = 0.2
"""share of the deadline that a batch may take"""
_LEAST_BATCH = 4
"""times the fixed part that a batch may have, however long it takes: smaller ones would waste more than a fifth"""
_KEPT = 0.9
"""weight of earlier batches in the measured speed"""
_HALF_LIFE = 0.1
"""seconds after which a past number of rows under way counts half"""


@final
@dataclass(frozen=True, eq=False)
class Line(Generic[Row, Task]):
    """A row of tokens and the tasks that read it."""

    place: int
    """which text of the request it is"""
    row: Row
    tasks: Mapping[str, Task]
    n_tokens: int
    cost: float
    """tokens times layers"""


@final
class Job(Generic[Row, Task]):
    """A request on its way. `finished` is called once, from any thread, unless the job is dropped before."""

    def __init__(
        self,
        lines: Sequence[Line[Row, Task]],
        n_texts: int,
        deadline: float,
        finished: Callable[[Outputs | Exception], object],
    ) -> None:
        self.lines = lines
        self.deadline = deadline
        self.cost = sum(line.cost for line in lines)
        self._finished = finished
        self._n_left = len(lines)
        self._outputs: Outputs = {name: [_NONE] * n_texts for line in lines for name in line.tasks}
        self._lock = threading.Lock()
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for it any more: it is answered, or was dropped."""
        return self._is_over

    def drop(self) -> None:
        """Forgets the job: its lines are not computed, and nobody is called."""
        with self._lock:
            self._is_over = True

    def answer(self, line: Line[Row, Task], outputs: Mapping[str, NDArray[np.float32]]) -> None:
        """Takes the outputs (classes,) of a line for each of its tasks; the last line ends the job."""
        with self._lock:
            for name, values in outputs.items():
                self._outputs[name][line.place] = values
            self._n_left -= 1
            if self._n_left or self._is_over:
                return
            self._is_over = True
            self._finished(self._outputs)

    def fail(self, error: Exception) -> None:
        """Ends the job with an error."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                self._finished(error)


_NONE: NDArray[np.float32] = np.zeros(0, dtype=np.float32)
Waiting = tuple[Job[Row, Task], Line[Row, Task], float]
"""a line, its job, and when it came"""
Batch = list[tuple[Job[Row, Task], Line[Row, Task]]]


class Queue(Generic[Row, Task]):
    """Lines that wait, in their order. Safe from any thread."""

    def __init__(self, settings: ServerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._lines: deque[Waiting[Row, Task]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._n_idle = 0
        self._n_tokens, self._cost = 0, 0.0  # of the lines that wait
        self._n_computing, self._cost_computing = 0, 0.0
        self._done_cost, self._done_fixed, self._done_seconds = 0.0, 0.0, 0.0
        self._peak, self._peak_at = 0.0, clock()
        self.fixed_tokens = 0.0
        """how many tokens take as long to compute as what a batch of any size takes"""

    def __len__(self) -> int:
        return len(self._lines)

    def check_room(self) -> None:
        """Raises a Refusal (429) if a request would be refused now, however small it is."""
        with self._changed:
            self._check(n_lines=1)

    def put(self, job: Job[Row, Task]) -> None:
        """Adds the lines of a job; a Refusal (429) if too much is waiting."""
        with self._changed:
            self._check(len(job.lines))
            now = self._clock()
            for line in job.lines:
                self._lines.append((job, line, now))
                self._count(line, 1)
            self._note_peak(now)
            self._changed.notify()  # one thread: it wakes the next if it leaves something

    def take(self) -> Batch[Row, Task] | None:
        """The next lines to compute, as soon as there are some; None when the queue is closed and empty."""
        with self._changed:
            self._n_idle += 1
            idle_since = self._clock()
            try:
                while True:
                    seconds = self._seconds_to_wait(idle_since)
                    if seconds is not None and seconds <= 0:
                        return self._pop()
                    if self._is_closed and not self._lines:
                        return None
                    self._changed.wait(seconds)
            finally:
                self._n_idle -= 1

    def done(self, batch: Batch[Row, Task], seconds: float) -> None:
        """Notes that a batch was computed, and how long it took."""
        cost = sum(line.cost for _, line in batch)
        fixed = max(self._fixed_cost(line) for _, line in batch)
        with self._changed:
            self._note_peak(self._clock())
            self._n_computing -= len(batch)
            self._cost_computing -= cost
            self._note_speed(cost, fixed, seconds)

    def calibrate(self, fixed_tokens: float, cost: float, seconds: float) -> None:
        """Takes first measurements: tokens that take as long as the fixed part; the time of a batch of this cost."""
        with self._changed:
            self.fixed_tokens = fixed_tokens
            self._note_speed(cost, 0.0, seconds)

    def close(self, *, at_once: bool = False) -> None:
        """Lets threads end when nothing waits any more; `at_once` drops what waits."""
        with self._changed:
            self._is_closed = True
            if at_once:
                for job, _, _ in self._lines:
                    job.drop()
            self._changed.notify_all()

    def seconds_ahead(self) -> float:
        """How long the work that is there will take, at the speed measured last."""
        # What is being computed is half done, on average.
        return (self._cost + self._cost_computing / 2) / (self._settings.n_threads * self._speed)

    @property
    def _speed(self) -> float:
        """Cost that one thread computes in a second."""
        return self._done_cost / self._done_seconds if self._done_cost and self._done_seconds else math.inf

    @property
    def _batch_speed(self) -> float:
        """The same, if the fixed part of batches counts as work: it does not depend on their size."""
        return self._speed * (1 + self._done_fixed / self._done_cost) if self._done_cost else math.inf

    def _note_speed(self, cost: float, fixed: float, seconds: float) -> None:
        self._done_cost = _KEPT * self._done_cost + cost
        self._done_fixed = _KEPT * self._done_fixed + fixed
        self._done_seconds = _KEPT * self._done_seconds + seconds

    def _check(self, n_lines: int) -> None:
        if not self._lines:  # a request that is alone is never refused, however large it is
            return
        is_full = len(self._lines) + n_lines > self._settings.max_queued
        if is_full or self.seconds_ahead() > _LONGEST_WAIT * self._settings.deadline_seconds:
            self._remove_dead()
            is_full = len(self._lines) + n_lines > self._settings.max_queued
            ahead = self.seconds_ahead()
            if is_full or ahead > _LONGEST_WAIT * self._settings.deadline_seconds:
                raise overloaded(ahead)

    def _remove_dead(self) -> None:
        now = self._clock()
        dead = [line for job, line, _ in self._lines if job.is_over or job.deadline <= now]
        if dead:
            self._lines = deque(one for one in self._lines if not (one[0].is_over or one[0].deadline <= now))
            for line in dead:
                self._count(line, -1)

    def _seconds_to_wait(self, idle_since: float) -> float | None:
        """Until a batch should be made of what waits: 0 for now, None until something comes."""
        now = self._clock()
        while self._lines and (self._lines[0][0].is_over or self._lines[0][0].deadline <= now):
            self._count(self._lines.popleft()[1], -1)
        if not self._lines:
            return None
        self._note_peak(now)
        is_all = len(self._lines) >= int(self._peak) / self._settings.n_threads
        if self._is_closed or is_all or self._n_tokens >= min(2 * self.fixed_tokens, self._settings.batch_tokens):
            return 0.0
        return max(self._lines[0][2], idle_since) + self._settings.wait_seconds - now

    def _pop(self) -> Batch[Row, Task]:
        """The first lines, as many as fit: all threads that are idle share what waits, if that is enough."""
        part = self._n_tokens / max(1, self._n_idle)
        allowed = min(self._settings.batch_tokens, part if part >= self.fixed_tokens else self._n_tokens)
        most_cost = self._batch_speed * _LONGEST_BATCH * self._settings.deadline_seconds
        enough = _LEAST_BATCH * self.fixed_tokens
        now, n_tokens, cost, fixed = self._clock(), 0, 0.0, 0.0
        batch: Batch[Row, Task] = []
        while self._lines:
            job, line, _ = self._lines[0]
            is_dead = job.is_over or job.deadline <= now
            fixed = max(fixed, self._fixed_cost(line))
            is_slow = fixed + cost + line.cost > most_cost and n_tokens >= enough
            if batch and not is_dead and (n_tokens + line.n_tokens > allowed or is_slow):
                break
            self._lines.popleft()
            self._count(line, -1)
            if not is_dead:
                batch.append((job, line))
                n_tokens, cost = n_tokens + line.n_tokens, cost + line.cost
                self._n_computing += 1
                self._cost_computing += line.cost
        if self._lines:
            self._changed.notify()
        return batch

    def _fixed_cost(self, line: Line[Any, Any]) -> float:
        """What a batch with this line costs before its first token."""
        return self.fixed_tokens * line.cost / max(1, line.n_tokens)

    def _count(self, line: Line[Any, Any], sign: int) -> None:
        self._n_tokens += sign * line.n_tokens
        self._cost += sign * line.cost

    def _note_peak(self, now: float) -> None:
        """The number of rows under way, or of a moment ago if there were more."""
        faded = self._peak * 0.5 ** ((now - self._peak_at) / _HALF_LIFE)
        self._peak, self._peak_at = max(float(len(self._lines) + self._n_computing), faded), now
