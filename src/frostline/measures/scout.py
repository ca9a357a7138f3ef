"""Scores of layers before any training, by which a depth may be predicted: from states of all layers and gradients.

The run must be a closed-form fit to the pooled states of the top layer: with a random head, gradients say what the
head drew (PREDICTORS). States are those of training rows. Formulas follow the definitions of the papers; two published
implementations do not (one re-reads a single example, one takes a variance over a tensor dimension).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from frostline.errors import UsageError
from frostline.measures.measure import Arrays, Measure, RowSource, Subject, read_numbers, written
from frostline.measures.separation import grouped, h_score, logme, variability
from frostline.model.added.readers import POOLINGS, LinearReader, pooled

ROWS = 1000
"""Most training rows whose states are scored, unless asked."""
N_BATCHES, BATCH_SIZE = 5, 16
"""of the relative gradient norm"""
NOISE_ROWS, FISHER_ROWS = 64, 100
"""rows with gradients of their own"""
N_GROUPS = 5
"""of number labels, for scores of classes"""
DEAD = 1e-6
"""A feature whose spread is below this share of the median one's is left out of the head. A fit to standardised
features gives it a weight that is as large as its spread is small, and so would be the gradients: the last norm of
all-MiniLM-L6-v2 has weights of 5e-33."""
_SMALLEST = 1e-20
"""added to variances, so that a weight that never gets a gradient has no signal"""


@final
@dataclass(frozen=True)
class Scout(Measure):
    """Variability, H-score and LogME of the states after each layer; gradients of each layer."""

    rows: int = ROWS
    """most training rows whose states are scored"""

    forms = "scout or scout:rows=N"
    example = "scout"

    @classmethod
    def read(cls, argument: str) -> Measure:
        """`scout`, `scout:rows=500`."""
        return cls(**read_numbers(argument, rows=ROWS))

    @property
    def name(self) -> str:
        """`scout`, `scout:rows=500`."""
        return written("scout", {"rows": ROWS}, {"rows": self.rows})

    def of(self, subject: Subject) -> Arrays:
        """`variability`, `h_score`, `logme` by depth; `gradient_norm`, `signal_to_noise`, `fisher` by layer."""
        return state_scores(subject, self.rows) | gradient_scores(subject)


def state_scores(subject: Subject, at_most: int) -> Arrays:
    """Scores of the states after each depth (0: after the embeddings)."""
    rows = subject.train
    if rows.pooled is None:
        raise UsageError("scout needs the pooled states of all layers, which only a fit of `features` computes")
    places = rows.sample("scout states", at_most)
    labels, mean = rows.labels[places], rows.pooled[places, :, POOLINGS.index("mean")].astype(np.float64)
    is_value = subject.kind.class_names is None
    n_classes = None if is_value else int(rows.labels.max()) + 1
    classes = grouped(labels.astype(np.float64), N_GROUPS) if is_value else labels.astype(np.int64)
    without_first = _without_first(rows, places)
    depths = range(mean.shape[1])
    return {
        "variability": np.array([variability(without_first[:, depth], classes) for depth in depths]),
        "h_score": np.array([h_score(mean[:, depth], classes) for depth in depths]),
        "logme": np.array([logme(mean[:, depth], labels, n_classes) for depth in depths]),
    }


def _without_first(rows: RowSource, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean states (rows, depths, width) over all tokens but the first, which encoders make a summary of the row."""
    assert rows.pooled is not None
    mean, first = (rows.pooled[places, :, POOLINGS.index(one)].astype(np.float64) for one in ("mean", "first"))
    lengths = rows.lengths[places][:, None, None]
    return np.where(lengths > 1, (mean * lengths - first) / np.maximum(lengths - 1, 1), mean)


def gradient_scores(subject: Subject) -> Arrays:
    """Scores of each layer from gradients of the loss with respect to its weights."""
    slope, rows = Slope.of(subject), subject.train
    norms = np.array([_norm(layer) for layer in slope.layers])
    batches = shuffled(rows, "scout batches", N_BATCHES * BATCH_SIZE, subject.seed)
    relative = [
        np.array([_norm(layer) for layer in slope.at(part)]) / norms
        for part in np.array_split(batches, N_BATCHES)
        if len(part)
    ]
    examples = shuffled(rows, "scout examples", FISHER_ROWS, subject.seed)
    noise, fisher = _by_example(slope.at(examples[[place]]) for place in range(len(examples)))
    return {"gradient_norm": np.mean(relative, axis=0), "signal_to_noise": noise, "fisher": fisher}


