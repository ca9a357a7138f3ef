"""The search over depth, or over another axis, replayed from its beginning with the outcomes that are known.

`stats/search_rules.py` decides what to run next from scores alone. Here those decisions become specs, and the outcomes
of specs become scores.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from frostline.analysis import Replicates, outcome_of
from frostline.records.depth import FULL, Depth
from frostline.records.requests import ResolvedRequest
from frostline.records.specs import RunSpec
from frostline.stats import search_rules
from frostline.stats.search_question import Decision, Outcome, Question, Run
from frostline.studies.planning.axis import axis_of, full_run_equivalents
from frostline.studies.planning.protocols import Programme, depth_programme
from frostline.studies.study import Results


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedSearch:
    """A search with every default filled in."""

    resolved: ResolvedRequest
    chance: float
    """of the score, on dev"""
    n_rows: int
    """dev rows"""


def _nearest(depth: int, depths: Sequence[int]) -> int:
    """The candidate that is nearest to a depth; of two, the deeper, which is cheaper."""
    return min(depths, key=lambda one: (abs(one - depth), -one))


def _cost(resolved: ResolvedRequest, specs: Sequence[RunSpec]) -> float:
    return full_run_equivalents(specs, resolved.n_layers, resolved.base.epochs)


@final
@dataclass
class DepthSearch:
    """The search over depth, replayed with the outcomes that are known."""

    search: ResolvedSearch
    results: Results
    outcomes: dict[Depth, dict[int, Outcome | None]] = field(default_factory=dict)
    """of the runs of finished steps, by depth and seed; None: the run crashed"""
    asked: list[Run] = field(default_factory=list)
    """the runs of all steps so far, the one under way included"""

    @classmethod
    def replayed(cls, search: ResolvedSearch, results: Results) -> DepthSearch:
        """Takes every step whose outcomes are known."""
        made = cls(search, results)
        made._replay()
        return made

    @functools.cached_property
    def programme(self) -> Programme[Depth]:
        """The runs of each depth, and those that choose its rate."""
        return depth_programme(self.search.resolved)

    @functools.cached_property
    def rates(self) -> dict[Depth, float]:
        """The rates that are known."""
        return self.programme.rates(self.results)

    @functools.cached_property
    def question(self) -> Question:
        """What the rules are asked."""
        resolved = self.search.resolved
        axis, request = axis_of(resolved), resolved.request
        return Question(
            keep=request.keep[0],
            base=0.0 if request.scale == "ratio" else self.search.chance,
            chance=self.search.chance,
            confidence=request.confidence,
            seeds=request.seeds,
            depths=axis.places,
            n_rows=self.search.n_rows,
            costs=axis.costs,
            rate_costs=self._rate_costs(Results()),
            rate_spent=self._rate_costs(self.results),
            budget=self.runs_of_curve if resolved.budget is None else resolved.budget,
            start=None if resolved.start is None else _nearest(resolved.start, axis.places),
            words=axis.words,
        )

    @functools.cached_property
    def runs_of_curve(self) -> float:
        """What the whole curve costs, in full-run equivalents, with races as long as they turned out to be.

        It never falls below what was foreseen. So a step that could be paid for once still can when the search is
        replayed with more results.
        """
        resolved = self.search.resolved
        foreseen, spent = self._rate_costs(Results()), self._rate_costs(self.results)
        longer = math.fsum(max(0.0, spent[depth] - foreseen[depth]) for depth in foreseen)
        return _cost(resolved, self.programme.runs_ahead(Results())) + longer

    @functools.cached_property
    def step(self) -> Decision | list[Run]:
        """The end of the search, or the step under way."""
        return search_rules.next_step(self.question, self.outcomes)

    @property
    def runs(self) -> list[RunSpec]:
        """The runs of all steps so far. Where a rate is not known yet, the runs that choose it stand for them."""
        wanted: list[RunSpec] = []
        for depth in dict.fromkeys(depth for depth, _ in self.asked):
            if depth in self.programme.searches:
                wanted += self.programme.searches[depth].runs(self.results)
        return list(dict.fromkeys([*wanted, *(spec for run in self.asked if (spec := self._spec(run)) is not None)]))

    @property
    def runs_ahead(self) -> list[RunSpec]:
        """The runs so far, with what can be foreseen of the search for rates; any rate stands for an unknown one."""
        any_rate = self.search.resolved.request.learning_rates[0]
        wanted = [
            spec
            for depth in dict.fromkeys(depth for depth, _ in self.asked)
            for spec in self._searching(depth, self.results)
        ]
        groups = self.programme.replicates(dict.fromkeys(self.programme.strategies, any_rate) | self.rates)
        return list(dict.fromkeys([*wanted, *(groups[depth][0].with_seed(seed) for depth, seed in self.asked)]))

    @property
    def likely_runs(self) -> list[RunSpec]:
        """What the rules will ask for after this step, if it turns out as it looks."""
        if isinstance(self.step, Decision):
            return []
        likely = search_rules.likely_step(self.question, self.outcomes, self.step)
        return [spec for run in likely if (spec := self._spec(run)) is not None]

    @property
    def spent(self) -> float:
        """So far, the step under way included, in full-run equivalents."""
        return self.question.cost(self.asked)

    @property
    def done(self) -> float:
        """Cost of the finished steps, in full-run equivalents."""
        return self.question.cost([(depth, seed) for depth, by_seed in self.outcomes.items() for seed in by_seed])

    def replicates(self) -> dict[Depth, Replicates]:
        """The runs of each depth that was tried and have ended, the full model's first; without replacements."""
        groups = {}
        for depth in self.programme.strategies:
            specs = [
                spec
                for seed in self.search.resolved.request.seeds
                if (depth, seed) in self.asked and (spec := self._spec((depth, seed))) is not None
            ]
            ended = [spec for spec in specs if self.results.has_all([spec])]
            if ended:
                groups[depth] = Replicates(specs=ended, results=self.results.of(ended))
        return groups

    def _replay(self) -> None:
        while isinstance(step := search_rules.next_step(self.question, self.outcomes), list):
            self.asked += step
            if not all(self._has_ended(run) for run in step):
                break
            for depth, seed in step:
                self.outcomes.setdefault(depth, {})[seed] = self._outcome((depth, seed))

    def _has_ended(self, run: Run) -> bool:
        spec = self._spec(run)
        if spec is None:  # no rate: its search is on, or crashed in every run
            return self.programme.searches[run[0]].is_over(self.results)
        return self.results.has_all([spec])

    def _outcome(self, run: Run) -> Outcome | None:
        spec = self._spec(run)
        result = None if spec is None else self.results.finished.get(spec.key)
        return None if result is None else outcome_of(result)

    def _spec(self, run: Run) -> RunSpec | None:
        """The run of a depth and a seed; None while its rate is not known."""
        depth, seed = run
        return self._first_specs[depth].with_seed(seed) if depth in self._first_specs else None

    @functools.cached_property
    def _first_specs(self) -> dict[Depth, RunSpec]:
        return {depth: specs[0] for depth, specs in self.programme.replicates(self.rates).items()}

    def _rate_costs(self, results: Results) -> dict[Depth, float]:
        """Cost of choosing the rate of each depth, as far as these results show it, in full-run equivalents."""
        return {
            depth: _cost(self.search.resolved, self._searching(depth, results)) for depth in self.programme.strategies
        }

    def _searching(self, depth: Depth, results: Results) -> list[RunSpec]:
        """The runs that choose the rate of a depth; under `paper` they count for the full model."""
        searches = self.programme.searches
        if depth not in searches or (depth is not FULL and searches[depth] == searches[FULL]):
            return []
        return searches[depth].ahead(results)
