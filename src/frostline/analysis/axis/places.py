"""Places on an axis, and what they are called.

Statistics know places by whole numbers that grow as runs get cheaper, or further from the full model. On the axis of
depth the place is the number of frozen layers itself. On another axis places are counted from 0, and each has a value:
the number of attention heads that train, for example. People and records see depths and values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypedDict, final

from frostline.analysis.curve_records import Curve
from frostline.records.depth import FULL, AxisName, Depth, value_words
from frostline.records.requests import ResolvedAxis


class OnAxis(Protocol):
    """A record that names a place."""

    @property
    def n_frozen(self) -> Depth:
        """The depth; FULL on another axis."""

    @property
    def value(self) -> int | None:
        """The value on another axis."""


def value_of(record: OnAxis) -> Depth:
    """What the place of a record is called: a depth, the value of another axis, or FULL."""
    return record.n_frozen if record.value is None else record.value


def axis_name(curve: Curve) -> AxisName:
    """What varies along a curve."""
    return "depth" if curve.axis is None else curve.axis.name


def words_at(curve: Curve, value: Depth) -> str:
    """A place of a curve in a sentence: `3 frozen layers`, `12 attention heads trained`, `full model`."""
    return value_words(axis_name(curve), value)


def place_words(axis: ResolvedAxis | None, place: Depth) -> str:
    """A place of an axis in a sentence."""
    if axis is None or place is FULL:
        return value_words("depth", place)
    return value_words(axis.name, axis.values[place])


class Named(TypedDict):
    """The fields of a record that name a place."""

    n_frozen: Depth
    value: int | None


@final
@dataclass(frozen=True)
class Places:
    """The places of one curve."""

    axis: ResolvedAxis | None
    """None: depth"""
    n_layers: int

    def named(self, place: Depth) -> Named:
        """The fields of a record at a place."""
        if self.axis is None or place is FULL:
            return Named(n_frozen=place, value=None)
        return Named(n_frozen=FULL, value=self.axis.values[place])

    def value(self, place: Depth) -> Depth:
        """What a place is called."""
        return place if self.axis is None or place is FULL else self.axis.values[place]

    def trained_layers(self, place: Depth) -> int:
        """How many layers train at a place."""
        if place is FULL:
            return self.n_layers
        return self.n_layers - place if self.axis is None else self.axis.trained_layers[place]
