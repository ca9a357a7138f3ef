"""The curve, its operating points and their uncertainty, as records: every number a report shows.

`curves` beside this file computes them. Knows nothing of models, files or formats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from frostline.errors import UsageError, check_choice
from frostline.records.serial import Record
from frostline.records.specs import SCALES, Protocol, Scale

Interval = tuple[float, ...]
"""(low, high)"""


@dataclass(frozen=True, kw_only=True)
class OtherMetric(Record):
    """A metric beside the score."""

    mean: float
    """mean over the seeds"""
    scores: tuple[float, ...]
    """one a seed, in the order of `seeds`"""


@dataclass(frozen=True, kw_only=True)
class Point(Record):
    """The replicates of one spec: the full model, or one depth."""

    n_frozen: int | None
    """layers frozen from the bottom, embeddings included; None: nothing is frozen"""
    trained_layers: int
    """layers that train"""
    mean: float | None
    """mean score over the seeds; None when every run crashed"""
    std: float | None
    """standard deviation over the seeds (n − 1); None below two"""
    ci: Interval | None
    """95% interval of the mean: new seeds, this dev set (Student's t); None below three seeds"""
    ci_dev: Interval | None
    """95% interval of the mean: new seeds and new dev examples; None below three seeds"""
    seeds: tuple[int, ...]
    """replicates that finished"""
    scores: tuple[float, ...]
    """their scores, in the same order"""
    train_scores: tuple[float, ...]
    """their scores on the training sample, in the same order"""
    train_loss: tuple[float, ...]
    """their mean training loss in the last epoch, in the same order"""
    other_metrics: dict[str, OtherMetric]
    """the task's other metrics"""
    difference: float | None
    """mean minus the full model's mean, over the seeds both have"""
    difference_ci: Interval | None
    """95% interval of the difference, paired by seed (Student's t); None below three pairs"""
    ratio: float | None
    """mean / full mean; None where the full mean is not above 0"""
    ratio_ci: Interval | None
    """95% interval of the ratio, paired by seed (Fieller); None below three pairs or where it has no bounds"""
    ratio_above_chance: float | None
    """(mean − chance) / (full mean − chance); None where the full mean is not above chance"""
    learning_rate: float | None
    """the rate used; None: fitted without one"""
    trained_parameters: int | None
    """parameters that trained; None when every run crashed"""
    seconds: float | None
    """mean time of training and evaluating one run, the prefix apart"""
    peak_bytes: int | None
    """largest peak private memory of its runs"""
    n_failed: int
    """runs that ended at or below chance"""
    mean_without_failed: float | None
    """mean score of the others; None when all failed"""
    expected_best: tuple[float, ...]
    """expected best score of 1, 2, … of its runs, on this dev set"""


@dataclass(frozen=True, kw_only=True)
class DepthShare(Record):
    """How often one depth was the operating point."""

    n_frozen: int | None
    """the depth; None: only the full model keeps the share"""
    share: float
    """share of the resampled curves"""


@dataclass(frozen=True, kw_only=True)
class OperatingPoint(Record):
    """The fewest trained layers that keep a share of the full score."""

    keep: float
    """the share asked for"""
    scale: Scale
    """what it is a share of"""
    n_frozen: int | None
    """most layers frozen while keeping it; None: no depth does, or the scale means nothing here"""
    trained_layers: int | None
    """layers left to train; None where the scale means nothing here"""
    distribution: tuple[DepthShare, ...]
    """where it falls when the seeds are resampled; shares sum to 1"""
    plausible: tuple[int | None, ...]
    """depths that are not ruled out (95%), None (only the full model) first; empty below three seeds"""
    is_monotone: bool
    """no shallower cut falls short of the share"""

    @classmethod
    def of_nothing(cls, keep: float, scale: Scale) -> OperatingPoint:
        """That on a scale which means nothing here."""
        return cls(
            keep=keep,
            scale=scale,
            n_frozen=None,
            trained_layers=None,
            distribution=(),
            plausible=(),
            is_monotone=True,
        )


@dataclass(frozen=True, kw_only=True)
class TriedRate(Record):
    """One run of the line search."""

    learning_rate: float
    """the rate"""
    score: float | None
    """its dev score; None when the run crashed"""
    share: float = 1.0
    """of the run's steps that were done when it was scored: in a race those that fall behind are left"""


@dataclass(frozen=True, kw_only=True)
class CurveCost(Record):
    """What a curve took."""

    wall_seconds: float | None
    """this call, from start to end"""
    prefix_seconds: float
    """computing what the frozen layers put out, summed over the curve's runs"""
    train_seconds: float
    """training and evaluating, summed over the curve's runs"""
    cache_bytes: int
    """largest prefix states read by one of its runs"""


@dataclass(frozen=True, kw_only=True)
class RunCounts(Record):
    """How the curve's runs came to be."""

    done: int
    """run in this call"""
    reused: int
    """found in the store"""
    crashed: int
    """raised or died in this call"""


@dataclass(frozen=True, kw_only=True)
class Answer(Record):
    """What a search found."""

    keep: float
    """the share asked for"""
    scale: Scale
    """what it is a share of"""
    n_frozen: int | None
    """most layers frozen while keeping it; None: no depth does, or the scale means nothing here"""
    trained_layers: int | None
    """layers left to train; None where the scale means nothing here"""
    confidence: float
    """how sure it was to be"""
    decision: Literal["decided", "open"]
    """as sure as that, or the best estimate so far"""
    stopped_because: str
    """why the search ended"""


@dataclass(frozen=True, kw_only=True)
class Curve(Record):
    """Scores against frozen layers, and what follows from them."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    metric: str
    """what a score is"""
    chance: float
    """best score of a constant prediction on dev"""
    n_layers: int
    """layers of the model"""
    protocol: Protocol
    """how rates were chosen"""
    learning_rate: float
    """rate of the full model"""
    line_search: tuple[TriedRate, ...]
    """what the line search tried; empty when a rate was given"""
    full: Point
    """nothing frozen"""
    points: tuple[Point, ...]
    """one a depth, ascending"""
    operating_points: tuple[OperatingPoint, ...]
    """one for each share and scale"""
    is_monotone: bool
    """for no operating point does a shallower cut fall short"""
    cost: CurveCost
    """time and space"""
    runs: RunCounts
    """how many runs were done, reused, crashed"""
    warnings: tuple[str, ...]
    """what a careful reader should know"""

    def operating_point(self, keep: float, scale: Scale | None = None) -> OperatingPoint:
        """The operating point for a share that was asked for; without a scale, on the one that was asked for."""
        if scale is not None:
            check_choice("scale", scale, SCALES)
        for point in self.operating_points:
            if math.isclose(point.keep, keep, abs_tol=1e-9) and scale in (None, point.scale):
                return point
        there = ", ".join(f"{known:g}" for known in dict.fromkeys(point.keep for point in self.operating_points))
        raise UsageError(
            f"no operating point for keep {keep:g}; there are: {there}. Ask the curve for keep {keep:g} too"
        )


@dataclass(frozen=True, kw_only=True)
class Finding(Curve):
    """The answer of a search, and the curve as far as it was run."""

    answer: Answer
    """what was found"""
    runs_spent: float
    """what the search took, in full runs by the cost model"""
    runs_of_full_curve: float
    """what the whole curve takes"""
