"""Which rows train and which are scored: seeded, stratified where there are classes, the same for every run.

Dev is cut first. Every sample is the beginning of an order that does not depend on the size of the sample. So dev does
not depend on the number of training rows, and a larger sample contains the smaller ones.
"""

from __future__ import annotations

from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from frostline.kinds import Kind, Labels
from frostline.records.keys import derived_seed


class HasLabels(Protocol):
    """Rows of which this module needs the labels only: their texts may not be read yet."""

    @property
    def labels(self) -> Labels:
        """The labels (rows,)."""

    def __len__(self) -> int: ...

    def take(self, positions: NDArray[np.int64]) -> Self:
        """The rows at these positions, in the order of the source."""


_RowsT = TypeVar("_RowsT", bound=HasLabels)

HELD_OUT = 0.1
"""Share of the training rows held out to choose a learning rate."""
LEAST_HELD_OUT = 50

_SEED = 0


def cut_dev(rows: _RowsT, kind: Kind, share: float) -> tuple[_RowsT, _RowsT]:
    """The rows divided into train and dev, at least one row each."""
    assert len(rows) >= 2
    order = _order(rows, kind, "cut")
    n_dev = min(max(round(share * len(rows)), 1), len(rows) - 1)
    return rows.take(order[n_dev:]), rows.take(order[:n_dev])


def hold_out(labels: Labels, kind: Kind, seed: int = _SEED) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the rows to train on, and of the held-out tenth (at least 50 rows, at most half)."""
    order = kind.order(labels, np.random.default_rng(derived_seed(seed, "tasks/hold out")))
    n_held = min(max(round(HELD_OUT * len(labels)), LEAST_HELD_OUT), len(labels) // 2)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


def subset_order(labels: Labels, kind: Kind, seed: int) -> NDArray[np.int64]:
    """The order of the training rows whose beginnings are the subsets of a seed."""
    return kind.order(labels, np.random.default_rng(derived_seed(seed, "tasks/subset")))


def balanced_order(labels: Labels, kind: Kind, seed: int) -> NDArray[np.int64]:
    """An order of the training rows whose beginnings hold equally many rows of each class, as long as all have some.

    One row of each class, then another of each, and so on: the subset of k rows per class is part of that of k + 1.
    """
    order = subset_order(labels, kind, seed)
    rank = np.empty(len(order), dtype=np.int64)
    for label in np.unique(labels):
        places = np.flatnonzero(labels[order] == label)
        rank[places] = np.arange(len(places))
    return order[np.lexsort((labels[order], rank))]


def sample(rows: _RowsT, kind: Kind, purpose: str, n_most: int | None) -> _RowsT:
    """At most `n_most` of the rows; a larger sample for the same purpose contains the smaller one."""
    if n_most is None or n_most >= len(rows):
        return rows
    return rows.take(_order(rows, kind, purpose)[:n_most])


def n_for_two_labels(rows: HasLabels, kind: Kind, purpose: str) -> int | None:
    """The size of the smallest sample for this purpose with two different labels; None if all labels are equal."""
    labels = rows.labels[_order(rows, kind, purpose)]
    others = np.flatnonzero(labels != labels[0])
    return int(others[0]) + 1 if len(others) else None


def _order(rows: HasLabels, kind: Kind, purpose: str) -> NDArray[np.int64]:
    # These purposes seed the order; other words would give other rows, so stored results would not fit.
    return kind.order(rows.labels, np.random.default_rng(derived_seed(_SEED, f"tasks/{purpose}")))
