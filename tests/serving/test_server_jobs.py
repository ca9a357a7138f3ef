"""The queue of a server: which rows are computed together, when a thread waits, and when a request is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from frostline.serving.server.jobs import Job, Line, Outputs, Queue
from frostline.serving.server.refusals import Refusal
from frostline.serving.server.settings import ServerSettings


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_on(self) -> None:
        """Moves it far enough that no thread waits for more rows."""
        self.now += 1.0


ToyJob = Job[str, int]
ONE = np.ones(1, dtype=np.float32)
Ended = list[Outputs | Exception]


def make_job(
    *n_tokens: int, deadline: float = 1e9, ended: Ended | None = None, tasks: Sequence[str] = ("a",)
) -> ToyJob:
    """A request with a row of so many tokens for each number."""
    lines = [Line(place, f"row {place}", dict.fromkeys(tasks, 0), n, float(n)) for place, n in enumerate(n_tokens)]
    return Job(lines, len(lines), deadline, (ended if ended is not None else []).append)


def make_queue(clock: Clock, **settings: float) -> Queue[str, int]:
    given = {"n_threads": 1, "batch_tokens": 100, "wait_seconds": 0.01, "max_queued": 50, **settings}
    return Queue(ServerSettings(**given), clock)  # type: ignore[arg-type]


def rows_of(queue: Queue[str, int], clock: Clock) -> list[int]:
    """Tokens of the rows of the next batch."""
    clock.pass_on()
    batch = queue.take()
    assert batch is not None
    return [line.n_tokens for _, line in batch]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_rows_of_several_requests_are_computed_together_up_to_the_budget(clock: Clock) -> None:
    queue = make_queue(clock)
    for job in (make_job(40), make_job(30, 25), make_job(10)):
        queue.put(job)
    assert rows_of(queue, clock) == [40, 30, 25]
    assert rows_of(queue, clock) == [10]


def test_a_row_longer_than_the_budget_goes_alone(clock: Clock) -> None:
    queue = make_queue(clock)
    queue.put(make_job(500, 3))
    assert rows_of(queue, clock) == [500]
    assert rows_of(queue, clock) == [3]


def test_idle_threads_share_what_waits(clock: Clock) -> None:
    queue = make_queue(clock, n_threads=2, batch_tokens=1000)
    taken: list[int] = []
    threads = [threading.Thread(target=lambda: taken.append(len(rows_of(queue, clock)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    while queue._n_idle < 2:
        time.sleep(0.001)
    queue.put(make_job(*[10] * 8))
    for thread in threads:
        thread.join(10)
    assert taken == [4, 4]


def test_a_lone_row_does_not_wait(clock: Clock) -> None:
    queue = make_queue(clock)
    queue.put(make_job(5))
    with queue._changed:
        assert queue._seconds_to_wait(clock.now) == 0.0


def test_after_many_rows_a_thread_waits_for_more_but_not_for_long(clock: Clock) -> None:
    queue = make_queue(clock)
    queue.fixed_tokens = 10.0
    queue.put(make_job(*[5] * 8))
    batch = queue.take()
    assert batch is not None
    queue.done(batch, 0.02)
    queue.put(make_job(5))
    with queue._changed:
        seconds = queue._seconds_to_wait(clock.now)
        assert seconds == pytest.approx(0.01), "eight rows were under way a moment ago: more will come"
        clock.now += 0.004
        assert queue._seconds_to_wait(clock.now - 0.004) == pytest.approx(0.006)
        clock.now += 0.007
        assert (queue._seconds_to_wait(clock.now - 0.011) or 0.0) <= 0.0
        assert queue._seconds_to_wait(clock.now) == pytest.approx(0.01), "a thread that was busy until now"
        clock.now += 5
        assert queue._seconds_to_wait(clock.now) == 0.0, "the eight rows are long gone"


def test_a_batch_that_is_large_enough_does_not_wait(clock: Clock) -> None:
    queue = make_queue(clock)
    queue.fixed_tokens = 10.0
    queue.put(make_job(*[5] * 8))
    batch = queue.take()
    assert batch is not None
    queue.done(batch, 0.02)
    queue.put(make_job(10, 9))
    with queue._changed:
        assert queue._seconds_to_wait(clock.now) == pytest.approx(0.01)
    queue.put(make_job(1))
    with queue._changed:
        assert queue._seconds_to_wait(clock.now) == 0.0, "twice the tokens of the fixed part"


def test_parts_that_would_be_too_small_are_not_shared(clock: Clock) -> None:
    queue = make_queue(clock, n_threads=2, batch_tokens=1000)
    queue.fixed_tokens = 50.0
    queue._n_idle = 1  # beside the one that takes
    queue.put(make_job(*[10] * 8))
    assert rows_of(queue, clock) == [10] * 8
    queue.put(make_job(*[10] * 12))
    assert rows_of(queue, clock) == [10] * 6


def test_a_batch_takes_at_most_a_fifth_of_the_deadline(clock: Clock) -> None:
    queue = make_queue(clock, deadline_seconds=2.0)
    queue.calibrate(0.0, cost=100.0, seconds=1.0)  # 100 tokens a second, so 40 in a batch
    queue.put(make_job(*[8] * 10))
    assert rows_of(queue, clock) == [8] * 5
    queue.calibrate(0.0, cost=1e6, seconds=1.0)
    assert rows_of(queue, clock) == [8] * 5


def test_a_full_queue_refuses_and_says_when_to_come_back(clock: Clock) -> None:
    queue = make_queue(clock, max_queued=10)
    queue.put(make_job(*[1] * 9))
    queue.put(make_job(1))
    with pytest.raises(Refusal) as refused:
        queue.put(make_job(1))
    assert refused.value.status == 429
    assert refused.value.headers == {"Retry-After": "1"}


def test_a_request_that_is_alone_is_never_refused(clock: Clock) -> None:
    queue = make_queue(clock, max_queued=10)
    queue.put(make_job(*[1] * 20))
    assert len(queue) == 20


def test_more_work_than_two_fifths_of_the_deadline_refuses(clock: Clock) -> None:
    queue = make_queue(clock, deadline_seconds=10.0)
    queue.put(make_job(100))
    batch = queue.take()
    assert batch is not None
    queue.done(batch, 1.0)  # 100 tokens a second
    queue.put(make_job(90))
    queue.put(make_job(90, 90, 90))
    queue.put(make_job(80))
    assert queue.seconds_ahead() == pytest.approx(4.4)
    with pytest.raises(Refusal) as refused:
        queue.put(make_job(1))
    assert refused.value.headers == {"Retry-After": "5"}
    with pytest.raises(Refusal):
        queue.check_room()
    assert rows_of(queue, clock) == [90]
    assert queue.seconds_ahead() == pytest.approx(3.95), "what is being computed is half done"
    queue.put(make_job(1))


def test_dropped_and_late_requests_are_not_computed_and_make_room(clock: Clock) -> None:
    queue = make_queue(clock, max_queued=4)
    dropped, late, good = make_job(7), make_job(8, 8, deadline=105.0), make_job(9)
    for job in (dropped, late, good):
        queue.put(job)
    dropped.drop()
    clock.now = 105.0
    queue.put(make_job(3, 3, 3))
    assert rows_of(queue, clock) == [9, 3, 3, 3]
    assert len(queue) == 0
    assert queue._n_tokens == 0


def test_undisturbed_requests_would_have_been_computed(clock: Clock) -> None:
    queue = make_queue(clock, max_queued=4)
    for job in (make_job(7), make_job(8, 8, deadline=105.0), make_job(9)):
        queue.put(job)
    assert rows_of(queue, clock) == [7, 8, 8, 9]


def test_a_job_ends_once_with_all_outputs() -> None:
    ended: Ended = []
    job = make_job(1, 1, ended=ended, tasks=("a", "b"))
    for line in reversed(job.lines):
        assert ended == []
        job.answer(line, {"a": line.place * ONE, "b": -line.place * ONE})
    (outputs,) = ended
    assert isinstance(outputs, dict)
    found = {name: [float(values[0]) for values in of_task] for name, of_task in outputs.items()}
    assert found == {"a": [0.0, 1.0], "b": [0.0, -1.0]}
    job.fail(ValueError())
    assert len(ended) == 1


def test_a_failed_job_ends_once_and_a_dropped_one_never() -> None:
    ended: Ended = []
    job = make_job(1, 1, ended=ended)
    job.fail(ValueError("oh"))
    for line in job.lines:
        job.answer(line, {"a": ONE})
    assert [str(one) for one in ended] == ["oh"]
    dropped = make_job(1, ended=ended)
    dropped.drop()
    dropped.answer(dropped.lines[0], {"a": ONE})
    assert len(ended) == 1
    assert dropped.is_over


def test_a_closed_queue_gives_what_it_has_and_then_nothing(clock: Clock) -> None:
    queue = make_queue(clock)
    queue.put(make_job(1))
    queue.close()
    assert rows_of(queue, clock) == [1]
    assert queue.take() is None


def test_a_queue_closed_at_once_drops_what_waits(clock: Clock) -> None:
    queue = make_queue(clock)
    job = make_job(1)
    queue.put(job)
    queue.close(at_once=True)
    assert job.is_over
    assert queue.take() is None


def test_batches_stay_large_enough_on_a_machine_that_is_slow(clock: Clock) -> None:
    """If slow batches made smaller ones, the fixed part of each would make the next slower still."""
    queue = make_queue(clock, batch_tokens=1000, deadline_seconds=1.0)
    queue.calibrate(10.0, 100.0, 0.01)
    sizes = []
    for _ in range(30):
        queue.put(make_job(*[5] * 40))
        clock.pass_on()
        batch = queue.take()
        assert batch is not None
        sizes.append(sum(line.n_tokens for _, line in batch))
        queue.done(batch, 5.0)
        queue._lines.clear()
    assert sizes[0] == 200
    assert sizes[-1] == 40, "four times the fixed part"


@pytest.mark.parametrize("n_rows", [1, 8])
def test_the_speed_of_batches_does_not_depend_on_their_size(clock: Clock, n_rows: int) -> None:
    queue = make_queue(clock)
    queue.fixed_tokens = 10.0
    for _ in range(20):
        queue.put(make_job(*[5] * n_rows))
        clock.pass_on()
        batch = queue.take()
        assert batch is not None
        queue.done(batch, 0.001 * (10 + 5 * n_rows))
    assert queue._batch_speed == pytest.approx(1000.0)
    assert queue._speed == pytest.approx(1000 * 5 * n_rows / (10 + 5 * n_rows)), "what tells how long a request waits"
