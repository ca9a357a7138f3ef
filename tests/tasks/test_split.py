from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from frostline.kinds import CLASSIFICATION, KINDS, REGRESSION, Kind, Labels
from frostline.tasks.split import cut_dev, n_for_two_labels, sample
from frostline.tasks.task import Rows

class_lists = st.lists(st.integers(0, 3), min_size=2, max_size=80)


def rows_of(labels: Labels) -> Rows:
    n = len(labels)
    return Rows(ids=np.arange(n, dtype=np.int64) * 3, texts=[f"t{i}" for i in range(n)], pairs=None, labels=labels)


def classes(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def worst_excess(labels: NDArray[np.int64], order: NDArray[np.int64]) -> float:
    """By how much the worst beginning of the order misses a class's share, above what rounding explains."""
    names = np.unique(labels)
    worst = -np.inf
    for name in names:
        share = float(np.mean(labels == name))
        seen = np.cumsum(labels[order] == name)
        wanted = share * np.arange(1, len(labels) + 1)
        allowed = 0.5 + share * len(names) / 2
        worst = max(worst, float(np.max(np.abs(seen - wanted))) - allowed)
    return worst


@given(class_lists, st.integers(0, 99))
def test_every_beginning_is_stratified(values: list[int], seed: int) -> None:
    labels = classes(values)
    order = CLASSIFICATION.order(labels, np.random.default_rng(seed))
    assert sorted(order.tolist()) == list(range(len(values)))
    assert worst_excess(labels, order) <= 1e-9


def test_a_plain_permutation_is_not_stratified() -> None:
    labels = classes([0] * 500 + [1] * 500)
    assert worst_excess(labels, np.random.default_rng(0).permutation(1000)) > 1


def test_order_is_the_seeds_and_not_the_sources() -> None:
    labels = classes([0, 1] * 200)
    orders = [CLASSIFICATION.order(labels, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    assert not np.array_equal(orders[0], np.arange(400))


def test_classes_of_one_size_take_turns_at_being_first() -> None:
    labels = classes(sorted(list(range(10)) * 5))
    first = {int(labels[CLASSIFICATION.order(labels, np.random.default_rng(seed))[0]]) for seed in range(60)}
    assert len(first) > 5


def test_regression_is_a_permutation() -> None:
    order = REGRESSION.order(np.linspace(0, 5, 50), np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(50))
    assert order.tolist() != list(range(50))


@given(class_lists, st.floats(0.01, 0.99))
def test_dev_and_train_part_the_rows(values: list[int], share: float) -> None:
    rows = rows_of(classes(values))
    train, dev = cut_dev(rows, CLASSIFICATION, share)
    assert sorted([*train.ids.tolist(), *dev.ids.tolist()]) == rows.ids.tolist()
    assert len(dev) == min(max(round(share * len(rows)), 1), len(rows) - 1)
    for part in (train, dev):
        assert part.ids.tolist() == sorted(part.ids.tolist())
        assert [rows.texts[i // 3] for i in part.ids] == part.texts


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_samples_of_growing_size_are_nested(kind: Kind) -> None:
    rows = rows_of(classes([0, 1, 1] * 40))
    smaller: set[int] = set()
    for n_most in (1, 2, 7, 30, 119, 120, 500, None):
        part = sample(rows, kind, "train", n_most)
        assert len(part) == min(n_most or 120, 120)
        assert smaller <= set(part.ids.tolist())
        smaller = set(part.ids.tolist())


def test_samples_for_two_purposes_differ() -> None:
    rows = rows_of(classes([0, 1] * 100))
    train, dev = (sample(rows, CLASSIFICATION, purpose, 20) for purpose in ("train", "dev"))
    assert train.ids.tolist() != dev.ids.tolist()


@given(class_lists)
def test_the_smallest_sample_with_two_classes(values: list[int]) -> None:
    rows = rows_of(classes(values))
    least = n_for_two_labels(rows, CLASSIFICATION, "train")
    if len(set(values)) == 1:
        assert least is None
        return
    assert least is not None
    assert len(set(sample(rows, CLASSIFICATION, "train", least).labels.tolist())) == 2
    assert len(set(sample(rows, CLASSIFICATION, "train", least - 1).labels.tolist())) == 1


def order_class_by_class(labels: Labels, rng: np.random.Generator) -> NDArray[np.int64]:
    """The order as release 0.1 computed it, in time that grows with rows × classes."""
    rank = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        rank[rng.permutation(members)] = (np.arange(len(members)) + 0.5) / len(members)
    return np.lexsort((rng.random(len(labels)), rank))


@given(class_lists, st.integers(0, 99))
def test_the_order_is_that_of_stored_results(values: list[int], seed: int) -> None:
    labels = classes(values)
    wanted = order_class_by_class(labels, np.random.default_rng(seed))
    assert np.array_equal(CLASSIFICATION.order(labels, np.random.default_rng(seed)), wanted)


def test_many_classes_take_no_quadratic_time() -> None:
    """Class by class, 100,000 classes would take minutes."""
    labels = np.random.default_rng(0).integers(0, 100_000, 200_000)
    order = CLASSIFICATION.order(labels, np.random.default_rng(0))
    assert np.array_equal(np.sort(order), np.arange(200_000))
    names = [f"label {number}" for number in range(100_000)]
    written = [names[number] for number in labels]
    found = CLASSIFICATION.encode(written, sorted(names))
    assert [sorted(names)[number] for number in found[:100]] == written[:100]
