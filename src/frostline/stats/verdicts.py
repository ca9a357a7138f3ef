"""Verdicts: whether depths surely keep a share of the full score, surely fall short, or are open.

A verdict is wrong with at most the error that is allowed for it. A depth can be wrong on one side of the bar only, so
margins are one-sided. To be sure of all verdicts of a curve at once, the caller divides the error by the number of
depths.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Literal

import numpy as np

from frostline.records.depth import FULL, Depth
from frostline.stats.basics import is_above
from frostline.stats.crossed import CrossedPair, SeedPart

Verdict = Literal["kept", "short", "open"]


def verdict(
    pair: CrossedPair | None, *, keep: float, base: float, error: float, error_short: float | None = None
) -> Verdict:
    """Whether the first of two models keeps a share of what the second has above a base.

    Args:
        pair: the two models; None: nothing is known.
        keep: the share.
        base: the score that counts as nothing.
        error: how often the verdict may be wrong.
        error_short: how often `short` may be wrong, if that is another number.
    """
    if pair is None:
        return "open"
    gap = gap_of(pair, keep, base)
    if is_above(gap, pair.margin((1.0, -keep), error)):
        return "kept"
    margin = pair.margin((1.0, -keep), error if error_short is None else error_short)
    return "short" if is_above(-gap, margin) else "open"


def gap_of(pair: CrossedPair, keep: float, base: float) -> float:
    """How far the first model is above the share of the second."""
    return float(pair.means[0] - (base + keep * (pair.means[1] - base)))


POWER = 0.8
"""How probable it must be that this number of seeds settles a depth."""
_MOST_SEEDS = 1000


def seeds_to_settle(pair: CrossedPair, n_seeds: int, *, keep: float, base: float, error: float) -> int | None:
    """How many seeds would make the verdict sure with 80% probability, if scores go on as they are.

    Args:
        pair: the two models.
        n_seeds: seeds that both have now.
        keep: the share.
        base: the score that counts as nothing.
        error: how often the verdict may be wrong.

    Returns:
        A number above `n_seeds`; None if a thousand would not do, because the dev rows do not tell.
    """
    gap, weights = abs(gap_of(pair, keep, base)), (1.0, -keep)

    def is_settled(number: int) -> bool:
        then = pair.with_more_seeds(number / n_seeds)
        return gap >= then.margin(weights, error) + then.seed_margin(weights, 1 - POWER)

    if not is_settled(_MOST_SEEDS):
        return None
    numbers = range(n_seeds + 1, _MOST_SEEDS + 1)
    return numbers[bisect.bisect_left(numbers, True, key=is_settled)]


def told_apart(n_seeds: int, n_rows: int, *, keep: float, error: float, score: float, deviation: float) -> float:
    """How far from the bar a depth must be for a sure verdict with 80% probability, before anything was run.

    Args:
        n_seeds: seeds of the depth and of the full model.
        n_rows: dev rows.
        keep: the share.
        error: how often the verdict may be wrong.
        score: an accuracy that the models may have; it sets how much rows vary.
        deviation: of scores from seed to seed.
    """
    over_seeds = deviation**2 / n_seeds
    row, shared = score * (1 - score) / n_rows, 0.6  # two models share about this part of their mistakes
    pair = CrossedPair(
        means=np.zeros(2),
        seeds=tuple(SeedPart(np.diag(one) * over_seeds, n_seeds - 1) for one in ((1.0, 0.0), (0.0, 1.0))),
        rows=np.array([[row, shared * row], [shared * row, row]]),
        interaction=np.zeros(2),
        row_freedom=n_rows - 1,
    )
    return pair.margin((1.0, -keep), error) + pair.margin((1.0, -keep), 1 - POWER)


def is_better(pair: CrossedPair | None, *, error: float) -> bool:
    """Whether the first of two models is surely better than the second."""
    return pair is not None and is_above(float(pair.means[0] - pair.means[1]), pair.margin((1.0, -1.0), error))


def established_depth(verdicts: Mapping[int, Verdict]) -> Depth:
    """The deepest depth that surely keeps the share; FULL if none does."""
    kept = [depth for depth, said in verdicts.items() if said == "kept"]
    return max(kept) if kept else FULL


def plausible_depths(verdicts: Mapping[int, Verdict]) -> tuple[Depth, ...]:
    """The depths that may be the operating depth, FULL first.

    The operating depth is none that surely falls short, and it is not shallower than one that surely keeps the share.
    """
    sure = established_depth(verdicts)
    kept = [d for d, said in sorted(verdicts.items()) if said != "short" and (sure is FULL or d >= sure)]
    return (*([FULL] if sure is FULL else []), *kept)
