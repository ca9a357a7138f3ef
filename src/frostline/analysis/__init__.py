"""Finished runs → curves, comparisons, operating points with their uncertainty, and warnings, as records."""

from frostline.analysis.axis.operating_records import (
    Answer,
    DepthShare,
    DepthVerdict,
    Established,
    Gain,
    OperatingPoint,
    SmallestSubspace,
    WithoutFailed,
)
from frostline.analysis.axis.places import Places, axis_name, place_words, value_of, words_at
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
    Curve,
    CurveCost,
    Finding,
    Interval,
    OtherMetric,
    Point,
    Replicated,
    RunCounts,
    TriedRate,
)
from frostline.analysis.curves import Along, build_curve
from frostline.analysis.points import Replicates, chance_of
from frostline.analysis.provenance import Provenance, RunLine
from frostline.analysis.resampling import dev_scores, dev_variance, has_failed, outcome_of, row_variance
from frostline.analysis.sizes import Equal, Interaction, RatedCurve, Rates, SizedCurve, Sizes, build_sizes, interactions
from frostline.analysis.verdicts import Judge
from frostline.analysis.views import VIEWS, Mark, Series, View, series

__all__ = [
    "VIEWS",
    "Along",
    "Answer",
    "Comparison",
    "Curve",
    "CurveCost",
    "DepthShare",
    "DepthVerdict",
    "Equal",
    "Established",
    "Finding",
    "Gain",
    "Interaction",
    "Interval",
    "Judge",
    "Mark",
    "OperatingPoint",
    "OtherMetric",
    "Places",
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
    "SmallestSubspace",
    "StrategyPoint",
    "TriedFor",
    "TriedRate",
    "View",
    "WithoutFailed",
    "axis_name",
    "build_comparison",
    "build_curve",
    "build_sizes",
    "chance_of",
    "dev_scores",
    "dev_variance",
    "has_failed",
    "interactions",
    "is_on_front",
    "outcome_of",
    "place_words",
    "probe_points",
    "row_variance",
    "series",
    "value_of",
    "words_at",
]
