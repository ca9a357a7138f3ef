"""Statistics on plain arrays: numbers in, numbers out. Random functions take their generator as an argument."""

from frostline.stats.basics import ROUNDING, Floats, Interval, Rows, is_above, mean, reaches, std
from frostline.stats.crossed import CrossedPair, Scored, not_paired, paired_by_seed
from frostline.stats.intervals import (
    MIN_SEEDS,
    crossed_interval,
    difference_interval,
    expected_best,
    ratio_interval,
    resampled_counts,
    resampled_scores,
    t_interval,
    wilson_interval,
)
from frostline.stats.operating_points import (
    bar_of,
    depth_distribution,
    is_monotone,
    operating_depth,
    short_depths,
)
from frostline.stats.verdicts import (
    Verdict,
    established_depth,
    gap_of,
    is_better,
    plausible_depths,
    seeds_to_settle,
    told_apart,
    verdict,
)

__all__ = [
    "MIN_SEEDS",
    "ROUNDING",
    "CrossedPair",
    "Floats",
    "Interval",
    "Rows",
    "Scored",
    "Verdict",
    "bar_of",
    "crossed_interval",
    "depth_distribution",
    "difference_interval",
    "established_depth",
    "expected_best",
    "gap_of",
    "is_above",
    "is_better",
    "is_monotone",
    "mean",
    "not_paired",
    "operating_depth",
    "paired_by_seed",
    "plausible_depths",
    "ratio_interval",
    "reaches",
    "resampled_counts",
    "resampled_scores",
    "seeds_to_settle",
    "short_depths",
    "std",
    "t_interval",
    "told_apart",
    "verdict",
    "wilson_interval",
]
