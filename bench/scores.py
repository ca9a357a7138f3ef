"""Does ours score as well as Trainer at each depth? Same rows, epochs, rate, seeds and first heads.

    python -m bench.scores --data ../shared/glue [--json]

Trainer twice: as users write it, `requires_grad=False` and dropout on in what is frozen, and with what is frozen in
eval, as ours is (`frostline.freeze`). The last part of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.ours import whole_command
from bench.speed_table import scores_table
from bench.steps import specs_of
from bench.trainer import trained_score
from bench.workload import FULL, KINDS, REAL, TASK, Asked, say
from frostline import stats, tasks
from frostline.stats import reaches
from frostline.training.prepare import seed_for

Compared = dict[str, Any]
WAYS = {"Trainer": False, "Trainer, frozen in eval": True}
"""whether what is frozen is in eval"""


def measured(asked: Asked, out: Path) -> dict[str, dict[str, Compared]]:
    """Ours against Trainer each way, by kind of run."""
    ours = whole_command(asked, asked.sizes.scored, out / "scored")["points"]
    found: dict[str, dict[str, Compared]] = {}
    for way, in_eval in WAYS.items():
        # Nothing of the full model is frozen: both ways are one.
        kinds = [kind for kind in KINDS if kind != FULL or not in_eval]
        found[way] = {kind: compared(ours[kind]["scores"], _trainer_scores(asked, kind, in_eval)) for kind in kinds}
    return found


def all_as_good(found: dict[str, dict[str, Compared]]) -> bool:
    """Whether ours is as good at each depth, whichever way Trainer is used."""
    return all(one["as_good"] for by_kind in found.values() for one in by_kind.values())


def _trainer_scores(asked: Asked, kind: str, in_eval: bool) -> list[float]:
    """Trainer's score for each seed; its head starts as ours does."""
    work = asked.sizes.scored
    rows: dict[str, Any] = {"data": asked.data, "max_train": work.n_train, "max_dev": asked.sizes.max_dev}
    data = tasks.load(tasks.parse(TASK, **rows))
    spec = specs_of(TASK, **rows)[FULL]
    scores = []
    for seed in range(work.n_seeds):
        head = seed_for(spec.replace(seed=seed), "head")
        score = trained_score(
            kind, data, epochs=work.epochs, rate=work.rates[0], seed=seed, head_seed=head, in_eval=in_eval
        )
        scores.append(score)
        say(f"Trainer, {kind}, {'eval, ' if in_eval else ''}seed {seed}: {score:.3f}")
    return scores


def compared(ours: list[float], trainer: list[float]) -> Compared:
    """Ours less Trainer's, paired by seed, with the 95% interval; as good where that reaches 0 or above."""
    interval = stats.difference_interval(ours, trainer)
    assert interval is not None, "the bench scores at least three seeds"
    return {
        "frostline": stats.mean(ours),
        "trainer": stats.mean(trainer),
        "difference": stats.mean(ours) - stats.mean(trainer),
        "interval": interval,
        "as_good": reaches(interval[1], 0.0),
        "frostline_scores": ours,
        "trainer_scores": trainer,
    }


def main() -> None:
    """A table, or JSON; exit code 1 where ours is worse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        found = measured(Asked(data=arguments.data, sizes=REAL, n_steps=0, repetitions=0), Path(out))
    print(json.dumps(found, indent=2) if arguments.json else scores_table(found, REAL.scored.text))
    sys.exit(not all_as_good(found))


if __name__ == "__main__":
    main()
