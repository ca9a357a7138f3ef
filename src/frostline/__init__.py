"""How many of the last layers of a pretrained transformer need fine-tuning, and what training fewer costs."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frostline.analysis import Curve, Finding, OperatingPoint
    from frostline.api import curve, dry_run, find, train
    from frostline.errors import DataError, FrostlineError, MissingExtraError, UsageError
    from frostline.freezing import freeze
    from frostline.stack import FrozenMovedError

__version__ = metadata.version("frostline")

_HOMES = {
    "Curve": "frostline.analysis",
    "DataError": "frostline.errors",
    "Finding": "frostline.analysis",
    "FrostlineError": "frostline.errors",
    "FrozenMovedError": "frostline.stack",
    "MissingExtraError": "frostline.errors",
    "OperatingPoint": "frostline.analysis",
    "UsageError": "frostline.errors",
    "curve": "frostline.api",
    "dry_run": "frostline.api",
    "find": "frostline.api",
    "freeze": "frostline.freezing",
    "train": "frostline.api",
}

__all__ = [
    "Curve",
    "DataError",
    "Finding",
    "FrostlineError",
    "FrozenMovedError",
    "MissingExtraError",
    "OperatingPoint",
    "UsageError",
    "__version__",
    "curve",
    "dry_run",
    "find",
    "freeze",
    "train",
]


def __getattr__(name: str) -> object:
    """A public name, imported when it is first asked for: `import frostline` brings no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'frostline' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
