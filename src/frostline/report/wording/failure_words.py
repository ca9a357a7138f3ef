"""What is said of runs that learned nothing, and what to try."""

from __future__ import annotations

from frostline import stats
from frostline.analysis import Replicated
from frostline.report import numbers

_LEARNED = 0.5
"""a training score this share of the way from chance to 1 means that the training rows are learned"""


def failed_runs(point: Replicated) -> str:
    """How many runs of a point failed: `2 of 5 runs`."""
    return f"{point.n_failed} of {numbers.counted(len(point.scores), 'run')}"


def how_many_failed(point: Replicated) -> str:
    """The same, to be added to a score; empty if none did."""
    return f", {failed_runs(point)} learned nothing" if point.n_failed else ""


def advice(full: Replicated, chance: float) -> str:
    """What to try if the full model did not learn, from what its runs show."""
    if full.n_diverged:
        runs = numbers.counted(len(full.scores), "run")
        return f"{full.n_diverged} of {runs} diverged: use a lower learning rate (--lr)"
    learned = stats.mean(full.train_scores) if full.train_scores else chance
    if learned > chance + _LEARNED * (1 - chance):
        return f"the training rows are learned ({numbers.score(learned)}) but not dev: train on more rows"
    return "train longer (--epochs), use a higher learning rate (--lr), or train on more rows"
