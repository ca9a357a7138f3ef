"""How many of the last layers of a pretrained transformer need fine-tuning, and what training fewer costs."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frostline.analysis import Comparison, Curve, Finding, OperatingPoint
    from frostline.api import (
        bundle,
        change,
        compare,
        curve,
        dry_run,
        few,
        find,
        heads,
        merge_bundle,
        rates,
        scout,
        sizes,
        train,
    )
    from frostline.errors import DataError, FrostlineError, MissingExtraError, UsageError
    from frostline.model.stack import FrozenMovedError
    from frostline.saving.freeze import freeze
    from frostline.serving.predicting import predict

__version__ = metadata.version("frostline")

_HOMES = {
    "Comparison": "frostline.analysis",
    "Curve": "frostline.analysis",
    "DataError": "frostline.errors",
    "Finding": "frostline.analysis",
    "FrostlineError": "frostline.errors",
    "FrozenMovedError": "frostline.model.stack",
    "MissingExtraError": "frostline.errors",
    "OperatingPoint": "frostline.analysis",
    "UsageError": "frostline.errors",
    "bundle": "frostline.api",
    "change": "frostline.api",
    "compare": "frostline.api",
    "curve": "frostline.api",
    "dry_run": "frostline.api",
    "few": "frostline.api",
    "find": "frostline.api",
    "rates": "frostline.api",
    "scout": "frostline.api",
    "sizes": "frostline.api",
    "freeze": "frostline.saving.freeze",
    "heads": "frostline.api",
    "merge_bundle": "frostline.api",
    "predict": "frostline.serving.predicting",
    "train": "frostline.api",
}

__all__ = [
    "Comparison",
    "Curve",
    "DataError",
    "Finding",
    "FrostlineError",
    "FrozenMovedError",
    "MissingExtraError",
    "OperatingPoint",
    "UsageError",
    "__version__",
    "bundle",
    "change",
    "compare",
    "curve",
    "dry_run",
    "few",
    "find",
    "freeze",
    "heads",
    "merge_bundle",
    "predict",
    "rates",
    "scout",
    "sizes",
    "train",
]


def __getattr__(name: str) -> object:
    """A public name, imported at its first use: `import frostline` alone does not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'frostline' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
