"""Finished runs → the curve, its operating points, their uncertainty and what to beware of, as records."""

from frostline.analysis.curves import Replicates, build_curve, row_variance
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

__all__ = [
    "Answer",
    "Curve",
    "CurveCost",
    "DepthShare",
    "Finding",
    "Interval",
    "OperatingPoint",
    "OtherMetric",
    "Point",
    "Replicates",
    "RunCounts",
    "TriedRate",
    "build_curve",
    "row_variance",
]
