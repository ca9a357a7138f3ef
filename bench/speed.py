"""How fast is a whole curve, against `transformers.Trainer` and a bare torch loop? Side by side, in one run.

    python -m bench.speed --data ../shared/glue --out runs/bench-speed [--small]

Three ways to train the same runs (SST-2, all-MiniLM-L6-v2, 5 rates + 5 seeds × (full + 4 depths)):
(a) Trainer as an informed user writes it: dynamic padding, all cores, dev scored once at the end of a run;
(b) Trainer as run_glue.py sets it: every row padded to 128 tokens, dev scored once an epoch;
(c) `frostline curve`, the whole command with imports, cold cache.
Trainer's whole time is extrapolated from timed steps of each kind of run, interleaved, medians; the bare loop stands
beside (a) so that nobody doubts it. Nothing else may run on the machine. Prints one JSON object, ratios first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, TrainerCallback

from bench.trainer import BATCH, MODEL, make_trainer, tokenised
from frostline import tasks
from frostline.api import make_request
from frostline.resolve import open_curve
from frostline.run import Runner
from frostline.stack import Stack
from frostline.stack.load import load_model, load_tokenizer
from frostline.strategies import Freeze, Full
from frostline.sweep import spec_at

DEPTHS = (3, 4, 5, 6)
KINDS: tuple[int | None, ...] = (None, *DEPTHS)
N_CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Workload:
    """What is trained."""

    n_train: int
    epochs: int
    rates: tuple[float, ...]
    n_seeds: int

    @property
    def n_steps(self) -> int:
        """Steps of one run."""
        return self.epochs * math.ceil(self.n_train / BATCH)

    def n_runs(self, depth: int | None) -> int:
        """Runs of one kind; the line search is of the full model."""
        return self.n_seeds + (len(self.rates) if depth is None else 0)


WHOLE = Workload(4000, 3, (1e-5, 2e-5, 3e-5, 4e-5, 5e-5), 5)
SMALL = Workload(1600, 1, (3e-5, 5e-5), 2)


def main() -> None:
    """Times all three and prints how they compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-speed"))
    parser.add_argument("--small", action="store_true", help="1,600 rows, 1 epoch, 2 rates, 2 seeds")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="timed steps of each kind of run and repetition")
    parser.add_argument("--pace", default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    work = SMALL if arguments.small else WHOLE
    if arguments.pace is not None:
        print(json.dumps(_pace(arguments.data, work, arguments.pace, arguments.steps)))
        return
    others = _others(arguments.data, work, arguments.steps, arguments.repetitions)
    ours = _whole_command(arguments.data, work, arguments.out)
    paces = {_name(depth): _effective_step(arguments.data, arguments.small, depth, arguments.steps) for depth in KINDS}
    print(json.dumps(_compared(work, others, ours, paces), indent=2))


def _name(depth: int | None) -> str:
    return "full" if depth is None else f"freeze:{depth}"


def _compared(work: Workload, others: dict[str, Any], ours: dict[str, Any], paces: dict[str, float]) -> dict[str, Any]:
    whole = {
        way: sum(
            work.n_runs(d) * (work.n_steps * steps[_name(d)] + _n_scored(way, work) * others["dev"][way]) for d in KINDS
        )
        for way, steps in others["step"].items()
    }
    informed = others["step"]["trainer"]
    return {
        "ratios": {
            "trainer / frostline": whole["trainer"] / ours["seconds"],
            "trainer padded to 128 / frostline": whole["padded"] / ours["seconds"],
            "bare loop / frostline": whole["bare"] / ours["seconds"],
            "effective step": {name: informed[name] / pace for name, pace in paces.items()},
        },
        "seconds": {**whole, "frostline": ours["seconds"]},
        "step_seconds": {**others["step"], "frostline (effective)": paces},
        "dev_seconds": others["dev"],
        "matrix_multiply_gflops": _matrix_multiply_rate(),
        "frostline": ours,
    }


def _n_scored(way: str, work: Workload) -> int:
    return work.epochs if way == "padded" else 1


def _others(data: str, work: Workload, n_steps: int, repetitions: int) -> dict[str, Any]:
    """Seconds of a step of each kind of run, and of scoring dev, in the other ways: medians, interleaved."""
    torch.set_num_threads(N_CORES)
    rows = tasks.load(tasks.parse("sst2", data=data, max_train=work.n_train))
    steps: dict[str, dict[str, list[float]]] = {
        way: {_name(d): [] for d in KINDS} for way in ("trainer", "bare", "padded")
    }
    dev: dict[str, list[float]] = {way: [] for way in steps}
    for _ in range(repetitions):
        for depth in KINDS:
            for way in steps:
                few = max(8, n_steps // 4) if way == "padded" else n_steps
                step, scoring = _timed(way, rows, depth, few)
                steps[way][_name(depth)].append(step)
                dev[way].append(scoring)
                print(f"{way} {_name(depth)}: {1000 * step:.0f} ms a step, dev {scoring:.1f} s", file=sys.stderr)
    return {
        "step": {way: {k: statistics.median(v) for k, v in kinds.items()} for way, kinds in steps.items()},
        "dev": {way: statistics.median(values) for way, values in dev.items()},
    }


def _timed(way: str, rows: tasks.TaskData, depth: int | None, n_steps: int) -> tuple[float, float]:
    tokenizer = load_tokenizer(MODEL)
    model = load_model(MODEL, head_seed=0, label_names=rows.label_names, pad_token_id=tokenizer.pad_token_id)
    stack = Stack(model)
    stack.apply(stack.all_parameters if depth is None else stack.parameters_above(depth))
    padding: dict[str, Any] = {"padding": "max_length"} if way == "padded" else {}
    train, dev = (tokenised(part, tokenizer, **padding) for part in (rows.train, rows.dev))
    timed = _bare_steps if way == "bare" else _trainer_steps
    return timed(model, train, dev, tokenizer, n_steps)


class _Clock(TrainerCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: object, **__: object) -> None:
        self.ends.append(time.perf_counter())


def _trainer_steps(model: Any, train: list[Any], dev: list[Any], tokenizer: Any, n_steps: int) -> tuple[float, float]:
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):  # where it sums itself up
        trainer = make_trainer(model, train, tokenizer, folder, max_steps=n_steps + 2, learning_rate=3e-5)
        trainer.add_callback(clock)
        trainer.train()
        scoring = _seconds(lambda: trainer.predict(dev))
    return (clock.ends[-1] - clock.ends[1]) / (len(clock.ends) - 2), scoring


def _bare_steps(model: Any, train: list[Any], dev: list[Any], tokenizer: Any, n_steps: int) -> tuple[float, float]:
    """What a plain torch loop does, nothing else: the same batches, AdamW, clipping."""
    torch.manual_seed(0)
    collate = DataCollatorWithPadding(tokenizer)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-5, weight_decay=0.0)
    model.train()
    batches = _endless(_loader(train, BATCH, collate, shuffle=True))
    ends = []
    for _ in range(n_steps + 2):
        model(**next(batches)).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ends.append(time.perf_counter())
    model.eval()
    loader = _loader(dev, 64, collate, shuffle=False)

    def score() -> None:
        with torch.no_grad():
            for batch in loader:
                model(**batch)

    return (ends[-1] - ends[1]) / (len(ends) - 2), _seconds(score)


