"""The rules of `find`, on plain numbers: which runs to do next, and when the search ends.

The search tries the deepest cuts first, because a run that trains few layers is cheap, and goes on to shallower ones
until a depth surely keeps the share. A depth is looked at after a few fixed numbers of seeds, and what a look decides
stays decided. A depth that the remaining seeds cannot settle is given up. The search ends when it knows the answer,
when no run can help, or when the next runs would exceed the budget.

A wrong answer needs one of two errors: the true depth is called short, or a deeper one is called kept. The first can
happen at one depth only, the second at any. Each kind gets half of the allowed error, divided by the number of looks,
and for the second also by the number of depths. So at most 1 − confidence of all searches decide wrongly.

A search may start with a given depth instead of the deepest ones. That changes the order of runs, not what a look says:
every depth that could be the answer is still looked at, with the same seeds and the same error.

The next step depends on the outcomes alone. So a search that was killed continues exactly as it would have. This module
does not know runs, stores or models.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frostline.records.depth import FULL, Depth, with_full
from frostline.stats.basics import ROUNDING, is_above, mean
from frostline.stats.crossed import CrossedPair, Scored, not_paired
from frostline.stats.operating_points import bar_of, operating_depth
from frostline.stats.search_question import FIRST_SEEDS, Decision, Outcome, Outcomes, Question, Run
from frostline.stats.verdicts import Verdict, established_depth, gap_of, plausible_depths, verdict

# Every step of a search asks again for the pairs and verdicts of the steps before it.
_verdict_of = functools.lru_cache(maxsize=256)(verdict)

MAY_MOVE = 0.3
"""When a depth is given up, the remaining seeds may move its mean further than assumed in this share of cases."""
FIRST_SHARE = 0.25
"""The deepest cuts start together while one run of each costs at most this share of a full run in total."""


@dataclass(frozen=True)
class Sample:
    """The runs that a depth is judged by at one look."""

    runs: tuple[Outcome, ...]
    missing: tuple[int, ...] = ()
    """seeds that are still to be run; the sample counts once there are none"""
    has_mostly_failed: bool = False
    """half of the runs or more failed, so all of them count"""

    @property
    def scored(self) -> Scored:
        """Their scores."""
        return Scored(
            np.array([one.score for one in self.runs]), np.stack([one.resampled for one in self.runs], axis=1)
        )

    @property
    def mean(self) -> float:
        """Of their scores."""
        return mean([one.score for one in self.runs])


def next_step(question: Question, outcomes: Outcomes) -> Decision | list[Run]:
    """The end of the search, or the runs to do next."""
    full = sample(question, outcomes, FULL, FIRST_SEEDS)
    n_crashed = sum(one is None for one in outcomes.get(FULL, {}).values())
    if not full.missing and (fault := _fault(question, full, n_crashed)):
        return Decision(n_frozen=FULL, is_decided=False, because=fault)
    runs = _wanted(question, outcomes)
    if not runs:
        return _settled(question, outcomes)
    if question.cost(_done(outcomes), runs) > question.budget + ROUNDING:
        return Decision(n_frozen=_estimate(question, outcomes), is_decided=False, because=_why_stopped(question, runs))
    return runs


def verdicts(question: Question, outcomes: Outcomes) -> dict[int, Verdict]:
    """The verdict on each depth, ascending; depths that were not tried are open."""
    return {depth: _verdict(question, outcomes, depth) for depth in question.depths}


def plausible(question: Question, outcomes: Outcomes) -> tuple[Depth, ...]:
    """The depths that may be the answer at the confidence asked."""
    return plausible_depths(verdicts(question, outcomes))


def likely_step(question: Question, outcomes: Outcomes, step: Sequence[Run]) -> list[Run]:
    """A guess at the step after this one: each new run is as the last of its depth, or of the full model."""
    full = [one for one in outcomes.get(FULL, {}).values() if one is not None]
    if not full:
        return []
    filled: dict[Depth, dict[int, Outcome | None]] = {depth: dict(by_seed) for depth, by_seed in outcomes.items()}
    for depth, seed in step:
        own = [one for one in outcomes.get(depth, {}).values() if one is not None]
        filled.setdefault(depth, {})[seed] = (own or full)[-1]
    after = next_step(question, filled)
    return after if isinstance(after, list) else []


def first_runs(question: Question) -> list[Run]:
    """The runs of the first step, the most expensive first."""
    return _opening(question, {})


def _fault(question: Question, full: Sample, n_crashed: int) -> str | None:
    """Why nothing can be decided, whatever the depths do."""
    if len(question.seeds) - n_crashed < max(2, question.full_seeds):
        return "runs of the full model crashed"
    if full.has_mostly_failed:
        return "half or more of the full model's runs learned nothing"
    least = max(question.base, question.chance)
    if full.runs and not is_above(full.mean, least):
        return f"the full model did not learn: its mean score is {full.mean:.4g}, not above {least:.4g}"
    return None


def _why_stopped(question: Question, runs: Sequence[Run]) -> str:
    """Why a search that ran out of budget is over, and what it would go on with."""
    named = ", ".join(question.words(depth) for depth in dict.fromkeys(depth for depth, _ in runs))
    return f"the budget of {question.budget:.3g} full runs does not pay for the next runs ({named})"


def _wanted(question: Question, outcomes: Outcomes) -> list[Run]:
    """The runs the search needs next; empty at its end."""
    if opening := _opening(question, outcomes):
        return opening
    said = verdicts(question, outcomes)
    tried = [depth for depth in _unsure(said) if outcomes.get(depth)]
    tellable = [depth for depth in tried if not _is_too_close(question, outcomes, depth)]
    for n_seeds in question.looks[1:]:
        if runs := _missing(question, outcomes, tellable, n_seeds):
            return runs
    found = established_depth(said)
    # After a start elsewhere, deeper depths that were not tried may still be the answer.
    untried = [depth for depth in question.depths if not outcomes.get(depth) and (found is FULL or depth > found)]
    return _missing(question, outcomes, untried[-1:], FIRST_SEEDS)


def _opening(question: Question, outcomes: Outcomes) -> list[Run]:
    return _missing(question, outcomes, _first_depths(question), FIRST_SEEDS)


def _missing(question: Question, outcomes: Outcomes, depths: Sequence[int], n_seeds: int) -> list[Run]:
    """The runs that are missing to look at these depths, the most expensive first."""
    runs = [
        (depth, seed)
        for depth in (with_full(depths) if depths else ())
        for seed in sample(question, outcomes, depth, n_seeds).missing
    ]
    return sorted(runs, key=lambda run: -question.costs[run[0]])


def sample(question: Question, outcomes: Outcomes, depth: Depth, n_seeds: int) -> Sample:
    """The runs of a depth at a look, and what is missing of them.

    They are the first runs that did not fail: people start a failed run again. If half of the first runs failed, all
    of them count. A crashed run is not replaced.
    """
    n_seeds = max(n_seeds, question.full_seeds) if depth is FULL else n_seeds
    own, asked = outcomes.get(depth, {}), question.seeds[:n_seeds]
    if missing := tuple(seed for seed in asked if seed not in own):
        return Sample((), missing)
    ended = [one for seed in asked if (one := own[seed]) is not None]
    sound = [one for one in ended if not one.has_failed]
    if 2 * len(sound) <= len(ended):
        return Sample(tuple(ended), has_mostly_failed=bool(ended))
    wanted = len(ended)
    for seed in question.spare_seeds:
        if len(sound) == wanted:
            break
        if seed not in own:
            unused = [spare for spare in question.spare_seeds if spare not in own]
            return Sample((), tuple(unused[: wanted - len(sound)]))
        spare_run = own[seed]
        if spare_run is not None and not spare_run.has_failed:
            sound.append(spare_run)
    return Sample(tuple(sound))


def _verdict(question: Question, outcomes: Outcomes, depth: int) -> Verdict:
    """What the first look that was sure said."""
    for n_seeds in question.looks:
        said = _verdict_of(
            _pair(question, outcomes, depth, n_seeds),
            keep=question.keep,
            base=question.base,
            error=question.error_kept,
            error_short=question.error_short,
        )
        if said == "kept" and sample(question, outcomes, depth, n_seeds).has_mostly_failed:
            continue  # nobody should freeze layers where half of the runs learn nothing, whatever their mean
        if said != "open":
            return said
    return "open"


def _pair(question: Question, outcomes: Outcomes, depth: int, n_seeds: int) -> CrossedPair | None:
    """A depth and the full model at a look; None before its runs have ended."""
    own, full = (sample(question, outcomes, one, n_seeds) for one in (depth, FULL))
    is_short_of_runs = len(own.runs) < 2 or len(full.runs) < max(2, question.full_seeds)
    if own.missing or full.missing or is_short_of_runs or full.has_mostly_failed:
        return None
    return _compared(own, full, question.n_rows)


@functools.lru_cache(maxsize=256)
def _compared(own: Sample, full: Sample, n_rows: int) -> CrossedPair | None:
    """A pair of samples."""
    return not_paired(own.scored, full.scored, n_rows)


def _is_too_close(question: Question, outcomes: Outcomes, depth: int) -> bool:
    """Whether the remaining seeds are unlikely to settle an open depth."""
    most = len(question.seeds)
    for n_seeds in reversed(question.looks[:-1]):
        pair = _pair(question, outcomes, depth, n_seeds)
        if pair is not None:
            gap = abs(gap_of(pair, question.keep, question.base))
            weights, at_end = (1.0, -question.keep), pair.with_more_seeds(most / n_seeds)
            may_move = pair.seed_margin(weights, MAY_MOVE) * math.sqrt(1 - n_seeds / most)
            return gap + may_move < at_end.margin(weights, question.error_short)
    return False


def _settled(question: Question, outcomes: Outcomes) -> Decision:
    said = verdicts(question, outcomes)
    if unsure := _unsure(said):
        because = _why_open(question, outcomes, unsure)
        return Decision(n_frozen=_estimate(question, outcomes), is_decided=False, because=because)
    because = f"decided at {question.confidence:.0%} confidence"
    return Decision(n_frozen=established_depth(said), is_decided=True, because=because)


def _why_open(question: Question, outcomes: Outcomes, unsure: Sequence[int]) -> str:
    """Why the seeds did not settle it: runs crashed or learned nothing, or depths are too close to the bar."""
    crashed = [depth for depth in unsure if None in outcomes.get(depth, {}).values()]
    failed = [depth for depth in unsure if _has_mostly_failed(question, outcomes, depth)]
    named = ", ".join(question.words(depth) for depth in crashed or failed or unsure)
    if crashed:
        return f"runs crashed: {named}"
    if failed:
        return f"half or more of the runs learned nothing: {named}"
    return f"too close to the bar for {len(question.seeds)} seeds: {named}"


def _has_mostly_failed(question: Question, outcomes: Outcomes, depth: int) -> bool:
    latest = _latest(question, outcomes, depth)
    return latest is not None and latest.has_mostly_failed


def _unsure(said: Mapping[int, Verdict]) -> list[int]:
    """The open depths that could still be the answer: no deeper one keeps the share."""
    found = established_depth(said)
    return [depth for depth, one in said.items() if one == "open" and (found is FULL or depth > found)]


def _estimate(question: Question, outcomes: Outcomes) -> Depth:
    """The largest depth tried so far whose mean reaches the bar, and where most runs learned something."""
    full = _latest(question, outcomes, FULL)
    if full is None:
        return FULL
    latest = {depth: own for depth in question.depths if (own := _latest(question, outcomes, depth)) is not None}
    found = {depth: own.mean for depth, own in latest.items() if not own.has_mostly_failed}
    return operating_depth(found, bar_of(question.keep, full.mean, question.base))


def _latest(question: Question, outcomes: Outcomes, depth: Depth) -> Sample | None:
    """The runs of a depth at its last look; None before the first."""
    samples = (sample(question, outcomes, depth, n_seeds) for n_seeds in reversed(question.looks))
    return next((one for one in samples if not one.missing and one.runs), None)


def _first_depths(question: Question) -> list[int]:
    """The depth to start with, if one is given; else the deepest cuts that are cheap together, at least one."""
    if question.start is not None:
        return [question.start]
    chosen: list[int] = []
    for depth in reversed(question.depths):
        if chosen and math.fsum(question.costs[d] for d in (*chosen, depth)) > FIRST_SHARE + ROUNDING:
            break
        chosen.append(depth)
    return chosen


def _done(outcomes: Outcomes) -> list[Run]:
    return [(depth, seed) for depth, by_seed in outcomes.items() for seed in by_seed]
