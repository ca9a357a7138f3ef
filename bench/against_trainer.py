"""Does it learn as well as `transformers.Trainer`? SST-2, the full model, the same recipe, five seeds each.

    python -m bench.against_trainer --data ../shared/glue --out runs/bench-learns

Ours is a `frostline curve` (resumable, in `--out`); Trainer runs one seed after another on all cores, with the rate
our line search chose, and keeps its scores in `<out>/trainer.json`. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import frostline
from bench.trainer import trained_score
from bench.workload import FULL, MODEL
from frostline import tasks

N_TRAIN = 2000
EPOCHS = 3


def main() -> None:
    """Runs both and prints how they compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-learns"))
    parser.add_argument("--lrs", default="1e-5,2e-5,3e-5,4e-5,5e-5")
    arguments = parser.parse_args()
    ours = frostline.curve(
        MODEL, "sst2", data=arguments.data, out=arguments.out, max_train=N_TRAIN, lrs=arguments.lrs, frozen="6"
    )
    trainer = _trainer_scores(arguments.data, arguments.out / "trainer.json", ours.learning_rate, ours.full.seeds)
    difference = ours.full.mean - float(np.mean(trainer)) if ours.full.mean is not None else None
    found: dict[str, Any] = {
        "learning_rate": ours.learning_rate,
        "line_search": [tried.to_json() for tried in ours.line_search],
        "frostline": {"mean": ours.full.mean, "ci": ours.full.ci, "scores": ours.full.scores},
        "trainer": {"mean": float(np.mean(trainer)), "scores": trainer},
        "difference": difference,
    }
    print(json.dumps(found, indent=2))


def _trainer_scores(data: str, kept: Path, rate: float, seeds: tuple[int, ...]) -> list[float]:
    """Trainer's score for each seed; those already in the file are not run again."""
    scores: dict[str, float] = json.loads(kept.read_text()) if kept.is_file() else {}
    for seed in seeds:
        name = f"{rate:g}/{seed}"
        if name not in scores:
            scores[name] = _trainer_score(data, rate, seed)
            kept.write_text(json.dumps(scores))
    return [scores[f"{rate:g}/{seed}"] for seed in seeds]


def _trainer_score(data: str, rate: float, seed: int) -> float:
    rows = tasks.load(tasks.parse("sst2", data=data, max_train=N_TRAIN))
    return trained_score(FULL, rows, epochs=EPOCHS, rate=rate, seed=seed, head_seed=seed)


if __name__ == "__main__":
    main()
