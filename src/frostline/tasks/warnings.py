"""What users should know about a task's rows, one line each.

Everything is counted in one pass over the rows: hundreds of thousands of rows take about a second. What concerns labels
alone comes from the kind of the task.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from frostline.errors import listed
from frostline.kinds import kind_named
from frostline.tasks.task import Rows, Task

_REPEATED_SHARE = 0.05
"""Up to this share of repeated training rows is usual and not reported."""


def class_warnings(task: Task) -> list[str]:
    """How the classes of own data are numbered, which one is positive, and which names look alike."""
    if not task.label_names:
        return []
    mapping = listed([f"{name} = {number}" for number, name in enumerate(task.label_names)])
    positive = f"; f1 is the F1 of {task.label_names[1]}" if "f1" in task.metrics else ""
    return [f"classes: {mapping}{positive}", *_similar_names(task.label_names)]


def _similar_names(names: tuple[str, ...]) -> Iterator[str]:
    """Classes that are probably one class, written in two ways."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[_plain(name)].append(name)
    if alike := [" and ".join(repr(name) for name in group) for group in groups.values() if len(group) > 1]:
        yield f"classes that differ only in case or spaces: {listed(alike)}; if they are one class, write it in one way"


def row_warnings(task: Task, train: Rows, dev: Rows) -> list[str]:
    """What the training and dev rows themselves show."""
    kind = kind_named(task.kind)
    return [
        *kind.warnings(train.labels, dev.labels, task.label_names or (), task.metrics),
        *_empty_texts("training", train),
        *_empty_texts("dev", dev),
        *_repeated_texts(train, dev, is_conflict_possible=kind.has_classes),
    ]


def _empty_texts(split: str, rows: Rows) -> Iterator[str]:
    n_empty = sum(any(not text.strip() for text in texts) for texts in _texts(rows))
    if n_empty:
        yield f"{n_empty} of {len(rows)} {split} rows have an empty text"


def _repeated_texts(train: Rows, dev: Rows, *, is_conflict_possible: bool) -> Iterator[str]:
    _, texts = np.unique(np.concatenate([_digests(train), _digests(dev)]), return_inverse=True)
    in_train, in_dev = texts[: len(train)], texts[len(train) :]
    labels, places = np.unique(np.concatenate([train.labels, dev.labels]), return_inverse=True)
    # One number for each combination of text and label.
    train_pairs = in_train * len(labels) + places[: len(train)]
    dev_pairs = in_dev * len(labels) + places[len(train) :]
    n_leaked, n_alike = int(np.isin(in_dev, in_train).sum()), int(np.isin(dev_pairs, train_pairs).sum())
    if n_leaked:
        yield (
            f"leakage: {n_leaked} of {len(dev)} dev rows ({_percent(n_leaked / len(dev))}) are also in train, ignoring "
            f"case and spaces: {n_alike} with the same label, {n_leaked - n_alike} with another; remove them from train"
        )
    n_repeated = len(train) - len(np.unique(in_train))
    if n_repeated > _REPEATED_SHARE * len(train):
        yield f"{n_repeated} of {len(train)} training rows ({_percent(n_repeated / len(train))}) repeat another row"
    if is_conflict_possible:
        yield from _conflicts(in_train, np.unique(train_pairs) // len(labels))


def _conflicts(in_train: NDArray[np.int64], with_each_label: NDArray[np.int64]) -> Iterator[str]:
    n_labels = np.bincount(with_each_label)
    n_rows = int((n_labels[in_train] > 1).sum())
    if n_rows:
        n_texts = int((n_labels > 1).sum())
        yield f"{n_rows} training rows contradict each other: {n_texts} texts occur with more than one label"


def _digests(rows: Rows) -> NDArray[np.uint64]:
    """A number for each row's text (or pair), the same if only case and spaces differ."""
    # Digests of 8 bytes, not the texts: a second copy of a million texts takes 300 MB. Two of a million different texts
    # get the same digest once in 40 million data sets. No plain text contains a line end.
    plain = ("\n".join(map(_plain, texts)).encode("utf-8", "surrogatepass") for texts in _texts(rows))
    digests = (int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) for text in plain)
    return np.fromiter(digests, dtype=np.uint64, count=len(rows))


def _plain(text: str) -> str:
    """The text without differences in case and spaces."""
    return " ".join(text.casefold().split())


def _texts(rows: Rows) -> Iterator[tuple[str, ...]]:
    return zip(rows.texts, strict=True) if rows.pairs is None else zip(rows.texts, rows.pairs, strict=True)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
