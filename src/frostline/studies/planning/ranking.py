"""From `heads:12@importance` to the names of the 12 attention heads, before any run that counts.

Rankings are made on training rows only (TRAPS 38), and the names are what specs hold. By importance: as `frostline
heads` measures it. By change: the relative distance that the weights of an attention head move in one epoch of full
fine-tuning, at the middle one of the request's learning rates, with a seed of its own. Both runs go into the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from frostline.analysis.inside.heads import by_importance, ranked_heads
from frostline.records.depth import Rank
from frostline.records.keys import derived_seed
from frostline.records.parameters import AttentionHead
from frostline.records.requests import ResolvedRequest
from frostline.records.specs import RunSpec
from frostline.strategies import RankedHeads, Strategy
from frostline.studies.inside.heads import all_heads, importance_spec

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver

_MOVEMENT = "movement"


def resolve_heads(resolver: Resolver, resolved: ResolvedRequest, strategy: Strategy) -> Strategy:
    """The strategy with its attention heads named; any other strategy as it is."""
    if not isinstance(strategy, RankedHeads):
        return strategy
    return strategy.first_of(ranking(resolver, resolved, strategy.rank))


def ranking(resolver: Resolver, resolved: ResolvedRequest, rank: Rank) -> tuple[AttentionHead, ...]:
    """All attention heads of the model, the first to train first."""
    from frostline.model.inside.heads import attention_heads

    numbers = [layer.n_heads for layer in attention_heads(resolver.stack(resolved))]
    heads = all_heads(numbers)
    match rank:
        case "top":
            return tuple(sorted(heads, key=lambda head: (-head.layer, head.number)))
        case "random":
            seed = derived_seed(resolved.request.master_seed, "attention heads at random")
            return tuple(heads[place] for place in np.random.default_rng(seed).permutation(len(heads)))
        case "importance":
            resolver.check_pooled(resolved)
            ranked = by_importance(_measured(resolver, importance_spec(resolved), "importance", numbers))
        case "change":
            ranked = ranked_heads(_measured(resolver, movement_spec(resolved), _MOVEMENT, numbers))
    return tuple(head for head, _ in ranked)


def movement_spec(resolved: ResolvedRequest) -> RunSpec:
    """One epoch of full fine-tuning, after which the movement of the attention heads is measured."""
    rates = sorted(resolved.request.learning_rates)
    changes = {"learning_rate": rates[len(rates) // 2], "epochs": 1, "max_steps": None, "role": "line_search"}
    return resolved.base.replace(strategy="full", is_cached=False, measures=(_MOVEMENT,), **changes)


def _measured(resolver: Resolver, spec: RunSpec, measure: str, n_heads: Sequence[int]) -> list[list[float]]:
    """What a measure finds for every attention head (layers, heads): from the store, else from a run done here."""
    result = resolver.store.get(spec.key)
    if result is None:
        from frostline.training.run import Runner

        result = Runner(resolver.max_cache_bytes).run(spec)
        resolver.store.put(result)
    found = result.measurement(spec.measures[0])
    if found is None:
        from frostline.training.forward import DivergedError

        raise DivergedError(f"the run that ranks attention heads by {measure} diverged; try a lower learning rate")
    return [of_layer[:number].tolist() for of_layer, number in zip(found[measure], n_heads, strict=True)]
