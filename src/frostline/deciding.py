"""Which runs tell how many layers may be frozen, and when it is told: the logic of `find`, on plain numbers.

Depths are tried from the deepest up, because a run that trains little costs little; seeds are added where it is not yet
told whether a depth keeps the share. What is asked for next depends on the scores alone, so that a search that was
killed goes on as it would have. Knows nothing of runs, stores or models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from frostline import stats

Verdict = Literal["keeps", "short", "open"]
Run = tuple[int | None, int]
"""depth (None: the full model) and seed"""
Scores = Mapping[int | None, Mapping[int, float | None]]
"""by depth and seed; None where the run crashed"""

PRIOR_FREEDOM = 4.0
"""How many seeds' worth of evidence the noise of the dev rows is, as to how much a score varies from seed to seed."""
FIRST_SEEDS = 2
"""Seeds that a depth, and the full model, is first tried with."""
FIRST_SHARE = 0.25
"""The deepest cuts are tried at once as long as one run of each costs together at most this share of a full run."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be found, and what may be spent on it."""

    keep: float
    """share of the full score"""
    base: float = 0.0
    """what counts as nothing: 0, or chance"""
    confidence: float = 0.95
    """how sure an answer must be"""
    seeds: tuple[int, ...]
    """in the order they are used"""
    depths: tuple[int, ...]
    """that may be the answer, ascending"""
    costs: Mapping[int | None, float]
    """of one run, by depth, in full runs"""
    budget: float
    """for all runs together, in full runs"""

    @property
    def error_a_look(self) -> float:
        """How often one test may be wrong: a depth is looked at anew with each seed, and errs on two sides."""
        return (1 - self.confidence) / 2 / max(1, len(self.seeds) - FIRST_SEEDS + 1)

    def cost(self, runs: Sequence[Run]) -> float:
        """Of these runs, in full runs."""
        return math.fsum(self.costs[depth] for depth, _ in runs)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The end of a search."""

    n_frozen: int | None
    """most layers that can be frozen; None: the full model alone keeps the share"""
    is_decided: bool
    """the evidence is as sure as was asked; otherwise it is the best estimate"""
    because: str
    """why the search ended"""


def next_step(question: Question, scores: Scores, noise: float) -> Decision | list[Run]:
    """The end of the search, or what to run next.

    Args:
        question: what is asked.
        scores: what is there so far.
        noise: variance of one run's score over other dev rows; until seeds tell, from seed to seed it is taken to be
            that.
    """
    runs = _wanted(question, scores, noise)
    full = _finished(scores, None)
    if len(full) >= FIRST_SEEDS and not stats.is_above(stats.mean(full), question.base):
        said = f"the full model's mean score is {stats.mean(full):.4g}, not above {question.base:.4g}"
        return Decision(n_frozen=None, is_decided=False, because=said)
    if not runs:
        return _settled(question, scores, noise)
    if question.cost([*_done(scores), *runs]) > question.budget + stats.ROUNDING:
        said = f"the budget of {question.budget:.3g} full runs is used up"
        return Decision(n_frozen=_estimate(question, scores), is_decided=False, because=said)
    return runs


def verdict(question: Question, full: Sequence[float], own: Sequence[float], noise: float) -> Verdict:
    """Whether the mean of a depth's scores keeps the share of the full model's, beyond doubt, or not, or is open."""
    if len(full) < FIRST_SEEDS or not own:
        return "open"
    gap = stats.mean(own) - stats.bar_of(question.keep, stats.mean(full), question.base)
    margin = stats.moderated_margin(
        [(own, 1.0), (full, question.keep)], prior=noise, prior_freedom=PRIOR_FREEDOM, error=question.error_a_look
    )
    if abs(gap) < margin:
        return "open"
    return "keeps" if stats.reaches(gap, 0.0) else "short"


def _wanted(question: Question, scores: Scores, noise: float) -> list[Run]:
    """What the search needs next; nothing where it is at its end."""
    first = question.seeds[:FIRST_SEEDS]
    tried_first = [(depth, seed) for depth in (None, *_first_depths(question)) for seed in first]
    if opening := _missing(question, scores, tried_first):
        return opening
    verdicts = _verdicts(question, scores, noise)
    if unsure := _unsure(verdicts):
        return _with_more_seeds(question, scores, unsure)
    found = _deepest_kept(verdicts)
    if found is not None:
        # A depth beside the answer that falls short is a dip, and worth knowing of.
        beside = [depth for depth in question.depths if depth < found][-1:]
        return _missing(question, scores, [(depth, question.seeds[0]) for depth in beside])
    further = [depth for depth in question.depths if depth not in verdicts][-1:]
    return _missing(question, scores, [(depth, seed) for depth in further for seed in first])


def _with_more_seeds(question: Question, scores: Scores, depths: Sequence[int]) -> list[Run]:
    """As many seeds at these depths as the full model has; one more for all where they have."""
    for n_seeds in range(FIRST_SEEDS, len(question.seeds) + 1):
        seeds = question.seeds[:n_seeds]
        runs = _missing(question, scores, [(depth, seed) for depth in (None, *depths) for seed in seeds])
        if runs:
            return runs
    return []


def _settled(question: Question, scores: Scores, noise: float) -> Decision:
    verdicts = _verdicts(question, scores, noise)
    if _unsure(verdicts):
        said = f"all {len(question.seeds)} seeds are used up"
        return Decision(n_frozen=_estimate(question, scores), is_decided=False, because=said)
    said = f"decided at {question.confidence:.0%} confidence"
    return Decision(n_frozen=_deepest_kept(verdicts), is_decided=True, because=said)


def _deepest_kept(verdicts: Mapping[int, Verdict]) -> int | None:
    return max((depth for depth, said in verdicts.items() if said == "keeps"), default=None)


def _unsure(verdicts: Mapping[int, Verdict]) -> list[int]:
    """The depths that may be the answer, or not: open, and none deeper keeps the share."""
    found = _deepest_kept(verdicts)
    return [depth for depth, said in verdicts.items() if said == "open" and (found is None or depth > found)]


def _estimate(question: Question, scores: Scores) -> int | None:
    """The largest depth whose mean reaches the bar, of those that were tried."""
    full = _finished(scores, None)
    if not full:
        return None
    means = {depth: stats.mean(own) for depth in question.depths if (own := _finished(scores, depth))}
    return stats.operating_depth(means, stats.bar_of(question.keep, stats.mean(full), question.base))


def _verdicts(question: Question, scores: Scores, noise: float) -> dict[int, Verdict]:
    """Of the depths that were tried, ascending."""
    full = _finished(scores, None)
    tried = [depth for depth in question.depths if scores.get(depth)]
    return {depth: verdict(question, full, _finished(scores, depth), noise) for depth in tried}


def _first_depths(question: Question) -> list[int]:
    """The deepest cuts, which cost little together; one at least."""
    chosen: list[int] = []
    for depth in reversed(question.depths):
        if chosen and question.cost([(d, 0) for d in (*chosen, depth)]) > FIRST_SHARE + stats.ROUNDING:
            break
        chosen.append(depth)
    return chosen


def _missing(question: Question, scores: Scores, runs: Sequence[Run]) -> list[Run]:
    """Those that were not tried, the costliest first."""
    new = [(depth, seed) for depth, seed in runs if seed not in scores.get(depth, {})]
    return sorted(new, key=lambda run: -question.costs[run[0]])


def _done(scores: Scores) -> list[Run]:
    return [(depth, seed) for depth, by_seed in scores.items() for seed in by_seed]


def _finished(scores: Scores, depth: int | None) -> list[float]:
    return [score for score in scores.get(depth, {}).values() if score is not None]
