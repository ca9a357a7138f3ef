"""How often a race chooses the rate of the whole line search, and what it saves.

    python -m bench.line_race --shared ../shared --out runs/line-race.jsonl [--tasks sst2 mrpc …] [--seeds 3]

Every rate trains to its end and is scored where a race would pause it, so that one set of runs gives both choices. The
file is extended by one line per task and master seed; what is there is not done again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.tables import percent, show
from frostline.records.results import PausedRun, RunResult

MODEL = "all-MiniLM-L6-v2"
TASKS = ("sst2", "rotten-tomatoes", "mrpc", "rte", "cola", "stsb")
N_TRAIN, N_DEV, MAX_LENGTH = 1000, 800, 64


@dataclass(frozen=True, kw_only=True)
class Search:
    """One line search, and the race over its runs."""

    task: str
    master_seed: int
    whole: float
    """the rate that the whole search chooses"""
    race: float
    """the rate that the race chooses"""
    lost: float
    """score of the one minus score of the other, in these runs"""
    saved: float
    """share of the steps that the race leaves out"""


def searched(task: str, master_seed: int, shared: Path) -> Search:
    """Trains every rate to its end."""
    from frostline.records.requests import RunOptions
    from frostline.studies.planning.line_race import PAUSES, LineRace
    from frostline.studies.planning.protocols import line_search_specs
    from frostline.studies.planning.race import best_rate
    from frostline.studies.requests.parse import parse
    from frostline.studies.requests.resolve import Resolver
    from frostline.studies.requests.settings import CurveSettings
    from frostline.studies.study import Results
    from frostline.training.run import Runner

    data = {} if task == "rotten-tomatoes" else {"data": str(shared / "glue")}
    rows = {"max_train": N_TRAIN, "max_dev": N_DEV, "max_length": MAX_LENGTH}
    settings: dict[str, Any] = {**data, **rows, "epochs": 3, "master_seed": master_seed, "line_search": "race"}
    parsed = parse(MODEL, task, {**settings, "out": Path("runs") / "line-race" / task}, CurveSettings)
    resolved = Resolver(parsed.options.out, RunOptions.max_cache_bytes).fill_in(parsed.request, needs_depth=False)
    assert resolved.n_steps is not None
    race, results, runner = LineRace(tuple(line_search_specs(resolved)), resolved.n_steps), Results(), Runner()
    finished = []
    for spec in race.specs:
        outcome: RunResult | PausedRun | None = None
        for share in (*PAUSES, 1.0):
            until = round(share * race.n_steps) if share < 1 else None
            checkpoint = outcome.checkpoint if isinstance(outcome, PausedRun) else None
            outcome = runner.advance(spec, until=until, checkpoint=checkpoint)
            results.add(outcome)
        assert isinstance(outcome, RunResult)
        finished.append(outcome)
    scores = {result.spec.learning_rate: result.score for result in finished}
    whole, chosen = best_rate(finished), race.rate(results)
    assert chosen is not None
    done = sum(one.share for one in race.tried(results))
    return Search(
        task=task,
        master_seed=master_seed,
        whole=whole,
        race=chosen,
        lost=scores[whole] - scores[chosen],
        saved=1 - done / len(race.specs),
    )


def _stored(file: Path) -> list[Search]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [Search(**json.loads(line)) for line in lines]


def run(tasks: Sequence[str], n_seeds: int, shared: Path, file: Path) -> list[Search]:
    """What is missing is done, two searches at a time with one thread each."""
    found = _stored(file)
    known = {(one.task, one.master_seed) for one in found}
    missing = [(task, seed) for seed in range(n_seeds) for task in tasks if (task, seed) not in known]
    file.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2) as pool:
        for future in [pool.submit(_one, task, seed, shared) for task, seed in missing]:
            found.append(future.result())
            with file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(found[-1])) + "\n")
    return found


def _one(task: str, seed: int, shared: Path) -> Search:
    import torch

    torch.set_num_threads(1)
    return searched(task, seed, shared)


def main() -> None:
    """Prints a table and how often the rates are the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--out", type=Path, default=Path("runs/line-race.jsonl"))
    parser.add_argument("--tasks", nargs="*", default=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    found = run(asked.tasks, asked.seeds, asked.shared, asked.out)
    columns = {
        "task": lambda one: one.task,
        "master seed": lambda one: str(one.master_seed),
        "whole search": lambda one: f"{one.whole:g}",
        "race": lambda one: f"{one.race:g}",
        "score lost": lambda one: f"{one.lost:.3f}",
        "steps saved": lambda one: percent(one.saved),
    }
    show(found, columns)
    same = sum(one.whole == one.race for one in found)
    print(f"\nthe same rate in {same} of {len(found)}; largest loss {max(one.lost for one in found):.3f}")


if __name__ == "__main__":
    main()
