"""What is said of the places of a curve, as records: operating points, verdicts, the answer of a search, gains.

On the axis of depth a place is named by `n_frozen`. On another axis it is named by `value`, and `n_frozen` is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from frostline.records.depth import FULL, Depth
from frostline.records.serial import Record, added_later, if_set
from frostline.records.specs import Scale
from frostline.stats import Verdict


@dataclass(frozen=True, kw_only=True)
class DepthShare(Record):
    """How probable one depth is."""

    n_frozen: Depth
    """the depth; FULL: no depth keeps the share"""
    share: float
    """its probability"""
    value: int | None = if_set(None)
    """the value on another axis than depth; None: a depth, or the full model"""


@dataclass(frozen=True, kw_only=True)
class DepthVerdict(Record):
    """Whether one depth keeps a share."""

    n_frozen: Depth
    """the depth"""
    verdict: Verdict
    """kept or short, if that is sure for all depths at once; else open"""
    value: int | None = if_set(None)
    """the value on another axis than depth; None: a depth, or the full model"""


@dataclass(frozen=True, kw_only=True)
class Established(Record):
    """The deepest depth that surely keeps a share."""

    n_frozen: Depth
    """the depth; FULL: none does"""
    trained_layers: int
    """layers left to train"""
    value: int | None = if_set(None)
    """the value on another axis than depth; None: a depth, or the full model"""


@dataclass(frozen=True, kw_only=True)
class OperatingPoint(Record):
    """The fewest trained layers that keep a share of the full score."""

    keep: float
    """the share asked for"""
    scale: Scale
    """what the share is taken of"""
    n_frozen: Depth
    """most layers frozen while keeping the share; FULL: no depth keeps it, or the scale is undefined"""
    trained_layers: int | None
    """layers left to train; None if the scale is undefined: the full model is not above its zero"""
    distribution: tuple[DepthShare, ...]
    """how probable each depth is as the true one, over new seeds and new dev examples; shares sum to 1. Empty below
    three seeds"""
    plausible: tuple[Depth, ...]
    """depths, or values, that are not ruled out at the confidence asked, FULL first; empty below two seeds of the full
    model"""
    is_monotone: bool
    """no shallower cut falls short of the share"""
    verdicts: tuple[DepthVerdict, ...] = added_later(())
    """one for each depth, ascending; all of them are right at once with the confidence asked"""
    established: Established | None = added_later(None)
    """the deepest depth that surely keeps the share; None if the scale is undefined"""
    value: int | None = if_set(None)
    """the value on another axis than depth; None: a depth, or the full model"""

    @classmethod
    def undefined(cls, keep: float, scale: Scale) -> OperatingPoint:
        """The operating point on a scale that is undefined here."""
        return cls(
            keep=keep,
            scale=scale,
            n_frozen=FULL,
            trained_layers=None,
            distribution=(),
            plausible=(),
            is_monotone=True,
        )


@dataclass(frozen=True, kw_only=True)
class WithoutFailed(Record):
    """The operating point of the runs that did not fail."""

    keep: float
    """the share asked for"""
    scale: Scale
    """what the share is taken of"""
    n_frozen: Depth
    """most layers frozen while keeping the share; FULL: no depth keeps it, or the scale is undefined"""
    trained_layers: int | None
    """layers left to train; None if the scale is undefined"""
    value: int | None = if_set(None)
    """the value on another axis than depth; None: a depth, or the full model"""


@dataclass(frozen=True, kw_only=True)
class Answer(Record):
    """The answer of a search."""

    keep: float
    """the share asked for"""
    scale: Scale
    """what the share is taken of"""
    n_frozen: Depth
    """most layers frozen while keeping the share; FULL: no depth keeps it, or the scale is undefined"""
    trained_layers: int | None
    """layers left to train; None if the scale is undefined: the full model is not above its zero"""
    confidence: float
    """confidence that was asked for"""
    decision: Literal["decided", "open"]
    """decided: that confidence was reached; open: the best estimate so far"""
    stopped_because: str
    """why the search ended"""
    plausible: tuple[Depth, ...] = added_later(())
    """depths, or values, that may be the true answer at that confidence, FULL first"""
    established: Established | None = added_later(None)
    """the deepest depth that surely keeps the share"""
    value: int | None = if_set(None)
    """the value on another axis than depth; None: a depth, or the full model"""


@dataclass(frozen=True, kw_only=True)
class Gain(Record):
    """What one more layer adds to the score, between two neighbours on a curve."""

    n_frozen_from: Depth
    """the depth with more frozen layers"""
    n_frozen_to: Depth
    """its neighbour with fewer"""
    gain: float
    """mean score at the second minus the first, over the seeds that both have, per layer between them"""
    ci: tuple[float, ...] | None
    """95% interval: new seeds on this dev set, paired by seed (Student's t); None if all seeds gain the same"""
    ci_dev: tuple[float, ...] | None
    """95% interval: new seeds and new dev examples"""
    value_from: int | None = if_set(None)
    """on another axis than depth: the value at the first"""
    value_to: int | None = if_set(None)
    """and at the second"""


@dataclass(frozen=True, kw_only=True)
class SmallestSubspace(Record):
    """d90 (Aghajanyan 2020): the smallest random subspace that surely keeps 90% of the full score."""

    value: int | None
    """numbers trained; None: no subspace that was tried surely keeps it"""
    scale: Scale
    """what the share is taken of"""
    beside: Established | None
    """the operating depth of a depth curve in the same folder; None: there is none"""
