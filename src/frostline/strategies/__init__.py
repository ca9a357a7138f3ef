"""What could be trained, one strategy a file, and how each is written."""

from __future__ import annotations

from frostline.errors import UsageError, suggestion
from frostline.strategies.freeze import Freeze
from frostline.strategies.full import Full
from frostline.strategies.layers import Layers
from frostline.strategies.strategy import Strategy

__all__ = ["Freeze", "Full", "Layers", "Strategy", "parse"]

_FORMS = "full, freeze:N"


def parse(text: str) -> Strategy:
    """The strategy written as `full` or `freeze:N`."""
    name, _, argument = text.partition(":")
    if name == "full" and not argument:
        return Full()
    if name == "freeze" and argument.isdecimal():
        return Freeze(int(argument))
    raise UsageError(f"unknown strategy {text!r}; known: {_FORMS}.{suggestion(name, ['full', 'freeze'])}")
