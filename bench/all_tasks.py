"""A small curve on every GLUE task: is every field there, and does it add up?

    python -m bench.all_tasks --data ../shared/glue --models all-MiniLM-L6-v2 ../shared/models/bge-small-en-v1.5

The scores mean nothing at this size; the check is of the whole path and of the JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from typing import Any

TASKS = ("cola", "sst2", "mrpc", "stsb", "rte", "wnli", "qnli", "qqp", "mnli")
SMALL = ("--max-train", "200", "--max-dev", "100", "--seeds", "2", "--lr", "5e-5", "--epochs", "1", "--json")
CURVE_FIELDS = [
    "model",
    "task",
    "metric",
    "chance",
    "n_layers",
    "protocol",
    "learning_rate",
    "line_search",
    "full",
    "points",
    "operating_points",
    "is_monotone",
    "cost",
    "runs",
    "warnings",
]
POINT_FIELDS = [
    "mean",
    "std",
    "ci",
    "ci_dev",
    "seeds",
    "scores",
    "train_scores",
    "train_loss",
    "other_metrics",
    "difference",
    "difference_ci",
    "ratio",
    "ratio_ci",
    "ratio_above_chance",
    "learning_rate",
    "trained_parameters",
    "seconds",
    "peak_bytes",
    "n_failed",
    "mean_without_failed",
]


def main() -> None:
    """Prints one line a curve; exit code 1 where something is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--models", nargs="+", required=True)
    arguments = parser.parse_args()
    all_faults = []
    for model in arguments.models:
        for task in TASKS:
            with tempfile.TemporaryDirectory() as out:
                command = [sys.executable, "-m", "frostline", "curve", model, task, "--data", arguments.data]
                done = subprocess.run([*command, *SMALL, "--out", out], capture_output=True, text=True, check=False)
            faults = _faults(done)
            all_faults += faults
            print(model, task, "; ".join(faults) or "all there", flush=True)
    sys.exit(bool(all_faults))


def _faults(done: subprocess.CompletedProcess[str]) -> list[str]:
    if done.returncode != 0:
        return [f"exit {done.returncode}: {done.stderr[-300:]}"]
    curve = json.loads(done.stdout, parse_constant=lambda name: sys.exit(f"{name} in the JSON"))
    faults = [f"no {name}" for name in CURVE_FIELDS if name not in curve]
    for point in (curve["full"], *curve["points"]):
        faults += [f"no {name} at {point['n_frozen']}" for name in POINT_FIELDS if name not in point]
        faults += _sums(point)
    return faults


def _sums(point: dict[str, Any]) -> list[str]:
    mean = math.fsum(point["scores"]) / len(point["scores"])
    is_right = math.isclose(mean, point["mean"], abs_tol=1e-12) and len(point["scores"]) == len(point["seeds"]) == 2
    return [] if is_right else [f"the mean {point['mean']} is not that of {point['scores']}"]


if __name__ == "__main__":
    main()
