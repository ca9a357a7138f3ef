"""The rules of `find`, on plain numbers: which runs to do next, and when the search ends.

The search tries the deepest cuts first, because a run that trains few layers is cheap, and then shallower ones. A depth
gets more seeds while it is open whether it keeps the share. A depth that the remaining seeds cannot settle is given up.
The search ends when the answer is decided, when no run can help, or when the next runs would exceed the budget.

The next step depends on the scores alone. So a search that was killed continues exactly as it would have. This module
does not know runs, stores or models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from frostline import stats
from frostline.records.depth import FULL, Depth, depth_words, with_full

Verdict = Literal["keeps", "short", "open"]
Run = tuple[Depth, int]
"""depth and seed"""
Scores = Mapping[Depth, Mapping[int, float | None]]
"""scores by depth and seed; None if the run crashed"""

ROW_FREEDOM = 2.0
"""The noise of the dev rows counts as this many seeds of evidence about how much scores vary from seed to seed."""
PRIOR_FREEDOM = 4.0
"""The pooled variance of all depths counts as this many seeds of evidence about the variance of one depth."""
MAY_MOVE = 0.3
"""When a depth is given up, the remaining seeds may move its mean further than assumed in this share of cases."""
FIRST_SEEDS = 2
"""The full model and each depth start with this many seeds."""
FIRST_SHARE = 0.25
"""The deepest cuts start together while one run of each costs at most this share of a full run in total."""
RUNGS = ((1 / 6, 2), (1 / 2, 1))
"""The rungs of a race of rates: train the remaining rates to this share of the steps, then keep this many."""


def race_cost(n_rates: int) -> float:
    """The cost of a race, in full runs.

    >>> race_cost(5)
    1.5
    """
    n_left, before, spent = n_rates, 0.0, 0.0
    for share, n_next in RUNGS:
        spent += (share - before) * n_left
        before, n_left = share, min(n_left, n_next)
    return round(spent, 9)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How one learning rate did so far in a race."""

    rate: float
    score: float
    noise: float
    """standard deviation of the score over resampled rows"""
    loss: float
    """mean loss on the rows that give the score"""


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """Best first: by score; among scores within noise of the best, by loss, then the lower rate.

    Early in a run all scores are near chance and differ by accident, but the losses already show which rate learns.
    """
    best = max(standings, key=lambda one: one.score)
    leading = [one for one in standings if one.score >= best.score - best.noise]
    behind = [one for one in standings if one.score < best.score - best.noise]
    return [
        *sorted(leading, key=lambda one: (one.loss, one.rate)),
        *sorted(behind, key=lambda one: (-one.score, one.rate)),
    ]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a search looks for, and its budget."""

    keep: float
    """share of the full score"""
    base: float = 0.0
    """the score that counts as nothing: 0, or chance"""
    chance: float = 0.0
    """the score of a constant prediction; if the full model is not above it, the search ends"""
    confidence: float = 0.95
    """how sure an answer must be"""
    seeds: tuple[int, ...]
    """seeds in the order of use"""
    depths: tuple[int, ...]
    """candidate depths, ascending"""
    costs: Mapping[Depth, float]
    """cost of one run by depth, in full runs"""
    budget: float
    """most that all runs together may cost, in full runs"""
    spent: float = 0.0
    """cost before the search over depth began, in full runs"""

    @property
    def error_a_look(self) -> float:
        """The error allowed for one look: a depth is tested again with each new seed, on one side of the bar."""
        return (1 - self.confidence) / max(1, len(self.seeds) - FIRST_SEEDS + 1)

    def cost(self, runs: Sequence[Run]) -> float:
        """The cost of these runs, in full runs."""
        return math.fsum(self.costs[depth] for depth, _ in runs)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The end of a search."""

    n_frozen: Depth
    """most layers that can be frozen; FULL: no depth keeps the share"""
    is_decided: bool
    """the evidence reaches the confidence that was asked for; if not, `n_frozen` is the best estimate"""
    because: str
    """why the search ended"""


