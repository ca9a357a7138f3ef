"""Depths predicted before training, what they cost, and how right each prediction has been, as records.

A score of the layers names a depth by a fixed rule (`RULES`). How that depth relates to the measured operating point is
fitted on other tasks: the median difference, as a share of the layers. A pair of the judged task never takes part, for
any model: not in the fit, and not in the choice of the score. The measurements are in `scouted.json`, which
`python -m bench.inside scouted` writes.

A score with such a fit can beat an answer without one, such as "half of the layers", even if it names the same depth
everywhere. So each error is compared with that of the `typical` answer, the median depth of the other tasks: that is
what the fit alone can do. Pairs of one task are not independent, so intervals are over tasks.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal, NamedTuple

import numpy as np

from frostline import stats
from frostline.analysis.curve_records import CurveCost, Interval, RunCounts
from frostline.kinds.metrics import spearman
from frostline.records.serial import Record, parse_json

Best = Literal["lowest", "highest"]
LEAST_PAIRS = 3
"""Below this many pairs of other tasks nothing is fitted."""


class Rule(NamedTuple):
    """How a score names a depth."""

    name: str
    title: str
    is_by_depth: bool
    """one number after each depth (0: the embeddings), or one for each layer"""
    best: Best

    @property
    def words(self) -> str:
        """The rule for people."""
        if self.is_by_depth:
            return f"freeze up to the layer whose states have the {self.best} score"
        return f"freeze what lies below the layer with the {self.best} score"

    def n_frozen(self, values: Sequence[float]) -> int:
        """The depth that the values name. Of equal values, the deepest depth counts, or the lowest layer."""
        best = min(values) if self.best == "lowest" else max(values)
        places = [place for place, value in enumerate(values) if value == best]
        return places[-1] if self.is_by_depth else places[0]


RULES = (
    Rule("variability", "hidden-state variability", True, "lowest"),
    Rule("logme", "LogME", True, "highest"),
    Rule("h_score", "H-score", True, "highest"),
    Rule("probe", "linear probe", True, "highest"),
    Rule("gradient_norm", "relative gradient norm", False, "highest"),
    Rule("signal_to_noise", "signal to noise", False, "highest"),
    Rule("fisher", "Fisher information", False, "highest"),
)
BASELINES = {
    "half": "half of the layers",
    "quarter": "a quarter of the layers trained",
    "probe layer": "the probe's best layer",
    "typical": "the median depth of the other tasks",
}
"""what a score must beat; only `typical` is fitted"""


@dataclass(frozen=True, kw_only=True)
class MeasuredPair(Record):
    """A model and a task whose operating point was measured, and what the scores named."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    n_layers: int
    """layers of the model"""
    n_frozen: int
    """the measured operating depth, by the score above chance; 0 if no depth keeps the share"""
    picks: dict[str, int]
    """what each score names by its rule, unfitted"""


@dataclass(frozen=True, kw_only=True)
class Measurements(Record):
    """All measured pairs."""

    command: str
    """what measured them"""
    pairs: tuple[MeasuredPair, ...]
    """in the order of the command"""


@dataclass(frozen=True, kw_only=True)
class Accuracy(Record):
    """How right predictions were on measured pairs; the judged task was always left out of the fit."""

    name: str
    """the score, or the baseline"""
    n_pairs: int
    """measured pairs"""
    mean_error: float
    """mean absolute error, as a share of the layers"""
    rank_correlation: float | None
    """of named and measured shares of frozen layers (Spearman), without the fit, which would push it down: leaving a
    deep task out makes the others shallower; 0 if all names are equal; None for answers that do not look at the task"""
    gain: float
    """by how much the error is smaller than that of the typical answer; below 0: it is larger"""
    gain_ci: Interval | None
    """its 95% interval over new tasks (Student's t); None below three tasks"""


@dataclass(frozen=True, kw_only=True)
class ScoutScore(Record):
    """One score of the layers, and the depth that it names."""

    name: str
    """of the score"""
    values: tuple[float, ...]
    """after the embeddings and each layer; or, for gradient scores, one for each layer"""
    named: int
    """layers to freeze by the score's rule alone"""
    n_frozen: int | None
    """layers to freeze, with what was fitted on other tasks; None: not yet measured"""
    cost: float
    """what it takes to compute, in full-run equivalents"""
    accuracy: Accuracy | None
    """how right it has been; None: not yet measured"""


