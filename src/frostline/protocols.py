"""Which runs a protocol asks for: those that choose rates, and the replicates at the rates that were chosen.

`paper`: one rate for all depths, the full model's best on dev. `tuned`: a rate for the full model and for each depth,
the best on rows held out of train. Builds specs; runs nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping

from frostline.records import ResolvedCurve, RunResult, RunSpec
from frostline.strategies import Freeze, Full, Strategy, parse

Depth = int | None
"""layers frozen from the bottom; None: the full model"""

TUNED_RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
"""The wider line that `tuned` searches where no rates are given."""
_HIGHEST_FOR_MANY = 2e-4
"""Of that line, the highest rate tried where more than half of the layers train: above it they fail."""


def layer_forwards(n_trained: int, n_computed: int = 0) -> float:
    """Cost of one row in one epoch: 3 a trained layer, 1 a frozen one that is computed each time."""
    # A little for the head and what every run pays, so that a head-only run is not free.
    return n_computed + 3 * n_trained + 0.1


def units(spec: RunSpec, n_layers: int) -> float:
    """Cost of a run, one row, in layer-forwards."""
    strategy = parse(spec.strategy)
    n_frozen = strategy.n_frozen if isinstance(strategy, Freeze) else 0
    return spec.epochs * layer_forwards(n_layers - n_frozen, 0 if spec.is_cached else n_frozen)


def spec_at(resolved: ResolvedCurve, strategy: Strategy, rate: float) -> RunSpec:
    """The run of one strategy at one rate, with the first seed."""
    # The embeddings alone cost nothing to compute again: keeping their output would not pay.
    is_cached = resolved.is_cached and strategy not in (Full(), Freeze(0))
    dtype = resolved.asked.cache_dtype if is_cached else resolved.base.cache_dtype
    return resolved.base.replace(strategy=strategy.name, learning_rate=rate, is_cached=is_cached, cache_dtype=dtype)


def name_of(depth: Depth) -> str:
    """What the strategy of a depth is called."""
    return _strategy(depth).name


def _strategy(depth: Depth) -> Strategy:
    return Full() if depth is None else Freeze(depth)


def spec_at_depth(resolved: ResolvedCurve, depth: Depth, rate: float) -> RunSpec:
    """The run of one depth at one rate, with the first seed."""
    return spec_at(resolved, _strategy(depth), rate)


def search_specs(resolved: ResolvedCurve) -> dict[Depth, list[RunSpec]]:
    """The runs that choose rates, by what they choose one for; none where a single rate was given."""
    if len(resolved.asked.learning_rates) == 1:
        return {}
    if resolved.asked.protocol == "paper":
        return {None: line_search_specs(resolved)}
    return {
        depth: [
            spec_at_depth(resolved, depth, rate).replace(role="tuning", seed=0) for rate in _rates_at(resolved, depth)
        ]
        for depth in (None, *resolved.depths)
    }


def line_search_specs(resolved: ResolvedCurve) -> list[RunSpec]:
    """The runs of the paper's line search, on the full model; none where a single rate was given."""
    rates = resolved.asked.learning_rates
    if len(rates) == 1:
        return []
    return [resolved.base.replace(learning_rate=rate, role="line_search", seed=0) for rate in sorted(rates)]


def _rates_at(resolved: ResolvedCurve, depth: Depth) -> list[float]:
    rates = sorted(resolved.asked.learning_rates)
    is_shallow_tail = depth is not None and 2 * (resolved.n_layers - depth) <= resolved.n_layers
    if is_shallow_tail or tuple(rates) != TUNED_RATES:
        return rates
    return [rate for rate in rates if rate <= _HIGHEST_FOR_MANY]


def best_rate(searched: Collection[RunResult]) -> float:
    """The rate of the best score; of equal ones, the lowest."""
    return max(searched, key=lambda result: (result.score, -result.spec.learning_rate)).spec.learning_rate


def chosen_rates(resolved: ResolvedCurve, searched: Mapping[str, RunResult]) -> dict[Depth, float]:
    """The rate of each depth, from the results of the search by key; a depth whose runs all crashed has none."""
    groups = search_specs(resolved)
    if not groups:
        return dict.fromkeys((None, *resolved.depths), resolved.asked.learning_rates[0])
    found = {depth: [searched[s.key] for s in specs if s.key in searched] for depth, specs in groups.items()}
    best = {depth: best_rate(results) for depth, results in found.items() if results}
    if resolved.asked.protocol == "paper":
        return dict.fromkeys((None, *resolved.depths), best[None]) if None in best else {}
    return best


def replicates(resolved: ResolvedCurve, rates: Mapping[Depth, float]) -> dict[Depth, list[RunSpec]]:
    """The runs of the curve: the full model (None) and each depth that has a rate, one a seed, the costliest first."""
    groups: dict[Depth, list[RunSpec]] = {}
    for depth in (None, *resolved.depths):
        if depth in rates:
            spec = spec_at_depth(resolved, depth, rates[depth])
            groups[depth] = [spec.replace(seed=seed) for seed in resolved.asked.seeds]
    return groups


def all_specs(resolved: ResolvedCurve, rates: Mapping[Depth, float] | None = None) -> list[RunSpec]:
    """All runs of a curve; rates that have yet to be chosen (None) do not change their cost."""
    some = dict.fromkeys((None, *resolved.depths), resolved.asked.learning_rates[0])
    return [*flat(search_specs(resolved)), *flat(replicates(resolved, some if rates is None else rates))]


def flat(groups: Mapping[Depth, Iterable[RunSpec]]) -> list[RunSpec]:
    """The runs of all groups, in their order."""
    return list(itertools.chain.from_iterable(groups.values()))
