"""What models could share, and what fine-tuning moved: weights on disk, compared tensor by tensor.

Builds no model and needs no torch. Two tensors agree if shape and values are the same to the bit
(`model/weight_files.py` says how half precision counts).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from frostline.errors import UsageError
from frostline.model.weight_files import (
    EMBEDDINGS,
    HEAD,
    WeightFiles,
    WeightTensor,
    layer_name,
    open_weights,
    with_names_of,
)
from frostline.records.parameters import PairSharing, PartChange, Sharing, TensorChange, WeightChange, WeightSize


def verify(base: str, tuned: str) -> WeightChange:
    """What differs between a model and its base, part by part from the bottom up."""
    return _change(open_weights(base), open_weights(tuned))


def share(models: Sequence[str]) -> Sharing:
    """How deep models agree, and what they would save by sharing that part."""
    if len(models) < 2:
        raise UsageError(f"{len(models)} model is given; give at least two to compare")
    opened = [open_weights(name) for name in models]
    first, *others = opened
    changes = [_change(first, other) for other in others]
    pairs = [(one, other, _shared_layers(one, other)) for one, other in itertools.combinations(opened, 2)]
    depth = None if any(found is None for _, _, found in pairs) else min(found or 0 for _, _, found in pairs)
    sizes = [WeightSize(model=one.name, n_bytes=one.n_bytes, shared_bytes=_prefix_bytes(one, depth)) for one in opened]
    apart, n_layers = sum(one.n_bytes for one in sizes), first.n_layers
    return Sharing(
        models=tuple(sizes),
        n_layers=n_layers,
        shared_layers=depth,
        pairs=tuple(PairSharing(first=a.name, second=b.name, shared_layers=found) for a, b, found in pairs),
        changes=tuple(changes),
        bytes_apart=apart,
        bytes_shared=apart - sum(one.shared_bytes for one in sizes[1:]),
        compute_ratio=compute_ratio(len(models), n_layers or 0, depth or 0),
    )


def compute_ratio(n_tasks: int, n_layers: int, n_shared: int) -> float:
    """How many times fewer layers are computed per text if `n_tasks` models share their lowest layers.

    >>> round(compute_ratio(16, 12, 9), 2)
    3.37
    """
    together = n_shared + n_tasks * (n_layers - n_shared)
    return n_tasks * n_layers / together if together else 1.0


def _change(base: WeightFiles, tuned: WeightFiles) -> WeightChange:
    one, other = with_names_of(base, tuned)
    parts = [_part_change(part, one, other) for part in _parts(one, other)]
    return WeightChange(
        base=base.name,
        tuned=tuned.name,
        n_layers=None if other.n_layers is None else one.n_layers,
        shared_layers=_shared_layers(one, other),
        parts=tuple(part for part, _ in parts),
        tensors=tuple(tensor for _, tensors in parts for tensor in tensors),
    )


def _parts(one: WeightFiles, other: WeightFiles) -> list[str]:
    n_layers = max(one.n_layers or 0, other.n_layers or 0)
    return [EMBEDDINGS, *(layer_name(number + 1) for number in range(n_layers)), HEAD]


def _shared_layers(one: WeightFiles, other: WeightFiles) -> int | None:
    """Layers from the bottom that agree, embeddings included; None if the embeddings differ, or there is no stack."""
    one, other = with_names_of(one, other)
    if one.n_layers is None or other.n_layers is None:
        return None
    differing = {
        files.part_of(name)
        for files, name in _all_names(one, other)
        if not _agree(one.tensors.get(name), other.tensors.get(name))
    }
    if EMBEDDINGS in differing:
        return None
    least = min(one.n_layers, other.n_layers)
    return next((number for number in range(least) if layer_name(number + 1) in differing), least)


def _all_names(one: WeightFiles, other: WeightFiles) -> list[tuple[WeightFiles, str]]:
    """Every name of either, with files that have it."""
    return [(one, name) for name in one.tensors] + [(other, name) for name in other.tensors if name not in one.tensors]


def _agree(one: WeightTensor | None, other: WeightTensor | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape and one.digest == other.digest


def _prefix_bytes(files: WeightFiles, depth: int | None) -> int:
    if depth is None:
        return 0
    shared = {EMBEDDINGS, *(layer_name(number + 1) for number in range(depth))}
    return sum(tensor.n_bytes for name, tensor in files.tensors.items() if files.part_of(name) in shared)


def _part_change(part: str, base: WeightFiles, tuned: WeightFiles) -> tuple[PartChange, list[TensorChange]]:
    names = [name for files, name in _all_names(base, tuned) if files.part_of(name) == part]
    changes, total = [], _Distance()
    for name in names:
        one, other = base.tensors.get(name), tuned.tensors.get(name)
        distance = _distance(one, other)
        total = total.plus(distance)
        if not _agree(one, other):
            changes.append(_tensor_change(name, part, one, other, distance))
    known = [tensor for name in names if (tensor := base.tensors.get(name)) is not None]
    found = PartChange(
        part=part,
        n_tensors=len(names),
        n_bytes=sum(tensor.n_bytes for tensor in known),
        n_changed=len(changes),
        relative_change=total.relative,
        largest_change=total.largest,
    )
    return found, changes


def _tensor_change(
    name: str, part: str, one: WeightTensor | None, other: WeightTensor | None, distance: _Distance
) -> TensorChange:
    if one is None or other is None:
        return TensorChange(
            name=name,
            part=part,
            what="new" if one is None else "missing",
            relative_change=None,
            largest_change=None,
        )
    return TensorChange(
        name=name,
        part=part,
        what="changed" if one.shape == other.shape else "reshaped",
        relative_change=distance.relative,
        largest_change=distance.largest,
    )


@dataclass(frozen=True)
class _Distance:
    """How far numbers moved: sums over those that both models have."""

    moved: float = 0.0
    """sum of squares of the differences"""
    base: float = 0.0
    """sum of squares of the base"""
    largest: float | None = None

    @property
    def relative(self) -> float | None:
        if self.largest is None:
            return None
        return math.sqrt(self.moved / self.base) if self.base else None

    def plus(self, other: _Distance) -> _Distance:
        known = [value for value in (self.largest, other.largest) if value is not None]
        return _Distance(self.moved + other.moved, self.base + other.base, max(known, default=None))


def _distance(one: WeightTensor | None, other: WeightTensor | None) -> _Distance:
    """How far a tensor moved; nothing is known unless both are numbers of one shape."""
    if one is None or other is None or one.shape != other.shape or not (one.is_number and other.is_number):
        return _Distance()
    found = _Distance(largest=0.0)
    for a, b in zip(one.pieces(), other.pieces(), strict=True):
        before = a.astype(np.float64)
        moved = b.astype(np.float64) - before
        largest = float(np.abs(moved).max(initial=0.0))
        if not math.isfinite(largest):  # a NaN or an infinity has no distance
            return _Distance()
        found = found.plus(_Distance(float(moved @ moved), float(before @ before), largest))
    return found
