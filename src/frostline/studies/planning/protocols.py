"""How learning rates are chosen, and which runs follow from them.

`paper`: one rate for all, the full model's best on dev. `tuned`: a rate for each depth or strategy, the best on rows
held out of train. Builds specs; runs nothing.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from frostline.execution.sweep import Wanted
from frostline.records.depth import Depth
from frostline.records.requests import ResolvedComparison, ResolvedRequest
from frostline.records.specs import RunSpec
from frostline.report import numbers
from frostline.storage.runs import Store
from frostline.strategies import Strategy
from frostline.studies.planning.axis import axis_of, spec_at
from frostline.studies.planning.line_race import LineRace
from frostline.studies.planning.race import LineSearch, Race, RateSearch
from frostline.studies.study import Results

Name = TypeVar("Name")
"""what a study calls one of its strategies: a depth, or the text that a user wrote"""

TUNED_RATES = (2e-5, 5e-5, 1e-4, 2e-4)
"""Where `tuned` begins its search if no rates are given."""
LARGE_RATES = (2e-4, 5e-4, 1e-3, 2e-3)
"""In their place, for strategies that train few or new parameters alone."""
_OLD_RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
_OLD_LARGE_RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3)
_OLD_HIGHEST_FOR_MANY = 2e-4
"""Release 0.1 tried these; the last is the highest where more than half of the layers train."""


class RateChoice(abc.ABC):
    """How one protocol chooses learning rates."""

    @abc.abstractmethod
    def searches(self, resolved: ResolvedRequest, strategies: Sequence[Strategy]) -> dict[str, RateSearch]:
        """The searches for these strategies, by name; two strategies may share one."""


@final
class PaperRates(RateChoice):
    """A line search on the full model, scored on dev. Its best rate is used for everything."""

    def searches(self, resolved: ResolvedRequest, strategies: Sequence[Strategy]) -> dict[str, RateSearch]:
        """The same one for all: one run of the full model for each rate, with a seed of its own."""
        specs = tuple(line_search_specs(resolved))
        search = LineSearch(specs) if resolved.n_steps is None else LineRace(specs, resolved.n_steps)
        return dict.fromkeys([one.name for one in strategies], search)


@final
class TunedRates(RateChoice):
    """A race for each strategy, scored on rows held out of train."""

    def searches(self, resolved: ResolvedRequest, strategies: Sequence[Strategy]) -> dict[str, RateSearch]:
        """One for each strategy. Release 0.1 had no races: what it began goes on as it was."""
        if not resolved.has_races:
            return {one.name: LineSearch(tuple(_old_specs(resolved, one))) for one in strategies}
        return {one.name: Race(spec_at(resolved, one), _first_rates(resolved, one)) for one in strategies}


_CHOICES: Mapping[str, RateChoice] = {"paper": PaperRates(), "tuned": TunedRates()}


@final
@dataclass(frozen=True)
class Programme(Generic[Name]):
    """The runs of several strategies: those that choose their rates, and replicates at the rates that were chosen."""

    resolved: ResolvedRequest
    strategies: Mapping[Name, Strategy]
    """by the study's own names"""

    @property
    def searches(self) -> dict[Name, RateSearch]:
        """The searches for rates; none where one rate was given, or for a strategy without a rate."""
        searched = {name: one for name, one in self.strategies.items() if one.has_rate}
        if len(self.resolved.request.learning_rates) == 1:
            return {}
        found = _CHOICES[self.resolved.request.protocol].searches(self.resolved, list(searched.values()))
        return {name: found[one.name] for name, one in searched.items()}

    def rates(self, results: Results) -> dict[Name, float]:
        """The rates that are known; a strategy whose search is on, or crashed in every run, has none."""
        searches = self.searches
        given = self.resolved.request.learning_rates[0]
        found = {
            name: searches[name].rate(results) if name in searches else given if one.has_rate else 0.0
            for name, one in self.strategies.items()
        }
        return {name: rate for name, rate in found.items() if rate is not None}

    def replicates(self, rates: Mapping[Name, float]) -> dict[Name, list[RunSpec]]:
        """The runs that are compared: one for each seed of each strategy that has a rate."""
        specs = {
            name: spec_at(self.resolved, one, rates[name]) for name, one in self.strategies.items() if name in rates
        }
        seeds = self.resolved.request.seeds
        return {name: [spec.with_seed(seed) for seed in seeds] for name, spec in specs.items()}

    def next_runs(self, results: Results) -> list[Wanted]:
        """The searches, and the replicates of each strategy whose rate is known."""
        replicates = flat(self.replicates(self.rates(results)))
        return [*self.searching(results), *(Wanted(spec) for spec in replicates)]

    def runs_ahead(self, results: Results) -> list[RunSpec]:
        """All runs; where a rate is still to be chosen any stands for it, because it does not change the cost."""
        searched = [spec for search in self.searches.values() for spec in search.ahead(results)]
        any_rate = dict.fromkeys(self.strategies, self.resolved.request.learning_rates[0])
        return [*dict.fromkeys(searched), *flat(self.replicates(any_rate | self.rates(results)))]

    def searching(self, results: Results) -> list[Wanted]:
        """The runs of all searches so far."""
        return list(dict.fromkeys(wanted for search in self.searches.values() for wanted in search.wanted(results)))

    def ended(self, results: Results) -> dict[Name, list[RunSpec]]:
        """The replicates that finished or crashed, without strategies that have none."""
        groups = self.replicates(self.rates(results))
        ended = {name: [spec for spec in specs if results.has(Wanted(spec))] for name, specs in groups.items()}
        return {name: specs for name, specs in ended.items() if specs}


