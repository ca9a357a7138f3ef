"""Does ours score as well as Trainer at each depth? Same rows, epochs, rate, seeds and first heads."""

from __future__ import annotations

from typing import Any

from bench.steps import specs_of
from bench.trainer import trained_score
from bench.workload import KINDS, TASK, Asked, say
from frostline import stats, tasks
from frostline.run import seed_for
from frostline.stats import reaches


def trainer_scores(asked: Asked) -> dict[str, list[float]]:
    """Trainer's score for each seed, by kind of run; its head starts as ours does."""
    work, dev = asked.sizes.scored, asked.sizes.max_dev
    rows: dict[str, Any] = {"data": asked.data, "max_train": work.n_train, "max_dev": dev}
    data = tasks.load(tasks.parse(TASK, **rows))
    spec = specs_of(TASK, **rows)["full"]
    scores: dict[str, list[float]] = {}
    for kind in KINDS:
        scores[kind] = []
        for seed in range(work.n_seeds):
            head = seed_for(spec.replace(seed=seed), "head")
            score = trained_score(kind, data, epochs=work.epochs, rate=work.rates[0], seed=seed, head_seed=head)
            scores[kind].append(score)
            say(f"Trainer, {kind}, seed {seed}: {score:.3f}")
    return scores


def compared(ours: list[float], trainer: list[float]) -> dict[str, Any]:
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
