"""Finished runs → the curve, its operating points, their uncertainty and what to beware of, as records."""

from frostline.analysis.curves import Replicates, build_curve
from frostline.analysis.records import (
    Curve,
    CurveCost,
    DepthShare,
    Interval,
    OperatingPoint,
    OtherMetric,
    Point,
    RunCounts,
    TriedRate,
)

__all__ = [
    "Curve",
    "CurveCost",
    "DepthShare",
    "Interval",
    "OperatingPoint",
    "OtherMetric",
    "Point",
    "Replicates",
    "RunCounts",
    "TriedRate",
    "build_curve",
]
