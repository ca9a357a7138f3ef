"""Very many classes or rows take neither much memory nor quadratic time, and numbers keep their bits."""

from __future__ import annotations

import time

import numpy as np
import pytest

from frostline.errors import UsageError
from frostline.kinds import CLASSIFICATION, kind, metrics

NAMES = ["accuracy", "macro_f1", "mcc"]


@pytest.mark.parametrize("name", NAMES)
def test_the_best_constant_is_that_of_all_classes(name: str, rng: np.random.Generator) -> None:
    metric = CLASSIFICATION.metric(name)
    for n_classes in (2, 3, 9, 40):
        labels = rng.integers(n_classes, size=60)
        constants = np.unique(labels)
        wanted = max(constants, key=lambda one: metric.of(labels, np.full(60, one)))
        assert CLASSIFICATION.best_constant(name, labels) == wanted
    assert len(CLASSIFICATION.constants(np.arange(1000))) == 1, "of equally frequent classes one is tried"


@pytest.mark.parametrize("name", NAMES)
def test_guessing_by_shares_is_the_same_with_and_without_a_table(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = rng.integers(30, size=200)
    wanted = CLASSIFICATION.chance(name, labels)
    monkeypatch.setattr(kind, "_MOST_CLASSES", 3)
    assert CLASSIFICATION.chance(name, labels) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_chance_of_a_hundred_thousand_classes_takes_a_moment(name: str, rng: np.random.Generator) -> None:
    labels = rng.integers(100_000, size=100_000)
    began = time.process_time()
    assert 0 <= CLASSIFICATION.chance(name, labels) < 0.01
    assert time.process_time() - began < 10


def test_parts_of_rows_give_the_bits_of_all_rows(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, outputs = rng.integers(17, size=101), rng.normal(size=(101, 17)).astype(np.float32)
    wanted = CLASSIFICATION.mean_loss(labels, outputs)
    monkeypatch.setattr(metrics, "_NUMBERS_AT_ONCE", 40)
    assert len(list(metrics.row_parts(outputs))) == 51
    assert CLASSIFICATION.mean_loss(labels, outputs) == wanted
    outputs[[3, 77], [0, 5]] = np.nan, np.inf
    with pytest.raises(UsageError, match="2 of 1717 outputs are not finite"):
        CLASSIFICATION.score("accuracy", labels, outputs)


def test_constant_outputs_answer_with_the_constant() -> None:
    outputs = CLASSIFICATION.constant_outputs(2, 3, 5)
    assert outputs.dtype == np.float32
    assert outputs.tolist() == [[0, 0, 1, 0, 0]] * 3
