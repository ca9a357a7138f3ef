"""Readers: added heads that read the states of chosen layers, instead of the model's own head.

There is a linear reader and a bidirectional LSTM. A reader is a submodule of the model, so it is counted, trained and
saved like any other part.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from frostline.records.specs import Pooling

if TYPE_CHECKING:
    from frostline.model.stack import Stack

READER = "frostline_reader"
CHOSEN = f"{READER}.chosen"
"""Name of the buffer with the depth and pooling that the fit chose."""
LINEAR_PARAMETERS = (f"{READER}.linear.weight", f"{READER}.linear.bias")
POOLINGS: tuple[Pooling, ...] = ("mean", "first", "last")
HIDDEN = 768
"""Width of the LSTM per direction."""


class Reader(nn.Module, abc.ABC):
    """A head that reads the states after some depths."""

    @property
    @abc.abstractmethod
    def depths(self) -> tuple[int, ...]:
        """The depths whose states it reads, ascending."""

    @abc.abstractmethod
    def forward(self, states: Sequence[Tensor], mask: Tensor) -> Tensor:
        """States (batch, tokens, width), one per depth, and their mask (batch, tokens) → (batch, classes)."""


def pooled(state: Tensor, mask: Tensor) -> Tensor:
    """Mean, first and last token of each row (batch, tokens, width), padded on the right; (poolings, batch, width)."""
    lengths = mask.sum(1)
    mean = (state * mask[..., None]).sum(1) / lengths[:, None]
    rows = torch.arange(len(state), device=state.device)
    return torch.stack([mean, state[:, 0], state[rows, lengths - 1]])


class LinearReader(Reader):
    """A linear function of one pooled state."""

    def __init__(self, width: int, n_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, n_outputs)
        self.chosen: Tensor
        self.register_buffer("chosen", torch.zeros(2, dtype=torch.int64))

    def choose(self, depth: int, pooling: Pooling, weight: Tensor, bias: Tensor) -> None:
        """Takes over the result of a fit."""
        self.chosen.copy_(torch.tensor([depth, POOLINGS.index(pooling)]))
        with torch.no_grad():
            self.linear.weight.copy_(weight)
            self.linear.bias.copy_(bias)

    @property
    def depths(self) -> tuple[int, ...]:
        """The depth that the fit chose."""
        return (int(self.chosen[0]),)

    def forward(self, states: Sequence[Tensor], mask: Tensor) -> Tensor:
        """(batch, classes)"""
        (state,) = states
        output: Tensor = self.linear(pooled(state, mask)[int(self.chosen[1])])
        return output


class BiLstmReader(Reader):
    """A two-layer bidirectional LSTM over the tokens, read at the end of each direction (BERT, table 7)."""

    def __init__(self, width: int, n_outputs: int, depths: tuple[int, ...]) -> None:
        super().__init__()
        self._depths = depths
        self.lstm = nn.LSTM(width * len(depths), HIDDEN, num_layers=2, bidirectional=True, batch_first=True)
        self.output = nn.Linear(2 * HIDDEN, n_outputs)

    @property
    def depths(self) -> tuple[int, ...]:
        """The depths it was created for."""
        return self._depths

    def forward(self, states: Sequence[Tensor], mask: Tensor) -> Tensor:
        """(batch, classes)"""
        tokens = torch.cat(list(states), dim=-1)
        rows = nn.utils.rnn.pack_padded_sequence(tokens, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        _, (hidden, _) = self.lstm(rows)
        output: Tensor = self.output(torch.cat([hidden[-2], hidden[-1]], dim=-1))
        return output


def bilstm_parameters(stack: Stack, depths: tuple[int, ...]) -> tuple[str, ...]:
    """Names of the parameters of an LSTM over the states of these depths."""
    with torch.device("meta"):
        return tuple(f"{READER}.{name}" for name, _ in _bilstm(stack, depths).named_parameters())


def add_linear(stack: Stack) -> None:
    """Adds a linear reader to the model."""
    add_reader(stack, LinearReader(stack.structure.width, stack.model.config.num_labels))


def add_bilstm(stack: Stack, depths: tuple[int, ...]) -> None:
    """Adds a new LSTM over the states of these depths to the model."""
    add_reader(stack, _bilstm(stack, depths))


def _bilstm(stack: Stack, depths: tuple[int, ...]) -> BiLstmReader:
    return BiLstmReader(stack.structure.width, stack.model.config.num_labels, depths)


def add_reader(stack: Stack, reader: Reader) -> None:
    """Adds a head that reads states in the place of the model's own."""
    stack.model.add_module(READER, reader.to(stack.device))
    stack.forget_structure()