def _loader(rows: Any, size: int, collate: Any, *, shuffle: bool) -> DataLoader[Any]:
    return DataLoader(rows, batch_size=size, shuffle=shuffle, collate_fn=collate)


def _endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _settings(data: str, work: Workload) -> dict[str, Any]:
    return {
        "data": data, "max_train": work.n_train, "epochs": work.epochs, "lrs": work.rates, "seeds": work.n_seeds,
        "frozen": DEPTHS,
    }  # fmt: skip


def _whole_command(data: str, work: Workload, out: Path) -> dict[str, Any]:
    """The real command from nothing: seconds, score, bytes."""
    shutil.rmtree(out, ignore_errors=True)
    command = [
        sys.executable, "-m", "frostline", "curve", MODEL, "sst2", "--data", data, "--out", str(out), "--json",
        "--max-train", str(work.n_train), "--epochs", str(work.epochs), "--seeds", str(work.n_seeds),
        "--lrs", ",".join(map(str, work.rates)), "--frozen", ",".join(map(str, DEPTHS)),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as cache:
        began = time.perf_counter()
        done = subprocess.run(
            command, stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, "FROSTLINE_CACHE": cache}
        )
        seconds = time.perf_counter() - began
    curve = json.loads(done.stdout)
    points = {"full": curve["full"]} | {_name(point["n_frozen"]): point for point in curve["points"]}
    return {
        "seconds": seconds,
        "cost": curve["cost"],
        "points": {
            name: {key: point[key] for key in ("mean", "ci", "seconds", "peak_bytes")} for name, point in points.items()
        },
    }


def _effective_step(data: str, small: bool, depth: int | None, n_steps: int) -> float:
    """Seconds a step of all workers together: as many processes as cores, one thread each, at the same time."""
    command = [
        sys.executable, "-m", "bench.speed", "--data", data, "--pace", _name(depth), "--steps", str(n_steps),
        *(["--small"] if small else []),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "FROSTLINE_CACHE": cache}
        started = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(N_CORES)
        ]
        answers = [process.communicate()[0] for process in started]
    return 1 / sum(1 / float(json.loads(answer)) for answer in answers)


def _pace(data: str, work: Workload, strategy: str, n_steps: int) -> float:
    """Seconds of one step of ours in this process, one thread, prefix kept."""
    with tempfile.TemporaryDirectory() as out:
        request, options = make_request(MODEL, "sst2", _settings(data, work) | {"out": out})
        opened = open_curve(request, options.out, max_cache_bytes=options.max_cache_bytes)
        depth = strategy.removeprefix("freeze:")
        kind = Full() if strategy == "full" else Freeze(int(depth))
        return Runner().pace(spec_at(opened.resolved, kind, 3e-5), n_steps).step_seconds


def _matrix_multiply_rate() -> float:
    """Billions of operations a second of one thread, at the shape of a packed batch's feed-forward product."""
    torch.set_num_threads(1)
    one, other = torch.randn(448, 384), torch.randn(384, 1536)
    times = []
    for _ in range(50):
        times.append(_seconds(lambda: one @ other))
    return 2 * 448 * 384 * 1536 / statistics.median(times) / 1e9


if __name__ == "__main__":
    main()
