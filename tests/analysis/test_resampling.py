"""Scores on resampled rows have the bits of the plain way, with few rows or many, few classes or many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from frostline import stats
from frostline.analysis import resampling
from frostline.analysis.resampling import RESAMPLING_SEED, has_failed, have_learned, row_scores
from frostline.kinds import CLASSIFICATION
from frostline.records.depth import FULL
from synthetic import make_result


def predictions(n_rows: int, n_classes: int, n_models: int = 2) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Labels, and outputs that are mostly right."""
    rng = np.random.default_rng(n_rows + n_classes)
    labels = rng.integers(n_classes, size=n_rows)
    outputs = [rng.normal(size=(n_rows, n_classes)).astype(np.float32) for _ in range(n_models)]
    for one in outputs:
        one[np.arange(n_rows), labels] += 2
    return labels, outputs


def by_rows(name: str, labels: NDArray[Any], outputs: list[NDArray[Any]]) -> NDArray[Any]:
    """The scores of each resample, computed from its rows."""
    answers = [CLASSIFICATION.answers(name, labels, one) for one in outputs]

    def scores(rows: NDArray[np.intp]) -> list[float]:
        return [CLASSIFICATION.metric(name).of(labels[rows], answer[rows]) for answer in answers]

    return stats.resampled_scores(scores, len(labels), np.random.default_rng(RESAMPLING_SEED))


def by_matrices(name: str, labels: NDArray[Any], outputs: list[NDArray[Any]]) -> NDArray[Any]:
    """The same, computed from all confusion matrices at once, as release 0.1 did up to 20,000 rows."""
    of_tables = CLASSIFICATION.metric(name).of_tables
    assert of_tables is not None
    answers = [CLASSIFICATION.answers(name, labels, one) for one in outputs]
    n_classes = int(max(labels.max(), *(answer.max() for answer in answers))) + 1
    counts = stats.resampled_counts(len(labels), np.random.default_rng(RESAMPLING_SEED))
    cells = np.eye(n_classes**2, dtype=np.float32)
    tables = [(counts @ cells[n_classes * labels + answer]).astype(np.float64) for answer in answers]
    return np.array([of_tables(table.reshape(-1, n_classes, n_classes)) for table in tables])


@pytest.mark.parametrize("name", ["accuracy", "macro_f1", "mcc"])
@pytest.mark.parametrize(("n_rows", "n_classes"), [(50, 2), (300, 40), (700, 12)])
def test_few_rows_have_the_bits_of_all_matrices_at_once(
    name: str, n_rows: int, n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, outputs = predictions(n_rows, n_classes)
    wanted = by_matrices(name, labels, outputs)
    assert np.array_equal(row_scores(CLASSIFICATION, name, labels, outputs), wanted)
    monkeypatch.setattr(resampling, "_MOST_CELLS_AT_ONCE", 3 * n_classes**2)
    assert np.array_equal(row_scores(CLASSIFICATION, name, labels, outputs), wanted), "in parts"


@pytest.mark.parametrize("name", ["accuracy", "macro_f1", "mcc", "f1"])
@pytest.mark.parametrize("n_classes", [2, 3, 7, 8])
def test_many_rows_have_the_bits_of_the_rows(name: str, n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "f1" and n_classes > 2:
        return
    monkeypatch.setattr(resampling, "_MOST_ROWS_AT_ONCE", 100)
    labels, outputs = predictions(101, n_classes)
    assert np.array_equal(row_scores(CLASSIFICATION, name, labels, outputs), by_rows(name, labels, outputs))


def test_twin_with_more_classes_matrices_have_other_last_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "_MOST_ROWS_AT_ONCE", 20)
    monkeypatch.setattr(resampling, "_FEW_CLASSES", 30)
    labels, outputs = predictions(40, 30)
    found, wanted = row_scores(CLASSIFICATION, "macro_f1", labels, outputs), by_rows("macro_f1", labels, outputs)
    assert np.allclose(found, wanted)
    assert not np.array_equal(found, wanted)


def test_ten_thousand_classes_need_no_matrix() -> None:
    labels, outputs = predictions(60, 10_000)
    assert np.array_equal(row_scores(CLASSIFICATION, "mcc", labels, outputs), by_rows("mcc", labels, outputs))


def test_a_permutation_of_bytes_is_that_of_the_integers() -> None:
    labels = np.random.default_rng(0).integers(3, size=1000)
    narrow = resampling._narrow(labels)
    assert narrow.dtype == np.uint8
    wide, small = (np.random.default_rng(7).permutation(one) for one in (labels, narrow))
    assert np.array_equal(wide, small)
    for values in (labels + 254, labels - 1, labels.astype(np.float64)):
        assert resampling._narrow(values) is values


def test_two_runs_together_show_what_neither_shows_alone() -> None:
    """On 200 rows 0.555 may be chance; twice 0.555 on 400 rows is not."""
    runs = [make_result(FULL, seed, 0.555) for seed in (0, 1)]
    assert [has_failed(one) for one in runs] == [True, True]
    assert have_learned(runs)
    assert not have_learned([make_result(FULL, seed, 0.5) for seed in (0, 1)])
    assert not have_learned([make_result(FULL, 0, 0.9).replace(diverged=True), make_result(FULL, 1, 0.9)])
    assert have_learned([make_result(FULL, 0, 0.9)])
