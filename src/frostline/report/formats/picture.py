"""Chapters → one picture that can stand alone: SVG, PNG or PDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frostline.report.chapter import Chapter, arranged, by_class
from frostline.report.charts import curve as charts
from frostline.report.charts import marks

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

_APART = 44
"""pixels between pictures"""
_PNG_SCALE = 2.0


@charts.unchecked()
def svg(chapters: Sequence[Chapter]) -> str:
    """The pictures of all chapters as one SVG, one below the other. Results without one are shown by their answer."""
    import vl_convert

    groups = by_class(arranged(chapters))
    pictures = [picture for kind, group in groups.items() for picture in kind.pictures(group)]
    return str(vl_convert.vegalite_to_svg(_joined(pictures or [_words(chapters[0])])))


def png(chapters: Sequence[Chapter]) -> bytes:
    """The picture as PNG."""
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg(chapters), scale=_PNG_SCALE))


def pdf(chapters: Sequence[Chapter]) -> bytes:
    """The picture as PDF."""
    import vl_convert

    return bytes(vl_convert.svg_to_pdf(svg(chapters)))


def _joined(pictures: Sequence[Drawing]) -> Drawing:
    """One below the other; fonts and colours are set for all of them together."""
    if len(pictures) == 1:
        return pictures[0]
    common = ("$schema", "datasets", "config", "padding")
    drawn = [{name: value for name, value in picture.items() if name not in common} for picture in pictures]
    datasets = {name: rows for picture in pictures for name, rows in picture.get("datasets", {}).items()}
    joined = {"$schema": pictures[0]["$schema"], "vconcat": drawn, "spacing": _APART, "datasets": datasets}
    return joined | {"config": marks.STYLE | charts.STYLE, "padding": 12}


def _words(chapter: Chapter) -> Drawing:
    """The answer of a chapter as a picture."""
    import altair as alt

    title = {"text": charts.wrapped_title(chapter.answer[0]), "subtitle": [chapter.title]}
    return marks.styled([alt.Chart().mark_text(text="")], [{}], (charts.WIDTH, 20)) | {"title": title}