def depth_programme(resolved: ResolvedRequest) -> Programme[Depth]:
    """The full model and each depth, or each place on another axis, the costliest first."""
    return Programme(resolved, axis_of(resolved).strategies)


def line_search_specs(resolved: ResolvedRequest) -> list[RunSpec]:
    """The runs of the paper's line search, on the full model; none where a single rate was given."""
    rates = resolved.request.learning_rates
    if len(rates) == 1:
        return []
    return [resolved.base.replace(learning_rate=rate, role="line_search").with_seed(0) for rate in sorted(rates)]


def finished_line_searches(store: Store, resolved: ResolvedRequest) -> list[list[RunSpec]]:
    """The line searches of a folder that are over and differ from the request's in nothing but their rates."""
    ours = line_search_specs(resolved)[0]
    requests = [one.resolved for one in store.requests("compare", ResolvedComparison)]
    requests += [one for name in ("curve", "find", "train") for one in store.requests(name, ResolvedRequest)]
    searches = [specs for request in requests if (specs := line_search_specs(request))]
    alike = [specs for specs in searches if specs[0].replace(learning_rate=ours.learning_rate).key == ours.key]
    return [specs for specs in alike if all(store.get(spec.key) is not None for spec in specs)]


def _first_rates(resolved: ResolvedRequest, strategy: Strategy) -> tuple[float, ...]:
    """Where the line of a race begins: as given, or one of two defaults of the same length."""
    rates = tuple(sorted(resolved.request.learning_rates))
    return LARGE_RATES if rates == TUNED_RATES and strategy.rates == "large" else rates


def _old_specs(resolved: ResolvedRequest, strategy: Strategy) -> list[RunSpec]:
    """The search of release 0.1: one run for each rate, on held-out rows."""
    rates = sorted(resolved.request.learning_rates)
    if tuple(rates) == _OLD_RATES:
        is_shallow_tail = 2 * strategy.n_trained_layers(resolved.n_layers) <= resolved.n_layers
        fitting = rates if is_shallow_tail else [rate for rate in rates if rate <= _OLD_HIGHEST_FOR_MANY]
        rates = list(_OLD_LARGE_RATES) if strategy.rates == "large" else fitting
    return [spec_at(resolved, strategy, rate).replace(role="tuning", seed=0) for rate in rates]


def rate_messages(programme: Programme[Name], results: Results) -> list[str]:
    """Which learning rates were chosen so far."""
    rates = programme.rates(results)
    chosen = [
        (numbers.one_line(programme.strategies[name].name, 60), rates[name])
        for name in programme.searches
        if name in rates
    ]
    if programme.resolved.request.protocol == "paper":
        return [f"the line search chose the learning rate {rate:g}" for _, rate in chosen[:1]]
    return [f"{name}: the race chose the learning rate {rate:g}" for name, rate in chosen]


def flat(groups: Mapping[Name, Iterable[RunSpec]]) -> list[RunSpec]:
    """The runs of all groups, in their order."""
    return list(itertools.chain.from_iterable(groups.values()))
