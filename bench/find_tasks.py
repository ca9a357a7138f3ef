"""`find` beside the whole curve, on real weights and real tasks: do they agree, and what does each take?

    python -m bench.find_tasks --data ../shared/glue --out runs/find [--json]

Each command starts from nothing, a cache of frozen layers of its own included, and is timed whole. A task that is in
the out folder already is not run again. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import environment
from bench.simulated import percent, show
from bench.workload import MODEL, N_LAYERS
from frostline.storage import atomic

TASKS = ("sst2", "cola", "stsb", "rotten-tomatoes")
KEEP = 0.9
SETTINGS = ("--max-train", "1000", "--epochs", "2", "--max-length", "64", "--keep", str(KEEP))
SHALLOWEST = N_LAYERS // 2
"""Depths are tried from half of the layers on."""
NO_CLEAR_DEPTH = 0.6
"""Where no depth has more than this share of the curve's own distribution, `open` is the right answer."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A task's whole curve, and what `find` made of it."""

    task: str
    curve_n_frozen: int | None
    distribution: dict[str, float]
    """of the curve's operating point, by n_frozen"""
    find_n_frozen: int | None
    decision: str
    curve_rate: float
    """best of the whole line search"""
    find_rate: float
    """that of the race"""
    rate_loss: float
    """what the race's rate scored below the best in the whole line search"""
    curve_seconds: float
    find_seconds: float

    @property
    def agrees(self) -> bool:
        """Within one of the depths tried, or open where the curve has no clear answer either."""
        is_unclear = max(self.distribution.values(), default=0.0) <= NO_CLEAR_DEPTH
        if self.decision == "open" and is_unclear:
            return True
        # The full model alone is one step beyond the shallowest depth tried.
        steps = [SHALLOWEST - 1 if n is None else n for n in (self.curve_n_frozen, self.find_n_frozen)]
        return abs(steps[0] - steps[1]) <= 1


def compared(task: str, data: str, out: Path) -> Compared:
    """One task, both ways; what was measured is kept in the out folder."""
    source = [] if task == "rotten-tomatoes" else ["--data", data]
    found = {command: _kept(out, command, [MODEL, task, *source, *SETTINGS]) for command in ("curve", "find")}
    (curve, curve_seconds), (find, find_seconds) = found["curve"], found["find"]
    point = next(p for p in curve["operating_points"] if (p["keep"], p["scale"]) == (KEEP, "ratio"))
    scores = {tried["learning_rate"]: tried["score"] for tried in curve["line_search"]}
    return Compared(
        task=task,
        curve_n_frozen=point["n_frozen"],
        distribution={str(share["n_frozen"]): share["share"] for share in point["distribution"]},
        find_n_frozen=find["answer"]["n_frozen"],
        decision=find["answer"]["decision"],
        curve_rate=curve["learning_rate"],
        find_rate=find["learning_rate"],
        rate_loss=scores[curve["learning_rate"]] - scores[find["learning_rate"]],
        curve_seconds=curve_seconds,
        find_seconds=find_seconds,
    )


def _kept(out: Path, command: str, arguments: list[str]) -> tuple[Any, float]:
    """What a command answers, and its seconds, imports included; from the out folder where it is there."""
    name = f"{arguments[1]}-{command}"
    kept = out / f"{name}.json"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as cache:
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "frostline", command, *arguments, "--json", "--out", str(out / name)],
                stdout=subprocess.PIPE,
                text=True,
                env=environment(cache),
                check=True,
            )
            seconds = time.perf_counter() - began
        atomic.write(kept, json.dumps([json.loads(done.stdout), seconds]))
    answer, seconds = json.loads(kept.read_text())
    return answer, seconds


def _depth(n_frozen: int | None) -> str:
    return "full alone" if n_frozen is None else str(n_frozen)


CELLS: dict[str, Callable[[Compared], str]] = {
    "task": lambda one: one.task,
    "curve: frozen": lambda one: _depth(one.curve_n_frozen),
    "its distribution": lambda one: ", ".join(f"{depth}: {share:.0%}" for depth, share in one.distribution.items()),
    "find: frozen": lambda one: f"{_depth(one.find_n_frozen)}, {one.decision}",
    "agrees": lambda one: "yes" if one.agrees else "**no**",
    "rate of line search, race": lambda one: f"{one.curve_rate:g}, {one.find_rate:g} (−{one.rate_loss:.3f})",
    "seconds of curve, find": lambda one: f"{one.curve_seconds:.0f}, {one.find_seconds:.0f}",
    "share": lambda one: percent(one.find_seconds / one.curve_seconds),
}


def main() -> None:
    """A table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    show([compared(task, asked.data, asked.out) for task in TASKS], CELLS, as_json=asked.json)


if __name__ == "__main__":
    main()
