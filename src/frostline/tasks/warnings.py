"""What a careful person should know about a task's rows, one line each.

Counts only, in one pass over the rows, so hundreds of thousands of them take about a second. Knows nothing of where
rows come from.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from frostline.tasks.formats.columns import listed
from frostline.tasks.task import Rows, Task

_LARGEST_SHARE = 0.8
"""A class with more of the training rows than this makes a constant answer look good."""
_RAREST_SHARE = 0.1
"""A class with fewer of the training rows is rare; of many classes, one with less than half an equal share."""
_REPEATED_SHARE = 0.05
"""Up to this share of repeated training rows is usual and not told."""
_FAR = 10.0
"""Labels this many times off the standard scale (mean 0, deviation 1) are far from it."""


def label_notices(task: Task) -> list[str]:
    """How the classes of own data are numbered, and which one counts as positive."""
    if task.label_names is None:
        return []
    mapping = listed([f"{name} = {number}" for number, name in enumerate(task.label_names)])
    positive = f"; f1 is that of {task.label_names[1]}" if "f1" in task.metrics else ""
    return [f"classes: {mapping}{positive}"]


def row_notices(task: Task, train: Rows, dev: Rows) -> list[str]:
    """What the training and dev rows themselves give to beware of."""
    of_labels = _of_values(train) if task.label_names is None else _of_classes(task, train, dev)
    return [*of_labels, *_of_blanks("training", train), *_of_blanks("dev", dev), *_of_repeats(task, train, dev)]


def _of_classes(task: Task, train: Rows, dev: Rows) -> Iterator[str]:
    names = task.label_names or ()
    n_train, n_dev = (np.bincount(rows.labels.astype(np.int64), minlength=len(names)) for rows in (train, dev))
    if not n_train.all():
        lost = int(n_dev[n_train == 0].sum())
        outcome = f"; {lost} of {len(dev)} dev rows are of them and can only be answered wrongly" if lost else ""
        yield f"classes without a training row: {_named(names, n_train == 0)}{outcome}"
    if (is_unseen := (n_train > 0) & (n_dev == 0)).any():
        yield f"classes without a dev row, on which no score tells anything: {_named(names, is_unseen)}"
    yield from _of_imbalance(task, n_train)


def _named(names: tuple[str, ...], is_meant: NDArray[np.bool_]) -> str:
    return listed([name for name, is_one in zip(names, is_meant, strict=True) if is_one])


def _of_imbalance(task: Task, counts: NDArray[np.int64]) -> Iterator[str]:
    names = task.label_names or ()
    there = np.flatnonzero(counts)
    shares = counts / counts.sum()
    largest, rarest = there[counts[there].argmax()], there[counts[there].argmin()]
    if shares[largest] <= _LARGEST_SHARE and shares[rarest] >= min(_RAREST_SHARE, 0.5 / len(there)):
        return
    advice = ""
    if task.metrics[0] == "accuracy":
        better = " or ".join(name for name in ("macro_f1", "mcc") if name in task.metrics)
        advice = "; accuracy rewards the majority: " + (f"give --metric {better}" if better else "read it above chance")
    yield (
        f"imbalanced classes: {names[largest]} has {_percent(shares[largest])} of the training rows, "
        f"{names[rarest]} {_percent(shares[rarest])}{advice}"
    )


def _of_values(train: Rows) -> Iterator[str]:
    mean, deviation = float(train.labels.mean()), float(train.labels.std())
    if abs(mean) > _FAR * min(1.0, deviation) or not 1 / _FAR <= deviation <= _FAR:
        yield (
            f"training labels have mean {mean:.3g} and standard deviation {deviation:.3g}; models start near 0 and "
            "learn labels as they are: standardise them (less the mean, over the deviation) for faster learning"
        )


def _of_blanks(what: str, rows: Rows) -> Iterator[str]:
    n_blank = sum(any(not text.strip() for text in texts) for texts in _texts(rows))
    if n_blank:
        yield f"{n_blank} of {len(rows)} {what} rows have an empty text"


def _of_repeats(task: Task, train: Rows, dev: Rows) -> Iterator[str]:
    known: dict[tuple[str, ...], int] = {}
    in_train, in_dev = _numbers(train, known), _numbers(dev, known)
    labels, places = np.unique(np.concatenate([train.labels, dev.labels]), return_inverse=True)
    # One number for a text with its label.
    train_pairs = in_train * len(labels) + places[: len(train)]
    dev_pairs = in_dev * len(labels) + places[len(train) :]
    n_leaked, n_alike = int(np.isin(in_dev, in_train).sum()), int(np.isin(dev_pairs, train_pairs).sum())
    if n_leaked:
        yield (
            f"leakage: {n_leaked} of {len(dev)} dev rows ({_percent(n_leaked / len(dev))}) also stand in train but for "
            f"case and spaces, {n_alike} with the same label, {n_leaked - n_alike} with another; take them out of train"
        )
    n_repeated = len(train) - len(np.unique(in_train))
    if n_repeated > _REPEATED_SHARE * len(train):
        yield f"{n_repeated} of {len(train)} training rows ({_percent(n_repeated / len(train))}) repeat another one"
    if task.kind == "classification":
        yield from _of_conflicts(in_train, np.unique(train_pairs) // len(labels))


def _of_conflicts(in_train: NDArray[np.int64], with_each_label: NDArray[np.int64]) -> Iterator[str]:
    n_labels = np.bincount(with_each_label)
    n_rows = int((n_labels[in_train] > 1).sum())
    if n_rows:
        n_texts = int((n_labels > 1).sum())
        yield f"{n_rows} training rows contradict each other: {n_texts} texts stand there with more than one label"


def _numbers(rows: Rows, known: dict[tuple[str, ...], int]) -> NDArray[np.int64]:
    """The number of each row's text (or pair) in `known`, which grows; one where only case and white space differ."""
    plain = (tuple(" ".join(text.casefold().split()) for text in texts) for texts in _texts(rows))
    return np.array([known.setdefault(texts, len(known)) for texts in plain], dtype=np.int64)


def _texts(rows: Rows) -> Iterator[tuple[str, ...]]:
    return zip(rows.texts, strict=True) if rows.pairs is None else zip(rows.texts, rows.pairs, strict=True)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
