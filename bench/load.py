"""What does a server do under load? Closed loops, an open loop above capacity, and the same while bundles are reloaded.

    python -m bench.load --data ../shared/glue --out runs/bench-load

A server in a process of its own answers 4 tasks (all-MiniLM-L6-v2, 4 of 6 layers frozen) on each text of SST-2's dev
set. 1, 8 and 64 clients send a text when the last one was answered; then requests come at 150% of what 64 clients
reached in a first try, answered or not. The last two are repeated while SIGHUP loads another bundle for one of the
tasks every 5 seconds. These six loads take turns, so that a machine that is slower for a while slows down all of them.
Clients run on the same cores, so a server alone does more.

Every answer is compared with the merged models of the bundles that it names. All tasks of one answer must come from
bundles that were served at the same time. Prints a table and writes `<out>/load.json`. Exit code 1 where a line is not
reached. Nothing else may run on the machine, and nothing is sent to any address but 127.0.0.1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.load_clients import Sample, closed_loop, open_loop, request_bytes
from bench.serving_tasks import BenchTask, Setting, expected_outputs, load_engine, make_tasks, sentences
from bench.tables import table
from bench.workload import say
from frostline.records.environment import current_environment
from frostline.serving.rows import Text
from frostline.storage import atomic

SETTING = Setting("all-MiniLM-L6-v2", 6, 4)
N_TASKS, CLIENTS, OVERLOAD = 4, (1, 8, 64), 1.5
DEADLINE = 2.0
CLOSE = 1e-5
RELOAD_SECONDS = 5.0
TURNS = 3
"""of each load"""
KEPT = 0.9
"""Share of the peak that must still be answered above capacity."""
_ALLOWED = {200, 429, 504}

Found = dict[str, Any]


def main() -> None:
    """Measures, prints a table."""
    arguments = _arguments()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        say(f"{SETTING.text}: making {2 * N_TASKS} tasks")
        made = make_tasks(SETTING, 2 * N_TASKS, Path(folder))
        texts = sentences(arguments.data, arguments.texts)
        truth = Truth.of(made, texts)
        links = Links(Path(folder) / "live", made)
        found = _measured(links, truth, texts, arguments.seconds)
    found["environment"] = current_environment("cpu").to_json()
    arguments.out.mkdir(parents=True, exist_ok=True)
    atomic.write(arguments.out / "load.json", json.dumps(found, indent=2, allow_nan=False) + "\n")
    print(shown(found))
    sys.exit(not found["is_reached"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A server under load.")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-load"))
    parser.add_argument("--scratch", help="folder for models while they are measured, about 1 GB")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load, in all its turns")
    parser.add_argument("--texts", type=int, help="only so many texts")
    return parser.parse_args()


def combinations(made: Sequence[str]) -> list[tuple[str, ...]]:
    """What is served one after another: each task has two of the names, and one task changes to its other at a time."""
    now, other = list(made[:N_TASKS]), list(made[N_TASKS:])
    found = []
    for number in range(2 * N_TASKS):
        found.append(tuple(now))
        place = number % N_TASKS
        now[place], other[place] = other[place], now[place]
    return found


class Links:
    """One link per task, to one of its two bundles."""

    def __init__(self, folder: Path, made: Sequence[BenchTask]) -> None:
        folder.mkdir()
        bundles = {task.name: task.bundle for task in made}
        self._bundles = [[bundles[name] for name in one] for one in combinations([task.name for task in made])]
        self.paths = [folder / task.name for task in made[:N_TASKS]]
        self._turn = -1
        self.swap()

    def swap(self) -> None:
        """Lets one of the links point to its other bundle."""
        self._turn = (self._turn + 1) % len(self._bundles)
        for path, bundle in zip(self.paths, self._bundles[self._turn], strict=True):
            fresh = path.with_suffix(".new")
            fresh.symlink_to(bundle)
            fresh.rename(path)


@dataclass(frozen=True)
class Truth:
    """What every bundle must answer."""

    probabilities: dict[str, NDArray[np.float64]]
    """by hash of the bundle, (texts, classes)"""
    sets: frozenset[frozenset[str]]
    """the hashes of bundles that are served at the same time"""

    @classmethod
    def of(cls, made: Sequence[BenchTask], texts: Sequence[Text]) -> Truth:
        """From the merged models."""
        tails = load_engine(SETTING, made).tails
        outputs = {tails[task.name].bundle.hash: expected_outputs(task, tails[task.name], texts) for task in made}
        by_hash = {one: _softmax(output) for one, output in outputs.items()}
        return cls(by_hash, frozenset(map(frozenset, combinations(list(outputs)))))

    def check(self, samples: Sequence[Sample]) -> tuple[int, float]:
        """Answers of bundles that were never served together, and the largest distance of any probability."""
        n_mixed, largest = 0, 0.0
        for sample in samples:
            if sample.status != 200:
                continue
            results = json.loads(sample.body)["results"].values()
            n_mixed += frozenset(result["bundle"] for result in results) not in self.sets
            for result in results:
                wanted = self.probabilities[result["bundle"]][sample.text]
                largest = max(largest, float(np.abs(np.array(result["data"][0]["probs"]) - wanted).max()))
        return n_mixed, largest


def _softmax(outputs: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = np.exp(outputs.astype(np.float64) - outputs.max(1, keepdims=True))
    return np.asarray(shifted / shifted.sum(1, keepdims=True))


@dataclass(frozen=True)
class Load:
    """One way to load a server, and what came of it in all its turns."""

    name: str
    is_reloaded: bool
    run: Callable[[float], Coroutine[Any, Any, list[Sample]]]
    """sends requests for so many seconds"""
    samples: list[Sample] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """of each turn, until its last answer"""

    def take_turn(self, links: Links, pid: int, seconds: float) -> None:
        """Loads the server for so many seconds."""
        started = time.perf_counter()
        with _reloading(links, pid) if self.is_reloaded else contextlib.nullcontext():
            self.samples.extend(asyncio.run(self.run(seconds)))
            self.seconds.append(time.perf_counter() - started)


def _loads(port: int, requests: Sequence[bytes], rate: float) -> list[Load]:
    closed = [
        Load(f"{n_clients} clients", is_reloaded, functools.partial(closed_loop, port, requests, n_clients))
        for is_reloaded, n_clients in [*((False, n) for n in CLIENTS), (True, CLIENTS[-1])]
    ]
    over = [
        Load(f"{rate:.0f} per second", is_reloaded, functools.partial(open_loop, port, requests, rate))
        for is_reloaded in (False, True)
    ]
    return [*closed[:-1], over[0], closed[-1], over[1]]


def _measured(links: Links, truth: Truth, texts: Sequence[Text], seconds: float) -> Found:
    requests = [request_bytes({"input": text.first, "tasks": "all"}) for text in texts]
    with _server(links) as (port, pid):
        memory = [_private_bytes(pid)]
        first = Load("warm", False, functools.partial(closed_loop, port, requests, CLIENTS[-1]))
        first.take_turn(links, pid, min(seconds, 10.0))
        memory.append(_private_bytes(pid))
        loads = _loads(port, requests, OVERLOAD * len(first.samples) / first.seconds[0])
        for turn, load in itertools.product(range(TURNS), loads):
            say(f"turn {turn + 1}: {load.name}{', reloading' if load.is_reloaded else ''}")
            load.take_turn(links, pid, seconds / TURNS)
        memory.append(_private_bytes(pid))
    rows = [_summary(load, truth) for load in loads]
    peak = max(row["answered_per_second"] for row in rows if "clients" in row["name"] and not row["is_reloaded"])
    for row in rows:
        if "per second" in row["name"]:
            row["kept"] = row["answered_per_second"] / peak
            row["is_reached"] &= row["kept"] >= KEPT
    return {"seconds": seconds, "n_tasks": N_TASKS, "peak": peak, "rows": rows, "memory": memory,
            "is_reached": all(row["is_reached"] for row in rows)}  # fmt: skip


def _private_bytes(pid: int) -> int:
    """Memory of a process that it shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private"))


