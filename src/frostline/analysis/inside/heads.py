"""The importance of attention heads, and how the score falls when they are pruned, as records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from frostline import stats
from frostline.analysis.curve_records import Interval
from frostline.analysis.resampling import is_by_chance, row_scores
from frostline.kinds import kind_of
from frostline.records.arrays import StoredArray
from frostline.records.parameters import AttentionHead
from frostline.records.results import RunResult
from frostline.records.serial import Record
from frostline.stats import Verdict
from frostline.stats.basics import t_quantile

Order = Literal["importance", "random", "top"]
"""In which order attention heads are pruned: the least important first, at random, or from the top layer down."""
ORDERS: tuple[Order, ...] = ("importance", "random", "top")
_ERROR = 0.05
"""how often any verdict of a pruning curve may be wrong"""


@dataclass(frozen=True, kw_only=True)
class PruningPoint(Record):
    """The model after some of its attention heads were pruned."""

    n_pruned: int
    """attention heads that contribute nothing"""
    score: float
    """on dev; the mean over draws for random order"""
    scores: tuple[float, ...]
    """one per draw"""
    difference: float
    """score minus the unpruned model's"""
    difference_ci_dev: Interval | None
    """its 95% interval for new dev examples, and for new draws if there are three or more"""
    difference_ci: Interval | None
    """its 95% interval for new draws on this dev set (Student's t); None below three draws"""
    verdict: Verdict
    """whether the share `keep` of the unpruned score is kept; all verdicts of one order hold together with 95%"""
    is_failed: bool
    """in half or more of the draws, the score is no better than with shuffled labels"""


@dataclass(frozen=True, kw_only=True)
class PruningCurve(Record):
    """How the score falls when attention heads are pruned in one order, a tenth of them at a time."""

    order: Order
    """which are pruned first"""
    points: tuple[PruningPoint, ...]
    """with more and more pruned"""
    most_pruned: int
    """the most attention heads pruned at which the score reaches `keep` × the unpruned score (an estimate); points that
    failed do not count"""
    established: int
    """the most attention heads pruned with verdict `kept`; points that failed do not count"""


@dataclass(frozen=True, kw_only=True)
class HeadsRecord(Record):
    """Which attention heads of a model matter for a task."""

    model: str
    """the model"""
    task: str
    """the task"""
    metric: str
    """name of the metric that gives the score"""
    tuned: str | None
    """folder of the fine-tuned model that was measured; None: the pretrained one, with a fitted head"""
    n_layers: int
    """layers of the model"""
    n_heads: int
    """attention heads of all layers together; of grouped-query attention, groups"""
    n_rows: int
    """training rows that importance was computed on"""
    n_dev: int
    """dev rows that scores were computed on"""
    importance: tuple[tuple[float, ...], ...]
    """mean over rows of |dL/dgate|, by layer (the lowest first) and attention head"""
    score: float
    """of the unpruned model on dev"""
    chance: float
    """the score without reading a text"""
    is_failed: bool
    """the unpruned model learned nothing, so pruning shows nothing"""
    keep: float
    """share of the unpruned score that pruning should keep"""
    pruning: tuple[PruningCurve, ...]
    """one per order, as far as its runs are done"""
    seconds: float
    """spent on importance and on all pruning, summed over processes"""
    n_crashed: int
    """runs that raised an error or died"""

    def of(self, head: AttentionHead) -> float:
        """The importance of one attention head."""
        return self.importance[head.layer - 1][head.number]

    @property
    def ranked(self) -> list[tuple[AttentionHead, float]]:
        """All attention heads with their importance within their layer, the most important first."""
        return by_importance(self.importance)


def ranked_heads(values: Sequence[Sequence[float]]) -> list[tuple[AttentionHead, float]]:
    """The attention heads with their values (layers, heads), the largest first; of equal ones the lowest layer first.

    >>> [str(head) for head, _ in ranked_heads([[0.1, 0.3], [0.3, 0.2]])]
    ['1.1', '2.0', '2.1', '1.0']
    """
    heads = [
        (AttentionHead(layer, number), float(value))
        for layer, of_layer in enumerate(values, start=1)
        for number, value in enumerate(of_layer)
    ]
    return sorted(heads, key=lambda one: (-one[1], one[0]))


