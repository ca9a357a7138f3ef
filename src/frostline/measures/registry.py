"""The table of measures: a new one is one module here and one row in the table. `parse` reads them from text."""

from __future__ import annotations

from frostline.errors import UsageError, suggestion
from frostline.measures.change import Change
from frostline.measures.importance import Importance
from frostline.measures.measure import Measure, UnreadableMeasureError
from frostline.measures.movement import Movement
from frostline.measures.pruning import Pruning
from frostline.measures.scout import Scout

_KNOWN: dict[str, type[Measure]] = {
    "change": Change,
    "importance": Importance,
    "movement": Movement,
    "pruning": Pruning,
    "scout": Scout,
}
"""Measure classes by the name before the colon."""


def parse(text: str) -> Measure:
    """The measure that this text names; raises a UsageError that lists the known ones."""
    name, _, argument = text.strip().partition(":")
    kind = _KNOWN.get(name)
    if kind is None:
        known = "; ".join(one.forms for one in _KNOWN.values())
        raise UsageError(f"unknown measure {text!r}; known: {known}.{suggestion(name, _KNOWN)}")
    try:
        return kind.read(argument)
    except UnreadableMeasureError as error:
        raise UsageError(f"measure {text!r} {error}; write {kind.forms}. Did you mean {kind.example!r}?") from error
