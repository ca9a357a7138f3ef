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

from frostline.errors import UsageError
from frostline.measures.measure import Arrays, Measure, RowSource, Subject, read_numbers, written
from frostline.measures.separation import grouped, h_score, logme, variability
from frostline.model.added.readers import POOLINGS
from frostline.model.stack import Stack

ROWS = 1000
"""Most training rows whose states are scored, unless asked."""
N_BATCHES, BATCH_SIZE = 5, 16
"""of the relative gradient norm"""
NOISE_ROWS, FISHER_ROWS = 64, 100
"""rows with gradients of their own"""
N_GROUPS = 5
"""of number labels, for scores of classes"""
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
    stack, rows = subject.stack, subject.train
    layers = layer_weights(stack)
    norms = [torch.stack([weight.detach().norm() for weight in layer]).norm() for layer in layers]
    stack.eval()
    batches = rows.sample("scout batches", N_BATCHES * BATCH_SIZE)
    shuffled = np.random.default_rng(subject.seed).permutation(batches)
    relative = [
        [
            float(torch.stack([g.norm() for g in of_layer]).norm() / norm)
            for of_layer, norm in zip(found, norms, strict=True)
        ]
        for found in (gradients(subject, layers, part) for part in np.array_split(shuffled, N_BATCHES) if len(part))
    ]
    examples = rows.sample("scout examples", FISHER_ROWS)
    noise, fisher = _by_example(gradients(subject, layers, examples[[at]]) for at in range(len(examples)))
    return {"gradient_norm": np.mean(relative, axis=0), "signal_to_noise": noise, "fisher": fisher}


def layer_weights(stack: Stack) -> list[list[Tensor]]:
    """The parameters of each layer; from here on they alone get gradients."""
    by_layer = stack.structure.layer_parameters
    stack.apply(tuple(name for names in by_layer for name in names))
    parameters = dict(stack.model.named_parameters())
    return [[parameters[name] for name in names] for names in by_layer]


def gradients(subject: Subject, layers: Sequence[Sequence[Tensor]], places: NDArray[np.int64]) -> list[list[Tensor]]:
    """The gradient of the mean loss of these training rows with respect to each layer's weights."""
    flat = [weight for layer in layers for weight in layer]
    with torch.enable_grad():
        loss = subject.mean_loss(subject.train.batch(places))
        found = iter(torch.autograd.grad(loss, flat, allow_unused=True, materialize_grads=True))
    return [[next(found) for _ in layer] for layer in layers]


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
