"""Labels as files write them: what is a number, and what cannot be a label at all."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from frostline.errors import FrostlineError

Labels = NDArray[np.int64] | NDArray[np.float64]
"""One label per row: class numbers or values."""

# At most four digits in an exponent: classes are sorted with Python's `Decimal`, whose exponents are limited too.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


class LabelError(FrostlineError):
    """A written label that the kind of task cannot read."""

    def __init__(self, message: str, place: int | None = None) -> None:
        super().__init__(message)
        self.place = place
        """position of the label in its column; None if the fault is not in one row"""


def as_number(label: str) -> float | None:
    """The finite number that a label writes, or None."""
    value = float(label) if _NUMBER.fullmatch(label) else math.nan
    return value if math.isfinite(value) else None


def unsupported(what: str) -> str:
    """The message for a field with more than one value in a row; `what` is e.g. `a list`."""
    advice = "join texts into one; for several labels per row (multi-label), make one column and one task per label"
    return f"holds {what}, which is not supported: a text is one string, a label is one value; {advice}"
