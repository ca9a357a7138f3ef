"""More seeds for a curve, where they can settle a verdict: which runs come next, and what all of them say.

After a fixed number of looks it ends, and verdicts pay for all of them. Failed runs are replaced by unused seeds; the
replacements enter verdicts only.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import final

from frostline.analysis import Judge, chance_of, outcome_of
from frostline.records.depth import FULL, Depth
from frostline.records.requests import ResolvedRequest
from frostline.records.specs import RunSpec
from frostline.stats import search_rules
from frostline.stats.search_question import Outcome, Question, Run
from frostline.studies.planning.axis import axis_of
from frostline.studies.planning.protocols import depth_programme
from frostline.studies.study import Results


@final
@dataclass
class Settling:
    """A curve whose first runs have ended, replayed with the outcomes that are known."""

    resolved: ResolvedRequest
    results: Results
    chance: float
    n_rows: int
    wanted: list[RunSpec] = field(default_factory=list)
    """the runs beyond those that the curve begins with"""
    judge: Judge | None = None
    """what the runs of the last complete look say; None before the first"""

    @classmethod
    def replayed(cls, resolved: ResolvedRequest, results: Results) -> Settling | None:
        """Takes every look whose runs have ended; None while the first runs are missing, or none finished."""
        finished = [result for result in results.finished.values() if result.spec.role == "replicate"]
        if not results.has_all(one.spec for one in depth_programme(resolved).next_runs(results)) or not finished:
            return None
        made = cls(resolved, results, chance_of(finished[0]), finished[0].n_dev)
        made._replay()
        return made

    @functools.cached_property
    def question(self) -> Question:
        """What the rules are asked: here only which runs a look is about."""
        request, axis = self.resolved.request, axis_of(self.resolved)
        first = max(request.seeds) + 1
        n_more = max(0, request.max_seeds - len(request.seeds))
        return Question(
            keep=request.keep[0],
            seeds=(*request.seeds, *range(first, first + n_more)),
            first_look=len(request.seeds),
            full_seeds=0,
            n_spare=len(request.seeds),
            depths=axis.places,
            n_rows=self.n_rows,
            costs=axis.costs,
            rate_costs=dict.fromkeys(axis.costs, 0.0),
            budget=0.0,
        )

    def ended(self) -> dict[Depth, list[RunSpec]]:
        """The runs that enter means and have ended: seeds asked for and seeds added, without replacements."""
        added, asked = set(self.wanted), self.resolved.request.seeds
        found: dict[Depth, list[RunSpec]] = {}
        for depth in self._first:
            specs = [self._spec((depth, seed)) for seed in self.question.seeds]
            counted = [spec for spec in specs if spec.seed in asked or spec in added]
            found[depth] = [spec for spec in counted if self.results.has_all([spec])]
        return found

    def _replay(self) -> None:
        question, looks = self.question, self.question.looks
        n_seeds: dict[Depth, int] = dict.fromkeys(self._first, looks[0])
        for look in (*looks[1:], None):
            while missing := self._missing(n_seeds):
                self.wanted += [self._spec(run) for run in missing]
                if not self.results.has_all(self._spec(run) for run in missing):
                    return
                self._outcomes |= {run: self._outcome(run) for run in missing}
            samples = {depth: self._sample(depth, n) for depth, n in n_seeds.items()}
            scored = {depth: one.scored for depth, one in samples.items() if len(one.runs) > 1}
            if samples[FULL].has_mostly_failed:
                scored = {}
            failed = frozenset(depth for depth in question.depths if samples[depth].has_mostly_failed)
            confidence = self.resolved.request.confidence
            judge = Judge(scored, question.depths, self.n_rows, confidence, failed, n_looks=len(looks))
            self.judge = judge
            open_depths = [depth for depth in question.depths if self._can_be_settled(judge, depth)]
            if look is None or not open_depths:
                return
            n_seeds.update(dict.fromkeys((FULL, *open_depths), look))

    def _can_be_settled(self, judge: Judge, depth: int) -> bool:
        request = self.resolved.request
        base = 0.0 if request.scale == "ratio" else self.chance
        needed = judge.seeds_to_settle(depth, request.keep[0], base)
        return needed is not None and needed <= request.max_seeds

    def _missing(self, n_seeds: dict[Depth, int]) -> list[Run]:
        return [(depth, seed) for depth, n in n_seeds.items() for seed in self._sample(depth, n).missing]

    def _sample(self, depth: Depth, n_seeds: int) -> search_rules.Sample:
        by_seed: dict[int, Outcome | None] = {}
        for run, outcome in self._outcomes.items():
            if run[0] == depth:
                by_seed[run[1]] = outcome
        return search_rules.sample(self.question, {depth: by_seed}, depth, n_seeds)

    @functools.cached_property
    def _outcomes(self) -> dict[Run, Outcome | None]:
        asked = [(depth, seed) for depth in self._first for seed in self.resolved.request.seeds]
        return {run: self._outcome(run) for run in asked}

    def _outcome(self, run: Run) -> Outcome | None:
        result = self.results.finished.get(self._spec(run).key)
        return None if result is None else outcome_of(result)

    def _spec(self, run: Run) -> RunSpec:
        depth, seed = run
        return self._first[depth].with_seed(seed)

    @functools.cached_property
    def _first(self) -> dict[Depth, RunSpec]:
        """A run of each depth that has a rate."""
        programme = depth_programme(self.resolved)
        return {depth: specs[0] for depth, specs in programme.replicates(programme.rates(self.results)).items()}
