"""Numbers by layer → a line chart: a panel for each thing that is measured, a line for each name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frostline.analysis import Interval
from frostline.report import numbers
from frostline.report.charts.curve import Row
from frostline.report.charts.marks import COLOURS, cut, depth_x, extent, faceted, layer, legend, marked, row, y_axis

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing


@dataclass(frozen=True)
class LayerPoint:
    """One number of a line."""

    layer: int
    value: float
    interval: Interval | None = None


Lines = Mapping[str, Sequence[LayerPoint]]
"""points by the name of their line"""


def layers_chart(panels: Mapping[str, Lines], by: str, across: str = "layer") -> Drawing | None:
    """The lines of each panel; None if there is nothing to draw.

    Args:
        panels: lines by the title of their panel.
        by: what the names of the lines are.
        across: what the horizontal axis counts.
    """
    import altair as alt

    rows = [each for panel, lines in panels.items() for each in _rows(panel, lines)]
    if not rows:
        return None
    names = list(dict.fromkeys(each["name"] for each in rows))
    scale = alt.Scale(domain=names, range=COLOURS)
    shown = legend(by) if len(names) > 1 else None
    colour = alt.Color("name:N", sort=names, scale=scale, legend=shown)
    drawn = (
        layer("mean", "line", strokeWidth=1.8),
        layer("interval", "rule", strokeWidth=2).encode(y2=alt.Y2("y2:Q")),
        layer("mean", "circle", is_said=True, size=40, opacity=1),
    )
    x, y = depth_x(rows, across), y_axis("", ".3~g")
    return faceted(rows, [mark.encode(x=x, y=y, color=colour) for mark in drawn], n_columns=3)


def _rows(panel: str, lines: Lines) -> Iterator[Row]:
    points = [point for line in lines.values() for point in line]
    low, high = extent([point.value for point in points], [point.interval for point in points])
    for name, line in lines.items():
        for point in line:
            said = f"{name}, layer {point.layer}: {numbers.change(point.value)}"
            for each in marked(panel, point.layer, point.value, cut(point.interval, low, high), said):
                yield row(panel, **{key: value for key, value in each.items() if key != "panel"}, name=name)
