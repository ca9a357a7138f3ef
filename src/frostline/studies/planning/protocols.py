"""How learning rates are chosen, and which runs follow from them.

`paper`: one rate for all, the full model's best on dev. `tuned`: a rate for each depth or strategy, the best on rows
held out of train. Builds specs; runs nothing.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from frostline.analysis import TriedRate, dev_variance
from frostline.execution.sweep import Wanted
from frostline.kinds import kind_of
from frostline.records.depth import Depth
from frostline.records.requests import ResolvedComparison, ResolvedRequest
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.stats.search_rules import Standing, ranked
from frostline.storage.runs import Store
from frostline.strategies import Strategy
from frostline.studies.planning.axis import depth_axis, spec_at
from frostline.studies.study import Results

Name = TypeVar("Name")
"""what a study calls one of its strategies: a depth, or the text that a user wrote"""

TUNED_RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
"""The rates that `tuned` searches where none are given."""
LARGE_RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3)
"""In their place, for strategies that train few or new parameters alone."""
_HIGHEST_FOR_MANY = 2e-4
"""Of `TUNED_RATES`, the highest that is tried where more than half of the layers train: above it they fail."""


class RateChoice(abc.ABC):
    """How one protocol chooses learning rates."""

    @abc.abstractmethod
    def searches(self, resolved: ResolvedRequest, strategies: Sequence[Strategy]) -> dict[str, list[RunSpec]]:
        """The runs that choose a rate, by the name of the strategy that they choose it for."""

    @abc.abstractmethod
    def rates(self, found: Mapping[str, float], strategies: Sequence[Strategy]) -> dict[str, float]:
        """The rate of each strategy by name, from the best of each search; none where all runs of a search crashed."""


@final
class PaperRates(RateChoice):
    """A line search on the full model, scored on dev. Its best rate is used for everything."""

    def searches(self, resolved: ResolvedRequest, strategies: Sequence[Strategy]) -> dict[str, list[RunSpec]]:  # noqa: ARG002
        """One run of the full model for each rate, with a seed of its own."""
        return {"full": line_search_specs(resolved)}

    def rates(self, found: Mapping[str, float], strategies: Sequence[Strategy]) -> dict[str, float]:
        """The full model's rate for every strategy."""
        return {strategy.name: found["full"] for strategy in strategies} if "full" in found else {}


@final
class TunedRates(RateChoice):
    """A search for each strategy, scored on rows held out of train."""

    def searches(self, resolved: ResolvedRequest, strategies: Sequence[Strategy]) -> dict[str, list[RunSpec]]:
        """One run of each strategy for each rate."""
        return {
            strategy.name: [
                spec_at(resolved, strategy, rate).replace(role="tuning", seed=0) for rate in _rates(resolved, strategy)
            ]
            for strategy in strategies
        }

    def rates(self, found: Mapping[str, float], strategies: Sequence[Strategy]) -> dict[str, float]:
        """Each strategy's own rate."""
        return {strategy.name: found[strategy.name] for strategy in strategies if strategy.name in found}


_CHOICES: Mapping[str, RateChoice] = {"paper": PaperRates(), "tuned": TunedRates()}


@final
@dataclass(frozen=True)
class Programme(Generic[Name]):
    """The runs of several strategies: those that choose their rates, and replicates at the rates that were chosen."""

    resolved: ResolvedRequest
    strategies: Mapping[Name, Strategy]
    """by the study's own names"""

    @property
    def searches(self) -> dict[str, list[RunSpec]]:
        """The runs that choose rates, by strategy; none where one rate was given, or nothing has a rate."""
        searched = self._searched
        if len(self.resolved.request.learning_rates) == 1 or not searched:
            return {}
        return self._choice.searches(self.resolved, searched)

    def rates(self, results: Results) -> dict[Name, float]:
        """The rate of each strategy; one whose search crashed in every run has none."""
        if not self.searches:
            chosen = dict.fromkeys(self._by_name, self.resolved.request.learning_rates[0])
        else:
            found = {name: results.of(specs) for name, specs in self.searches.items()}
            best = {name: best_rate(searched) for name, searched in found.items() if searched}
            chosen = self._choice.rates(best, self._searched)
        closed = {strategy.name: 0.0 for strategy in self.strategies.values() if strategy.is_closed_form}
        chosen |= closed
        return {name: chosen[one.name] for name, one in self.strategies.items() if one.name in chosen}

    def replicates(self, rates: Mapping[Name, float]) -> dict[Name, list[RunSpec]]:
        """The runs that are compared: one for each seed of each strategy that has a rate."""
        specs = {
            name: spec_at(self.resolved, one, rates[name]) for name, one in self.strategies.items() if name in rates
        }
        seeds = self.resolved.request.seeds
        return {name: [spec.replace(seed=seed) for seed in seeds] for name, spec in specs.items()}

    def next_runs(self, results: Results) -> list[Wanted]:
        """The searches; once they are over, the replicates too."""
        searched = flat(self.searches)
        is_over = results.has_all(searched)
        wanted = [*searched, *flat(self.replicates(self.rates(results)))] if is_over else searched
        return [Wanted(spec) for spec in wanted]

    def runs_ahead(self, results: Results) -> list[RunSpec]:
        """All runs; where a rate is still to be chosen any stands for it, because it does not change the cost."""
        searched = flat(self.searches)
        is_over = results.has_all(searched)
        rates = (
            self.rates(results) if is_over else dict.fromkeys(self.strategies, self.resolved.request.learning_rates[0])
        )
        return [*searched, *flat(self.replicates(rates))]

    def ended(self, results: Results) -> dict[Name, list[RunSpec]]:
        """The replicates that finished or crashed, without strategies that have none."""
        groups = self.replicates(self.rates(results))
        ended = {name: [spec for spec in specs if results.has(Wanted(spec))] for name, specs in groups.items()}
        return {name: specs for name, specs in ended.items() if specs}

    @property
    def _choice(self) -> RateChoice:
        return _CHOICES[self.resolved.request.protocol]

    @property
    def _by_name(self) -> dict[str, Strategy]:
        return {strategy.name: strategy for strategy in self.strategies.values()}

    @property
    def _searched(self) -> list[Strategy]:
        return [strategy for strategy in self._by_name.values() if not strategy.is_closed_form]


