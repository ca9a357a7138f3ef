"""A task as data, and its labelled rows.

This module knows no particular task and no file format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from frostline.kinds import Head, Kind, Labels, kind_named
from frostline.records.serial import Record, json_name


@final
@dataclass(frozen=True, kw_only=True)
class GlueFiles(Record):
    """The files of a GLUE task, below the folder that holds all of GLUE."""

    folder: str
    """the task's folder"""
    train_file: str
    """file with the training rows"""
    dev_file: str
    """file with the dev rows"""
    columns: tuple[str, ...] | None = None
    """column names in order if the files have no header; None: the first line names them"""


@final
@dataclass(frozen=True, kw_only=True)
class Task(Record):
    """Which columns hold text and label, and how answers are scored."""

    name: str
    """what a user calls it"""
    title: str
    """what it is, in a few words"""
    kind: str
    """name or import path of its kind: classification, regression, …"""
    text: str
    """column with the text"""
    text_pair: str | None = None
    """column with the second text of a pair"""
    label: str
    """column with the label"""
    label_names: tuple[str, ...] | None = None
    """names of the classes in the order of their numbers; None if labels are not classes"""
    label_values: tuple[str, ...] | None = None
    """how the file writes each class, in the same order; None: by its name"""
    metrics: tuple[str, ...]
    """what is measured; the first is the score"""
    glue_files: GlueFiles | None = json_name("layout", default=None)
    """where GLUE keeps it; None for other tasks"""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return tuple(name for name in (self.text, self.text_pair, self.label) if name is not None)

    @property
    def written_labels(self) -> tuple[str, ...]:
        """How the file writes each class, in the order of their numbers; empty if labels are not classes."""
        return self.label_values or self.label_names or ()


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Labelled text in the order of its source."""

    ids: NDArray[np.int64]
    """row numbers in the source file, 0 for the first row below the header (rows,)"""
    texts: list[str]
    """the texts"""
    pairs: list[str] | None
    """the second texts, if the task has pairs"""
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
    """The rows that a run trains on and is scored on."""

    task: Task
    """the resolved task: its first metric is the score"""
    train: Rows
    """training rows"""
    dev: Rows
    """dev rows"""
    label_names: tuple[str, ...]
    """names of the classes in the order of their numbers; empty if labels are not classes"""
    fingerprint: str
    """key of the source files"""
    warnings: tuple[str, ...]
    """what users should know about the data"""

    @property
    def kind(self) -> Kind:
        """The kind of the task."""
        return kind_named(self.task.kind)

    @property
    def head(self) -> Head:
        """The head that a model needs for the task."""
        return self.kind.head(self.label_names)


def _at(texts: Sequence[str], positions: NDArray[np.int64]) -> list[str]:
    return [texts[position] for position in positions]
