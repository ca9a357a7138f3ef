"""The places of an axis other than depth: which values are tried, and what is trained at each.

Values are put in the order of their places: what stands later costs less to train, or keeps less of the pretrained
model. Attention heads are ranked here, on training rows, and get their names, so that no run depends on a ranking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.errors import UsageError
from frostline.records.depth import AxisName
from frostline.records.requests import ResolvedAxis, ResolvedRequest
from frostline.strategies import Strategy, parse
from frostline.strategies.subspace import DEFAULT_DIMENSIONS

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver

_SHARES_OF_HEADS = (1 / 12, 1 / 6, 1 / 3, 2 / 3)
"""Of the attention heads, by default: 6, 12, 24 and 48 of a model with 6 layers of 12."""


@final
@dataclass(frozen=True)
class _Kind:
    """How the values of one axis are written and ordered."""

    form: str
    """the strategy at a value"""
    is_ascending: bool = False
    """whether larger values stand later"""


_KINDS: Mapping[AxisName, _Kind] = {
    "transfer": _Kind("transfer:{value}"),
    "reinit": _Kind("reinit:{value}", is_ascending=True),
    "heads": _Kind("heads:{value}@{rank}"),
    "subspace": _Kind("subspace:{value}"),
}


def on_axis(resolver: Resolver, filled: ResolvedRequest) -> ResolvedRequest:
    """The request with the values of its axis filled in; a UsageError where the model does not allow one of them."""
    request, kind = filled.request, _KINDS[filled.request.axis]
    total = _total(resolver, filled)
    values = request.axis_values or _defaults(resolver, filled, total)
    ordered = tuple(sorted(values, reverse=not kind.is_ascending))
    _check_values(request.axis, ordered, total)
    written = [parse(kind.form.format(value=value, rank=request.rank)) for value in ordered]
    strategies = _named(resolver, filled, written)
    for strategy in strategies:  # what the model does not allow is refused before the request is kept
        resolver.plan(filled, strategy)
    axis = ResolvedAxis(
        name=request.axis,
        values=ordered,
        strategies=tuple(one.name for one in strategies),
        trained_layers=tuple(one.n_trained_layers(filled.n_layers) for one in strategies),
        total=total,
    )
    return filled.replace(axis=axis)


def _total(resolver: Resolver, filled: ResolvedRequest) -> int | None:
    """How many layers or attention heads there are; None where values count something without a limit."""
    if filled.request.axis == "subspace":
        return None
    if filled.request.axis != "heads":
        return filled.n_layers
    from frostline.model.inside.heads import attention_heads

    return sum(layer.n_heads for layer in attention_heads(resolver.stack(filled)))


def _defaults(resolver: Resolver, filled: ResolvedRequest, total: int | None) -> Sequence[int]:
    """A few values over the whole axis; of layers, every number."""
    if filled.request.axis == "heads":
        assert total is not None, "attention heads are counted"
        return sorted({max(1, round(share * total)) for share in _SHARES_OF_HEADS})
    if total is not None:
        return range(total + 1)
    from frostline.model.inside.subspace import moved_parameters

    stack = resolver.stack(filled)
    n_weights = stack.count(moved_parameters(stack))
    return [value for value in DEFAULT_DIMENSIONS if value <= n_weights] or [n_weights]


def _check_values(axis: AxisName, values: Sequence[int], total: int | None) -> None:
    least = 1 if axis == "heads" else 0
    wrong = [value for value in values if value < least or (total is not None and value > total)]
    if wrong:
        counted = "attention heads" if axis == "heads" else "layers"
        allowed = f"use {least} to {total}" if total is not None else f"use {least} or more"
        has = "" if total is None else f"the model has {total} {counted}; "
        raise UsageError(f"--axis-values {', '.join(map(str, wrong))}: {has}{allowed}")


def _named(resolver: Resolver, filled: ResolvedRequest, written: Sequence[Strategy]) -> list[Strategy]:
    """The strategies in their canonical form, ranked attention heads by their names."""
    kind = filled.base.task.kind
    assert kind is not None, "the task of a resolved request is resolved"
    return [resolver.named(filled, one).resolved(filled.n_layers, kind) for one in written]
