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
from frostline.records.results import RunResult
from frostline.records.serial import StoredArray
from frostline.records.specs import TaskSpec
from frostline.stats.search_question import Outcome

RESAMPLING_SEED = 1911_03090
"""Seed of every resampling, so that the same runs give the same record."""
N_PERMUTATIONS = 399
"""Permutations of the labels that a run must beat to have learned something; 1 + N is a multiple of 20."""
_MOST_ROWS_AT_ONCE = 20_000
"""up to this many dev rows, all resamples are held in memory at once"""


def dev_variance(results: Sequence[RunResult]) -> float:
    """The variance of the results' mean score over resampled dev rows."""
    return float(np.var(dev_scores(results).mean(axis=0), ddof=1))


def dev_scores(results: Sequence[RunResult]) -> stats.Floats:
    """The scores of results on resampled dev rows: (results, resamples)."""
    task = results[0].spec.task
    outputs = [result.predictions.outputs.array() for result in results]
    return row_scores(kind_of(task), task.metric or "", results[0].predictions.labels.array(), outputs)


def has_failed(result: RunResult) -> bool:
    """Whether a run learned nothing: it diverged, or 95% of the permutations of the labels are not below its score."""
    predictions = result.predictions
    return result.diverged or is_by_chance(result.spec.task, predictions.labels, predictions.outputs)


def outcome_of(result: RunResult) -> Outcome:
    """A run as the rules of a search look at it."""
    return Outcome(result.score, dev_scores([result])[0], has_failed(result))


@functools.lru_cache(maxsize=1024)
def is_by_chance(task: TaskSpec, stored_labels: StoredArray, stored_outputs: StoredArray) -> bool:
    """Whether a score is not above the 95th percentile of the same predictions' score under permuted labels."""
    kind, name = kind_of(task), task.metric or ""
    labels, metric = stored_labels.array(), kind.metric(name)
    answers = kind.answers(name, labels, stored_outputs.array())
    rng = np.random.default_rng(RESAMPLING_SEED)
    permuted = sorted(metric.of(rng.permutation(labels), answers) for _ in range(N_PERMUTATIONS))
    # Of 400 equally likely scores, this run's and 399 permuted ones, its own is among the highest 20 in 5% of cases.
    bar = permuted[(N_PERMUTATIONS + 1) * 95 // 100 - 1]
    return not stats.is_above(metric.of(labels, answers), bar)


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
    if is_row_unit and metric.of_tables is not None and n_units <= _MOST_ROWS_AT_ONCE:
        return _scores_of_classes(metric.of_tables, labels, answers)
    members = [] if is_row_unit else np.split(np.arange(len(labels)), np.flatnonzero(np.diff(units)) + 1)

    def scores(drawn: stats.Rows) -> list[float]:
        rows = drawn if is_row_unit else np.concatenate([members[unit] for unit in drawn])
        return [metric.of(labels[rows], answer[rows]) for answer in answers]

    return stats.resampled_scores(scores, n_units, np.random.default_rng(RESAMPLING_SEED))


def _scores_of_classes(
    of_tables: Callable[[NDArray[Any]], NDArray[Any]], labels: NDArray[Any], answers: Sequence[NDArray[Any]]
) -> stats.Floats:
    """The same for all resamples at once: each resample is a confusion matrix."""
    n_classes = int(max(labels.max(), *(answer.max() for answer in answers))) + 1
    counts = _resampled_counts(len(labels))
    cells = np.eye(n_classes**2, dtype=np.float32)
    tables = [(counts @ cells[n_classes * labels.astype(np.int64) + answer]).astype(np.float64) for answer in answers]
    return np.array([of_tables(table.reshape(-1, n_classes, n_classes)) for table in tables])


@functools.lru_cache(maxsize=2)
def _resampled_counts(n_rows: int) -> NDArray[np.float32]:
    return stats.resampled_counts(n_rows, np.random.default_rng(RESAMPLING_SEED))
