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


def with_full(depths: Iterable[int]) -> tuple[Depth, ...]:
    """The full model, then the depths."""
    return (FULL, *depths)
