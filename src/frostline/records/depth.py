"""A depth: how many layers are frozen from the bottom, or that nothing is. And the names of other axes."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, Literal, final


@final
class Full(enum.Enum):
    """The full model as a value. In JSON it is null."""

    FULL = "full"

    def __str__(self) -> str:
        return self.value


FULL: Final = Full.FULL
"""nothing is frozen, not even the embeddings"""

Depth = int | Literal[Full.FULL]
"""layers frozen from the bottom, embeddings included; or the full model"""

AxisName = Literal["depth", "transfer", "reinit", "heads", "subspace"]
"""what a curve or a search varies"""
Rank = Literal["importance", "change", "random", "top"]
"""by what attention heads are ranked"""


def depth_words(depth: Depth) -> str:
    """A depth in a sentence: `full model`, `1 frozen layer`, `6 frozen layers`."""
    if depth is FULL:
        return "full model"
    return "1 frozen layer" if depth == 1 else f"{depth} frozen layers"


def value_words(axis: AxisName, value: Depth) -> str:
    """A value of an axis in a sentence: `6 frozen layers`, `12 attention heads trained`, `full model`."""
    if axis == "depth" or value is FULL:
        return depth_words(value)
    if axis == "subspace":
        return f"subspace of D = {value:,}"
    noun, done = _COUNTED[axis]
    return f"{value:,} {noun}{'' if value == 1 else 's'} {done}"


_COUNTED = {
    "transfer": ("pretrained layer", "kept"),
    "reinit": ("layer", "re-initialised"),
    "heads": ("attention head", "trained"),
}


def with_full(depths: Iterable[int]) -> tuple[Depth, ...]:
    """The full model, then the depths."""
    return (FULL, *depths)
