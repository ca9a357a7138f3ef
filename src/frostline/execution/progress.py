"""Events → the progress display, which knows runs by label and what they cost in units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from frostline.execution.events import Listener
from frostline.records.results import Crash, EpochRecord, PausedRun, RunResult
from frostline.records.specs import RunSpec
from frostline.report import numbers
from frostline.report.progress.display import Progress


def label(spec: RunSpec) -> str:
    """The name of a run in progress lines: `freeze:3 seed 2`."""
    if spec.role == "line_search":
        return f"line search {spec.learning_rate:g}"
    if spec.role == "tuning":
        epochs = "1 epoch" if spec.epochs == 1 else f"{spec.epochs} epochs"
        return f"{_strategy(spec)} race {spec.learning_rate:g}, seed {spec.seed}, {epochs}"
    return f"{_strategy(spec)} seed {spec.seed}{_measures(spec)}"


def _measures(spec: RunSpec) -> str:
    """What is measured, by which runs of one model may differ: `, importance`."""
    text = " ".join(spec.measures)
    return f", {text if len(text) <= 24 else f'{text[:23]}…'}" if text else ""


def _strategy(spec: RunSpec) -> str:
    """The name of its strategy, which may list dozens of attention heads, cut to fit a line."""
    return numbers.one_line(spec.strategy, 40)


@final
@dataclass(frozen=True)
class ProgressListener(Listener):
    """Shows events on a progress display."""

    progress: Progress
    units: Callable[[RunSpec], float]
    """the cost of a run, in any unit; the time left is estimated from it"""

    def planned(self, specs: Sequence[RunSpec]) -> None:
        """Adds the runs to those ahead."""
        self.progress.start(sum(self.units(spec) for spec in specs), [label(spec) for spec in specs])

    def found(self, result: RunResult) -> None:
        """Takes the run from those ahead."""
        self.progress.found(self.units(result.spec), {label(result.spec): result.score})

    def started(self, spec: RunSpec) -> None:
        """Shows the run as under way."""
        self.progress.run_started(label(spec))

    def placed(self, spec: RunSpec, node: str) -> None:
        """Shows where the run is done."""
        self.progress.run_placed(label(spec), node)

    def epoch(self, spec: RunSpec, record: EpochRecord) -> None:
        """Shows the epoch."""
        score = record.metrics[spec.task.metric or ""]
        self.progress.epoch(label(spec), record.epoch, spec.epochs, record.train_loss, score)

    def paused(self, paused_run: PausedRun) -> None:
        """Takes the run from those under way."""
        self.progress.run_stopped(label(paused_run.spec))

    def stopped(self, spec: RunSpec) -> None:
        """Takes the run from those under way."""
        self.progress.run_stopped(label(spec))

    def finished(self, result: RunResult) -> None:
        """Shows the score."""
        spec = result.spec
        self.progress.run_finished(label(spec), self.units(spec), result.cost.seconds, result.score)
        if result.diverged:
            self.progress.note(f"{label(spec)}: training diverged, so the run counts as failed; try a lower --lr")

    def crashed(self, crash: Crash, path: Path) -> None:
        """Shows the error and the file with the traceback."""
        self.progress.run_crashed(label(crash.spec), f"{crash.error} (see {path})", self.units(crash.spec))

    def message(self, text: str) -> None:
        """Shows a line."""
        self.progress.note(text)
