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


def with_failed(point: Replicated | None) -> str:
    """The same, to be added to the name of a depth or a strategy: ` (2 of 5 runs failed)`; empty if none did."""
    return f" ({failed_runs(point)} failed)" if point is not None and point.n_failed else ""


def advice(point: Replicated, chance: float) -> str:
    """What to try if the full model, or a depth, did not learn, from what its runs show."""
    if point.n_diverged:
        runs = numbers.counted(len(point.scores), "run")
        return f"{point.n_diverged} of {runs} diverged: use a lower learning rate (--lr)"
    learned = stats.mean(point.train_scores) if point.train_scores else chance
    if learned > chance + _LEARNED * (1 - chance):
        return f"the training rows are learned ({numbers.score(learned)}) but not dev: train on more rows"
    return "train longer (--epochs), use a higher learning rate (--lr), or train on more rows"
