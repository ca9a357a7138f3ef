"""What long texts and whole data sets take: time per token up to 512 tokens, time and memory up to all rows of SST-2.

    python -m bench.long_texts --data ../shared/glue --out runs/bench-long-texts

Long texts are IMDB's reviews in the demo's package, cut at several lengths. Each length is measured in a process of its
own, set up like a worker: full steps, steps with half of the layers frozen and cached, and the same without a cache (a
run does without one if its states would need more than `--cache-max-gb`). Whole data sets: the prefix and one epoch
with half of the layers frozen, by training rows, and the peak of private memory.

Nothing else may run on the machine. Prints tables and writes `<out>/long-texts.json`.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import growth
from bench.memory import peak_of_run
from bench.processes import Answer, answer_of, answering
from bench.steps import specs_of, started, timed_steps, warm
from bench.tables import table
from bench.workload import FULL, REAL, Asked, say
from frostline.records.environment import current_environment
from frostline.storage import atomic
from frostline.tasks.demo import reviews_file
from frostline.training.forward import predict
from frostline.training.memory import MemoryMeter, release_memory
from frostline.training.run import Runner

LENGTHS = (64, 128, 256, 512)
ROWS = (4_000, 16_000, 67_349)
_N_TRAIN, _N_DEV = 320, 64
_N_STEPS = 10
_UNCACHED = "3 frozen, no cache"
_KINDS = {"full": FULL, "3 frozen": growth.HALF, _UNCACHED: growth.HALF}


def write_reviews(file: Path, n_rows: int) -> None:
    """Writes the first reviews of IMDB, the same number of each class."""
    with reviews_file().open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["source"] == "imdb"]
    chosen = [row for label in ("0", "1") for row in [one for one in rows if one["label"] == label][: n_rows // 2]]
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("text", "label"))
        writer.writerows((row["text"], row["label"]) for row in chosen)


def by_length(lengths: Sequence[int], n_steps: int) -> dict[str, Answer]:
    """What a step takes on reviews cut at each length, by the kind of run."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reviews.csv"
        write_reviews(file, 2 * (_N_TRAIN + _N_DEV))
        for length in lengths:
            say(f"reviews cut at {length} tokens")
            question = {"file": str(file), "max_length": length, "n_steps": n_steps}
            found[str(length)] = answer_of("bench.long_texts", question, cache=folder)
    return found


def _steps(file: str, max_length: int, n_steps: int) -> Answer:
    settings: dict[str, Any] = {
        "text": "text",
        "label": "label",
        "max_train": _N_TRAIN,
        "max_dev": _N_DEV,
        "max_length": max_length,
    }
    specs = specs_of(file, **settings)
    answer: Answer = {}
    for name, kind in _KINDS.items():
        spec = specs[kind].replace(is_cached=False) if name == _UNCACHED else specs[kind]
        release_memory()
        with MemoryMeter("cpu") as meter, started(Runner(), spec) as steps:
            took = timed_steps(warm(steps), n_steps)
            predict(steps.training.forward, steps.training.dev)
            answer[name] = {
                "step_seconds": statistics.fmean(took),
                "tokens": steps.tokens(),
                "peak_bytes": meter.peak_bytes,
            }
    return answer


def by_rows(data: str, rows: Sequence[int]) -> dict[str, Answer]:
    """Seconds of the prefix and of one epoch, and peaks of memory, by training rows."""
    asked = Asked(data=data, sizes=dataclasses.replace(REAL, growth_rows=tuple(rows)), n_steps=0, repetitions=1)
    say("whole data sets: prefix and one epoch")
    found = growth.by_rows(asked)
    for n_rows in rows:
        say(f"memory with {n_rows} rows")
        for kind in (FULL, growth.HALF):
            found[str(n_rows)][kind] = peak_of_run(asked, "frostline", kind, n_rows)
    return found


def tables(found: dict[str, Any]) -> str:
    """What was found, as Markdown."""
    steps = [
        {"length": length, "kind": kind, **one}
        for length, kinds in found["length"].items()
        for kind, one in kinds.items()
    ]
    lengths = table(
        steps,
        {
            "cut at": lambda row: row["length"],
            "steps": lambda row: row["kind"],
            "tokens per batch": lambda row: f"{row['tokens']:,.0f}",
            "ms per step": lambda row: f"{1000 * row['step_seconds']:.0f}",
            "µs per token": lambda row: f"{1e6 * row['step_seconds'] / row['tokens']:.0f}",
            "peak memory of the run": lambda row: f"{row['peak_bytes'] / 1e6:.0f} MB",
        },
    )
    rows = table(
        [{"rows": n_rows, **one} for n_rows, one in found["rows"].items()],
        {
            "training rows": lambda row: f"{int(row['rows']):,}",
            "prefix": lambda row: f"{row['prefix_seconds']:.1f} s",
            "one epoch": lambda row: f"{row['train_seconds']:.1f} s",
            "ms per row": lambda row: f"{1000 * (row['prefix_seconds'] + row['train_seconds']) / int(row['rows']):.2f}",
            "peak, 3 frozen": lambda row: f"{row[growth.HALF]['peak_bytes'] / 1e6:.0f} MB",
            "peak, full": lambda row: f"{row[FULL]['peak_bytes'] / 1e6:.0f} MB",
        },
    )
    return f"{lengths}\n\n{rows}"


def main() -> None:
    """Measures, prints tables; or, given a question, answers it."""
    if sys.argv[1].startswith("{"):
        with answering() as answer:
            answer(_steps(**json.loads(sys.argv[1])))
        return
    parser = argparse.ArgumentParser(description="Long texts and whole data sets.")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-long-texts"))
    parser.add_argument("--tiny", action="store_true", help="a few rows: does it work? Its figures mean nothing")
    asked = parser.parse_args()
    found: dict[str, Any] = {"environment": current_environment("cpu").to_json()}
    found["length"] = by_length(LENGTHS[:1], 2) if asked.tiny else by_length(LENGTHS, _N_STEPS)
    found["rows"] = by_rows(asked.data, (64,) if asked.tiny else ROWS)
    asked.out.mkdir(parents=True, exist_ok=True)
    atomic.write(asked.out / "long-texts.json", json.dumps(found, indent=2, allow_nan=False) + "\n")
    print(tables(found))


if __name__ == "__main__":
    main()
