"""Which rows train and which are scored: seeded, stratified, the same for every run.

Dev is cut first, and each sample is the beginning of an order that does not depend on the sample's size. So dev does
not depend on the number of training rows, and samples of growing size are nested.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from frostline.records.keys import derived_seed
from frostline.records.specs import Kind
from frostline.tasks.task import Labels, Rows

HELD_OUT = 0.1
"""Share of the training rows that a rate is chosen on."""
LEAST_HELD_OUT = 50

_SEED = 0


def stratified_order(labels: Labels, kind: Kind, rng: np.random.Generator) -> NDArray[np.int64]:
    """All positions in a random order of which every beginning has the classes in their shares.

    Regression has no classes: any order will do.
    """
    if kind == "regression":
        return rng.permutation(len(labels)).astype(np.int64)
    rank = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        rank[rng.permutation(members)] = (np.arange(len(members)) + 0.5) / len(members)
    # Classes of one size share their ranks; without a draw of its own the lowest class would always come first.
    ties = rng.random(len(labels))
    return np.lexsort((ties, rank)).astype(np.int64)


def cut_dev(rows: Rows, kind: Kind, share: float) -> tuple[Rows, Rows]:
    """The rows parted into train and dev, at least one row each."""
    assert len(rows) >= 2
    order = _order(rows, kind, "cut")
    n_dev = min(max(round(share * len(rows)), 1), len(rows) - 1)
    return rows.take(order[n_dev:]), rows.take(order[:n_dev])


def hold_out(labels: Labels, kind: Kind, seed: int = _SEED) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the rows that stay to train on, and of a tenth (50 at least, half at most) to choose by."""
    order = stratified_order(labels, kind, np.random.default_rng(derived_seed(seed, "tasks/hold out")))
    n_held = min(max(round(HELD_OUT * len(labels)), LEAST_HELD_OUT), len(labels) // 2)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


def sample(rows: Rows, kind: Kind, purpose: str, n_most: int | None) -> Rows:
    """At most `n_most` of the rows; a larger sample for the same purpose holds the smaller one."""
    if n_most is None or n_most >= len(rows):
        return rows
    return rows.take(_order(rows, kind, purpose)[:n_most])


def n_for_two_classes(rows: Rows, purpose: str) -> int | None:
    """The smallest sample for this purpose that holds two classes; None where the rows do not."""
    labels = rows.labels[_order(rows, "classification", purpose)]
    others = np.flatnonzero(labels != labels[0])
    return int(others[0]) + 1 if len(others) else None


def _order(rows: Rows, kind: Kind, purpose: str) -> NDArray[np.int64]:
    rng = np.random.default_rng(derived_seed(_SEED, f"tasks/{purpose}"))
    return stratified_order(rows.labels, kind, rng)
