"""Scores on resampled dev rows (how much would other rows change them?) and under permuted labels (is it chance?).

The draws depend only on the number of rows, so all models of a task are scored on the same resamples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline import stats
from frostline.kinds import Kind, kind_of
from frostline.records.arrays import StoredArray
from frostline.records.results import RunResult
from frostline.records.specs import TaskSpec
from frostline.stats.search_question import Outcome

RESAMPLING_SEED = 1911_03090
"""Seed of every resampling, so that the same runs give the same record."""
N_PERMUTATIONS = 399
"""Permutations of the labels that a run must beat to have learned something; 1 + N is a multiple of 20."""
_MOST_ROWS_AT_ONCE = 20_000
"""up to this many dev rows, all resamples are held in memory at once"""
_MOST_CLASSES = 256
"""with more classes, most cells of a confusion matrix are empty, and counting rows takes less than filling it"""
_FEW_CLASSES = 7
"""up to this many classes, metrics of a confusion matrix and of rows have the same bits: 8 numbers and more are added
up in another order"""
_MOST_CELLS_AT_ONCE = 2**23
"""cells of confusion matrices in memory at once: 64 MB"""


def dev_variance(results: Sequence[RunResult]) -> float:
    """The variance of the results' mean score over resampled dev rows."""
    return float(np.var(dev_scores(results).mean(axis=0), ddof=1))


def dev_scores(results: Sequence[RunResult]) -> stats.Floats:
    """The scores of results on resampled dev rows: (results, resamples)."""
    predictions = [result.predictions for result in results]
    return _dev_scores(results[0].spec.task, predictions[0].labels, tuple(one.outputs for one in predictions))


# A live page asks for the same runs again each time a run ends.
@functools.lru_cache(maxsize=64)
def _dev_scores(task: TaskSpec, labels: StoredArray, outputs: Sequence[StoredArray]) -> stats.Floats:
    found = row_scores(kind_of(task), task.metric or "", labels.array(), [one.array() for one in outputs])
    found.flags.writeable = False
    return found


def has_failed(result: RunResult) -> bool:
    """Whether a run learned nothing: it diverged, or 95% of the permutations of the labels are not below its score."""
    predictions = result.predictions
    return result.diverged or is_by_chance(result.spec.task, predictions.labels, predictions.outputs)


def outcome_of(result: RunResult) -> Outcome:
    """A run as the rules of a search look at it."""
    return Outcome(result.score, dev_scores([result])[0], has_failed(result))


def have_learned(results: Sequence[RunResult]) -> bool:
    """Whether runs together learned something: their mean score is above 95% of its values under permuted labels."""
    if any(result.diverged for result in results):
        return False
    found = [_permuted(one.spec.task, one.predictions.labels, one.predictions.outputs) for one in results]
    scores, permuted = zip(*found, strict=True)
    return stats.is_above(stats.mean(scores), _bar(np.mean(permuted, axis=0)))


def is_by_chance(task: TaskSpec, stored_labels: StoredArray, stored_outputs: StoredArray) -> bool:
    """Whether a score is not above the 95th percentile of the same predictions' score under permuted labels."""
    score, permuted = _permuted(task, stored_labels, stored_outputs)
    return not stats.is_above(score, _bar(permuted))


