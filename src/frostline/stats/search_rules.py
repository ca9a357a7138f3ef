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

ROW_FREEDOM = 2.0
"""How many seeds' worth of evidence the noise of the dev rows is, as to how much scores vary from seed to seed."""
PRIOR_FREEDOM = 4.0
"""How many seeds' worth of evidence the variance of all depths together is, as to that of one."""
MAY_MOVE = 0.3
"""How often the seeds that are left may move a depth's mean further than is reckoned with when it is given up."""
FIRST_SEEDS = 2
"""Seeds that a depth, and the full model, is first tried with."""
FIRST_SHARE = 0.25
"""The deepest cuts are tried at once as long as one run of each costs together at most this share of a full run."""
RUNGS = ((1 / 6, 2), (1 / 2, 1))
"""Of a race of rates: the share of the steps that all who are left are brought to, and how many go on from there."""


def race_cost(n_rates: int) -> float:
    """What a race takes, in full runs.

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
    """Where a rate stands among those that were tried."""

    rate: float
    score: float
    noise: float
    """standard deviation of the score over other rows"""
    loss: float
    """on the rows it was scored on"""


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """The best first: by score, and where scores are within noise of the best one by loss, then the lower rate.

    Early in a run scores are still at chance and differ by accident, while the losses already tell who learns.
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
    """What is to be found, and what may be spent on it."""

    keep: float
    """share of the full score"""
    base: float = 0.0
    """what counts as nothing: 0, or chance"""
    chance: float = 0.0
    """what a full model that has learnt nothing scores: a share of that is worth no search"""
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
    spent: float = 0.0
    """of it, before the search over depth began"""

    @property
    def error_a_look(self) -> float:
        """How often one look may be wrong: a depth is looked at anew with each seed, and is on one side of the bar."""
        return (1 - self.confidence) / max(1, len(self.seeds) - FIRST_SEEDS + 1)

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
        noise: variance of one run's score over other dev rows; where few seeds tell how much scores vary, it counts.
    """
    full = _finished(scores, None)
    floor = max(question.base, question.chance)
    if len(full) >= FIRST_SEEDS and not stats.is_above(stats.mean(full), floor):
        said = f"the full model learnt nothing: its mean score is {stats.mean(full):.4g}, not above {floor:.4g}"
        estimate = _estimate(question, scores) if stats.is_above(stats.mean(full), question.base) else None
        return Decision(n_frozen=estimate, is_decided=False, because=said)
    prior = _variance(scores, noise)
    runs = _wanted(question, scores, prior)
    if not runs:
        return _settled(question, scores, prior)
    if question.spent + question.cost([*_done(scores), *runs]) > question.budget + stats.ROUNDING:
        said = f"the budget of {question.budget:.3g} full runs is used up"
        return Decision(n_frozen=_estimate(question, scores), is_decided=False, because=said)
    return runs


def likely_step(question: Question, scores: Scores, step: Sequence[Run], noise: float) -> list[Run]:
    """What will be asked for after a step if it goes as it looks: each depth as it did, or else as the full model."""
    full = _finished(scores, None)
    if not full:
        return []
    filled: dict[int | None, dict[int, float | None]] = {depth: dict(by_seed) for depth, by_seed in scores.items()}
    for depth, seed in step:
        filled.setdefault(depth, {})[seed] = stats.mean(_finished(scores, depth) or full)
    after = next_step(question, filled, noise)
    return after if isinstance(after, list) else []


def verdict(question: Question, full: Sequence[float], own: Sequence[float], prior: float) -> Verdict:
    """Whether the mean of a depth's scores keeps the share of the full model's, beyond doubt, or not, or is open.

    Args:
        question: what is asked.
        full: the full model's scores.
        own: the depth's.
        prior: variance of a score from seed to seed as all depths have it; the depth's own moderates it.
    """
    if len(full) < FIRST_SEEDS or not own:
        return "open"
    gap = _gap(question, full, own)
    if abs(gap) < _margin(question, full, own, prior, question.error_a_look):
        return "open"
    return "keeps" if stats.reaches(gap, 0.0) else "short"


def is_too_close(question: Question, full: Sequence[float], own: Sequence[float], prior: float) -> bool:
    """Whether a depth that is open will hardly be told from the bar by the seeds that are left."""
    if min(len(full), len(own)) < FIRST_SEEDS:
        return False
    share = min(1.0, len(own) / len(question.seeds))
    final_margin = _margin(question, full, own, prior, question.error_a_look) * math.sqrt(share)
    may_move = _margin(question, full, own, prior, MAY_MOVE) * math.sqrt(1 - share)
    return abs(_gap(question, full, own)) + may_move < final_margin


def _gap(question: Question, full: Sequence[float], own: Sequence[float]) -> float:
    """How far a depth's mean is above the bar."""
    return stats.mean(own) - stats.bar_of(question.keep, stats.mean(full), question.base)


