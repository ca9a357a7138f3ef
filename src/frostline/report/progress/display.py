"""The progress of a sweep: a live display on a terminal, plain lines elsewhere.

Runs are known by their labels and their costs in units; the caller defines the unit. Safe to call from threads.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable
from rich.text import Text

from frostline.report import numbers
from frostline.report.progress.board import Board

Clock = Callable[[], float]
_HEARTBEAT_SECONDS = 60.0


@final
class Tally:
    """Counts finished runs and units, and estimates the time left."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_at: float | None = None
        self.n_runs = 0
        self.n_ended = 0
        self.n_crashed = 0
        self.total_units = 0.0
        self.done_units = 0.0

    def add(self, total_units: float, n_runs: int) -> None:
        """Count more runs as planned; the time starts with the first call."""
        self._started_at = self._clock() if self._started_at is None else self._started_at
        self.total_units += total_units
        self.n_runs += n_runs

    def finish(self, units: float) -> None:
        """Count a run as done."""
        self.n_ended += 1
        self.done_units += units

    def crash(self, units: float) -> None:
        """Count a run as ended; its cost is no longer planned."""
        self.n_ended += 1
        self.n_crashed += 1
        self.total_units -= units

    def drop(self, units: float, n_runs: int) -> None:
        """Count runs as no longer planned."""
        self.total_units -= units
        self.n_runs -= n_runs

    def seconds_left(self) -> float | None:
        """Time for the remaining units at the speed so far; None before the first run is done."""
        if self._started_at is None or self.done_units <= 0:
            return None
        elapsed = self._clock() - self._started_at
        return max(0.0, self.total_units - self.done_units) * elapsed / self.done_units

    def time_left(self) -> str:
        """`about 2 min left`, or empty if it is unknown or nothing is left."""
        left = self.seconds_left()
        return "" if not left or self.n_ended >= self.n_runs else f"about {numbers.rough_duration(left)} left"


class Progress(ABC):
    """Receives the progress of a sweep. Use it as a context manager."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._tally = Tally(clock)
        self._nodes: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def start(self, total_units: float, labels: Sequence[str]) -> None:
        """Runs are planned, with their total cost in units; a second call adds to the first."""
        with self._lock:
            self._tally.add(total_units, len(labels))

    def found(self, units: float, scores: Mapping[str, float]) -> None:
        """Planned runs are in the store already, with these scores by label; `units` is their cost."""
        with self._lock:
            self._tally.drop(units, len(scores))

    @abstractmethod
    def run_started(self, label: str) -> None:
        """A run is under way."""

    def run_placed(self, label: str, node: str) -> None:
        """A run under way is done on this node of a cluster."""
        with self._lock:
            self._nodes[label] = node

    @abstractmethod
    def epoch(self, label: str, epoch: int, epochs: int, loss: float | None, score: float | None) -> None:
        """A run finished an epoch, counted from 1."""

    @abstractmethod
    def run_stopped(self, label: str) -> None:
        """A run that was started is no longer needed."""

    @abstractmethod
    def run_finished(self, label: str, units: float, seconds: float, score: float | None) -> None:
        """A run is done."""

    @abstractmethod
    def run_crashed(self, label: str, error: str, units: float = 0.0) -> None:
        """A run raised an error; `units` is its planned cost."""

    @abstractmethod
    def note(self, said: str) -> None:
        """Something worth a line."""

    def _where(self, label: str) -> str:
        """` on node-1`, or nothing where there is only this machine."""
        return f" on {self._nodes[label]}" if label in self._nodes else ""


def make_progress(console: Console, clock: Clock = time.monotonic) -> Progress:
    """A live display where the console is a terminal that can redraw, plain lines otherwise."""
    return LiveProgress(console, clock) if console.is_interactive else PlainProgress(console, clock)


@final
class PlainProgress(Progress):
    """One line for each run that ends, and a line every minute during a long run."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        super().__init__(console, clock)
        self._clock = clock
        self._last_line_at = clock()

    def run_started(self, label: str) -> None:
        """Print nothing: the line comes when the run ends."""

    def epoch(self, label: str, epoch: int, epochs: int, loss: float | None, score: float | None) -> None:
        """A line if there was none for a minute."""
        with self._lock:
            if self._clock() - self._last_line_at >= _HEARTBEAT_SECONDS:
                self._print(f"{_name(label)}: {_epoch_words(epoch, epochs, loss, score)}{self._where(label)}")

    def run_stopped(self, label: str) -> None:
        """Print nothing: there was no line about its start either."""

    def run_finished(self, label: str, units: float, seconds: float, score: float | None) -> None:
        """A line with the score, the time it took and the time left."""
        with self._lock:
            self._tally.finish(units)
            self._print(_ended_line(self._tally, label, f"{_result_words(seconds, score)}{self._where(label)}"))

    def run_crashed(self, label: str, error: str, units: float = 0.0) -> None:
        """A line with the error."""
        with self._lock:
            self._tally.crash(units)
            self._print(_ended_line(self._tally, label, f"crashed: {numbers.one_line(error, 300)}"))

    def note(self, said: str) -> None:
        """A line."""
        with self._lock:
            self._print(numbers.one_line(said, 1000))

    def _print(self, line: str) -> None:
        self._last_line_at = self._clock()
        # A log has no width: a line is a line.
        self._console.print(Text(line), soft_wrap=True, highlight=False)


