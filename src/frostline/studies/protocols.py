"""Which runs a protocol asks for: those that choose rates, and the replicates at the rates that were chosen.

`paper`: one rate for all, the full model's best on dev. `tuned`: a rate for each depth or strategy, the best on rows
held out of train. Builds specs; runs nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from frostline.analysis import row_variance
from frostline.errors import UsageError
from frostline.kinds import kind_of
from frostline.records.requests import ResolvedComparison, ResolvedCurve
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.stats.search_rules import Standing, ranked
from frostline.strategies import Freeze, Full, Strategy, parse

Depth = int | None
"""layers frozen from the bottom; None: the full model"""
Name = TypeVar("Name")
"""what a strategy is called by who asks for its runs"""

TUNED_RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
"""The wider line that `tuned` searches where no rates are given."""
LARGE_RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3)
"""The line in its place for strategies that train few or new parameters alone."""
_HIGHEST_FOR_MANY = 2e-4
"""Of that line, the highest rate tried where more than half of the layers train: above it they fail."""


def layer_forwards(n_trained: int, n_computed: int = 0) -> float:
    """Cost of one row in one epoch: 3 a trained layer, 1 a frozen one that is computed each time."""
    # A little for the head and what every run pays, so that a head-only run is not free.
    return n_computed + 3 * n_trained + 0.1


def units(spec: RunSpec, n_layers: int) -> float:
    """Cost of a run, one row, in layer-forwards."""
    n_below = parse(spec.strategy).n_below(n_layers)
    return spec.epochs * layer_forwards(n_layers - n_below, 0 if spec.is_cached else n_below)


def spec_at(resolved: ResolvedCurve, strategy: Strategy, rate: float) -> RunSpec:
    """The run of one strategy at one rate, with the first seed."""
    is_cached = resolved.is_cached and strategy.may_keep(resolved.n_layers)
    has_dtype = is_cached and strategy.rates != "none"  # pooled states are always kept as they are
    dtype = resolved.asked.cache_dtype if has_dtype else resolved.base.cache_dtype
    rate = 0.0 if strategy.rates == "none" else rate
    return resolved.base.replace(strategy=strategy.name, learning_rate=rate, is_cached=is_cached, cache_dtype=dtype)


def name_of(depth: Depth) -> str:
    """What the strategy of a depth is called."""
    return _strategy(depth).name


def _strategy(depth: Depth) -> Strategy:
    return Full() if depth is None else Freeze(depth)


def spec_at_depth(resolved: ResolvedCurve, depth: Depth, rate: float) -> RunSpec:
    """The run of one depth at one rate, with the first seed."""
    return spec_at(resolved, _strategy(depth), rate)


@dataclass(frozen=True)
class Programme(Generic[Name]):
    """The runs that a request asks for, by names of the caller's own: a curve's depths, a comparison's strategies."""

    settled: ResolvedCurve
    wanted: Mapping[Name, Strategy]

    def searches(self) -> dict[Name | None, list[RunSpec]]:
        """The runs that choose rates, by what they choose one for (None: the full model, for all).

        Nothing where a single rate was given, and nothing for what has no rate.
        """
        resolved = self.settled
        if len(resolved.asked.learning_rates) == 1 or all(one.rates == "none" for one in self.wanted.values()):
            return {}
        if resolved.asked.protocol == "paper":
            return {None: line_search_specs(resolved)}
        return {
            name: [
                spec_at(resolved, strategy, rate).replace(role="tuning", seed=0) for rate in _rates(resolved, strategy)
            ]
            for name, strategy in self.wanted.items()
            if strategy.rates != "none"
        }

    def rates(self, searched: Mapping[str, RunResult]) -> dict[Name, float]:
        """The rate of each, from the results of the search by key; one whose runs all crashed has none."""
        groups = self.searches()
        if not groups:
            return dict.fromkeys(self.wanted, self.settled.asked.learning_rates[0])
        found = {name: [searched[s.key] for s in specs if s.key in searched] for name, specs in groups.items()}
        best = {name: best_rate(results) for name, results in found.items() if results}
        without = {name: 0.0 for name, strategy in self.wanted.items() if strategy.rates == "none"}
        if self.settled.asked.protocol == "paper":
            return dict.fromkeys(self.wanted, best[None]) if None in best else without
        return {name: rate for name in self.wanted if (rate := (without | best).get(name)) is not None}

    def replicates(self, rates: Mapping[Name, float]) -> dict[Name, list[RunSpec]]:
        """The runs that are compared: of each that has a rate, one a seed."""
        specs = {name: spec_at(self.settled, one, rates[name]) for name, one in self.wanted.items() if name in rates}
        return {name: [spec.replace(seed=seed) for seed in self.settled.asked.seeds] for name, spec in specs.items()}

    def specs(self, rates: Mapping[Name, float] | None = None) -> list[RunSpec]:
        """All runs; rates that have yet to be chosen (None) do not change their cost."""
        some = dict.fromkeys(self.wanted, self.settled.asked.learning_rates[0])
        return [*flat(self.searches()), *flat(self.replicates(some if rates is None else rates))]


