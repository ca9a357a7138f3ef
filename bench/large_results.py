"""Memory and time of runs with very many predictions: 1,000,000 rows × 2 classes, 20,000 rows × 10,000 classes.

    python -m bench.large_results [--share 0.1] [--run]

Results are made up. A worker process makes each, sends it through a pipe as a worker of frostline does, and this
process receives, stores, reads and analyses it. Reported are seconds, seconds of this process's CPU time, and the peak
of its private memory above the level before. `--run` also trains a tiny model with 1,000,000 dev rows in a real run of
`frostline train`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from frostline.analysis import Replicates
from frostline.analysis.points import make_frame, replicated
from frostline.execution.transport import answer_from_message, outcome_message, receive, send
from frostline.records.arrays import StoredArray
from frostline.records.environment import current_environment
from frostline.records.plans import Plan
from frostline.records.results import Cost, EpochRecord, Predictions, RunResult
from frostline.records.specs import RunSpec, TaskSpec
from frostline.storage.runs import FolderIdentity, Store

IDENTITY = FolderIdentity(model="m", model_fingerprint="m", task="large", data_fingerprint="d")
TASK = TaskSpec(name="large", source=None, data=None, dev=None, kind="classification", metric="accuracy")


@dataclass(frozen=True)
class Case:
    """How many predictions, of how many runs."""

    n_rows: int
    n_classes: int
    n_depths: int
    n_seeds: int

    @property
    def specs(self) -> list[list[RunSpec]]:
        """One list per depth."""
        base = RunSpec(
            model="m", model_fingerprint="m", task=TASK, data_fingerprint="d", strategy="full", learning_rate=1e-5,
            epochs=1, seed=0, is_cached=False,
        )  # fmt: skip
        strategies = ["full", *(f"freeze:{depth}" for depth in range(1, self.n_depths))]
        return [[base.replace(strategy=one, seed=seed) for seed in range(self.n_seeds)] for one in strategies]


def cases(share: float) -> list[Case]:
    """The two large cases, or a share of their rows."""
    return [Case(int(1_000_000 * share), 2, 4, 3), Case(int(20_000 * share), 10_000, 2, 2)]


def measure(case: Case, folder: Path) -> Iterator[tuple[str, float, float, int]]:
    """What was done, seconds, seconds of CPU time, and bytes of private memory."""
    store = Store.open(folder, IDENTITY)
    groups = case.specs
    with _Step() as step:
        for result in _received(case):
            store.put(result)
    yield "receive and store", *step.taken
    with _Step() as step:
        found = {spec.key: store.get(spec.key) for specs in groups for spec in specs}
    yield "read and verify", *step.taken
    replicates = {
        specs[0].strategy: Replicates(specs=specs, results=[one for s in specs if (one := found[s.key]) is not None])
        for specs in groups
    }
    with _Step() as step:
        frame = make_frame("paper", replicates, replicates["full"])
        for group in replicates.values():
            replicated(None, group, frame)
    yield "analyse", *step.taken


class _Step:
    """Time and private memory of a block."""

    def __enter__(self) -> _Step:
        from frostline.training.memory import MemoryMeter  # the process that sends results starts without torch

        self._meter = MemoryMeter("cpu").__enter__()
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, busy = self._began
        self.taken = time.perf_counter() - wall, time.process_time() - busy, self._meter.peak_bytes or 0
        self._meter.__exit__(None, None, None)


def _received(case: Case) -> Iterator[RunResult]:
    """The results of a case, as another process sends them."""
    answers, theirs = os.pipe()
    command = [sys.executable, "-c", "from bench.large_results import work; work()", str(theirs)]
    sizes = [case.n_rows, case.n_classes, case.n_depths, case.n_seeds]
    with subprocess.Popen([*command, *map(str, sizes)], pass_fds=[theirs]), os.fdopen(answers, "rb") as stream:
        os.close(theirs)
        while (message := receive(stream)) is not None:
            outcome = answer_from_message(*message)
            assert isinstance(outcome, RunResult)
            yield outcome


def work() -> None:
    """What the other process does: it makes results and sends them."""
    answers, *sizes = map(int, sys.argv[1:])
    case, rng = Case(*sizes), np.random.default_rng(0)
    labels = rng.integers(case.n_classes, size=case.n_rows)
    with os.fdopen(answers, "wb") as stream:
        for spec in (spec for specs in case.specs for spec in specs):
            outputs = rng.random((case.n_rows, case.n_classes), dtype=np.float32)
            is_right = rng.random(case.n_rows) < 0.8
            outputs[np.flatnonzero(is_right), labels[is_right]] = 2.0
            send(stream, *outcome_message(_result(spec, labels, outputs)))


def _result(spec: RunSpec, labels: NDArray[np.int64], outputs: NDArray[np.float32]) -> RunResult:
    score = float(np.mean(outputs.argmax(axis=1) == labels))
    epoch = EpochRecord(
        epoch=1, train_loss=0.5, metrics={"accuracy": score}, learning_rate=0.0, n_steps=1, seconds=1.0
    )  # fmt: skip
    return RunResult(
        spec=spec,
        plan=Plan.one_phase(n_frozen=None, cached_layers=None, trained=("head",)),
        epochs=(epoch,),
        score=score,
        metrics=epoch.metrics,
        chance=0.5,
        train_score=score,
        predictions=Predictions(
            rows=StoredArray.of(np.arange(len(labels), dtype=np.int32)),
            labels=StoredArray.of(labels),
            outputs=StoredArray.of(outputs),
        ),
        label_names=tuple(str(number) for number in range(outputs.shape[1])),
        n_train=10,
        n_dev=len(labels),
        n_layers=4,
        cost=Cost(
            seconds=1.0, prefix_seconds=0.0, peak_bytes=1, cache_bytes=0, trained_parameters=1, total_parameters=1
        ),
        warnings=(),
        environment=current_environment("cpu"),
    )


def train(folder: Path, n_rows: int) -> float:
    """Seconds of a real run on a tiny model with very many short dev rows."""
    from frostline.testing.models import make_model

    model = make_model(folder / "model", n_layers=2)
    for name, n in (("train", 64), ("dev", n_rows)):
        lines = ("good,pos\n" if row % 2 else "bad,neg\n" for row in range(n))
        (folder / f"{name}.csv").write_text("text,label\n" + "".join(lines))
    command = [sys.executable, "-m", "frostline", "train", str(model), str(folder / "train.csv")]
    flags = ["--dev", str(folder / "dev.csv"), "--epochs", "1", "--learning-rate", "1e-4", "--workers", "1"]
    began = time.perf_counter()
    subprocess.run([*command, *flags, "--out", str(folder / "out")], check=True)
    return time.perf_counter() - began


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--run", action="store_true", help="train a tiny model too")
    asked = parser.parse_args()
    for case in cases(asked.share):
        with tempfile.TemporaryDirectory() as folder:
            print(f"{case.n_rows:,} rows x {case.n_classes:,} classes, {case.n_depths * case.n_seeds} runs")
            for what, seconds, busy, n_bytes in measure(case, Path(folder)):
                print(f"  {what:20}{seconds:8.1f} s{busy:8.1f} s CPU{n_bytes / 2**20:8.0f} MiB", flush=True)
    if asked.run:
        with tempfile.TemporaryDirectory() as folder:
            n_rows = int(1_000_000 * asked.share)
            print(f"train with {n_rows:,} dev rows: {train(Path(folder), n_rows):.0f} s")


if __name__ == "__main__":
    main()