@dataclass(frozen=True, kw_only=True)
class ScoutReport(Record):
    """Depths that scores name before any training."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    metric: str
    """name of the metric that gives the score"""
    n_layers: int
    """layers of the model"""
    n_rows: int
    """training rows whose states are scored"""
    scores: tuple[ScoutScore, ...]
    """one for each score"""
    baselines: tuple[Accuracy, ...]
    """how right simple answers have been"""
    best: str
    """the score whose prediction comes first: the one with the smallest error so far, or the linear probe"""
    start: int
    """the depth that `find --start scout` tries first"""
    seconds: float
    """time of both runs, with their states"""
    cost: CurveCost
    """time and disk use"""
    runs: RunCounts
    """number of runs done, reused and crashed"""
    warnings: tuple[str, ...]
    """what the reader should know"""

    @property
    def n_crashed(self) -> int:
        """Number of runs that raised an error or died."""
        return self.runs.crashed


@functools.cache
def measurements() -> Measurements:
    """What has been measured so far, as shipped with this release."""
    text = resources.files("frostline.analysis.inside").joinpath("scouted.json").read_text(encoding="utf-8")
    return Measurements.from_json(parse_json(text))


def scores_of(
    values: Mapping[str, Sequence[float]], costs: Mapping[str, float], task: str, pairs: Sequence[MeasuredPair]
) -> tuple[ScoutScore, ...]:
    """Each score with the depth that it names, and how right it has been on the pairs of other tasks."""
    others = other_tasks(pairs, task)
    accuracies = {one.name: one for one in accuracy(others)}
    found = []
    for rule in RULES:
        n_layers = len(values[rule.name]) - rule.is_by_depth
        named = rule.n_frozen(values[rule.name])
        found.append(
            ScoutScore(
                name=rule.name,
                values=tuple(values[rule.name]),
                named=named,
                n_frozen=fitted(rule.name, named, n_layers, others),
                cost=costs[rule.name],
                accuracy=accuracies.get(rule.name),
            )
        )
    return tuple(found)


def best_of(scores: Sequence[ScoutScore]) -> ScoutScore:
    """The score with the smallest error so far; the linear probe before anything is measured."""
    known = [one for one in scores if one.accuracy is not None and one.n_frozen is not None]
    if not known:
        return next(one for one in scores if one.name == "probe")
    return min(known, key=lambda one: one.accuracy.mean_error if one.accuracy else 1.0)


def fitted(name: str, named: int, n_layers: int, others: Sequence[MeasuredPair]) -> int | None:
    """The depth for what a score named: moved by the median difference on other tasks; None with too few pairs."""
    if len(others) < LEAST_PAIRS:
        return None
    differences = [(pair.n_frozen - pair.picks[name]) / pair.n_layers for pair in others]
    moved = named / n_layers + float(np.median(differences))
    return round(n_layers * min(max(moved, 0.0), 1.0))


def accuracy(pairs: Sequence[MeasuredPair]) -> list[Accuracy]:
    """How right each score and each baseline is on measured pairs, each judged by a fit to the other tasks."""
    others = [other_tasks(pairs, pair.task) for pair in pairs]
    if not pairs or min(map(len, others)) < LEAST_PAIRS:
        return []
    each = list(zip(pairs, others, strict=True))
    predicted = {
        rule.name: [fitted(rule.name, pair.picks[rule.name], pair.n_layers, rest) or 0 for pair, rest in each]
        for rule in RULES
    }
    predicted["half"] = [pair.n_layers // 2 for pair in pairs]
    predicted["quarter"] = [pair.n_layers - round(pair.n_layers / 4) for pair in pairs]
    predicted["probe layer"] = [pair.picks["probe"] for pair in pairs]
    predicted["typical"] = [round(pair.n_layers * float(np.median(_depths(rest)))) for pair, rest in each]
    errors = {
        name: [abs(depth - pair.n_frozen) / pair.n_layers for depth, pair in zip(depths, pairs, strict=True)]
        for name, depths in predicted.items()
    }
    return [_accuracy(name, own, errors["typical"], pairs) for name, own in errors.items()]


def _accuracy(name: str, own: Sequence[float], typical: Sequence[float], pairs: Sequence[MeasuredPair]) -> Accuracy:
    """One score or baseline, from its error and that of the typical answer on each pair."""
    gains: dict[str, list[float]] = {}
    for pair, mine, theirs in zip(pairs, own, typical, strict=True):
        gains.setdefault(pair.task, []).append(theirs - mine)
    by_task = [stats.mean(of_task) for of_task in gains.values()]
    rule = _NAMED_BY.get(name)
    named = [pair.picks[rule] / pair.n_layers for pair in pairs] if rule else None
    return Accuracy(
        name=name,
        n_pairs=len(pairs),
        mean_error=stats.mean(own),
        rank_correlation=None if named is None else float(spearman(np.array(_depths(pairs)), np.array(named))),
        gain=stats.mean(by_task),
        gain_ci=stats.t_interval(by_task),
    )


_NAMED_BY = {rule.name: rule.name for rule in RULES} | {"probe layer": "probe"}
"""which score names the depth of an answer, for those that look at the task"""


def other_tasks(pairs: Sequence[MeasuredPair], task: str) -> list[MeasuredPair]:
    """The pairs of other tasks than this one."""
    return [pair for pair in pairs if pair.task != task]


def _depths(pairs: Sequence[MeasuredPair]) -> list[float]:
    """Measured depths, as shares of the layers."""
    return [pair.n_frozen / pair.n_layers for pair in pairs]