def next_step(question: Question, scores: Scores, noise: float) -> Decision | list[Run]:
    """The end of the search, or the runs to do next.

    Args:
        question: what to find.
        scores: all scores so far.
        noise: variance of the score of one run over resampled dev rows. It matters while there are few seeds.
    """
    full = _finished(scores, FULL)
    floor = max(question.base, question.chance)
    if len(full) >= FIRST_SEEDS and not stats.is_above(stats.mean(full), floor):
        said = f"the full model did not learn: its mean score is {stats.mean(full):.4g}, not above {floor:.4g}"
        estimate = _estimate(question, scores) if stats.is_above(stats.mean(full), question.base) else FULL
        return Decision(n_frozen=estimate, is_decided=False, because=said)
    prior = _variance(scores, noise)
    runs = _wanted(question, scores, prior)
    if not runs:
        return _settled(question, scores, prior)
    if question.spent + question.cost([*_done(scores), *runs]) > question.budget + stats.ROUNDING:
        return Decision(n_frozen=_estimate(question, scores), is_decided=False, because=_why_stopped(question, scores))
    return runs


def _why_stopped(question: Question, scores: Scores) -> str:
    """Why a search that ran out of budget is over, with the depths that it did not try."""
    said = f"the budget of {question.budget:.3g} full runs is used up"
    untried = [str(depth) for depth in question.depths if not scores.get(depth)]
    tail = f"; depths not tried: {', '.join(untried)}" if untried else ""
    return f"{said}{tail}; a larger --budget continues the search"


def likely_step(question: Question, scores: Scores, step: Sequence[Run], noise: float) -> list[Run]:
    """A guess at the step after this one: each depth scores as before, or as the full model if it is new."""
    full = _finished(scores, FULL)
    if not full:
        return []
    filled: dict[Depth, dict[int, float | None]] = {depth: dict(by_seed) for depth, by_seed in scores.items()}
    for depth, seed in step:
        filled.setdefault(depth, {})[seed] = stats.mean(_finished(scores, depth) or full)
    after = next_step(question, filled, noise)
    return after if isinstance(after, list) else []


def verdict(question: Question, full: Sequence[float], own: Sequence[float], prior: float) -> Verdict:
    """Whether a depth surely keeps the share, surely falls short, or is open.

    Args:
        question: what to find.
        full: scores of the full model.
        own: scores of the depth.
        prior: variance from seed to seed, pooled over all depths; it moderates the variance of the depth itself.
    """
    if len(full) < FIRST_SEEDS or not own:
        return "open"
    gap = _gap(question, full, own)
    if abs(gap) < _margin(question, full, own, prior, question.error_a_look):
        return "open"
    return "keeps" if stats.reaches(gap, 0.0) else "short"


def is_too_close(question: Question, full: Sequence[float], own: Sequence[float], prior: float) -> bool:
    """Whether the remaining seeds are unlikely to settle an open depth."""
    if min(len(full), len(own)) < FIRST_SEEDS:
        return False
    share = min(1.0, len(own) / len(question.seeds))
    final_margin = _margin(question, full, own, prior, question.error_a_look) * math.sqrt(share)
    may_move = _margin(question, full, own, prior, MAY_MOVE) * math.sqrt(1 - share)
    return abs(_gap(question, full, own)) + may_move < final_margin


def _gap(question: Question, full: Sequence[float], own: Sequence[float]) -> float:
    """How far the mean of a depth is above the bar."""
    return stats.mean(own) - stats.bar_of(question.keep, stats.mean(full), question.base)


def _margin(question: Question, full: Sequence[float], own: Sequence[float], prior: float, error: float) -> float:
    """How far the gap may be off to one side, except in a share `error` of cases."""
    parts = [(own, 1.0), (full, question.keep)]
    return stats.moderated_margin(parts, prior=prior, prior_freedom=PRIOR_FREEDOM, error=error)


def _wanted(question: Question, scores: Scores, prior: float) -> list[Run]:
    """The runs the search needs next; empty at its end."""
    first = question.seeds[:FIRST_SEEDS]
    tried_first = [(depth, seed) for depth in with_full(_first_depths(question)) for seed in first]
    if opening := _missing(question, scores, tried_first):
        return opening
    verdicts = _verdicts(question, scores, prior)
    tellable = [depth for depth in _unsure(verdicts) if not _is_too_close(question, scores, depth, prior)]
    if tellable and (runs := _with_more_seeds(question, scores, tellable)):
        return runs
    found = _estimate(question, scores)
    if found is not FULL:
        # If the next shallower depth falls short, the curve has a dip, and the user should know.
        beside = [depth for depth in question.depths if depth < found][-1:]
        return _missing(question, scores, [(depth, question.seeds[0]) for depth in beside])
    further = [depth for depth in question.depths if depth not in verdicts][-1:]
    return _missing(question, scores, [(depth, seed) for depth in further for seed in first])


