"""How fast are many tasks over one trunk, and how much memory do they need? Side by side, in one run.

    python -m bench.serving --data ../shared/glue --models ../shared/models --out runs/bench-serving

1, 4 and 16 tasks on each text of SST-2's dev set, in batches of 32, in three ways:
(a) the engine: a text goes up the trunk once, and each task leaves it at the cut;
(b) the same engine without sharing: every task computes all layers itself;
(c) one transformers pipeline per task in this process, batch 32, padded to the batch's longest text.
(a) and (b) run one call per core with one thread each, (c) uses all cores for each product, as it does by default.
Times are from texts to probabilities. Ways take turns, and medians are reported. Every answer of (a) and (b) is
compared with that of the task's merged model. Latency is of one text for all tasks, one call at a time. Memory is that
of a process of its own, above its level after imports.

Nothing else may run on the machine. Prints tables and writes every sample to `<out>/serving.json`. Exit code 1 where a
line is not reached.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import pipeline

from bench.processes import answer_of
from bench.serving_tasks import BenchTask, Setting, expected_outputs, load_engine, make_tasks, sentences
from bench.tables import table
from bench.workload import say
from frostline.model.load import quiet
from frostline.records.environment import current_environment, n_cores
from frostline.serving.engine import Engine
from frostline.serving.rows import Text
from frostline.serving.tail import Tail
from frostline.storage import atomic

BATCH = 32
TASKS = (1, 4, 16)
CLOSE = 1e-5
SHARED, UNSHARED, PIPELINES = "shared", "unshared", "pipelines"
LINES = {UNSHARED: 0.85, PIPELINES: 1.6}
"""How much of the bound the engine must reach against each other way."""
MEMORY_FACTOR, MEMORY_EXTRA, MEMORY_GROWTH = 1.15, 100e6, 0.05

Found = dict[str, Any]
Answers = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    repetitions: int
    """0: speed is not measured"""
    n_batches: int
    """batches of one repetition; the next repetition takes the next ones"""
    n_latencies: int
    n_requests: int
    """requests over which memory is watched; 0: it is not measured"""
    n_texts: int | None
    """None: all"""
    tasks: tuple[int, ...]


REAL = Sizes(repetitions=5, n_batches=8, n_latencies=300, n_requests=10_000, n_texts=None, tasks=TASKS)
TINY = Sizes(repetitions=1, n_batches=2, n_latencies=5, n_requests=50, n_texts=64, tasks=(1, 2))


def main() -> None:
    """Measures, prints tables."""
    arguments = _arguments()
    sizes = TINY if arguments.tiny else REAL
    if arguments.repetitions:
        sizes = replace(sizes, repetitions=arguments.repetitions)
    if arguments.no_memory:
        sizes = replace(sizes, n_requests=0)
    if arguments.no_speed:
        sizes = replace(sizes, repetitions=0)
    settings = [
        Setting("all-MiniLM-L6-v2", 6, 3),
        Setting("all-MiniLM-L6-v2", 6, 4),
        Setting(str(arguments.models / "bge-small-en-v1.5"), 12, 9),
    ]
    found: Found = {"settings": [], "environment": current_environment("cpu").to_json(), "is_tiny": arguments.tiny}
    for setting in settings if arguments.only is None else [settings[number] for number in arguments.only]:
        with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
            found["settings"].append(_measured(setting, sizes, arguments.data, Path(folder)))
        arguments.out.mkdir(parents=True, exist_ok=True)
        atomic.write(arguments.out / "serving.json", json.dumps(found, indent=2, allow_nan=False) + "\n")
    print(tables(found))
    sys.exit(not all(one["is_reached"] for one in found["settings"]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Many tasks over one trunk, side by side with other ways.")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--models", type=Path, default=Path("../shared/models"), help="folder with bge-small-en-v1.5")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-serving"))
    parser.add_argument("--scratch", help="folder for models while they are measured, about 2.5 GB")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--only", type=int, action="append", choices=[0, 1, 2], help="only this setting")
    parser.add_argument("--no-memory", action="store_true", help="speed alone; 10,000 requests take most of the time")
    parser.add_argument("--no-speed", action="store_true", help="memory alone; other programs may run meanwhile")
    parser.add_argument("--tiny", action="store_true", help="a few texts: does it work? Its figures mean nothing")
    return parser.parse_args()


def _memory(setting: Setting, sizes: Sizes, texts: Sequence[Text], folder: Path) -> list[Found]:
    say("memory")
    question = {
        "model": setting.model, "n_layers": setting.n_layers, "n_frozen": setting.n_frozen, "folder": str(folder),
        "texts": [text.first for text in texts[:400]], "n_requests": sizes.n_requests, "n_tasks": list(sizes.tasks),
    }  # fmt: skip
    found: list[Found] = answer_of("bench.serving_memory", question, cache=str(folder), threads=1)["memory"]
    return found


def _measured(setting: Setting, sizes: Sizes, data: str, folder: Path) -> Found:
    """Everything about one trunk."""
    say(f"{setting.text}: making {max(sizes.tasks)} tasks")
    made = make_tasks(setting, max(sizes.tasks), folder)
    texts = sentences(data, sizes.n_texts)
    memory = _memory(setting, sizes, texts, folder) if sizes.n_requests else []
    nothing: Found = {"by_tasks": [], "largest_difference": 0.0}
    speed = _speed(setting, made, texts, sizes) if sizes.repetitions else nothing
    is_reached = all(one["is_reached"] for one in [*speed["by_tasks"], *memory])
    return {"setting": setting.text, "n_texts": len(texts), **speed, "memory": memory, "is_reached": is_reached}


def _speed(setting: Setting, made: Sequence[BenchTask], texts: Sequence[Text], sizes: Sizes) -> Found:
    engine = load_engine(setting, made)
    say("what the merged models answer")
    torch.set_num_threads(n_cores())
    expected = {task.name: expected_outputs(task, engine.tails[task.name], texts) for task in made}
    bench = _Bench(engine, made, texts, expected, sizes)
    by_tasks = [bench.measured(n_tasks, setting.bound(n_tasks)) for n_tasks in sizes.tasks]
    return {"by_tasks": by_tasks, "largest_difference": bench.largest_difference}


class _Bench:
    """Times the ways in turn and compares every answer with the merged models'."""

    def __init__(
        self, engine: Engine, made: Sequence[BenchTask], texts: Sequence[Text], expected: Answers, sizes: Sizes
    ) -> None:
        self._engine, self._made, self._texts, self._expected, self._sizes = engine, made, texts, expected, sizes
        self._pool = ThreadPoolExecutor(n_cores(), initializer=torch.set_num_threads, initargs=(1,))
        self.largest_difference = 0.0

    def measured(self, n_tasks: int, bound: float) -> Found:
        """Texts per second of each way, their ratios, and latencies of one text."""
        names = [task.name for task in self._made[:n_tasks]]
        shared = {name: self._engine.tails[name] for name in names}
        alone = {name: replace(tail, depth=None) for name, tail in shared.items()}
        pipelines = self._pipelines(n_tasks)
        ways: dict[str, Callable[[Sequence[int]], None]] = {
            SHARED: lambda rows: self._by_engine(shared, rows),
            UNSHARED: lambda rows: self._by_engine(alone, rows),
            PIPELINES: lambda rows: self._by_pipelines(pipelines, rows),
        }
        rates = self._rates(ways, n_tasks)
        ratios = {
            way: statistics.median(a / b for a, b in zip(rates[SHARED], rates[way], strict=True)) for way in LINES
        }
        is_reached = all(ratio >= LINES[way] * bound for way, ratio in ratios.items())
        return {
            "n_tasks": n_tasks,
            "bound": bound,
            "texts_per_second": rates,
            "ratios": ratios,
            "is_reached": is_reached,
            "latency_ms": self._latencies(shared, alone, pipelines),
        }

    def _pipelines(self, n_tasks: int) -> dict[str, Any]:
        with quiet():
            return {
                task.name: pipeline("text-classification", model=str(task.merged), batch_size=BATCH, top_k=None)
                for task in self._made[:n_tasks]
            }

    def _rates(self, ways: Mapping[str, Callable[[Sequence[int]], None]], n_tasks: int) -> dict[str, list[float]]:
        """Texts per second, by way and repetition."""
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for way in ways.values():  # once to warm up
            way(range(min(BATCH, len(self._texts))))
        for repetition in range(self._sizes.repetitions):
            n_rows = self._sizes.n_batches * BATCH
            rows = [(repetition * n_rows + place) % len(self._texts) for place in range(n_rows)]
            for name, way in ways.items():
                began = time.perf_counter()
                way(rows)
                rates[name].append(len(rows) / (time.perf_counter() - began))
            shown = ", ".join(f"{name} {values[-1]:.1f}" for name, values in rates.items())
            say(f"{n_tasks} tasks, texts per second: {shown}")
        return rates

    def _by_engine(self, tails: Mapping[str, Tail], rows: Sequence[int]) -> None:
        """Answers of all tasks, one call per core at a time."""
        batches = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        for batch, answers in zip(batches, self._pool.map(lambda one: self._call(tails, one), batches), strict=True):
            for name, (outputs, _) in answers.items():
                away = np.abs(outputs - self._expected[name][list(batch)]).max()
                self.largest_difference = max(self.largest_difference, float(away))
                if away > CLOSE * max(1.0, float(np.abs(self._expected[name]).max())):
                    raise SystemExit(f"{name} answers differently from its merged model: off by {away:.2g}")

    def _call(self, tails: Mapping[str, Tail], rows: Sequence[int]) -> dict[str, tuple[Any, Any]]:
        """Outputs and probabilities of each task."""
        found = self._engine.outputs(self._engine.encode([self._texts[row] for row in rows], tails), tails)
        return {name: (outputs, _softmax(outputs)) for name, outputs in found.items()}

    def _by_pipelines(self, pipelines: Mapping[str, Any], rows: Sequence[int]) -> None:
        torch.set_num_threads(n_cores())
        given = [self._texts[row].first for row in rows]
        for name, one in pipelines.items():
            answers = one(given)
            # A sanity check of the comparison itself: it is the same model.
            first = {answer["label"]: answer["score"] for answer in answers[0]}
            wanted = _softmax(self._expected[name][rows[0]][None])[0]
            if abs(first["negative"] - wanted[0]) > 1e-3:
                raise SystemExit(f"the pipeline of {name} answers differently from its merged model")

    def _latencies(self, shared: Mapping[str, Tail], alone: Mapping[str, Tail], pipelines: Mapping[str, Any]) -> Found:
        """Median and 99th percentile of the time for one text and all tasks, in milliseconds."""
        n = self._sizes.n_latencies
        rows = np.random.default_rng(0).integers(len(self._texts), size=n).tolist()
        one_thread = self._pool.submit
        ways: dict[str, Callable[[int], object]] = {
            SHARED: lambda row: one_thread(self._call, shared, [row]).result(),
            UNSHARED: lambda row: one_thread(self._call, alone, [row]).result(),
            PIPELINES: lambda row: [one(self._texts[row].first) for one in pipelines.values()],
        }
        found: Found = {}
        for name, way in ways.items():
            times = []
            # Fewer of what takes long: it decides nothing.
            for row in rows if name == SHARED else rows[: max(5, n // 5)]:
                began = time.perf_counter()
                way(row)
                times.append(1000 * (time.perf_counter() - began))
            found[name] = {"p50": float(np.quantile(times, 0.5)), "p99": float(np.quantile(times, 0.99))}
        return found


def _softmax(outputs: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = np.exp(outputs - outputs.max(1, keepdims=True))
    return np.asarray(shifted / shifted.sum(1, keepdims=True))


def tables(found: Found) -> str:
    """What was found, as Markdown."""
    speed = [{"setting": one["setting"], **row} for one in found["settings"] for row in one["by_tasks"]]
    memory = [{"setting": one["setting"], **row} for one in found["settings"] for row in one["memory"]]
    by_speed = table(
        speed,
        {
            "trunk": lambda row: str(row["setting"]),
            "tasks": lambda row: str(row["n_tasks"]),
            "texts per second": lambda row: f"{statistics.median(row['texts_per_second'][SHARED]):.0f}",
            "bound": lambda row: f"{row['bound']:.2f}",
            "× unshared": lambda row: _ratio(row, UNSHARED),
            "× pipelines": lambda row: _ratio(row, PIPELINES),
            "p50, p99 of one text": lambda row: _latency(row, SHARED),
            "unshared": lambda row: _latency(row, UNSHARED),
            "pipelines": lambda row: _latency(row, PIPELINES),
            "reached": lambda row: "yes" if row["is_reached"] else "NO",
        },
    )
    by_memory = table(
        memory,
        {
            "trunk": lambda row: str(row["setting"]),
            "tasks": lambda row: str(row["n_tasks"]),
            "weights": lambda row: f"{row['weight_bytes'] / 1e6:.0f} MB",
            "above base": lambda row: f"{row['loaded_bytes'] / 1e6:.0f} MB",
            "allowed": lambda row: f"{row['allowed_bytes'] / 1e6:.0f} MB",
            "after requests": lambda row: f"{row['final_bytes'] / 1e6:.0f} MB",
            "growth": lambda row: f"{row['growth']:+.1%}",
            "reached": lambda row: "yes" if row["is_reached"] else "NO",
        },
    )
    away = max(one["largest_difference"] for one in found["settings"])
    return f"{by_speed}\n\n{by_memory}\n\nLargest difference from a merged model's output: {away:.1e}"


def _ratio(row: Found, way: str) -> str:
    ratio = row["ratios"][way]
    return f"{ratio:.2f} ({ratio / row['bound']:.2f} of the bound; {LINES[way]})"


def _latency(row: Found, way: str) -> str:
    return f"{row['latency_ms'][way]['p50']:.1f}, {row['latency_ms'][way]['p99']:.1f} ms"


if __name__ == "__main__":
    main()
