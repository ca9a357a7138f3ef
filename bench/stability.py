"""How stable an answer is: the whole protocol, rate choice included, repeated from other master seeds.

    python -m bench.stability MODEL TASK --out runs/stability [--repeats 5] [-- flags of `frostline curve`]

Each repeat is a curve of its own and can be resumed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any


def repeated(model: str, task: str, out: Path, master_seed: int, flags: list[str]) -> dict[str, Any]:
    """One curve."""
    folder = str(out / f"master-{master_seed}")
    command = ["curve", model, task, "--master-seed", str(master_seed), "--out", folder, "--json", *flags]
    done = subprocess.run([sys.executable, "-m", "frostline", *command], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Prints a table of the answers, and the modal one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("task")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("flags", nargs="*")
    asked = parser.parse_args()
    heads = ("master seed", "rate of the full model", "full score", "operating point", "established", "set")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    answers = []
    for seed in range(1, asked.repeats + 1):
        curve = repeated(asked.model, asked.task, asked.out, seed, asked.flags)
        point = curve["operating_points"][0]
        answers.append(_said(point["n_frozen"]))
        established = _said(point["established"]["n_frozen"]) if point["established"] else "–"
        cells = (seed, curve["learning_rate"], f"{curve['full']['mean']:.3f}", answers[-1], established)
        print(f"| {' | '.join(map(str, cells))} | {', '.join(map(_said, point['plausible']))} |", flush=True)
    answer, count = Counter(answers).most_common(1)[0]
    print(f"\nmodal answer: {answer} ({count} of {len(answers)})" if count > 1 else "\nall answers differ: no mode")


def _said(depth: int | None) -> str:
    return "full" if depth is None else str(depth)


if __name__ == "__main__":
    main()