def relative_importance(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """Importance divided by its length (L2) in each layer, as in Michel 2019: layers become comparable."""
    lengths = [math.sqrt(math.fsum(value**2 for value in of_layer)) for of_layer in values]
    return [[v / length if length else 0.0 for v in of_layer] for of_layer, length in zip(values, lengths, strict=True)]


def by_importance(values: Sequence[Sequence[float]]) -> list[tuple[AttentionHead, float]]:
    """The attention heads with their importance within their layer, the most important first.

    Gradients are larger in some layers than in others, whatever the heads there do. Ranked by plain importance, heads
    of one layer would come first or last together.
    """
    return ranked_heads(relative_importance(values))


@dataclass(frozen=True)
class Pruned:
    """The model's outputs on dev after each step of pruning, in one order."""

    n_pruned: Sequence[int]
    """(steps,)"""
    outputs: NDArray[Any]
    """(steps, dev rows, outputs)"""


def pruning_curve(order: Order, whole: RunResult, draws: Sequence[Pruned], keep: float) -> PruningCurve:
    """How the score falls in one order; with several draws of it, the mean over them.

    Every model is scored on the same resampled rows as the unpruned one, so differences are paired.
    """
    task, predictions = whole.spec.task, whole.predictions
    kind, metric, labels = kind_of(task), task.metric or "", predictions.labels.array()
    numbers = draws[0].n_pruned
    error = _ERROR / len(numbers)
    points = []
    for step, number in enumerate(numbers):
        models = [predictions.outputs.array(), *(draw.outputs[step] for draw in draws)]
        scores = [kind.score(metric, labels, outputs) for outputs in models]
        resampled = row_scores(kind, metric, labels, models)
        failed = [is_by_chance(task, predictions.labels, StoredArray.of(draw.outputs[step])) for draw in draws]
        point = _point(int(number), scores, resampled, keep=keep, error=error, n_rows=len(labels))
        points.append(point if 2 * sum(failed) < len(failed) else point.replace(is_failed=True))
    sound = [one for one in points if not one.is_failed]
    reached = [0, *(one.n_pruned for one in sound if stats.reaches(one.score, keep * whole.score))]
    kept = [0, *(one.n_pruned for one in sound if one.verdict == "kept")]
    return PruningCurve(order=order, points=tuple(points), most_pruned=max(reached), established=max(kept))


def _point(
    n_pruned: int, scores: Sequence[float], resampled: stats.Floats, *, keep: float, error: float, n_rows: int
) -> PruningPoint:
    """One point, from scores (models,) and scores on resampled rows (models, resamples); the unpruned model first."""
    whole, own = scores[0], scores[1:]
    differences = [score - whole for score in own]
    gaps = [score - keep * whole for score in own]
    gap = stats.mean(gaps)
    margin = _half_width(gaps, resampled[1:].mean(0) - keep * resampled[0], n_rows, confidence=1 - 2 * error)
    half = _half_width(differences, resampled[1:].mean(0) - resampled[0], n_rows, confidence=0.95)
    difference = stats.mean(differences)
    return PruningPoint(
        n_pruned=n_pruned,
        score=stats.mean(own),
        scores=tuple(own),
        difference=difference,
        difference_ci_dev=(difference - half, difference + half),
        difference_ci=stats.t_interval(differences),
        verdict="kept" if stats.is_above(gap, margin) else "short" if stats.is_above(-gap, margin) else "open",
        is_failed=False,
    )


def _half_width(values: Sequence[float], on_rows: stats.Floats, n_rows: int, *, confidence: float) -> float:
    """Half of the interval of a mean over draws, for new rows; with three draws or more for new draws too."""
    over_rows = float(np.var(on_rows, ddof=1))
    both = stats.crossed_interval(values, over_rows, n_rows, confidence=confidence)
    if both is not None:
        return (both[1] - both[0]) / 2
    return t_quantile(max(1, n_rows - 1), confidence) * math.sqrt(over_rows)
