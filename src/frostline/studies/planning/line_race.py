"""The paper's line search as a race: rates that are behind on dev after a part of their steps do not go on.

The runs are those of the whole line search, with its one seed, and pause on the way. So a rate that reaches the end has
the same bits and the same key as in a whole search, and only the worse rates are left out. Rates are ranked by their
score on dev. Early on, scores are often equal within noise, and then the loss decides between them, though a
high rate has the lower loss early; that is why a race only halves the rates, and the last choice is between whole runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from frostline.analysis import TriedRate
from frostline.execution.sweep import Wanted
from frostline.records.results import PausedRun, RunResult
from frostline.records.specs import RunSpec
from frostline.stats.rates import Standing, ranked
from frostline.studies.planning.race import RateSearch, best_rate
from frostline.studies.study import Results

PAUSES = (1 / 6, 1 / 2)
"""The shares of the steps after which the worse half of the rates stops."""


@final
@dataclass(frozen=True)
class _Stage:
    """What all rates that are left do next."""

    wanted: tuple[Wanted, ...]
    share: float
    """of the steps, at its end"""


@final
@dataclass(frozen=True)
class LineRace(RateSearch):
    """One run for each rate, which goes on as long as it is among the better half."""

    specs: tuple[RunSpec, ...]
    n_steps: int
    """of a whole run"""

    def runs(self, results: Results) -> list[RunSpec]:
        """The runs that are still in the race."""
        *_, last = self._stages(results)
        return [wanted.spec for wanted in last.wanted]

    def wanted(self, results: Results) -> list[Wanted]:
        """The runs of all stages so far, each until the end of its stage."""
        return [wanted for stage in self._stages(results) for wanted in stage.wanted]

    def rate(self, results: Results) -> float | None:
        """The rate with the best score of those that went on to the end."""
        found = results.of(self.runs(results))
        return best_rate(found) if found and self.is_over(results) else None

    def tried(self, results: Results) -> list[TriedRate]:
        """Each rate with its score where it stopped."""
        tried = {}
        for stage in self._stages(results):
            for wanted in stage.wanted:
                outcome = _outcome(results, wanted)
                score = None if outcome is None else outcome.score
                share = 1.0 if isinstance(outcome, RunResult) else stage.share
                tried[wanted.spec] = TriedRate(learning_rate=wanted.spec.learning_rate, score=score, share=share)
        return [tried[spec] for spec in self.specs]

    def _stages(self, results: Results) -> Iterator[_Stage]:
        """The stages that have begun."""
        left = self.specs
        for share in (*PAUSES, 1.0):
            until = max(1, round(share * self.n_steps)) if share < 1 else None
            stage = _Stage(tuple(Wanted(spec, until) for spec in left), share)
            yield stage
            if not all(results.has(wanted) for wanted in stage.wanted):
                return
            left = _better_half(stage, results) or left


def _better_half(stage: _Stage, results: Results) -> tuple[RunSpec, ...]:
    """The runs that go on, in the order of their rates; none if all crashed or diverged."""
    paused = {
        wanted.spec.learning_rate: (wanted.spec, outcome)
        for wanted in stage.wanted
        if isinstance(outcome := _outcome(results, wanted), PausedRun)
    }
    standings = ranked([_standing(outcome) for _, outcome in paused.values()]) if paused else []
    kept = itertools.islice(standings, math.ceil(len(standings) / 2))
    return tuple(paused[rate][0] for rate in sorted(one.rate for one in kept))


def _outcome(results: Results, wanted: Wanted) -> RunResult | PausedRun | None:
    """What is known of a run at the end of its stage; a run that diverged before its pause has finished."""
    key = wanted.spec.key
    paused = None if wanted.until is None else results.paused.get((key, wanted.until))
    return paused or results.finished.get(key)


def _standing(paused: PausedRun) -> Standing:
    return Standing(rate=paused.spec.learning_rate, score=paused.score, noise=paused.noise, loss=paused.loss)
