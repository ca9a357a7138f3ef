"""The whole command, from nothing, and what it left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.memory import PeakOfTree
from bench.processes import environment
from bench.workload import DEPTHS, FULL, MODEL, TASK, Asked, Workload

_FROSTLINE = [sys.executable, "-m", "frostline"]


def whole_command(asked: Asked, work: Workload, out: Path, *extra: str) -> dict[str, Any]:
    """Seconds of `frostline curve` with imports, nothing kept from before; scores, bytes, memory of all processes."""
    shutil.rmtree(out, ignore_errors=True)
    command = [*_FROSTLINE, "curve", MODEL, TASK, *asked.source, *work.flags, "--out", str(out), "--json", *extra]
    with tempfile.TemporaryDirectory() as cache:
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(cache)) as process:
            with PeakOfTree(process.pid) as peak:
                answer, _ = process.communicate()
            seconds = time.perf_counter() - began
        if process.returncode:
            raise RuntimeError(f"exit code {process.returncode} of {' '.join(command)}; see above")
        kept = _kept_bytes(cache)
    curve = json.loads(answer)
    points = {FULL: curve["full"]} | {f"freeze:{point['n_frozen']}": point for point in curve["points"]}
    return {
        "seconds": seconds,
        "peak_bytes": peak.bytes,
        "cost": curve["cost"],
        "cache_bytes_by_depth": kept,
        "points": {
            kind: {name: point[name] for name in ("mean", "ci", "scores", "seeds", "seconds", "peak_bytes")}
            for kind, point in points.items()
        },
    }


def _kept_bytes(cache: str) -> dict[str, int]:
    """What `frostline cache ls` tells of a cache: bytes by depth, train and dev together."""
    done = subprocess.run(
        [*_FROSTLINE, "cache", "ls", "--json"], stdout=subprocess.PIPE, env=environment(cache), text=True, check=True
    )
    entries = json.loads(done.stdout)["entries"]
    return {str(depth): sum(e["n_bytes"] for e in entries if e["depth"] == depth) for depth in DEPTHS}