def _summary(load: Load, truth: Truth) -> Found:
    statuses = Counter(sample.status for sample in load.samples)
    answered = np.array([sample.seconds for sample in load.samples if sample.status == 200] or [np.inf])
    n_mixed, distance = truth.check(load.samples)
    p50, p99 = (float(np.percentile(answered, share)) for share in (50, 99))
    return {
        "name": load.name,
        "is_reloaded": load.is_reloaded,
        "seconds": load.seconds,
        "answered_per_second": statuses[200] / sum(load.seconds),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "p50_ms": 1000 * p50,
        "p99_ms": 1000 * p99,
        "n_mixed": n_mixed,
        "largest_distance": distance,
        "is_reached": set(statuses) <= _ALLOWED and p99 <= DEADLINE and n_mixed == 0 and distance <= CLOSE,
    }


@contextlib.contextmanager
def _server(links: Links) -> Iterator[tuple[int, int]]:
    """Port and process of a server, which must end well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bundles = [f"{path.name}={path}" for path in links.paths]
    flags = ["--trunk", SETTING.model, "--port", str(port), "--deadline", str(DEADLINE)]
    process = subprocess.Popen(
        [sys.executable, "-m", "frostline", "serve", *bundles, *flags], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if not any("listening" in line for line in process.stdout):
            raise SystemExit("the server did not start")
        yield port, process.pid
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            assert answer.status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        if (code := process.wait(60)) != 0:
            raise SystemExit(f"the server ended with {code}")


@contextlib.contextmanager
def _reloading(links: Links, pid: int) -> Iterator[None]:
    """Swaps a bundle every few seconds."""
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.wait(RELOAD_SECONDS):
            links.swap()
            os.kill(pid, signal.SIGHUP)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def shown(found: Found) -> str:
    """The table."""
    columns: dict[str, Callable[[Found], str]] = {
        "load": lambda row: row["name"] + (", reloading" if row["is_reloaded"] else ""),
        "answered per second": lambda row: f"{row['answered_per_second']:.0f}",
        "p50 ms": lambda row: f"{row['p50_ms']:.1f}",
        "p99 ms": lambda row: f"{row['p99_ms']:.1f}",
        "statuses": lambda row: ", ".join(f"{status}: {count:,}" for status, count in row["statuses"].items()),
        "of the peak": lambda row: f"{row['kept']:.0%}" if "kept" in row else "",
        "mixed": lambda row: str(row["n_mixed"]),
        "distance": lambda row: f"{row['largest_distance']:.1e}",
        "reached": lambda row: "yes" if row["is_reached"] else "NO",
    }
    loaded, warm, after = (f"{n_bytes / 1e6:.0f} MB" for n_bytes in found["memory"])
    return f"{table(found['rows'], columns)}\n\nserver's memory: {loaded} loaded, {warm} warm, {after} at the end"


if __name__ == "__main__":
    main()
