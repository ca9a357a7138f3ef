from __future__ import annotations

import io
import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from frostline.report.progress.display import LiveProgress, PlainProgress, Progress, Tally, make_progress


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def plain() -> tuple[PlainProgress, FakeClock, io.StringIO]:
    clock, file = FakeClock(), io.StringIO()
    return PlainProgress(Console(file=file, width=40), clock), clock, file


def live(clock: FakeClock) -> tuple[LiveProgress, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, force_interactive=True, color_system=None)
    return LiveProgress(console, clock), file


def pictured(progress: LiveProgress, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(progress.render())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_line_for_each_run_that_ends() -> None:
    progress, clock, file = plain()
    with progress:
        progress.start(18.0, [f"run {n}" for n in range(18)])
        for n in range(3):
            progress.run_started(f"freeze:3 seed {n}")
            clock.now += 8
            progress.epoch(f"freeze:3 seed {n}", 1, 3, 0.5, 0.7)
            progress.run_finished(f"freeze:3 seed {n}", 1.0, 12.2, 0.7684)
    assert file.getvalue().splitlines() == [
        "[ 1/18] freeze:3 seed 0: score 0.768 in 12 s, about 2 min left",
        "[ 2/18] freeze:3 seed 1: score 0.768 in 12 s, about 2 min left",
        "[ 3/18] freeze:3 seed 2: score 0.768 in 12 s, about 2 min left",
    ]


def test_the_last_run_has_nothing_left() -> None:
    progress, clock, file = plain()
    progress.start(1.0, ["full seed 0"])
    clock.now += 5
    progress.run_finished("full seed 0", 1.0, 5.0, None)
    assert file.getvalue() == "[1/1] full seed 0: score – in 5.0 s\n"


def test_crashes_and_notes_are_one_line_each() -> None:
    progress, clock, file = plain()
    progress.start(4.0, list("abcd"))
    progress.note("prefix of\n6 layers [bold]computed[/bold]")
    clock.now += 10
    progress.run_finished("a", 1.0, 10.0, 0.5)
    progress.run_crashed("b", "ValueError: bad\nthing \x1b[31m", units=1.0)
    assert file.getvalue().splitlines() == [
        "prefix of 6 layers [bold]computed[/bold]",
        "[1/4] a: score 0.500 in 10 s, about 30 s left",
        "[2/4] b: crashed: ValueError: bad thing  [31m, about 20 s left",
    ]


def test_a_long_run_gives_a_sign_of_life_each_minute() -> None:
    progress, clock, file = plain()
    progress.start(1.0, ["full seed 0"])
    for epoch in range(1, 5):
        clock.now += 40
        progress.epoch("full seed 0", epoch, 10, float("nan") if epoch == 4 else 0.4123, None if epoch == 4 else 0.75)
    assert file.getvalue().splitlines() == [
        "full seed 0: epoch 2 of 10, loss 0.412, score 0.750",
        "full seed 0: epoch 4 of 10, loss nan",
    ]


@given(
    units=st.lists(st.integers(1, 50), min_size=2, max_size=8),
    n_done=st.integers(1, 7),
    pace=st.floats(0.01, 1e4),
)
def test_time_left_at_a_steady_pace_is_the_rest_times_the_pace(units: list[int], n_done: int, pace: float) -> None:
    clock = FakeClock()
    tally = Tally(clock)
    tally.add(sum(units), len(units))
    n_done = min(n_done, len(units))
    for unit in units[:n_done]:
        clock.now += pace * unit
        tally.finish(unit)
    assert tally.seconds_left() == pytest.approx(pace * sum(units[n_done:]), rel=1e-6, abs=1e-6)


def test_time_left_counts_units_and_not_runs() -> None:
    clock = FakeClock()
    tally = Tally(clock)
    tally.add(100.0, 2)
    assert tally.seconds_left() is None
    assert tally.time_left() == ""
    clock.now += 10
    tally.finish(1.0)
    assert tally.seconds_left() == pytest.approx(990.0)
    assert tally.time_left() == "about 16 min left"


def test_a_second_start_adds() -> None:
    clock = FakeClock()
    tally = Tally(clock)
    tally.add(5.0, 5)
    clock.now += 10
    tally.finish(5.0)
    tally.add(10.0, 2)
    assert tally.n_runs == 7
    assert tally.seconds_left() == pytest.approx(20.0)


def test_a_crashed_run_is_no_longer_to_be_done() -> None:
    clock = FakeClock()
    tally = Tally(clock)
    tally.add(4.0, 4)
    clock.now += 10
    tally.finish(1.0)
    tally.crash(1.0)
    assert tally.seconds_left() == pytest.approx(20.0)
    assert (tally.n_ended, tally.n_crashed) == (2, 1)


def test_the_live_display_shows_what_runs() -> None:
    clock = FakeClock()
    progress, _ = live(clock)
    assert pictured(progress).strip() == ""
    progress.start(4.0, ["full seed 0", "freeze:3 [b]seed[/b] 1", "freeze:4 seed 0", "freeze:4 seed 1"])
    progress.run_started("full seed 0")
    progress.run_started("freeze:3 [b]seed[/b] 1")
    progress.epoch("freeze:3 [b]seed[/b] 1", 2, 3, 0.4123, 0.71)
    clock.now += 10
    progress.run_finished("full seed 0", 1.0, 9.96, 0.78)
    assert max(len(line) for line in pictured(progress, 60).splitlines()) <= 60, "its height does not change"
    lines = [line.rstrip() for line in pictured(progress, 100).splitlines()]
    assert re.fullmatch(r"[━╸╺ ]+  1/4 runs  about 30 s left", lines[0])
    assert [re.sub("  +", "  ", line) for line in lines[1:]] == [
        f"  full  1/1  0.780  {'·' * 19}●",
        "  freeze:3 [b]seed[/b]  0/1  –  epoch 2 of 3, loss 0.412, score 0.710",
        "  freeze:4  0/2  –  waiting",
        "  last: full seed 0, score 0.780 in 10 s",
    ]


def test_the_live_display_draws_the_means_so_far() -> None:
    progress, _ = live(FakeClock())
    progress.start(5.0, ["full seed 0", "full seed 1", "freeze:5 seed 0", "freeze:6 seed 0", "freeze:6 seed 1"])
    progress.found(2.0, {"full seed 0": 0.8, "full seed 1": 0.9})
    progress.run_finished("freeze:5 seed 0", 1.0, 1.0, 0.7)
    progress.run_finished("freeze:6 seed 0", 1.0, 1.0, 0.55)
    progress.run_started("line search 1e-05")
    lines = [line.rstrip() for line in pictured(progress).splitlines()][1:-1]
    assert [line.split()[:3] for line in lines] == [
        ["full", "2/2", "0.850"], ["freeze:5", "1/1", "0.700"], ["freeze:6", "1/2", "0.550"], ["line", "search", "–"],
    ]  # fmt: skip
    assert [line.count("·") for line in lines] == [19, 9, 0, 0]
    assert lines[2].endswith("waiting")
    assert lines[3].endswith("started")


def test_the_live_display_keeps_crashes_and_notes() -> None:
    clock = FakeClock()
    progress, file = live(clock)
    with progress:
        progress.start(2.0, ["a", "b"])
        progress.run_started("a")
        progress.run_crashed("a", "ValueError: bad")
        progress.note("so much")
    assert "[1/2] a: crashed: ValueError: bad" in file.getvalue()
    assert "so much" in file.getvalue()
    assert "1/2 runs, 1 crashed" in pictured(progress)


def test_a_terminal_gets_the_live_display_and_a_log_gets_lines() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, force_interactive=True)
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(make_progress(terminal), LiveProgress)
    assert isinstance(make_progress(dumb), PlainProgress)
    assert isinstance(make_progress(Console(file=io.StringIO())), PlainProgress)


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_threads_lose_no_run(kind: str) -> None:
    clock = FakeClock()
    file = io.StringIO()
    progress: Progress
    if kind == "plain":
        progress = PlainProgress(Console(file=file, width=200), clock)
    else:
        progress, file = live(clock)
    n_threads, n_each = 8, 25
    labels = [f"t{thread} r{run}" for thread in range(n_threads) for run in range(n_each)]

    def work(thread: int) -> None:
        for run in range(n_each):
            label = f"t{thread} r{run}"
            progress.run_started(label)
            progress.epoch(label, 1, 1, 0.1, 0.2)
            if run % 5:
                progress.run_finished(label, 1.0, 1.0, 0.5)
            else:
                progress.run_crashed(label, "no", 1.0)

    with progress:
        progress.start(float(len(labels)), labels)
        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
        assert not any(thread.is_alive() for thread in threads)
    if isinstance(progress, LiveProgress):
        assert "200/200 runs, 40 crashed" in pictured(progress)
    else:
        lines = file.getvalue().splitlines()
        assert [line[:9] for line in lines] == [f"[{n:>3}/200]" for n in range(1, 201)]
        assert {line[10:].partition(":")[0] for line in lines} == set(labels)
