"""Parts of a page, as its template takes them: charts with the tables behind them, drawn as SVG.

A chart with several panels is drawn as one SVG per panel, so that a narrow screen can stack them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frostline.report.charts.curve import ACCENT, GREY, INK, PALE
from frostline.report.charts.marks import SECOND
from frostline.report.tables import Table

if TYPE_CHECKING:
    from markupsafe import Markup

    from frostline.report.charts.curve import Drawing

_COLOURS = {
    ACCENT: "var(--accent)",
    INK: "var(--ink)",
    GREY: "var(--muted)",
    PALE: "var(--grid)",
    SECOND: "var(--second)",
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A chart with the tables behind it."""

    name: str
    title: str
    panels: list[Markup]
    """SVG, one per panel"""
    caption: str
    tables: list[Table]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page."""

    id: str
    title: str
    tables: list[Table] = field(default_factory=list)
    """above the charts"""
    views: list[Shown] = field(default_factory=list)
    below: list[Table] = field(default_factory=list)
    """tables below the charts"""
    runs: Table | None = None
    warnings: list[dict[str, object]] = field(default_factory=list)
    details: list[dict[str, object]] = field(default_factory=list)
    note: str = ""


def charted(section: Section, chart: Drawing | None, table: Table, caption: str) -> Section | None:
    """The section with one chart; None if there is nothing to draw."""
    if chart is None:
        return None
    panels = drawn(chart, f"{section.title}; the table below holds its values")
    section.views.append(Shown(name=section.id, title=section.title, panels=panels, caption=caption, tables=[table]))
    return section


def drawn(chart: Drawing, label: str) -> list[Markup]:
    """The panels of a chart as SVG with the colours of the page, and marks that the keyboard can reach."""
    from frostline.report.charts.marks import panels_of

    return [_svg(spec, f"{label}: {name}" if name else label) for name, spec in panels_of(chart)]


def _svg(spec: dict[str, Any], label: str) -> Markup:
    import vl_convert
    from markupsafe import Markup, escape

    svg = vl_convert.vegalite_to_svg(spec)
    svg = re.sub(r'<rect width="[\d.]+" height="[\d.]+" fill="white"/>', "", svg, count=1)
    svg = re.sub(r'(?<= )(?:transform|d)="[^"]*"', _shortened, svg)
    svg = re.sub(r' (?:font-family|pointer-events|aria-roledescription)="[^"]*"| (?:opacity|stroke-width)="1"', "", svg)
    for colour, variable in _COLOURS.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(
        r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"', r'<svg class="marks" width="\1" height="\2"', svg, count=1
    )
    svg = re.sub(r'(<path aria-label="[^"]*") role="graphics-symbol"', r'\1 role="img" tabindex="0"', svg)
    return Markup(svg.replace("<svg ", f'<svg role="group" aria-label="{escape(label)}" ', 1))


def _shortened(places: re.Match[str]) -> str:
    """The position of a mark, to a hundredth of a pixel."""
    return re.sub(r"(\.\d\d)\d+", r"\1", places[0])
