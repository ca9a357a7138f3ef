"""How far `--dry-run` is from what the command then takes, over ten commands.

    python -m bench.dry_runs [--only 0,3] [--out dry-runs.json]

Each command runs twice with a new output folder and a new cache: with `--dry-run`, then for real. A factor is the
larger of estimate / time and time / estimate. Nothing else may run meanwhile. About ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

_MODEL_AND_TASK = "all-MiniLM-L6-v2 rotten-tomatoes"
COMMANDS = (
    f"curve {_MODEL_AND_TASK} --max-train 320 --max-dev 200 --epochs 2 --lr 2e-4 --seeds 2 --frozen 4-6",
    f"curve {_MODEL_AND_TASK} --max-train 256 --max-dev 160 --epochs 1 --lr 1e-4 --seeds 3 --max-length 64",
    f"curve {_MODEL_AND_TASK} --max-train 200 --max-dev 800 --epochs 1 --lr 1e-4 --seeds 2 --frozen 3,6",
    f"curve {_MODEL_AND_TASK} --max-train 256 --max-dev 160 --epochs 2 --lrs 5e-5,1e-4,2e-4 --seeds 2 --frozen 5,6",
    f"curve {_MODEL_AND_TASK} --max-train 160 --max-dev 160 --epochs 1 --seeds 2 --frozen 5,6 --protocol tuned",
    f"curve {_MODEL_AND_TASK} --max-train 256 --max-dev 160 --epochs 1 --lr 1e-4 --seeds 2 --frozen 3,6 --no-cache",
    f"find {_MODEL_AND_TASK} --max-train 200 --max-dev 160 --epochs 1 --lr 1e-4 --seeds 4",
    f"find {_MODEL_AND_TASK} --max-train 160 --max-dev 200 --epochs 1 --lr 2e-4 --seeds 5 --frozen 4-6",
    f"compare {_MODEL_AND_TASK} --max-train 256 --max-dev 160 --epochs 1 --lr 2e-4 --seeds 2"
    " --strategies full,freeze:3,lora:8,bitfit",
    f"compare {_MODEL_AND_TASK} --max-train 320 --max-dev 200 --epochs 2 --lr 2e-4 --seeds 3"
    " --strategies full,freeze:5,features",
)
"""Chosen beforehand: each takes 15 to 90 s on two cores."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One command, estimated and run."""

    command: str
    dry_run_seconds: float
    """time of the dry run itself"""
    estimated_seconds: float
    seconds: float
    """time of the real command"""
    is_at_most: bool
    """the estimate is an upper bound"""

    @property
    def factor(self) -> float:
        """How many times too high or too low the estimate is; at least 1."""
        ratio = self.estimated_seconds / self.seconds
        return max(ratio, 1 / ratio)


def measured(command: str) -> Case:
    """The dry run of a command, then the command."""
    dry_run_seconds, printed = _timed(f"{command} --dry-run --json")
    estimate = json.loads(printed)
    seconds, _ = _timed(f"{command} --json")
    return Case(
        command=command,
        dry_run_seconds=dry_run_seconds,
        estimated_seconds=60 * estimate["minutes"],
        seconds=seconds,
        is_at_most=estimate["is_at_most"],
    )


def _timed(command: str) -> tuple[float, str]:
    """The time of a whole process, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FROSTLINE_CACHE": str(Path(folder) / "cache")}
        process = [sys.executable, "-m", "frostline", *shlex.split(command), "--out", str(Path(folder) / "out")]
        began = time.monotonic()
        done = subprocess.run(process, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        return time.monotonic() - began, done.stdout.decode()


def table(cases: list[Case]) -> str:
    """One row per command, and the median factor."""
    rows = ["| command | estimate | time | estimate / time | dry run |", "|---|---:|---:|---:|---:|"]
    for case in cases:
        most = "≤ " if case.is_at_most else ""
        rows.append(
            f"| `{case.command.replace(f' {_MODEL_AND_TASK}', '')}` | {most}{case.estimated_seconds:.0f} s "
            f"| {case.seconds:.0f} s | {case.estimated_seconds / case.seconds:.2f} | {case.dry_run_seconds:.0f} s |"
        )
    worst = max(case.factor for case in cases)
    median = statistics.median(case.factor for case in cases)
    return "\n".join([*rows, "", f"median factor {median:.2f}, worst {worst:.2f}, {len(cases)} commands"])


def main() -> None:
    """Prints each case as it ends, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="numbers of commands, from 0, separated by commas")
    parser.add_argument("--out", type=Path, help="JSON file with every figure")
    asked = parser.parse_args()
    numbers = range(len(COMMANDS)) if asked.only is None else [int(part) for part in asked.only.split(",")]
    cases = []
    for number in numbers:
        cases.append(measured(COMMANDS[number]))
        print(f"{number}: {cases[-1].estimated_seconds:.1f} s estimated, {cases[-1].seconds:.1f} s", flush=True)
    print(f"\n{table(cases)}")
    if asked.out is not None:
        asked.out.write_text(json.dumps([asdict(case) for case in cases], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
