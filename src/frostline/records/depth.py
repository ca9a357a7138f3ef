"""A depth: how many layers are frozen from the bottom, or that nothing is."""

from __future__ import annotations

import enum
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