def shuffled(rows: RowSource, purpose: str, at_most: int, seed: int) -> NDArray[np.int64]:
    """Places of at most this many rows in random order, so that a part of them is a random sample too.

    A plain sample is in the order of the file, which may be sorted by label.
    """
    return np.random.default_rng(seed).permutation(rows.sample(purpose, at_most))


def _norm(tensors: Sequence[Tensor]) -> float:
    return float(torch.stack([tensor.detach().norm() for tensor in tensors]).norm())


@dataclass(frozen=True)
class Slope:
    """The loss of training rows under the fitted head, and its gradient with respect to the weights of each layer.

    Features that hardly vary are left out of the head; what they add on average is in the bias.
    """

    subject: Subject
    layers: list[list[Tensor]]
    reader: LinearReader
    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, subject: Subject) -> Slope:
        """Makes the weights of the layers, and no others, trainable."""
        stack, reader, pooled_states = subject.stack, subject.stack.reader, subject.train.pooled
        if not isinstance(reader, LinearReader) or pooled_states is None:
            raise UsageError("scout needs a head that is fitted in closed form, by the strategy `features`")
        features = pooled_states[:, reader.depths[0], int(reader.chosen[1])].astype(np.float64)
        spread = features.std(0)
        is_dead = spread < DEAD * np.median(spread)
        weight, bias = (p.detach().cpu().double().numpy() for p in (reader.linear.weight, reader.linear.bias))
        head = (np.where(is_dead, 0.0, weight), bias + weight[:, is_dead] @ features[:, is_dead].mean(0))
        by_layer = stack.structure.layer_parameters
        stack.apply(tuple(name for names in by_layer for name in names))
        parameters = dict(stack.model.named_parameters())
        layers = [[parameters[name] for name in names] for names in by_layer]
        return cls(subject, layers, reader, *(torch.from_numpy(one).to(reader.linear.weight) for one in head))

    def at(self, places: NDArray[np.int64]) -> list[list[Tensor]]:
        """The gradient of the mean loss of these training rows."""
        flat = [weight for layer in self.layers for weight in layer]
        with torch.enable_grad():
            loss = self._loss(places)
            found = iter(torch.autograd.grad(loss, flat, allow_unused=True, materialize_grads=True))
        return [[next(found) for _ in layer] for layer in self.layers]

    def _loss(self, places: NDArray[np.int64]) -> Tensor:
        batch = self.subject.train.batch(places)
        state = self.subject.stack.state_at(self.reader.depths[0], batch.inputs)
        features = pooled(state, batch.mask)[int(self.reader.chosen[1])]
        return self.subject.loss(functional.linear(features, self.weight, self.bias), batch.labels)


def _by_example(examples: Iterator[list[list[Tensor]]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Signal to noise and Fisher information of each layer, from the gradients of single rows.

    Means and squared deviations are updated row by row (Welford), because sums of squares lose the variance to
    rounding.
    """
    means: list[list[Tensor]] = []
    squares: list[list[Tensor]] = []
    noise = np.zeros(0)
    n_rows = 0
    for n_rows, found in enumerate(examples, start=1):
        if n_rows == 1:
            means = [[torch.zeros_like(g) for g in layer] for layer in found]
            squares = [[torch.zeros_like(g) for g in layer] for layer in found]
        for layer, mean_of, square_of in zip(found, means, squares, strict=True):
            for g, mean, square in zip(layer, mean_of, square_of, strict=True):
                before = g - mean
                mean += before / n_rows
                square += before * (g - mean)
        if n_rows == NOISE_ROWS:
            noise = _signal_to_noise(means, squares, n_rows)
    if n_rows < NOISE_ROWS:
        noise = _signal_to_noise(means, squares, n_rows)
    fisher = [
        sum(float((square / n_rows + mean.square()).double().sum()) for mean, square in zip(*layer, strict=True))
        for layer in zip(means, squares, strict=True)
    ]
    return noise, np.array(fisher)


def _signal_to_noise(
    means: Sequence[Sequence[Tensor]], squares: Sequence[Sequence[Tensor]], n_rows: int
) -> NDArray[np.float64]:
    """The mean over a layer's weights of mean(g)² / var(g), over rows."""
    return np.array([
        sum(
            float((mean.square() / (square / n_rows + _SMALLEST)).double().sum())
            for mean, square in zip(*layer, strict=True)
        ) / sum(mean.numel() for mean in layer[0])
        for layer in zip(means, squares, strict=True)
    ])  # fmt: skip
