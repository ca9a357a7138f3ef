"""Places names beside the dots of a chart so that they can be read. Pixels in, pixels out; it knows no record."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Align = Literal["left", "center", "right"]

CHARACTER_WIDTH = 6.7
"""width of one character in pixels, for a wide font; narrower fonts only leave more room"""
LINE_HEIGHT = 13.0
_DOT = 6.0
_GAP = 2.0
_RADII = (10.0, 18.0, 28.0, 40.0, 54.0, 70.0, 88.0, 108.0)
_NEAR = _RADII[1]
"""up to this distance a name is so close to its dot that it needs no line"""
_PASSES = 5
_OUTSIDE, _ON_LABEL, _ON_DOT, _ON_BAR, _ON_LINE = 20.0, 10.0, 6.0, 1.5, 0.5
"""cost per square pixel of a label in a place where it should not be"""
_PAST_DOT = 40.0
"""cost if the line from a label to its dot passes another dot"""
_ASTRAY = 30.0
"""cost if a label is as close to another dot as to its own"""


class Box(NamedTuple):
    """A rectangle; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: Box) -> float:
        """The area both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return width * height if width > 0 and height > 0 else 0.0

    @property
    def area(self) -> float:
        """Its size."""
        return (self.right - self.left) * (self.bottom - self.top)


@dataclass(frozen=True, kw_only=True)
class Label:
    """The place of a name relative to its dot."""

    dx: float
    dy: float
    align: Align
    box: Box
    """what it covers"""
    is_far: bool
    """so far from its dot that a line joins them"""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The chart that labels are placed on."""

    size: tuple[float, float]
    """width and height"""
    dots: Sequence[tuple[float, float]]
    """one per name"""
    bars: Sequence[Box] = ()
    """bars that a name should avoid"""
    line: Sequence[tuple[float, float]] = ()
    """corners of a line that a name should avoid"""


def place(names: Sequence[str], scene: Scene) -> list[Label]:
    """A label for each dot, as close to it as possible without covering others."""
    options = [_options(name, dot) for name, dot in zip(names, scene.dots, strict=True)]
    fixed = [
        [_fixed_cost(label, dot, scene) for label in labels] for dot, labels in zip(scene.dots, options, strict=True)
    ]
    chosen: list[int | None] = [None] * len(names)
    for _ in range(_PASSES):
        before = list(chosen)
        for at, labels in enumerate(options):
            others = [
                options[other][place].box for other, place in enumerate(chosen) if place is not None and other != at
            ]
            costs = [cost + _covered(label.box, others) for cost, label in zip(fixed[at], labels, strict=True)]
            chosen[at] = costs.index(min(costs))
        if chosen == before:
            break
    return [labels[place or 0] for labels, place in zip(options, chosen, strict=True)]


def _options(name: str, dot: tuple[float, float]) -> list[Label]:
    """Possible places of a name: right of its dot first, then around it, then farther away."""
    sides = (0, -30, 30, 180, -150, 150, -60, 60, -120, 120, -90, 90)
    return [_label(name, dot, radius, math.radians(angle)) for radius in _RADII for angle in sides]


def _label(name: str, dot: tuple[float, float], radius: float, angle: float) -> Label:
    side = round(math.cos(angle), 6)
    align: Align = "left" if side > 0 else "right" if side < 0 else "center"
    dx, dy = radius * side, radius * math.sin(angle)
    if align == "center":
        dy += math.copysign(LINE_HEIGHT / 4, dy)
    width = CHARACTER_WIDTH * len(name)
    left = dot[0] + dx - {"left": 0.0, "center": width / 2, "right": width}[align]
    top = dot[1] + dy - LINE_HEIGHT / 2
    box = Box(left, top, left + width, top + LINE_HEIGHT)
    return Label(dx=dx, dy=dy, align=align, box=box, is_far=radius > _NEAR)


def _fixed_cost(label: Label, dot: tuple[float, float], scene: Scene) -> float:
    """The cost of a place, regardless of the other names."""
    box = label.box
    inside = box.shared(Box(0.0, 0.0, *scene.size))
    dots = sum(box.shared(Box(x - _DOT, y - _DOT, x + _DOT, y + _DOT)) for x, y in scene.dots)
    bars = sum(box.shared(bar) for bar in scene.bars)
    line = sum(box.shared(Box(x - 2, y - 2, x + 2, y + 2)) for x, y in _along(scene.line))
    away = math.hypot(label.dx, label.dy) + 0.1 * abs(label.dy) + (0.0 if label.align == "left" else 2.0)
    covered = _ON_DOT * dots + _ON_BAR * bars + _ON_LINE * line
    return _OUTSIDE * (box.area - inside) + covered + away + _mistaken(label, dot, scene.dots)


def _mistaken(label: Label, dot: tuple[float, float], dots: Sequence[tuple[float, float]]) -> float:
    """The cost of a label that looks as if it belonged to another dot."""
    end = (dot[0] + label.dx, dot[1] + label.dy)
    others = [other for other in dots if other != dot]
    if label.is_far:
        leader = _along([dot, end], 3.0)
        return _PAST_DOT * sum(any(math.dist(at, other) < _DOT for at in leader) for other in others)
    return _ASTRAY * sum(math.dist(end, other) < math.dist(end, dot) + 2 for other in others)


def _covered(box: Box, others: Sequence[Box]) -> float:
    wide = Box(box.left - _GAP, box.top - _GAP, box.right + _GAP, box.bottom + _GAP)
    return _ON_LABEL * sum(wide.shared(other) for other in others)


def _along(corners: Sequence[tuple[float, float]], step: float = 6.0) -> list[tuple[float, float]]:
    """Points along a line, one step apart."""
    places = []
    for (x, y), (x2, y2) in itertools.pairwise(corners):
        n_steps = max(1, math.ceil(math.hypot(x2 - x, y2 - y) / step))
        places += [(x + (x2 - x) * at / n_steps, y + (y2 - y) * at / n_steps) for at in range(n_steps + 1)]
    return places
