"""Killed at ten random moments, does a curve end with the numbers of an undisturbed one?

    python -m bench.kill_and_resume -- all-MiniLM-L6-v2 sst2 --data ../shared/glue --max-train 200 --max-dev 100 \\
        --seeds 2 --lr 5e-5 --epochs 1

For each moment, drawn uniformly over the undisturbed run's length: a new out folder, SIGKILL to the process group,
the same command again, and every score and loss compared to the last bit. Also `--workers 1` against `2`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Prints one line a moment, and a verdict; exit code 1 where a number differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("curve", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    asked = [part for part in arguments.curve if part != "--"]
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        wanted = _finish(asked, Path(folder) / "undisturbed")
        length = time.monotonic() - began
        print(f"undisturbed: {length:.1f} s, {wanted['runs']['done']} runs")
        is_same = [_numbers(_finish([*asked, "--workers", "1"], Path(folder) / "one worker")) == _numbers(wanted)]
        print(f"one worker: {'the same' if is_same[0] else 'DIFFERENT'}")
        for number, moment in enumerate(sorted(rng.uniform(0, length) for _ in range(arguments.moments))):
            out = Path(folder) / f"killed {number}"
            _kill_after(asked, out, moment)
            n_kept = len(list((out / "runs").glob("*.json")))
            found = _finish(asked, out)
            is_same.append(_numbers(found) == _numbers(wanted) and found["runs"]["reused"] == n_kept)
            print(f"killed after {moment:.1f} s with {n_kept} runs kept: {'the same' if is_same[-1] else 'DIFFERENT'}")
    sys.exit(not all(is_same))


def _command(asked: list[str], out: Path) -> list[str]:
    return [sys.executable, "-m", "frostline", "curve", *asked, "--out", str(out), "--json"]


def _finish(asked: list[str], out: Path) -> dict[str, Any]:
    done = subprocess.run(_command(asked, out), capture_output=True, text=True, check=True)
    curve: dict[str, Any] = json.loads(done.stdout)
    return curve


def _kill_after(asked: list[str], out: Path, seconds: float) -> None:
    process = subprocess.Popen(
        _command(asked, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _numbers(curve: dict[str, Any]) -> list[Any]:
    points = [curve["full"], *curve["points"]]
    return [[point[name] for name in ("scores", "train_scores", "train_loss", "mean")] for point in points]


if __name__ == "__main__":
    main()
