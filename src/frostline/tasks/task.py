"""A task as data, and the labelled rows it gives.

Knows no particular task and no file format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from frostline.records.serial import Record
from frostline.records.specs import Kind

Labels = NDArray[np.int64] | NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class Layout(Record):
    """Where a task of GLUE keeps its rows, below the folder that holds all of GLUE."""

    folder: str
    """the task's folder"""
    train_file: str
    """file with the training rows"""
    dev_file: str
    """file with the dev rows"""
    columns: tuple[str, ...] | None = None
    """names of the columns in order where the files have no header; None: the first line names them"""


@final
@dataclass(frozen=True, kw_only=True)
class Task(Record):
    """What is learnt from which columns, and how it is scored."""

    name: str
    """what a user calls it"""
    title: str
    """what it is, in a few words"""
    kind: Kind
    """classification or regression"""
    text: str
    """column with the text"""
    text_pair: str | None = None
    """column with the second text of a pair"""
    label: str
    """column with the label"""
    label_names: tuple[str, ...] | None = None
    """names of the classes in the order of their numbers; None for regression"""
    label_values: tuple[str, ...] | None = None
    """how the file writes each class, in the same order; None: by its name"""
    metrics: tuple[str, ...]
    """what is measured; the first is the score"""
    layout: Layout | None = None
    """where GLUE keeps it; None for other tasks"""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return tuple(name for name in (self.text, self.text_pair, self.label) if name is not None)

    @property
    def written_labels(self) -> tuple[str, ...]:
        """How the file writes each class, in the order of their numbers; empty for regression."""
        return self.label_values or self.label_names or ()


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Labelled text in the order of its source."""

    ids: NDArray[np.int64]
    """row numbers in the source file, the first row below the header is 0 (rows,)"""
    texts: list[str]
    """the texts"""
    pairs: list[str] | None
    """the second texts, where the task has pairs"""
    labels: Labels
    """class numbers (int64) or values (float64) (rows,)"""

    def __post_init__(self) -> None:
        n_pairs = len(self.texts) if self.pairs is None else len(self.pairs)
        assert self.ids.shape == self.labels.shape == (len(self.texts),) == (n_pairs,)

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, positions: NDArray[np.int64]) -> Rows:
        """The rows at these positions, in the order of the source."""
        kept = np.sort(positions)
        return Rows(
            ids=self.ids[kept],
            texts=_at(self.texts, kept),
            pairs=None if self.pairs is None else _at(self.pairs, kept),
            labels=self.labels[kept],
        )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TaskData:
    """What a run trains on and is scored on."""

    task: Task
    """the task, settled: its first metric is the score"""
    train: Rows
    """training rows"""
    dev: Rows
    """dev rows"""
    label_names: tuple[str, ...]
    """names of the classes in the order of their numbers; empty for regression"""
    fingerprint: str
    """key of the source files"""
    notices: tuple[str, ...]
    """what a careful person should know about the data"""


def _at(texts: Sequence[str], positions: NDArray[np.int64]) -> list[str]:
    return [texts[position] for position in positions]
