"""Finished runs → curves, comparisons, operating points with their uncertainty, and warnings, as records."""

from frostline.analysis.comparisons import (
    Comparison,
    ProbePoint,
    StrategyPoint,
    TriedFor,
    build_comparison,
    is_on_front,
    probe_points,
)
from frostline.analysis.curve_records import (
    Answer,
    Curve,
    CurveCost,
    DepthShare,
    DepthVerdict,
    Established,
    Finding,
    Interval,
    OperatingPoint,
    OtherMetric,
    Point,
    Replicated,
    RunCounts,
    TriedRate,
    WithoutFailed,
)
from frostline.analysis.curves import build_curve
from frostline.analysis.points import Replicates
from frostline.analysis.provenance import Provenance, RunLine
from frostline.analysis.resampling import dev_scores, dev_variance, has_failed, outcome_of, row_variance
from frostline.analysis.sizes import Equal, Interaction, RatedCurve, Rates, SizedCurve, Sizes, build_sizes, interactions
from frostline.analysis.verdicts import Judge
from frostline.analysis.views import VIEWS, Mark, Series, View, series

__all__ = [
    "VIEWS",
    "Answer",
    "Comparison",
    "Curve",
    "CurveCost",
    "DepthShare",
    "DepthVerdict",
    "Equal",
    "Established",
    "Finding",
    "Interaction",
    "Interval",
    "Judge",
    "Mark",
    "OperatingPoint",
    "OtherMetric",
    "Point",
    "ProbePoint",
    "Provenance",
    "RatedCurve",
    "Rates",
    "Replicated",
    "Replicates",
    "RunCounts",
    "RunLine",
    "Series",
    "SizedCurve",
    "Sizes",
    "StrategyPoint",
    "TriedFor",
    "TriedRate",
    "View",
    "WithoutFailed",
    "build_comparison",
    "build_curve",
    "build_sizes",
    "dev_scores",
    "dev_variance",
    "has_failed",
    "interactions",
    "is_on_front",
    "outcome_of",
    "probe_points",
    "row_variance",
    "series",
]
