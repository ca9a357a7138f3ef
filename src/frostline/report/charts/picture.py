"""Curves and comparisons → one picture that stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frostline.analysis import Comparison, Curve
from frostline.report.charts import curve as charts
from frostline.report.charts import marks
from frostline.report.charts.comparison import titled_chart
from frostline.report.charts.panels import view_chart

if TYPE_CHECKING:
    import altair as alt

    from frostline.report.charts.marks import Drawing

_APART = 44
"""pixels between pictures"""


def svg_of(curves: Sequence[Curve], comparisons: Sequence[Comparison]) -> str:
    """The picture as SVG, curves above comparisons.

    Of one curve, its chart; of several, the paper's figure: differences from the full model; of a comparison, quality
    against cost.
    """
    if len(curves) == 1 and not comparisons:
        return charts.svg(curves[0])
    import vl_convert

    pictures = [*_of_curves(curves), *(titled_chart(comparison) for comparison in comparisons)]
    return str(vl_convert.vegalite_to_svg(_joined(pictures).to_dict()))


def _of_curves(curves: Sequence[Curve]) -> list[Drawing]:
    if not curves:
        return []
    if len(curves) == 1:
        return [charts.curve_chart(curves[0])]
    chart = view_chart(curves, "difference") or view_chart(curves, "score")
    assert chart is not None, "scores can always be drawn"
    return [chart]


def _joined(pictures: Sequence[Drawing]) -> Drawing | alt.VConcatChart:
    """One below the other; fonts and colours are those of the whole."""
    import altair as alt

    if len(pictures) == 1:
        return pictures[0]
    for picture in pictures:
        picture.config, picture.padding = alt.Undefined, alt.Undefined
    joined = alt.vconcat(*pictures, spacing=_APART)
    joined.config, joined.padding = alt.Config.from_dict(marks.STYLE | charts.STYLE), 12
    return joined