def _with_more_seeds(question: Question, scores: Scores, depths: Sequence[int]) -> list[Run]:
    """Bring these depths to the full model's number of seeds; if they have it, one more seed for all."""
    for n_seeds in range(FIRST_SEEDS, len(question.seeds) + 1):
        seeds = question.seeds[:n_seeds]
        runs = _missing(question, scores, [(depth, seed) for depth in with_full(depths) for seed in seeds])
        if runs:
            return runs
    return []


def _settled(question: Question, scores: Scores, prior: float) -> Decision:
    verdicts = _verdicts(question, scores, prior)
    if unsure := _unsure(verdicts):
        said = _why_open(question, scores, unsure)
        return Decision(n_frozen=_estimate(question, scores), is_decided=False, because=said)
    said = f"decided at {question.confidence:.0%} confidence"
    return Decision(n_frozen=_deepest_kept(verdicts), is_decided=True, because=said)


def _why_open(question: Question, scores: Scores, unsure: Sequence[int]) -> str:
    """Why the seeds did not settle it: runs crashed, or depths are too close to the bar."""
    crashed = [depth for depth in with_full(unsure) if len(_finished(scores, depth)) < FIRST_SEEDS]
    named = ", ".join(depth_words(depth) for depth in crashed or unsure)
    return f"runs crashed: {named}" if crashed else f"too close to the bar for {len(question.seeds)} seeds: {named}"


def _deepest_kept(verdicts: Mapping[int, Verdict]) -> Depth:
    kept = [depth for depth, said in verdicts.items() if said == "keeps"]
    return max(kept) if kept else FULL


def _unsure(verdicts: Mapping[int, Verdict]) -> list[int]:
    """The open depths that could still be the answer: no deeper one keeps the share."""
    found = _deepest_kept(verdicts)
    return [depth for depth, said in verdicts.items() if said == "open" and (found is FULL or depth > found)]


def _is_too_close(question: Question, scores: Scores, depth: int, prior: float) -> bool:
    return is_too_close(question, _finished(scores, FULL), _finished(scores, depth), prior)


def _estimate(question: Question, scores: Scores) -> Depth:
    """The largest depth tried so far whose mean reaches the bar."""
    full = _finished(scores, FULL)
    if not full:
        return FULL
    means = {depth: stats.mean(own) for depth in question.depths if (own := _finished(scores, depth))}
    return stats.operating_depth(means, stats.bar_of(question.keep, stats.mean(full), question.base))


def _variance(scores: Scores, noise: float) -> float:
    """The variance of a score from seed to seed, pooled over all depths, with the noise of the rows as a prior."""
    groups = [own for depth in scores if (own := _finished(scores, depth))]
    freedom = ROW_FREEDOM + sum(len(own) - 1 for own in groups)
    return (ROW_FREEDOM * noise + math.fsum(stats.sum_of_squares(own) for own in groups)) / freedom


def _verdicts(question: Question, scores: Scores, prior: float) -> dict[int, Verdict]:
    """The verdict on each depth that was tried, ascending."""
    full = _finished(scores, FULL)
    tried = [depth for depth in question.depths if scores.get(depth)]
    return {depth: verdict(question, full, _finished(scores, depth), prior) for depth in tried}


def _first_depths(question: Question) -> list[int]:
    """The deepest cuts that are cheap together; at least one."""
    chosen: list[int] = []
    for depth in reversed(question.depths):
        if chosen and question.cost([(d, 0) for d in (*chosen, depth)]) > FIRST_SHARE + stats.ROUNDING:
            break
        chosen.append(depth)
    return chosen


def _missing(question: Question, scores: Scores, runs: Sequence[Run]) -> list[Run]:
    """The runs that were not done yet, the most expensive first."""
    new = [(depth, seed) for depth, seed in runs if seed not in scores.get(depth, {})]
    return sorted(new, key=lambda run: -question.costs[run[0]])


def _done(scores: Scores) -> list[Run]:
    return [(depth, seed) for depth, by_seed in scores.items() for seed in by_seed]


def _finished(scores: Scores, depth: Depth) -> list[float]:
    return [score for score in scores.get(depth, {}).values() if score is not None]
