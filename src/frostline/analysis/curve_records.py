"""The curve, its operating points and their uncertainty, as records: every number that a report shows.

The module `curves` computes them. This module does not know models, files or formats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from frostline.analysis.axis.operating_records import Answer, Gain, OperatingPoint, SmallestSubspace, WithoutFailed
from frostline.errors import UsageError, check_choice
from frostline.records.depth import Depth
from frostline.records.requests import ResolvedAxis
from frostline.records.serial import Record, added_later, if_set
from frostline.records.specs import SCALES, Protocol, Scale
from frostline.stats import Verdict

Interval = tuple[float, ...]
"""(low, high)"""


@dataclass(frozen=True, kw_only=True)
class OtherMetric(Record):
    """A metric beside the score."""

    mean: float
    """mean over the seeds"""
    scores: tuple[float, ...]
    """one score per seed, in the order of `seeds`"""


@dataclass(frozen=True, kw_only=True)
class Replicated(Record):
    """Scores and costs of runs that differ only in the seed."""

    n_frozen: Depth | None
    """layers frozen from the bottom, embeddings included; FULL: nothing is frozen; None: not a depth"""
    trained_layers: int
    """number of layers that train"""
    mean: float | None
    """mean score over the seeds; None if every run crashed"""
    std: float | None
    """standard deviation over the seeds (n − 1); None below two"""
    ci: Interval | None
    """95% interval of the mean: new seeds, this dev set (Student's t); None below three seeds"""
    ci_dev: Interval | None
    """95% interval of the mean: new seeds and new dev examples; None below three seeds"""
    seeds: tuple[int, ...]
    """seeds of the runs that finished"""
    scores: tuple[float, ...]
    """their scores, in the same order"""
    train_scores: tuple[float, ...]
    """their scores on the training sample, in the same order"""
    train_loss: tuple[float | None, ...]
    """their mean training loss in the last epoch, in the same order; None for a run that diverged"""
    other_metrics: dict[str, OtherMetric]
    """the task's other metrics"""
    difference: float | None
    """mean minus the full model's mean, over the seeds both have"""
    difference_ci: Interval | None
    """95% interval of the difference, paired by seed (Student's t); None below three pairs"""
    ratio: float | None
    """mean / full mean; None if the full mean is not above 0"""
    ratio_ci: Interval | None
    """95% interval of the ratio, paired by seed (Fieller); None below three pairs or if it is unbounded"""
    ratio_above_chance: float | None
    """(mean − chance) / (full mean − chance); None if the full mean is not above chance"""
    difference_ci_dev: Interval | None = added_later(None)
    """95% interval of the difference: new seeds and new dev examples; None below three pairs"""
    ratio_ci_dev: Interval | None = added_later(None)
    """95% interval of the ratio: new seeds and new dev examples; None below three pairs or if it is unbounded"""
    ratio_above_chance_ci: Interval | None = added_later(None)
    """95% interval of the ratio above chance, paired by seed (Fieller)"""
    ratio_above_chance_ci_dev: Interval | None = added_later(None)
    """95% interval of the ratio above chance: new seeds and new dev examples"""
    learning_rate: float | None
    """learning rate; None: fitted in closed form, without one"""
    trained_parameters: int | None
    """number of parameters that trained; None if every run crashed"""
    seconds: float | None
    """mean time to train and evaluate one run, without the prefix"""
    peak_bytes: int | None
    """largest peak private memory of its runs"""
    n_failed: int
    """runs that learned nothing: the score is not above the 95th percentile of the same predictions' scores under
    permuted labels"""
    n_diverged: int = added_later(0)
    """those of them whose loss or outputs became infinite or not a number"""
    failed_seeds: tuple[int, ...] = added_later(())
    """their seeds"""
    p_failed: float | None = added_later(None)
    """share of the runs that failed"""
    p_failed_ci: Interval | None = added_later(None)
    """95% interval of that share (Wilson)"""
    mean_without_failed: float | None
    """mean score of the other runs; None if all failed"""
    expected_best: tuple[float, ...]
    """expected best score of 1, 2, … of its runs, on this dev set"""


@dataclass(frozen=True, kw_only=True)
class Point(Replicated):
    """The runs of one depth, or of the full model."""

    n_frozen: Depth
    """layers frozen from the bottom, embeddings included; FULL: nothing is frozen"""
    verdict: Verdict | None = added_later(None)
    """`kept`: it surely keeps the first share, on the scale asked; `short`: surely not; `open`: neither is sure"""
    is_better: bool | None = added_later(None)
    """whether it is surely better than the full model"""
    seeds_to_settle: int | None = added_later(None)
    """for an open verdict: seeds that would settle it with 80% probability; None if a thousand would not"""
    value: int | None = if_set(None)
    """the value on another axis than depth; None: a depth, or the full model"""


@dataclass(frozen=True, kw_only=True)
class TriedRate(Record):
    """One run of the line search."""

    learning_rate: float
    """the rate"""
    score: float | None
    """its dev score; None if the run crashed"""
    share: float = 1.0
    """share of the steps that were done when it was scored; in a race, weak rates stop early"""


@dataclass(frozen=True, kw_only=True)
class CurveCost(Record):
    """Time and disk use of a curve."""

    wall_seconds: float | None
    """wall time of this call"""
    prefix_seconds: float
    """time to compute frozen-layer outputs, summed over all runs"""
    train_seconds: float
    """time to train and evaluate, summed over all runs"""
    cache_bytes: int
    """size of the largest prefix states that one run read"""
    full_runs: float | None = added_later(None)
    """work of all runs in full-run equivalents, runs that choose a learning rate included; None: not known"""


@dataclass(frozen=True, kw_only=True)
class RunCounts(Record):
    """How many runs were done, reused and crashed."""

    done: int
    """runs of this call"""
    reused: int
    """runs found in the store"""
    crashed: int
    """runs of this call that raised an error or died"""


@dataclass(frozen=True, kw_only=True)
class Curve(Record):
    """Scores against frozen layers, and the operating points."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    metric: str
    """name of the metric that gives the score"""
    chance: float
    """best score without reading a text: of a constant answer, or of guessing classes by their shares"""
    n_layers: int
    """number of layers of the model"""
    protocol: Protocol
    """how learning rates were chosen"""
    learning_rate: float
    """learning rate of the full model"""
    line_search: tuple[TriedRate, ...]
    """learning rates that were tried; empty if a rate was given"""
    full: Point
    """the full model"""
    points: tuple[Point, ...]
    """one point per depth, ascending; on another axis, per value, in its order"""
    operating_points: tuple[OperatingPoint, ...]
    """one for each share and scale"""
    is_monotone: bool
    """for every operating point, all shallower cuts keep the share too"""
    cost: CurveCost
    """time and disk use"""
    runs: RunCounts
    """how many runs were done, reused, crashed"""
    warnings: tuple[str, ...]
    """what the reader should know about data, model and statistics"""
    confidence: float = added_later(0.95)
    """how sure verdicts, established depths and plausible depths are"""
    operating_points_without_failed: tuple[WithoutFailed, ...] = added_later(())
    """the operating points again, without the runs that failed"""
    axis: ResolvedAxis | None = if_set(None)
    """what varies, and its values in the order of the points; None: the depth"""
    gains: tuple[Gain, ...] = if_set(())
    """what each additional layer adds, from the top layer down; for neighbours with three seeds in common"""
    d90: SmallestSubspace | None = if_set(None)
    """on the axis of subspaces, if a share of 0.9 was asked for: the intrinsic dimension"""

    @property
    def search(self) -> Finding | None:
        """The search that made this curve; None if all depths were asked for."""
        return None

    @property
    def n_crashed(self) -> int:
        """Runs that raised an error or died in this call."""
        return self.runs.crashed

    def operating_point(self, keep: float, scale: Scale | None = None) -> OperatingPoint:
        """The operating point for a share; by default on the scale of the request."""
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
    """The answer of a search, and the part of the curve that was run."""

    answer: Answer
    """the answer"""
    runs_spent: float
    """cost of the search, in full runs by the cost model"""
    runs_of_full_curve: float
    """cost of the whole curve, in full runs by the cost model"""

    @property
    def search(self) -> Finding | None:
        """The search itself."""
        return self