def _bar(permuted: stats.Floats) -> float:
    # Of 400 equally likely scores, this run's and 399 permuted ones, its own is among the highest 20 in 5% of cases.
    return float(np.sort(permuted)[(N_PERMUTATIONS + 1) * 95 // 100 - 1])


@functools.lru_cache(maxsize=1024)
def _permuted(task: TaskSpec, stored_labels: StoredArray, stored_outputs: StoredArray) -> tuple[float, stats.Floats]:
    """A score, and the same predictions' scores under permuted labels."""
    kind, name = kind_of(task), task.metric or ""
    labels, metric = stored_labels.array(), kind.metric(name)
    answers = kind.answers(name, labels, stored_outputs.array())
    rng, narrow = np.random.default_rng(RESAMPLING_SEED), _narrow(labels)
    drawn = (rng.permutation(narrow).astype(labels.dtype) for _ in range(N_PERMUTATIONS))
    return metric.of(labels, answers), np.array([metric.of(one, answers) for one in drawn])


def row_variance(kind: Kind, metric_name: str, labels: NDArray[Any], outputs: Sequence[NDArray[Any]]) -> float:
    """The variance, over resampled rows, of the mean score of several models' outputs."""
    return float(np.var(row_scores(kind, metric_name, labels, outputs).mean(axis=0), ddof=1))


def row_scores(kind: Kind, metric_name: str, labels: NDArray[Any], outputs: Sequence[NDArray[Any]]) -> stats.Floats:
    """The scores of several models' outputs on resampled rows: (models, resamples).

    Whole units of the kind are resampled (`Kind.units`). Where every row is a unit, these are the rows.
    """
    metric, units = kind.metric(metric_name), kind.units(labels)
    answers = [kind.answers(metric_name, labels, one) for one in outputs]
    n_units = int(units[-1]) + 1
    is_row_unit = n_units == len(labels)
    if is_row_unit and metric.of_tables is not None:
        n_classes = int(max(labels.max(), *(answer.max() for answer in answers))) + 1
        if n_units <= _MOST_ROWS_AT_ONCE and n_classes <= _MOST_CLASSES:
            return _scores_of_classes(metric.of_tables, labels, answers, n_classes)
        if n_classes <= _FEW_CLASSES:
            return _scores_of_many_rows(metric.of_tables, labels, answers, n_classes)
    members = [] if is_row_unit else np.split(np.arange(len(labels)), np.flatnonzero(np.diff(units)) + 1)

    def scores(drawn: stats.Rows) -> list[float]:
        rows = drawn if is_row_unit else np.concatenate([members[unit] for unit in drawn])
        return [metric.of(labels[rows], answer[rows]) for answer in answers]

    return stats.resampled_scores(scores, n_units, np.random.default_rng(RESAMPLING_SEED))


OfTables = Callable[[NDArray[Any]], NDArray[Any]]


def _scores_of_classes(
    of_tables: OfTables, labels: NDArray[Any], answers: Sequence[NDArray[Any]], n_classes: int
) -> stats.Floats:
    """The same for all resamples at once: each resample is a confusion matrix."""
    counts = _resampled_counts(len(labels))
    n_at_once = max(1, _MOST_CELLS_AT_ONCE // n_classes**2)
    scores = np.empty((len(answers), len(counts)))
    for number, answer in enumerate(answers):
        # Rows of one cell of the matrix lie side by side; most of the cells of many classes have no row.
        cells = n_classes * labels.astype(np.int64) + answer
        order = np.argsort(cells, kind="stable")
        present, starts = np.unique(cells[order], return_index=True)
        drawn = np.add.reduceat(counts[:, order], starts, axis=1)
        for first in range(0, len(counts), n_at_once):
            tables = np.zeros((len(drawn[first : first + n_at_once]), n_classes**2))
            tables[:, present] = drawn[first : first + n_at_once]
            scores[number, first : first + n_at_once] = of_tables(tables.reshape(-1, n_classes, n_classes))
    return scores


def _scores_of_many_rows(
    of_tables: OfTables, labels: NDArray[Any], answers: Sequence[NDArray[Any]], n_classes: int
) -> stats.Floats:
    """The same with one resample in memory at a time."""
    cells = [_narrow(n_classes * labels.astype(np.int64) + answer) for answer in answers]

    def scores(drawn: stats.Rows) -> list[float]:
        tables = [np.bincount(one[drawn], minlength=n_classes**2).reshape(n_classes, n_classes) for one in cells]
        return [float(of_tables(table.astype(np.float64))) for table in tables]

    return stats.resampled_scores(scores, len(labels), np.random.default_rng(RESAMPLING_SEED))


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Small integers as bytes, which fit into the processor's cache: a million rows are permuted in half the time."""
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > 255:
        return values
    return values.astype(np.uint8)


@functools.lru_cache(maxsize=2)
def _resampled_counts(n_rows: int) -> NDArray[np.float32]:
    return stats.resampled_counts(n_rows, np.random.default_rng(RESAMPLING_SEED))