def of_curve(resolved: ResolvedCurve) -> Programme[Depth]:
    """The full model and each depth, the costliest first."""
    return Programme(resolved, {depth: _strategy(depth) for depth in (None, *resolved.depths)})


def of_comparison(comparison: ResolvedComparison) -> Programme[str]:
    """Each strategy by its name as the user wrote it, settled; a UsageError with all that cannot be."""
    settled = comparison.settled
    kind = settled.base.task.kind
    assert kind is not None, "the task of a settled request is resolved"
    wanted: dict[str, Strategy] = {}
    faults: list[str] = []
    for name in comparison.strategies:
        try:
            wanted[name] = parse(name).settled(settled.n_layers, kind)
        except UsageError as error:
            faults.append(str(error))
    if faults:
        raise UsageError.together(faults)
    return Programme(settled, wanted)


def line_search_specs(resolved: ResolvedCurve) -> list[RunSpec]:
    """The runs of the paper's line search, on the full model; none where a single rate was given."""
    rates = resolved.asked.learning_rates
    if len(rates) == 1:
        return []
    return [resolved.base.replace(learning_rate=rate, role="line_search", seed=0) for rate in sorted(rates)]


def _rates(resolved: ResolvedCurve, strategy: Strategy) -> list[float]:
    rates = sorted(resolved.asked.learning_rates)
    if tuple(rates) != TUNED_RATES:
        return rates
    if strategy.rates == "large":
        return list(LARGE_RATES)
    is_shallow_tail = 2 * strategy.n_trained(resolved.n_layers) <= resolved.n_layers
    return rates if is_shallow_tail else [rate for rate in rates if rate <= _HIGHEST_FOR_MANY]


def best_rate(searched: Collection[RunResult]) -> float:
    """The rate of the best score; of equal ones, the lowest.

    Of rates that were tried on few held-out rows many are equal but for noise: among those, that of the lowest loss.
    """
    if all(result.spec.role == "tuning" for result in searched):
        return ranked([_standing(result) for result in searched])[0].rate
    return max(searched, key=lambda result: (result.score, -result.spec.learning_rate)).spec.learning_rate


def _standing(result: RunResult) -> Standing:
    kind = kind_of(result.spec.task)
    labels, outputs = result.predictions.labels.array(), result.predictions.outputs.array()
    return Standing(
        rate=result.spec.learning_rate,
        score=result.score,
        noise=math.sqrt(row_variance(kind, result.spec.task.metric or "", labels, [outputs])),
        loss=kind.mean_loss(labels, outputs),
    )


def flat(groups: Mapping[Name, Iterable[RunSpec]]) -> list[RunSpec]:
    """The runs of all groups, in their order."""
    return list(itertools.chain.from_iterable(groups.values()))
