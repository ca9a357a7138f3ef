"""Verdicts: whether depths surely keep a share of the full score, surely fall short, or are open.

A verdict is wrong with at most the error that is allowed for it. A depth can be wrong on one side of the bar only, so
margins are one-sided. To be sure of all verdicts of a curve at once, the caller divides the error by the number of
depths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from frostline.records.depth import FULL, Depth
from frostline.stats.basics import is_above
from frostline.stats.crossed import CrossedPair

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