def _margin(question: Question, full: Sequence[float], own: Sequence[float], prior: float, error: float) -> float:
    """How far the gap may be off to one side, but for a share `error` of cases."""
    parts = [(own, 1.0), (full, question.keep)]
    return stats.moderated_margin(parts, prior=prior, prior_freedom=PRIOR_FREEDOM, error=error)


def _wanted(question: Question, scores: Scores, prior: float) -> list[Run]:
    """What the search needs next; nothing where it is at its end."""
    first = question.seeds[:FIRST_SEEDS]
    tried_first = [(depth, seed) for depth in (None, *_first_depths(question)) for seed in first]
    if opening := _missing(question, scores, tried_first):
        return opening
    verdicts = _verdicts(question, scores, prior)
    tellable = [depth for depth in _unsure(verdicts) if not _is_too_close(question, scores, depth, prior)]
    if tellable and (runs := _with_more_seeds(question, scores, tellable)):
        return runs
    found = _estimate(question, scores)
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


def _settled(question: Question, scores: Scores, prior: float) -> Decision:
    verdicts = _verdicts(question, scores, prior)
    if unsure := _unsure(verdicts):
        said = _why_open(question, scores, unsure)
        return Decision(n_frozen=_estimate(question, scores), is_decided=False, because=said)
    said = f"decided at {question.confidence:.0%} confidence"
    return Decision(n_frozen=_deepest_kept(verdicts), is_decided=True, because=said)


def _why_open(question: Question, scores: Scores, unsure: Sequence[int]) -> str:
    """What the seeds could not tell: depths whose runs crashed, or else those that are too close to the bar."""
    crashed = [depth for depth in (None, *unsure) if len(_finished(scores, depth)) < FIRST_SEEDS]
    named = ", ".join("full" if depth is None else f"n_frozen {depth}" for depth in crashed or unsure)
    return f"runs crashed: {named}" if crashed else f"too close to the bar for {len(question.seeds)} seeds: {named}"


def _deepest_kept(verdicts: Mapping[int, Verdict]) -> int | None:
    return max((depth for depth, said in verdicts.items() if said == "keeps"), default=None)


def _unsure(verdicts: Mapping[int, Verdict]) -> list[int]:
    """The depths that may be the answer, or not: open, and none deeper keeps the share."""
    found = _deepest_kept(verdicts)
    return [depth for depth, said in verdicts.items() if said == "open" and (found is None or depth > found)]


def _is_too_close(question: Question, scores: Scores, depth: int, prior: float) -> bool:
    return is_too_close(question, _finished(scores, None), _finished(scores, depth), prior)


def _estimate(question: Question, scores: Scores) -> int | None:
    """The largest depth whose mean reaches the bar, of those that were tried."""
    full = _finished(scores, None)
    if not full:
        return None
    means = {depth: stats.mean(own) for depth in question.depths if (own := _finished(scores, depth))}
    return stats.operating_depth(means, stats.bar_of(question.keep, stats.mean(full), question.base))


def _variance(scores: Scores, noise: float) -> float:
    """Of a score from seed to seed, from all depths together and the noise of the rows."""
    groups = [own for depth in scores if (own := _finished(scores, depth))]
    freedom = ROW_FREEDOM + sum(len(own) - 1 for own in groups)
    return (ROW_FREEDOM * noise + math.fsum(stats.sum_of_squares(own) for own in groups)) / freedom


def _verdicts(question: Question, scores: Scores, prior: float) -> dict[int, Verdict]:
    """Of the depths that were tried, ascending."""
    full = _finished(scores, None)
    tried = [depth for depth in question.depths if scores.get(depth)]
    return {depth: verdict(question, full, _finished(scores, depth), prior) for depth in tried}


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
