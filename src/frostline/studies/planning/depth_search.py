"""The search over depth, replayed from its beginning with the outcomes that are known.

`stats/search_rules.py` decides what to run next from scores alone. Here those decisions become specs, and the outcomes
of specs become scores.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from frostline import stats
from frostline.analysis import Replicates, dev_variance
from frostline.errors import UsageError
from frostline.execution.sweep import Wanted
from frostline.records.depth import FULL, Depth
from frostline.records.requests import ResolvedRequest
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.stats import search_rules
from frostline.stats.search_rules import Decision, Question, Run
from frostline.storage.runs import Store
from frostline.studies.planning.axis import Axis, depth_axis, full_run_equivalents, spec_at
from frostline.studies.planning.protocols import best_rate, depth_programme, finished_line_searches
from frostline.studies.planning.race import Race
from frostline.studies.study import Results


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedSearch:
    """A search with every default filled in."""

    resolved: ResolvedRequest
    budget: float
    given_budget: float | None
    chance: float
    """of the score, on dev"""
    race: Race
    line_search: tuple[RunSpec, ...] = ()
    """a finished line search in the store that chooses the rate; empty: the rate is given, or raced"""


def runs_of_curve(resolved: ResolvedRequest) -> float:
    """What the whole curve costs, its line search included, in full-run equivalents."""
    return full_run_equivalents(depth_programme(resolved).runs_ahead(Results()), resolved.n_layers)


def finished_line_search(store: Store, race: Race, resolved: ResolvedRequest) -> tuple[RunSpec, ...]:
    """The longest line search in the store that can choose the rate; none after a race, whose choice stands."""
    if not race.specs or race.is_in(store):
        return ()
    by_length = sorted(finished_line_searches(store, resolved), key=lambda specs: -len(specs))
    return tuple(by_length[0]) if by_length else ()


def chosen_rate(resolved: ResolvedSearch, results: Results) -> tuple[float | None, list[Wanted]]:
    """The learning rate, None while it is not known; and the runs that choose it."""
    rates = resolved.resolved.request.learning_rates
    if len(rates) == 1:
        return rates[0], []
    if resolved.line_search:
        wanted = [Wanted(spec) for spec in resolved.line_search]
        found = results.of(resolved.line_search)
        return (best_rate(found) if len(found) == len(wanted) else None), wanted
    race = resolved.race
    return race.rate(results), race.wanted(results)


def budget_of(search: ResolvedSearch, given: float | None) -> float:
    """As given, or half of what the whole curve costs; a UsageError where it does not pay for the first runs."""
    question = DepthSearch(search, rate=1.0).question
    first = search_rules.next_step(dataclasses.replace(question, budget=math.inf), {}, 0.0)
    assert isinstance(first, list), "a search begins with runs"
    least = question.spent + question.cost(first)
    if given is None:
        return max(runs_of_curve(search.resolved) / 2, least)
    if given < least - stats.ROUNDING:
        n_runs = len(first)
        raise UsageError(
            f"budget is {given:g} full-run equivalents; the learning rate and the first {n_runs} runs alone cost "
            f"{least:.2f}: use at least {math.ceil(100 * least) / 100:g}"
        )
    return given


@dataclass
class DepthSearch:
    """The search over depth at one learning rate, replayed from its beginning."""

    resolved: ResolvedSearch
    rate: float
    asked: list[Run] = field(default_factory=list)
    """the runs of all steps so far, the one under way included"""
    ended: dict[Depth, dict[int, RunResult | None]] = field(default_factory=dict)
    """the runs of finished steps by depth and seed; None: the run crashed"""

    @functools.cached_property
    def axis(self) -> Axis:
        """The depths."""
        return depth_axis(self.resolved.resolved)

    @property
    def question(self) -> Question:
        """What the rules are asked."""
        search, resolved = self.resolved, self.resolved.resolved
        is_raced = len(search.race.specs) > 1 and not search.line_search
        return Question(
            keep=resolved.request.keep[0],
            base=0.0 if resolved.request.scale == "ratio" else search.chance,
            chance=search.chance,
            confidence=resolved.request.confidence,
            seeds=resolved.request.seeds,
            depths=tuple(place.value for place in self.axis.values),
            costs=self.axis.costs,
            budget=search.budget,
            spent=search.race.cost if is_raced else 0.0,
        )

    def replay(self, results: Results) -> Decision | list[Run]:
        """Takes every step whose outcomes are known. Returns the end of the search, or the step under way."""
        while isinstance(step := search_rules.next_step(self.question, self.scores, self.noise), list):
            self.asked += step
            if not results.has_all(self.spec(run) for run in step):
                break
            for depth, seed in step:
                result = results.finished.get(self.spec((depth, seed)).key)
                self.ended.setdefault(depth, {})[seed] = result
        return step

    @property
    def specs(self) -> list[RunSpec]:
        """The runs of all steps so far."""
        return [self.spec(run) for run in self.asked]

    def spec(self, run: Run) -> RunSpec:
        """The run of a depth and a seed."""
        depth, seed = run
        return spec_at(self.resolved.resolved, self.axis.strategies[depth], self.rate).replace(seed=seed)

    @property
    def scores(self) -> Mapping[Depth, Mapping[int, float | None]]:
        """By depth and seed; None: the run crashed."""
        return {
            depth: {seed: None if result is None else result.score for seed, result in by_seed.items()}
            for depth, by_seed in self.ended.items()
        }

    @property
    def noise(self) -> float:
        """The variance of a full run's score over other dev rows; 0 before there is one."""
        full = [result for result in self.ended.get(FULL, {}).values() if result is not None]
        return dev_variance(full[:1]) if full else 0.0

    @property
    def done(self) -> float:
        """Cost of the finished steps, in full-run equivalents."""
        ended = [(depth, seed) for depth, by_seed in self.ended.items() for seed in by_seed]
        return self.question.spent + self.question.cost(ended)

    @property
    def spent(self) -> float:
        """So far, in full-run equivalents."""
        return self.question.spent + self.question.cost(self.asked)

    def replicates(self, results: Results) -> dict[Depth, Replicates]:
        """The runs of each depth that was tried and have ended, the full model's first, seeds in the asked order."""
        groups = {}
        for depth in self.axis.strategies:
            seeds = [seed for seed in self.resolved.resolved.request.seeds if (depth, seed) in self.asked]
            specs = [spec for seed in seeds if results.has_all([spec := self.spec((depth, seed))])]
            if specs:
                groups[depth] = Replicates(specs=specs, results=results.of(specs))
        return groups
