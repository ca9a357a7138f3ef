"""Time and peak memory of reading large data: a CSV of several GB, a million rows, 100,000 labels.

    python -m bench.data_memory [--gb 5] [--row-bytes 1000] [--command]

The files are made up, written to a temporary folder and deleted. Memory is the growth of the resident memory of a new
process while it loads the rows; with `--command`, also of all processes of a whole `frostline curve --dry-run`.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from frostline import tasks

MODEL = "all-MiniLM-L6-v2"
LIMITS = {"max_train": 1000, "max_dev": 1000}
_STATUS = Path("/proc/self/status")
_N_BODIES = 997


def write_csv(path: Path, n_rows: int, row_bytes: int, names: Sequence[str]) -> None:
    """A file with this many rows of about this size; the labels take turns."""
    words = 'the quick brown fox jumps over a lazy dog, "twice", and returns to the café '
    long = words * (row_bytes // len(words) + 20)
    size = row_bytes - len(names[0]) - 16
    bodies = [long[start : start + size].replace('"', '""') for start in range(_N_BODIES)]
    with path.open("w", encoding="utf-8", newline="") as stream:
        stream.write("text,label\n")
        for start in range(0, n_rows, _N_BODIES):
            rows = enumerate(bodies[: n_rows - start], start=start)
            stream.write("".join(f'"{row} {body}",{names[row % len(names)]}\n' for row, body in rows))


def measured(path: Path, options: dict[str, Any]) -> dict[str, float]:
    """Seconds, processor seconds and the growth of memory in a new process that loads the file."""
    question = json.dumps({"path": str(path), "options": options})
    done = subprocess.run(
        [sys.executable, "-m", "bench.data_memory", "--load", question], stdout=subprocess.PIPE, text=True, check=True
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def load_and_answer(question: dict[str, Any]) -> dict[str, float]:
    """What `measured` gives, for this process."""
    before, began = _resident("VmRSS"), time.perf_counter()
    data = tasks.open_task(tasks.parse(question["path"], **question["options"])).load()
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "growth_mb": (_resident("VmHWM") - before) / 1e6,
        "n_rows": len(data.train) + len(data.dev),
    }


def _resident(field: str) -> int:
    # Not ru_maxrss: a new process inherits it from the one that started it.
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def _print_row(what: str, file_bytes: int, answer: dict[str, float]) -> None:
    print(
        f"| {what} | {file_bytes / 1e9:.2f} GB | {answer['seconds']:.1f} s | {answer['cpu_seconds']:.1f} s "
        f"| {answer['growth_mb']:.0f} MB | {answer['n_rows']:,.0f} |",
        flush=True,
    )


def _measure_command(path: Path, folder: Path) -> None:
    from bench.memory import PeakOfTree

    limits = [f"--{name.replace('_', '-')}={value}" for name, value in LIMITS.items()]
    command = [sys.executable, "-m", "frostline", "curve", MODEL, str(path), *limits, "--dry-run", "--out"]
    began = time.perf_counter()
    process = subprocess.Popen([*command, str(folder / f"out-{path.stem}")])
    with PeakOfTree(process.pid) as peak:
        process.wait()
    seconds = time.perf_counter() - began
    print(f"`frostline curve --dry-run` on {path.name}: {seconds:.1f} s, {peak.bytes / 1e6:.0f} MB in all processes")


def main() -> None:
    """Writes each file, measures, deletes it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=5.0, help="size of the large CSV")
    parser.add_argument("--row-bytes", type=int, default=1000, help="size of its rows")
    parser.add_argument("--command", action="store_true", help="also measure a whole dry run")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        print(json.dumps(load_and_answer(json.loads(given.load))))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if shutil.disk_usage(folder).free < 2e9 * given.gb + 1e9:
            raise SystemExit(f"{folder} has too little space for a file of {given.gb:g} GB; set TMPDIR")
        print("| data | file | time | processor | memory | rows used |\n|---|---|---|---|---|---|")
        small, large = folder / "small.csv", folder / "large.csv"
        write_csv(small, 5000, given.row_bytes, ("no", "yes"))
        _print_row("5,000 rows, 1,000 + 1,000 used", small.stat().st_size, measured(small, LIMITS))
        n_rows = int(given.gb * 1e9 / given.row_bytes)
        write_csv(large, n_rows, given.row_bytes, ("no", "yes"))
        _print_row(f"{n_rows:,} rows, 1,000 + 1,000 used", large.stat().st_size, measured(large, LIMITS))
        if given.command:
            for path in (small, large):
                _measure_command(path, folder)
        large.unlink()
        for what, names in (("2 classes", ("no", "yes")), ("100,000 labels", [f"label-{n:06}" for n in range(10**5)])):
            path = folder / "million.csv"
            write_csv(path, 10**6, 120, names)
            _print_row(f"1,000,000 rows, {what}, all used", path.stat().st_size, measured(path, {"dev_share": 0.5}))


if __name__ == "__main__":
    main()
