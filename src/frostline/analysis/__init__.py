"""Finished runs → the curve, its operating points, their uncertainty and what to beware of, as records."""

from frostline.analysis.chapters import Chapter, Provenance, RunLine, told_apart
from frostline.analysis.curves import Replicates, build_curve, dev_variance, row_variance
from frostline.analysis.records import (
    Answer,
    Curve,
    CurveCost,
    DepthShare,
    Finding,
    Interval,
    OperatingPoint,
    OtherMetric,
    Point,
    RunCounts,
    TriedRate,
)
from frostline.analysis.views import VIEWS, Mark, Series, View, series

__all__ = [
    "VIEWS",
    "Answer",
    "Chapter",
    "Curve",
    "CurveCost",
    "DepthShare",
    "Finding",
    "Interval",
    "Mark",
    "OperatingPoint",
    "OtherMetric",
    "Point",
    "Provenance",
    "Replicates",
    "RunCounts",
    "RunLine",
    "Series",
    "TriedRate",
    "View",
    "build_curve",
    "dev_variance",
    "row_variance",
    "series",
    "told_apart",
]