def depth_programme(resolved: ResolvedRequest) -> Programme[Depth]:
    """The full model and each depth, the costliest first."""
    return Programme(resolved, depth_axis(resolved).strategies)


def line_search_specs(resolved: ResolvedRequest) -> list[RunSpec]:
    """The runs of the paper's line search, on the full model; none where a single rate was given."""
    rates = resolved.request.learning_rates
    if len(rates) == 1:
        return []
    return [resolved.base.replace(learning_rate=rate, role="line_search", seed=0) for rate in sorted(rates)]


def finished_line_searches(store: Store, resolved: ResolvedRequest) -> list[list[RunSpec]]:
    """The line searches of a folder that are over and differ from the request's in nothing but their rates."""
    ours = line_search_specs(resolved)[0]
    requests = [one.resolved for one in store.requests("compare", ResolvedComparison)]
    requests += [one for name in ("curve", "find", "train") for one in store.requests(name, ResolvedRequest)]
    searches = [specs for request in requests if (specs := line_search_specs(request))]
    alike = [specs for specs in searches if specs[0].replace(learning_rate=ours.learning_rate).key == ours.key]
    return [specs for specs in alike if all(store.get(spec.key) is not None for spec in specs)]


def _rates(resolved: ResolvedRequest, strategy: Strategy) -> list[float]:
    rates = sorted(resolved.request.learning_rates)
    if tuple(rates) != TUNED_RATES:
        return rates
    if strategy.rates == "large":
        return list(LARGE_RATES)
    is_shallow_tail = 2 * strategy.n_trained_layers(resolved.n_layers) <= resolved.n_layers
    return rates if is_shallow_tail else [rate for rate in rates if rate <= _HIGHEST_FOR_MANY]


def best_rate(searched: Collection[RunResult]) -> float:
    """The rate with the best score; of equal ones, the lowest.

    Rates that were tried on a few held-out rows are often equal within noise: of those, the one with the lowest loss.
    """
    if all(result.spec.role == "tuning" for result in searched):
        return ranked([_standing(result) for result in searched])[0].rate
    return max(searched, key=lambda result: (result.score, -result.spec.learning_rate)).spec.learning_rate


def _standing(result: RunResult) -> Standing:
    labels, outputs = result.predictions.labels.array(), result.predictions.outputs.array()
    return Standing(
        rate=result.spec.learning_rate,
        score=result.score,
        noise=math.sqrt(dev_variance([result])),
        loss=kind_of(result.spec.task).mean_loss(labels, outputs),
    )


def tried_rates(specs: Iterable[RunSpec], results: Results) -> list[TriedRate]:
    """What a line search tried."""
    found = results.finished
    return [
        TriedRate(learning_rate=spec.learning_rate, score=found[spec.key].score if spec.key in found else None)
        for spec in specs
    ]


def rate_messages(programme: Programme[Name], results: Results) -> list[str]:
    """Which learning rates the search chose, once it is over."""
    if not programme.searches or not results.has_all(flat(programme.searches)):
        return []
    rates = {programme.strategies[name].name: rate for name, rate in programme.rates(results).items() if rate}
    if len(set(rates.values())) == 1:
        return [f"the line search chose the learning rate {next(iter(rates.values())):g}"]
    return [f"the line search chose learning rates: {', '.join(f'{name} {rate:g}' for name, rate in rates.items())}"]


def flat(groups: Mapping[Name, Iterable[RunSpec]]) -> list[RunSpec]:
    """The runs of all groups, in their order."""
    return list(itertools.chain.from_iterable(groups.values()))
