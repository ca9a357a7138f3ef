"""Finished runs → the curve, its operating points, their uncertainty and what to beware of, as records."""

from frostline.analysis.chapters import Chapter, ComparisonChapter, Provenance, RunLine, told_apart
from frostline.analysis.comparisons import (
    Comparison,
    ProbePoint,
    StrategyPoint,
    TriedFor,
    build_comparison,
    is_on_front,
    probe_points,
)
from frostline.analysis.curves import build_curve
from frostline.analysis.points import Replicates, dev_variance, row_variance
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
from frostline.analysis.sizes import Grid, SizedCurve, build_grid
from frostline.analysis.views import VIEWS, Mark, Series, View, series

__all__ = [
    "VIEWS",
    "Answer",
    "Chapter",
    "Comparison",
    "ComparisonChapter",
    "Curve",
    "CurveCost",
    "DepthShare",
    "Finding",
    "Grid",
    "Interval",
    "Mark",
    "OperatingPoint",
    "OtherMetric",
    "Point",
    "ProbePoint",
    "Provenance",
    "Replicates",
    "RunCounts",
    "RunLine",
    "Series",
    "SizedCurve",
    "StrategyPoint",
    "TriedFor",
    "TriedRate",
    "View",
    "build_comparison",
    "build_curve",
    "build_grid",
    "dev_variance",
    "is_on_front",
    "probe_points",
    "row_variance",
    "series",
    "told_apart",
]
