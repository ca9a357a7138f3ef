"""The rules of a race of learning rates, on plain numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

LOWEST_RATE, HIGHEST_RATE = 1e-6, 1e-2
"""a line of rates is not extended beyond these"""
_STEPS = (1, 2, 5)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How one learning rate did in a rung of a race."""

    rate: float
    score: float
    """mean over the seeds"""
    noise: float
    """standard deviation of the score over resampled rows"""
    loss: float
    """mean loss at the end of the schedule, on the rows that give the score; infinite if a run diverged"""
    has_learned: bool = True
    """whether its runs together score better than with shuffled labels"""


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """Best first: by score; among scores within noise of the best, by loss, then the lower rate.

    The losses are those at the end of a schedule, so a high rate that learns faster has no advantage. A rate at which
    a run diverged comes last.
    """
    sound = [one for one in standings if math.isfinite(one.loss)] or list(standings)
    best = max(sound, key=lambda one: one.score)
    leading = [one for one in sound if one.score >= best.score - best.noise]
    behind = [one for one in standings if one not in leading]
    return [
        *sorted(leading, key=lambda one: (one.loss, one.rate)),
        *sorted(behind, key=lambda one: (math.isinf(one.loss), -one.score, one.rate)),
    ]


def next_rate(best: float, line: Collection[float], *, has_learned: bool = True) -> float | None:
    """The rate beyond the end of a line, if the best is at its end: the next of 1, 2, 5, 10, …; else None.

    If the best has learned nothing, the line is extended upwards, wherever the best is. Where all rates are too low,
    the lowest one changes the model least and has the lowest loss, so its rank means nothing.

    >>> next_rate(2e-4, [5e-5, 1e-4, 2e-4])
    0.0005
    >>> next_rate(1e-4, [5e-5, 1e-4, 2e-4]) is None
    True
    >>> next_rate(5e-5, [5e-5, 1e-4, 2e-4], has_learned=False)
    0.0005
    """
    known = [step * 10.0**power for power in range(-7, 0) for step in _STEPS]
    above = [rate for rate in known if max(line) * 1.001 < rate <= HIGHEST_RATE * 1.001]
    below = [rate for rate in known if LOWEST_RATE * 0.999 <= rate < min(line) * 0.999]
    if above and (best >= max(line) or not has_learned):
        return float(f"{above[0]:.1g}")
    if below and best <= min(line):
        return float(f"{below[-1]:.1g}")
    return None
