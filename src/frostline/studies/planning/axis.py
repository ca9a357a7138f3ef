"""An axis: an ordered set of values, each with a strategy, a cost and a label.

Depth is one axis. Curves, operating points and searches work on any: what stands later on it costs less to train, or is
further from the full model. They know a value by its place on the axis (`analysis/axis/places.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from frostline.analysis import place_words
from frostline.records.depth import FULL, AxisName, Depth
from frostline.records.requests import ResolvedAxis, ResolvedRequest
from frostline.records.specs import RunSpec
from frostline.strategies import Freeze, Full, Strategy, parse

_HEAD_COST = 0.1
"""in layer-forwards: a little for the head and what every run pays, so that a head-only run is not free"""


@final
@dataclass(frozen=True, kw_only=True)
class AxisValue:
    """One place on an axis."""

    place: int
    """grows along the axis; on the axis of depth, the depth"""
    value: int
    """on the axis of depth, the depth"""
    strategy: Strategy
    label: str
    """for people"""
    cost: float
    """of one run, in full-run equivalents"""


@final
@dataclass(frozen=True, kw_only=True)
class Axis:
    """Values in the order of their places; the full model, which all are held against, is not one of them."""

    name: AxisName
    values: tuple[AxisValue, ...]
    named: ResolvedAxis | None = None
    """the axis as a record; None: depth"""

    @property
    def strategies(self) -> dict[Depth, Strategy]:
        """What is trained at each place, the full model first."""
        return {FULL: Full(), **{one.place: one.strategy for one in self.values}}

    @property
    def costs(self) -> Mapping[Depth, float]:
        """Of one run at each place, in full-run equivalents."""
        return {FULL: 1.0, **{one.place: one.cost for one in self.values}}

    @property
    def places(self) -> tuple[int, ...]:
        """All places, ascending."""
        return tuple(one.place for one in self.values)

    def words(self, place: Depth) -> str:
        """A place in a sentence."""
        return place_words(self.named, place)

    def strategy_of(self, value: Depth) -> Strategy:
        """What is trained at a value."""
        return Full() if value is FULL else next(one.strategy for one in self.values if one.value == value)


def axis_of(resolved: ResolvedRequest) -> Axis:
    """What the runs of a request vary: layers frozen from the bottom, or the values of another axis."""
    named = resolved.axis
    if named is None:
        depths = ((depth, depth, Freeze(depth)) for depth in resolved.depths)
        return Axis(name="depth", values=_values(resolved, depths))
    given = zip(named.values, named.strategies, strict=True)
    placed = ((place, value, parse(name)) for place, (value, name) in enumerate(given))
    return Axis(name=named.name, values=_values(resolved, placed), named=named)


def _values(resolved: ResolvedRequest, placed: Iterable[tuple[int, int, Strategy]]) -> tuple[AxisValue, ...]:
    return tuple(
        AxisValue(
            place=place,
            value=value,
            strategy=strategy,
            label=place_words(resolved.axis, place),
            cost=full_run_equivalents([spec_at(resolved, strategy)], resolved.n_layers),
        )
        for place, value, strategy in placed
    )


def spec_at(resolved: ResolvedRequest, strategy: Strategy, rate: float | None = None) -> RunSpec:
    """The run of a strategy with the first seed, at a learning rate; without one, at the first of the request."""
    base = resolved.base
    is_cached = resolved.is_cached and strategy.is_worth_caching(resolved.n_layers)
    # Pooled states, which a closed-form fit reads, are always cached as fp32.
    dtype = resolved.request.cache_dtype if is_cached and not strategy.is_closed_form else base.cache_dtype
    rate = 0.0 if not strategy.has_rate else base.learning_rate if rate is None else rate
    spec = base.replace(strategy=strategy.name, learning_rate=rate, is_cached=is_cached, cache_dtype=dtype)
    # Seeds vary what training draws, not what a search chooses: layer and strength are chosen once, as rates are.
    return spec.replace(fit_seed=0) if strategy.is_closed_form and resolved.has_races else spec


def layer_forwards(n_trained: int, n_computed: int = 0) -> float:
    """Cost of one row in one epoch: 3 for each trained layer, 1 for each frozen layer that is not cached."""
    return n_computed + 3 * n_trained + _HEAD_COST


def run_cost(spec: RunSpec, n_layers: int) -> float:
    """Cost of a run per row, in layer-forwards."""
    n_below = parse(spec.strategy).n_prefix_layers(n_layers)
    return spec.epochs * layer_forwards(n_layers - n_below, 0 if spec.is_cached else n_below)


def full_run_equivalents(specs: Sequence[RunSpec], n_layers: int, epochs: int | None = None) -> float:
    """Cost of runs, divided by the cost of a full run with as many epochs as the first, or as given."""
    if not specs:
        return 0.0
    whole = specs[0].replace(strategy="full", is_cached=False, epochs=epochs or specs[0].epochs)
    return math.fsum(run_cost(spec, n_layers) for spec in specs) / run_cost(whole, n_layers)
