"""The promises that all kinds of task keep: run `check_kind` over a new kind.

A broken promise raises an AssertionError that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from frostline.kinds import Kind, Labels, imported
from frostline.kinds.metrics import Array
from frostline.training.loop import loss_of

WRITTEN = ("1", "3", "2", "3", "1", "3", "2", "1")
"""Labels that are classes as well as numbers."""

_SURE = 30.0
_NEAR = 1e-5


def perfect_outputs(labels: Labels, n_outputs: int) -> Array:
    """Outputs that are right: the value itself, or a large output for the right class."""
    if n_outputs == 1:
        return labels[:, None].astype(np.float32)
    return _SURE * np.eye(n_outputs, dtype=np.float32)[labels.astype(np.int64)]


def check_kind(
    kind: Kind, written: Sequence[str] = WRITTEN, perfect: Callable[[Labels, int], Array] = perfect_outputs
) -> None:
    """Raise unless a kind keeps all promises on some written labels; `perfect` makes outputs that are right."""
    names = kind.class_names(written) if kind.class_names else ()
    labels = kind.encode(written, names)
    n_outputs = kind.n_outputs or len(names)
    outputs = perfect(labels, n_outputs)
    check_labels(kind, written, labels, names)
    check_order(kind, labels)
    check_scores(kind, labels, outputs)
    check_losses(kind, labels, outputs)
    check_head(kind, names, n_outputs)
    check_prediction(kind, outputs, names or ("LABEL_0",) * n_outputs)


def check_labels(kind: Kind, written: Sequence[str], labels: Labels, names: Sequence[str]) -> None:
    """Labels can be decoded and encoded again; there is one per row, and units are numbered in order."""
    assert labels.shape == (len(written),), "there is one label per row"
    decoded = [kind.decode(label, names) for label in labels]
    assert np.array_equal(kind.encode(decoded, names), labels), "decoding and encoding gives the same labels"
    units = kind.units(labels)
    assert units.shape == labels.shape, "each label belongs to one unit"
    assert units[0] == 0, "units are counted from 0"
    assert set(np.diff(units)) <= {0, 1}, "units are numbered in order"


def check_order(kind: Kind, labels: Labels) -> None:
    """The order is a permutation that follows from the generator alone."""
    first, again = (kind.order(labels, np.random.default_rng(0)) for _ in range(2))
    assert sorted(first.tolist()) == list(range(len(labels))), "the order has every row once"
    assert np.array_equal(first, again), "the same seed gives the same order"


def check_scores(kind: Kind, labels: Labels, outputs: Array) -> None:
    """The first metric can be the score; right outputs score best; chance is at least a constant's score, at most 1."""
    n_classes = len(set(labels.tolist())) if kind.has_classes else None
    names = kind.metric_names(n_classes)
    assert kind.metrics[names[0]].is_score, "the first metric is a score"
    for name in names:
        metric = kind.metrics[name]
        best, wrong = kind.score(name, labels, outputs), kind.score(name, labels, np.roll(outputs, 1, axis=0))
        assert best > wrong if metric.is_score else best < wrong, f"{name}: right outputs score best"
        constants = [metric.of(labels, np.full(len(labels), constant)) for constant in kind.constants(labels)]
        assert kind.chance(name, labels) >= max(constants), f"{name}: chance is at least the score of a constant answer"
        assert not metric.is_score or kind.chance(name, labels) <= best <= 1 + _NEAR, f"{name}: chance is at most 1"


def check_losses(kind: Kind, labels: Labels, outputs: Array) -> None:
    """The loss is the same in numpy and torch, and lowest for right outputs."""
    loss = loss_of(kind)
    drawn = np.random.default_rng(0).normal(0, 2, outputs.shape).astype(np.float32)
    for some in (outputs, drawn):
        ours, theirs = kind.mean_loss(labels, some), float(loss(torch.from_numpy(some), torch.from_numpy(labels)))
        assert abs(ours - theirs) <= _NEAR * max(1.0, abs(ours)), (
            f"the loss in numpy is that in torch: {ours:g}, {theirs:g}"
        )
    assert kind.mean_loss(labels, outputs) < kind.mean_loss(labels, drawn), "right outputs have the lowest loss"


def check_head(kind: Kind, names: Sequence[str], n_outputs: int) -> None:
    """The head has as many outputs as the kind says, in a class that can be imported."""
    head = kind.head(names)
    assert hasattr(imported(head.model_class), "from_pretrained"), "the head's class is one of transformers"
    assert len(head.config.get("id2label", ())) or head.config["num_labels"] == n_outputs, "the head has its outputs"


def check_prediction(kind: Kind, outputs: Array, names: Sequence[str]) -> None:
    """Every row gets the same columns, as many as announced, `prediction` first; rows that differ, others."""
    columns = kind.prediction_columns(names)
    assert columns[0] == "prediction", "the first column is the prediction"
    rows = [kind.prediction(row, names) for row in outputs.astype(np.float64)]
    assert all(tuple(row) == columns for row in rows), "every row has the same columns"
    assert len({row["prediction"] for row in rows}) == len(np.unique(outputs, axis=0)), "predictions follow the outputs"
    more = (*names, "other") if kind.has_classes else tuple(names)
    assert len(set(kind.prediction_columns(more))) == len(kind.prediction_columns(more)), "columns are unique"
