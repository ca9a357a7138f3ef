"""The base class of all measures, and what they are given to look at.

A measure is a value, like a strategy: it has a name with arguments (`importance:rows=1000`), and a function that turns
the model of a finished run into named arrays. It is part of a run's spec, so its numbers are computed where the run
is, stored with the run, and found again by the run's key.

The model may be one that the run trained, or the pretrained one with a head that was fitted in closed form: a run of
the strategy `features:logreg@L.mean` (`features:ridge@L.mean` for number labels), where L is the number of layers,
trains nothing else. Every layer then lies below its head, and gradients reach all of them.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline.errors import UsageError
from frostline.kinds import Kind, Labels
from frostline.model.stack import Stack
from frostline.records.keys import derived_seed

Arrays = dict[str, NDArray[Any]]
"""What a measure finds: numbers by name. They must be finite."""


class UnreadableMeasureError(UsageError):
    """The argument after a measure's name is not valid. The message continues `measure 'name:argument' …`."""


@dataclass(frozen=True)
class RowBatch:
    """Some rows of a split as the model's inputs, on its device."""

    places: NDArray[np.int64]
    """(batch,) which rows of the split they are, counted from 0"""
    inputs: dict[str, Tensor]
    """(batch, tokens) each, padded on the right"""
    mask: Tensor
    """(batch, tokens), true at tokens and false at padding"""
    labels: Tensor
    """(batch,) as the loss takes them: on the scale that the model learned"""


@dataclass(frozen=True)
class RowSource:
    """The rows of a split, for a measure to read."""

    labels: Labels
    """(rows,) class numbers or values, as the task has them"""
    lengths: NDArray[np.int64]
    """(rows,) tokens of each row"""
    batch: Callable[[NDArray[np.int64]], RowBatch]
    """exactly these rows in one batch"""
    cut: Callable[[NDArray[np.int64]], Iterator[NDArray[np.int64]]]
    """these rows in parts of similar length that fit into memory, always cut in the same way"""
    pooled: NDArray[np.float32] | None
    """(rows, depths, poolings, width) pooled states of the pretrained model, in the order of `POOLINGS`; only a
    closed-form fit to features has them"""

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, places: NDArray[np.int64] | None = None) -> Iterator[RowBatch]:
        """All rows (or those at `places`) once, short rows first, always in the same layout."""
        yield from map(self.batch, self.cut(np.arange(len(self)) if places is None else places))

    def sample(self, purpose: str, at_most: int) -> NDArray[np.int64]:
        """(rows,) places of at most this many rows, ascending; always the same ones for the same purpose."""
        rng = np.random.default_rng(derived_seed(0, purpose))
        return np.sort(rng.permutation(len(self))[:at_most])


@dataclass(frozen=True)
class Subject:
    """What a measure looks at: the model of a finished run, its pretrained twin, and rows."""

    stack: Stack
    """the model as the run left it, in evaluation mode. A measure may change modes and `requires_grad`, and must leave
    every weight as it is"""
    pretrained: Callable[[], Stack]
    """loads the model as it was before the run, with a head of its own"""
    train: RowSource
    """the rows that the run trained on: rank and fit on these"""
    dev: RowSource
    """the rows that the run is scored on"""
    loss: Callable[[Tensor, Tensor], Tensor]
    """logits (batch, outputs) and a batch's labels → the mean loss over its rows"""
    kind: Kind
    metric: str
    """name of the score"""
    on_label_scale: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    """the model's outputs (rows, outputs) on the scale of the labels, as scores take them"""
    seed: int
    """for random draws; another one for each run"""

    def logits(self, batch: RowBatch) -> Tensor:
        """The model's outputs (batch, outputs), from its own head or from an added one; with gradients where enabled.

        A head that was fitted in closed form reads pooled states of one layer; they are computed here.
        """
        return self.stack.outputs(batch.inputs, batch.mask)

    def mean_loss(self, batch: RowBatch) -> Tensor:
        """The mean loss over the rows of a batch. Times the number of rows it is the sum of each row's own loss."""
        return self.loss(self.logits(batch), batch.labels)

    def score(self, labels: Labels, outputs: NDArray[np.float32]) -> float:
        """The run's score of raw outputs (rows, outputs)."""
        return self.kind.score(self.metric, labels, self.on_label_scale(outputs))


@dataclass(frozen=True)
class Measure(abc.ABC):
    """A question to the model of a run, answered in numbers."""

    forms: ClassVar[str]
    """how to write it, shown in messages"""
    example: ClassVar[str]
    """a valid example"""

    @classmethod
    @abc.abstractmethod
    def read(cls, argument: str) -> Measure:
        """The measure with the argument after the colon (`""` if there is none)."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The measure as written in a spec; arguments at their defaults are left out."""

    def check(self, stack: Stack) -> None:  # noqa: B027 - most measures work on every model
        """Raises a UsageError in one line if the model lacks what is measured."""

    @abc.abstractmethod
    def of(self, subject: Subject) -> Arrays:
        """The numbers of this measure. The same run gives the same bits on one machine."""


def read_numbers(argument: str, **defaults: int) -> dict[str, int]:
    """Arguments like `rows=1000,draws=5` as numbers of at least 1; those not given have their defaults."""
    numbers = dict(defaults)
    for part in argument.split(",") if argument else ():
        name, equals, value = part.partition("=")
        if name not in defaults or not equals or not re.fullmatch(r"[0-9]{1,9}", value) or int(value) < 1:
            known = " or ".join(f"{known}={default}" for known, default in defaults.items())
            raise UnreadableMeasureError(f"takes {known or 'no argument'}, not {part!r}")
        numbers[name] = int(value)
    return numbers


def written(name: str, defaults: dict[str, int], given: dict[str, int]) -> str:
    """A measure's name with the arguments that differ from their defaults."""
    arguments = ",".join(f"{key}={value}" for key, value in given.items() if value != defaults[key])
    return f"{name}:{arguments}" if arguments else name
