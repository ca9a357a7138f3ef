"""What fine-tuning changed inside a model, layer by layer, as records.

Each change is 0 where nothing changed: 1 − cosine of attention maps, 1 − CKA of states, relative distance of weights.
**Change begins** at the lowest layer whose change is at least half of the largest layer's. If that predicted the
operating point, the layers below it could stay frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from frostline import stats
from frostline.analysis.curve_records import CurveCost, Interval, RunCounts
from frostline.records.serial import Record
from frostline.records.specs import Scale

Found = Mapping[str, NDArray[Any]]
"""what the measure `change` found in one run"""
Grid = tuple[tuple[float, ...], ...]
"""by layer, the lowest first, and attention head"""
What = Literal["attention", "states", "weights"]
WHATS: tuple[What, ...] = ("attention", "states", "weights")
BEGINS_AT = 0.5
"""share of the largest layer's change from which on a layer counts as changed"""


@dataclass(frozen=True, kw_only=True)
class LayerChange(Record):
    """How one layer changed: means over the runs of one strategy, with 95% intervals over seeds."""

    layer: int
    """counted from 1 at the bottom"""
    attention: float | None
    """1 − cosine of the attention maps before and after, mean over attention heads; None without maps"""
    attention_ci: Interval | None
    """its interval; None below three seeds"""
    entropy_before: float | None
    """of attention in the pretrained model, in nats, mean over attention heads"""
    entropy_after: float | None
    """of attention in the fine-tuned model"""
    states: float | None
    """1 − linear CKA of the states after the layer; None without rows"""
    states_ci: Interval | None
    """its interval"""
    weights: float
    """norm of the difference of the weights, divided by the norm of the pretrained weights"""
    weights_ci: Interval | None
    """its interval"""
    weights_attention: float | None
    """the same of the linear modules of attention; None if they cannot be told apart"""
    weights_ffn: float | None
    """of the linear modules of the feed-forward part"""
    weights_norms: float | None
    """of the norms"""


@dataclass(frozen=True, kw_only=True)
class Beginning(Record):
    """Where change begins."""

    by: What
    """what is looked at"""
    layer: int | None
    """the lowest layer whose change is at least half of the largest; None if nothing changed"""
    n_frozen: int | None
    """layers below it: what could stay frozen if this predicted the operating point"""


@dataclass(frozen=True, kw_only=True)
class StrategyChange(Record):
    """What one strategy changed."""

    strategy: str
    """what was trained"""
    n_frozen: int | None
    """layers frozen from the bottom, embeddings included; None: nothing is frozen, or it is not known"""
    seeds: tuple[int, ...]
    """of the runs; empty for a given model"""
    score: float | None
    """mean score of the runs on dev"""
    embeddings: float
    """relative distance of the weights below the layers"""
    layers: tuple[LayerChange, ...]
    """from the bottom up"""
    attention_cosine: Grid | None
    """of attention maps before and after, by layer and attention head, mean over runs"""
    entropy_before: Grid | None
    """of attention in the pretrained model"""
    entropy_after: Grid | None
    """of attention in the fine-tuned model"""
    begins: tuple[Beginning, ...]
    """where change begins, by what is looked at"""


@dataclass(frozen=True, kw_only=True)
class MeasuredDepth(Record):
    """An operating point that a curve or a search of the same folder found."""

    command: str
    """curve or find"""
    keep: float
    """share of the full score to keep"""
    scale: Scale
    """of the share"""
    n_frozen: int | None
    """most layers that can be frozen; None: no depth keeps the share"""


@dataclass(frozen=True, kw_only=True)
class Change(Record):
    """What fine-tuning changed inside a model."""

    model: str
    """the pretrained model"""
    tuned: str | None
    """the fine-tuned model, if one was given; None: runs trained it"""
    task: str | None
    """the task; None if only weights were compared"""
    metric: str | None
    """name of the metric that gives the score"""
    n_layers: int
    """layers of the model"""
    n_rows: int
    """dev rows that maps and states were compared on"""
    strategies: tuple[StrategyChange, ...]
    """what each strategy changed, the full model first"""
    operating_point: MeasuredDepth | None
    """how many layers can be frozen, from runs in the same folder; None if there is no curve or search"""
    cost: CurveCost
    """time and disk use"""
    runs: RunCounts
    """number of runs done, reused and crashed"""
    warnings: tuple[str, ...]
    """what the reader should know"""

    @property
    def n_crashed(self) -> int:
        """Number of runs that raised an error or died."""
        return self.runs.crashed


def strategy_change(
    strategy: str,
    n_frozen: int | None,
    found: Sequence[Found],
    *,
    seeds: Sequence[int] = (),
    score: float | None = None,
) -> StrategyChange:
    """What one strategy changed, from the measure of each of its runs."""
    layers = tuple(_layer(number, found) for number in range(len(found[0]["distance"])))
    return StrategyChange(
        strategy=strategy,
        n_frozen=n_frozen,
        seeds=tuple(seeds),
        score=score,
        embeddings=float(np.mean([one["distance_embeddings"] for one in found])),
        layers=layers,
        attention_cosine=_grid(found, "attention_cosine"),
        entropy_before=_grid(found, "entropy_before"),
        entropy_after=_grid(found, "entropy_after"),
        begins=tuple(_beginning(what, layers) for what in WHATS),
    )


def _layer(number: int, found: Sequence[Found]) -> LayerChange:
    """The layer at a place, counted from 0."""
    attention = _by_run(found, "attention_cosine", lambda values: 1 - float(values[number].mean()))
    # The states after a layer: those at place 0 are the embeddings'.
    states = _by_run(found, "cka", lambda values: 1 - float(values[number + 1]))
    weights = [float(one["distance"][number]) for one in found]

    def one(name: str) -> float | None:
        return _mean(_by_run(found, name, lambda values: float(values[number].mean())))

    return LayerChange(
        layer=number + 1,
        attention=_mean(attention),
        attention_ci=stats.t_interval(attention),
        entropy_before=one("entropy_before"),
        entropy_after=one("entropy_after"),
        states=_mean(states),
        states_ci=stats.t_interval(states),
        weights=stats.mean(weights),
        weights_ci=stats.t_interval(weights),
        weights_attention=one("distance_attention"),
        weights_ffn=one("distance_ffn"),
        weights_norms=one("distance_norms"),
    )


def _by_run(found: Sequence[Found], name: str, value: Callable[[NDArray[Any]], float]) -> list[float]:
    return [value(one[name]) for one in found if name in one]


def _mean(values: Sequence[float]) -> float | None:
    return stats.mean(values) if values else None


def _grid(found: Sequence[Found], name: str) -> Grid | None:
    known = [one[name] for one in found if name in one]
    if not known:
        return None
    return tuple(tuple(float(value) for value in layer) for layer in np.mean(known, axis=0))


def _beginning(what: What, layers: Sequence[LayerChange]) -> Beginning:
    known = [(layer.layer, value) for layer in layers if (value := getattr(layer, what)) is not None]
    most = max((value for _, value in known), default=0.0)
    layer = next((number for number, value in known if value >= BEGINS_AT * most), None) if most > 0 else None
    return Beginning(by=what, layer=layer, n_frozen=None if layer is None else layer - 1)
