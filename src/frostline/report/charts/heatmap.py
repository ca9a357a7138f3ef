"""Curves of one model and task that differ in their training rows → a heat map: depth against rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from frostline.analysis import Chapter, Curve, Finding, series
from frostline.report import text, wording
from frostline.report.charts.curve import ACCENT, INK, Row
from frostline.report.charts.marks import axis, layer, row, styled
from frostline.report.tables import Table

if TYPE_CHECKING:
    from frostline.report.charts.marks import Drawing

HeatView = Literal["score", "train_score"]
HEAT_VIEWS: tuple[HeatView, ...] = ("score", "train_score")
_WIDTH, _ROW = 640, 46
SHADES = (0.06, 0.5)
"""opacity of the lowest and of the highest score: ink can be read on both, on a light page and on a dark one"""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The curves of one model and task, by training rows."""

    title: str
    """which model on which task"""
    metric: str
    """what a score is"""
    curves: tuple[tuple[str, Curve], ...]
    """(training rows in words, curve), the fewest rows first"""

    @property
    def depths(self) -> list[int | None]:
        """Every depth of the curves, the full model first."""
        return [None, *sorted({p.n_frozen for _, curve in self.curves for p in curve.points if p.n_frozen is not None})]


def by_training_rows(chapters: Sequence[Chapter]) -> list[Sizes]:
    """The groups of curves that are of one model and task and of at least two sizes; searches, of few depths, apart."""
    groups: dict[tuple[str, str], list[tuple[int, Curve]]] = {}
    for chapter in chapters:
        if chapter.provenance is not None and not isinstance(chapter.curve, Finding):
            key = chapter.curve.task, chapter.curve.model
            groups.setdefault(key, []).append((chapter.provenance.n_train, chapter.curve))
    return [_sizes(group) for group in groups.values() if len({n_train for n_train, _ in group}) > 1]


def heat_chart(sizes: Sizes, view: HeatView) -> Drawing | None:
    """Mean scores, the stronger in colour the higher; None where there is none."""
    import altair as alt

    rows = list(_cells(sizes, view))
    scores = [cell["score"] for cell in rows if cell["kind"] == "cell"]
    if not scores:
        return None
    depths, names = [wording.depth(depth) for depth in sizes.depths], [name for name, _ in sizes.curves]
    across = axis("frozen layers", "")
    across.labelAngle, across.domain, across.ticks = 0, False, False
    x = alt.X("x:O", sort=depths, scale=alt.Scale(domain=depths, paddingInner=0.04), axis=across)
    down = alt.Axis(title="training rows", domain=False, ticks=False, labelPadding=6, titlePadding=8)
    y = alt.Y("y:O", sort=names[::-1], scale=alt.Scale(domain=names[::-1], paddingInner=0.06), axis=down)
    shade = alt.FillOpacity(
        "score:Q", scale=alt.Scale(domain=[min(scores), max(scores)], range=list(SHADES), zero=False), legend=None
    )
    layers = [
        layer("cell", "rect", is_said=True, fill=ACCENT, cornerRadius=3).encode(x=x, y=y, fillOpacity=shade),
        layer("word", "text", color=INK, fontSize=12).encode(x=x, y=y, text="label:N"),
    ]
    return styled(
        alt.layer(*layers, data=alt.InlineData(values=rows)).properties(width=_WIDTH, height=_ROW * len(names))
    )


def heat_table(sizes: Sizes, view: HeatView) -> Table:
    """What the heat map shows."""
    rows = tuple(
        (name, *(text.score(values.get(depth)) for depth in sizes.depths))
        for name, values in ((name, _values(curve, view)) for name, curve in sizes.curves)
    )
    heads = ("training rows", *(_head(depth) for depth in sizes.depths))
    return Table(
        title=f"Mean {text.one_line(sizes.metric, 40)} by training rows and frozen layers", headers=heads, rows=rows
    )


def _sizes(group: Sequence[tuple[int, Curve]]) -> Sizes:
    ordered = sorted(group, key=lambda entry: entry[0])
    sizes = [n_train for n_train, _ in ordered]
    names = [
        text.count(n_train) if sizes.count(n_train) == 1 else f"{text.count(n_train)} ({sizes[:at].count(n_train) + 1})"
        for at, n_train in enumerate(sizes)
    ]
    first = ordered[0][1]
    return Sizes(
        title=wording.title(first),
        metric=first.metric,
        curves=tuple((name, curve) for name, (_, curve) in zip(names, ordered, strict=True)),
    )


def _values(curve: Curve, view: HeatView) -> dict[int | None, float | None]:
    """The mean of the full model and of each depth."""
    shown = series(curve, view)
    assert shown is not None, "scores are always there"
    return {mark.n_frozen: mark.value for mark in (shown.full, *shown.marks)}


def _cells(sizes: Sizes, view: HeatView) -> Iterator[Row]:
    for name, curve in sizes.curves:
        values = _values(curve, view)
        for depth in sizes.depths:
            value, place = values.get(depth), {"x": wording.depth(depth), "y": name}
            if value is not None:
                what = "full model" if depth is None else f"{depth} frozen"
                said = f"{name} training rows, {what}: {text.score(value)}"
                yield row("", "cell", score=value, said=said, **place)
            yield row("", "word", label=text.score(value), **place)


def _head(depth: int | None) -> str:
    return "full" if depth is None else f"{depth} frozen"
