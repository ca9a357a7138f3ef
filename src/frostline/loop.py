"""**The** loop: every strategy trains here and nowhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import SGD, AdamW, Optimizer

from frostline.batches import Batch, training_batches
from frostline.errors import EXIT_CRASHED_RUNS, FrostlineError
from frostline.evaluate import predict, scores
from frostline.forward import Forward
from frostline.prefix import Split
from frostline.records import EpochRecord, Phase, RunSpec


class DivergedError(FrostlineError):
    """The training loss is no longer a number."""

    exit_code = EXIT_CRASHED_RUNS


@dataclass(frozen=True)
class Training:
    """What the loop works on."""

    spec: RunSpec
    forward: Forward
    train: Split
    dev: Split
    metric_names: Sequence[str]
    order_seed: int
    on_epoch: Callable[[EpochRecord], None]


@dataclass(frozen=True)
class Trained:
    """What came out of the loop."""

    epochs: list[EpochRecord]
    outputs: NDArray[np.float32]
    """the model's outputs for dev after the last epoch (rows, classes)"""


def train(training: Training, phase: Phase) -> Trained:
    """Trains one phase and scores dev after each of its epochs."""
    spec, stack = training.spec, training.forward.stack
    n_epochs = spec.epochs if phase.epochs is None else phase.epochs
    descent = Descent(training, n_epochs)
    epochs: list[EpochRecord] = []
    for epoch in range(1, n_epochs + 1):
        began = time.perf_counter()
        stack.train(frozen_dropout=spec.frozen_dropout)
        losses = [(descent.step(batch), len(batch.positions)) for batch in descent.batches(epoch)]
        mean_loss = _mean_loss(losses, epoch)
        outputs = predict(training.forward, training.dev)
        record = EpochRecord(
            epoch=epoch,
            train_loss=mean_loss,
            metrics=scores(training.metric_names, training.dev.encoded.labels, outputs),
            learning_rate=descent.rate,
            n_steps=len(losses),
            seconds=time.perf_counter() - began,
        )
        training.on_epoch(record)
        epochs.append(record)
    return Trained(epochs, outputs)


class Descent:
    """The optimizer's way down: one step a batch, over parameters that may train, at a rate that rises and falls."""

    def __init__(self, training: Training, n_epochs: int) -> None:
        spec = training.spec
        self._training = training
        self._n_steps = n_epochs * math.ceil(len(training.train.encoded) / spec.batch_size)
        self._n_done = 0
        self._parameters = [p for p in training.forward.stack.model.parameters() if p.requires_grad]
        self._optimizer = _optimizer(spec, self._parameters)

    @property
    def rate(self) -> float:
        """The rate of the next step."""
        spec = self._training.spec
        return spec.learning_rate * _rate_share(self._n_done, self._n_steps, spec.warmup_share)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """An epoch's batches."""
        training = self._training
        encoded, size = training.train.encoded, training.spec.batch_size
        return training_batches(encoded, size, seed=training.order_seed, epoch=epoch)

    def step(self, batch: Batch) -> Tensor:
        """Forward, backward, clip, update; the batch's mean loss."""
        training = self._training
        loss = loss_of(training.forward.logits(batch, training.train), batch.labels)
        loss.backward()
        _clip(self._parameters, training.spec.clip_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = self.rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._n_done += 1
        return loss.detach()


def _clip(parameters: list[torch.nn.Parameter], most: float) -> None:
    """As the library clips, but gradients that are short enough are not multiplied by 1."""
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
    if norm > most - 1e-6:
        clip_grads_with_norm_(parameters, most, norm)


def _mean_loss(losses: list[tuple[Tensor, int]], epoch: int) -> float:
    n_rows = sum(rows for _, rows in losses)
    mean = sum(float(loss) * rows for loss, rows in losses) / n_rows
    if not math.isfinite(mean):
        raise DivergedError(f"the training loss became {mean} in epoch {epoch}; try a lower learning rate")
    return mean


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy for class numbers, mean squared error for values; strict about shapes (TRAPS 17)."""
    if labels.dtype == torch.int64:
        return functional.cross_entropy(logits, labels.to(logits.device))
    if logits.shape != (len(labels), 1):
        raise FrostlineError(f"regression wants one output a row; the model gives {tuple(logits.shape)}")
    return functional.mse_loss(logits[:, 0], labels.to(logits.dtype).to(logits.device))


def _optimizer(spec: RunSpec, parameters: list[torch.nn.Parameter]) -> Optimizer:
    if spec.optimizer == "sgd":
        return SGD(parameters, lr=spec.learning_rate, weight_decay=spec.weight_decay)
    # Fused: one pass over memory; the plain one takes a quarter of a full step on a CPU.
    return AdamW(parameters, lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True)


def _rate_share(step: int, n_steps: int, warmup_share: float) -> float:
    """Share of the peak rate at a step: a linear rise over the warm-up, then a linear fall to 0."""
    n_warmup = math.ceil(n_steps * warmup_share)
    if step < n_warmup:
        return step / n_warmup
    return max(0.0, (n_steps - step) / max(1, n_steps - n_warmup))