@final
class LiveProgress(Progress):
    """A bar with the time left, and a board of finished, running and waiting runs; removed when the sweep ends."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        super().__init__(console, clock)
        self._running: dict[str, str] = {}
        self._board = Board()
        self._last = ""
        # Standard output belongs to the caller (`--json`), so it is not redirected.
        self._live = Live(
            console=console, get_renderable=self.render, transient=True, refresh_per_second=4, redirect_stdout=False
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def start(self, total_units: float, labels: Sequence[str]) -> None:
        """Shows the runs as waiting."""
        super().start(total_units, labels)
        with self._lock:
            self._board.add(labels)

    def found(self, units: float, scores: Mapping[str, float]) -> None:
        """Shows the runs as done."""
        super().found(units, scores)
        with self._lock:
            for label, score in scores.items():
                self._board.finish(label, score)

    def run_started(self, label: str) -> None:
        """Shows the run among those under way."""
        with self._lock:
            self._running[label] = "started"

    def epoch(self, label: str, epoch: int, epochs: int, loss: float | None, score: float | None) -> None:
        """Shows the run's last epoch."""
        with self._lock:
            self._running[label] = f"{_epoch_words(epoch, epochs, loss, score)}{self._where(label)}"

    def run_stopped(self, label: str) -> None:
        """Takes the run away."""
        with self._lock:
            self._running.pop(label, None)

    def run_finished(self, label: str, units: float, seconds: float, score: float | None) -> None:
        """Moves the bar and counts the run on the board."""
        with self._lock:
            self._tally.finish(units)
            self._running.pop(label, None)
            self._board.finish(label, score)
            self._last = f"  last: {_name(label)}, {_result_words(seconds, score)}{self._where(label)}"

    def run_crashed(self, label: str, error: str, units: float = 0.0) -> None:
        """A line with the error, which stays."""
        with self._lock:
            self._tally.crash(units)
            self._running.pop(label, None)
            self._board.crash(label)
            line = _ended_line(self._tally, label, f"crashed: {numbers.one_line(error, 300)}")
        self.note(line)

    def note(self, said: str) -> None:
        """A line above the bar, which stays."""
        # Not under our lock: printing redraws the bar, and that takes it.
        self._console.print(Text(numbers.one_line(said, 1000)), highlight=False)

    def render(self) -> RenderableType:
        """The display at this moment."""
        with self._lock:
            tally, board = self._tally, self._board.render(self._running)
            n_runs, n_ended, n_crashed = tally.n_runs, tally.n_ended, tally.n_crashed
            total, done, left = tally.total_units, tally.done_units, tally.time_left()
        if not n_runs:
            return board
        crashed = f", {n_crashed} crashed" if n_crashed else ""
        head = RichTable.grid(padding=(0, 2, 0, 0))
        bar = ProgressBar(total=max(total, 1e-9), completed=min(done, total), width=30)
        head.add_row(bar, Text(f"{n_ended}/{n_runs} runs{crashed}"), Text(left, style="dim"))
        # Cut where the terminal ends: the display must not change its height.
        last = Text(self._last, style="dim", no_wrap=True, overflow="ellipsis")
        return Group(head, board, *([last] if self._last else []))


def _name(label: str) -> str:
    return numbers.one_line(label, 60)


def _ended_line(tally: Tally, label: str, said: str) -> str:
    total = str(tally.n_runs)
    left = tally.time_left()
    place = f"[{tally.n_ended:>{len(total)}}/{total}]"
    return f"{place} {_name(label)}: {said}{f', {left}' if left else ''}"


def _result_words(seconds: float, score: float | None) -> str:
    return f"score {numbers.score(score)} in {numbers.duration(seconds)}"


def _epoch_words(epoch: int, epochs: int, loss: float | None, score: float | None) -> str:
    words = f"epoch {epoch} of {epochs}"
    if loss is not None:
        words += f", loss {numbers.loss(loss)}"
    return words if score is None else f"{words}, score {numbers.score(score)}"
