"""Numbers by layer and attention head → a heat map, the top layer at the top."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frostline.report.charts.curve import ACCENT, INK, Row
from frostline.report.charts.heatmap import SHADES
from frostline.report.charts.marks import axis, layer, row, styled
from frostline.report.tables import Table

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

_CELL, _ROW = 44, 32
_MOST_WORDS = 16
"""attention heads per layer up to which the cells hold their numbers; narrower cells have no room"""


@dataclass(frozen=True)
class Cells:
    """A number for each attention head of each layer."""

    title: str
    values: Sequence[Sequence[float]]
    """by layer, the lowest first; layers may have different numbers of heads"""
    written: Callable[[float], str]
    """how a number is written"""
    shade: Sequence[Sequence[float]] | None = None
    """what the colour shows, if not the number itself"""


def cells_chart(cells: Cells) -> Drawing:
    """The numbers; the stronger the colour, the larger."""
    import altair as alt

    rows = list(_rows(cells))
    shades = [each["shade"] for each in rows if each["kind"] == "cell"]
    n_heads, n_layers = max(map(len, cells.values)), len(cells.values)
    heads, layers = [str(head) for head in range(n_heads)], [str(number) for number in range(n_layers, 0, -1)]
    across = axis("attention head", "")
    across.labelAngle, across.domain, across.ticks = 0, False, False
    x = alt.X("x:O", sort=heads, scale=alt.Scale(domain=heads, paddingInner=0.04), axis=across)
    down = alt.Axis(title="layer", domain=False, ticks=False, labelPadding=6, titlePadding=8)
    y = alt.Y("y:O", sort=layers, scale=alt.Scale(domain=layers, paddingInner=0.06), axis=down)
    strength = alt.Scale(domain=[min(shades), max(shades)], range=list(SHADES), zero=False)
    fill = alt.FillOpacity("shade:Q", scale=strength, legend=None)
    drawn = [layer("cell", "rect", is_said=True, fill=ACCENT, cornerRadius=3).encode(x=x, y=y, fillOpacity=fill)]
    if n_heads <= _MOST_WORDS:
        words = layer("cell", "text", color=INK, fontSize=11)
        drawn.append(words.encode(x=x, y=y, text=alt.Text("label:N")))
    width = min(900, _CELL * n_heads)
    return styled(drawn, rows, (width, _ROW * n_layers))


def cells_table(cells: Cells) -> Table:
    """The same numbers, one row per layer, the top layer first."""
    n_heads = max(map(len, cells.values))
    rows = tuple(
        (str(number), *map(cells.written, of_layer), *[""] * (n_heads - len(of_layer)))
        for number, of_layer in reversed(list(enumerate(cells.values, start=1)))
    )
    return Table(title=cells.title, headers=("layer", *(f"head {head}" for head in range(n_heads))), rows=rows)


def _rows(cells: Cells) -> Iterator[Row]:
    shades = cells.values if cells.shade is None else cells.shade
    for number, (of_layer, strengths) in enumerate(zip(cells.values, shades, strict=True), start=1):
        for head, (value, shade) in enumerate(zip(of_layer, strengths, strict=True)):
            text = cells.written(value)
            said = f"layer {number}, attention head {head}: {text}"
            yield row("", "cell", x=str(head), y=str(number), shade=shade, label=text, said=said)
