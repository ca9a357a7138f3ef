"""A race of learning rates: all start, and those that fall behind are left where they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from frostline.analysis import TriedRate
from frostline.execution.sweep import Wanted
from frostline.records.requests import ResolvedRequest
from frostline.records.results import PausedRun
from frostline.records.specs import RunSpec
from frostline.stats import search_rules
from frostline.stats.search_rules import Standing
from frostline.storage.runs import Store
from frostline.studies.planning.protocols import line_search_specs
from frostline.studies.study import Results


@final
@dataclass(frozen=True)
class _Rung:
    """One stage of a race: every rate that is still in runs up to the same step."""

    share: float
    """of the steps of a run"""
    wanted: tuple[Wanted, ...]
    ranked: tuple[PausedRun, ...]
    """the best first; empty while runs are missing, or when all crashed"""


@final
@dataclass(frozen=True)
class Race:
    """The rates of a line search, run in stages."""

    specs: tuple[RunSpec, ...]
    """one for each rate; none where a single rate was given"""
    n_steps: int
    """of a whole run"""

    @classmethod
    def of(cls, resolved: ResolvedRequest, n_steps: int) -> Race:
        """The race of a request."""
        return cls(tuple(line_search_specs(resolved)), n_steps)

    @property
    def cost(self) -> float:
        """In full-run equivalents."""
        return search_rules.race_cost(len(self.specs))

    def wanted(self, results: Results) -> list[Wanted]:
        """The runs of all rungs so far."""
        return [wanted for rung in self._rungs(results) for wanted in rung.wanted]

    def rate(self, results: Results) -> float | None:
        """The rate that won; None while the race is on, or when every run crashed."""
        rungs = list(self._rungs(results))
        is_over = len(rungs) == len(search_rules.RUNGS) and bool(rungs[-1].ranked)
        return rungs[-1].ranked[0].spec.learning_rate if is_over else None

    def tried(self, results: Results) -> list[TriedRate]:
        """Every rate, with its score at the last rung that it reached."""
        tried = {}
        for rung in self._rungs(results):
            by_key = {paused.key: paused for paused in rung.ranked}
            for wanted in rung.wanted:
                key, rate = wanted.spec.key, wanted.spec.learning_rate
                score = by_key[key].score if key in by_key else None
                tried[key] = TriedRate(learning_rate=rate, score=score, share=rung.share)
        return [tried[spec.key] for spec in self.specs]

    def seconds(self, results: Results) -> float:
        """Time of training and scoring."""
        last = {paused.key: paused.seconds for rung in self._rungs(results) for paused in rung.ranked}
        return sum(last.values())

    def messages(self, results: Results) -> Iterator[str]:
        """What each rung showed."""
        for rung in self._rungs(results):
            if rung.ranked:
                listed = ", ".join(f"{p.spec.learning_rate:g} {p.score:.3f} (loss {p.loss:.3f})" for p in rung.ranked)
                yield f"race, after {rung.share:.0%} of the steps: {listed}"
        if (rate := self.rate(results)) is not None:
            yield f"the race chose the learning rate {rate:g}"

    def is_in(self, store: Store) -> bool:
        """Whether a race was run to its end in a folder: then its choice stands."""
        last = self._until(search_rules.RUNGS[-1][0])
        return any(store.get_paused(spec.key, last) is not None for spec in self.specs)

    def _rungs(self, results: Results) -> Iterator[_Rung]:
        left = list(self.specs)
        for share, n_left in search_rules.RUNGS:
            until = self._until(share)
            wanted = tuple(Wanted(spec, until) for spec in left)
            is_known = all(results.has(one) for one in wanted)
            paused = [results.paused[s.key, until] for s in left if (s.key, until) in results.paused]
            ranked = tuple(_ranked(paused)) if is_known and paused else ()
            yield _Rung(share, wanted, ranked)
            if not ranked:
                return
            left = [one.spec for one in ranked[:n_left]]

    def _until(self, share: float) -> int:
        return max(1, math.ceil(share * self.n_steps))


def _ranked(paused: list[PausedRun]) -> list[PausedRun]:
    by_rate = {one.spec.learning_rate: one for one in paused}
    standings = [
        Standing(rate=one.spec.learning_rate, score=one.score, noise=one.noise, loss=one.loss) for one in paused
    ]
    return [by_rate[standing.rate] for standing in search_rules.ranked(standings)]
