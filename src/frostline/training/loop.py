"""**The** training loop: every strategy trains here and nowhere else.

A run may pause after any step and go on later, in another process, to the same bits. A `Checkpoint` therefore holds
everything the next step depends on: weights, optimizer state, the random generator that dropout draws from, and the
losses of the unfinished epoch. The batches of an epoch follow from a seed, so their position is the number of losses.
"""

from __future__ import annotations

import functools
import itertools
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

from frostline.errors import FrostlineError
from frostline.kinds import Kind, Labels, imported
from frostline.records.results import EpochRecord, Probe
from frostline.records.specs import RunSpec
from frostline.training.batches import Batch, make_batch, n_steps, training_batches
from frostline.training.checkpoints import Checkpoint
from frostline.training.forward import DivergedError, Forward, predict
from frostline.training.prefix import Split

DEV_SAMPLE = 300
"""Size of the fixed dev sample that a paused run is scored on."""


@dataclass(frozen=True)
class Training:
    """What the loop trains, on which rows, and who hears about each epoch."""

    spec: RunSpec
    forward: Forward
    train: Split
    dev: Split
    kind: Kind
    metric_names: Sequence[str]
    order_seed: int
    on_epoch: Callable[[EpochRecord], None]

    @functools.cached_property
    def label_scale(self) -> tuple[float, float] | None:
        """Mean and spread of the training labels, if the model learns standardised ones."""
        if not self.spec.standardised:
            return None
        return float(self.train.labels.mean()), float(self.train.labels.std()) or 1.0

    def predict(self, split: Split) -> NDArray[np.float32]:
        """The model's outputs for a split, on the scale of the labels."""
        outputs = predict(self.forward, split)
        if self.label_scale is None:
            return outputs
        mean, spread = self.label_scale
        return (outputs.astype(np.float64) * spread + mean).astype(np.float32)

    @property
    def dev_sample(self) -> Split:
        """The rows a paused run is scored on: scoring all of dev would take longer than the steps between pauses."""
        return self.dev.sample("dev sample", DEV_SAMPLE)


@dataclass(frozen=True)
class Trained:
    """The outcome of training to the end."""

    epochs: list[EpochRecord]
    outputs: NDArray[np.float32]
    """the model's outputs for dev after the last epoch (rows, classes)"""
    train_outputs: NDArray[np.float32] | None = None
    """outputs for all training rows, where they are known without asking the model"""
    probes: tuple[Probe, ...] = ()
    """for a closed-form fit, the best probe of every layer"""
    is_diverged: bool = False
    """the outputs are those of the best constant answer"""


@dataclass(frozen=True)
class PausedTraining:
    """The outcome of training up to a pause."""

    checkpoint: Checkpoint
    outputs: NDArray[np.float32]
    """the model's outputs for the dev sample at that moment"""


def train(
    training: Training, descent: Descent, last_epoch: int, *, start: Checkpoint | None = None, until: int | None = None
) -> NDArray[np.float32] | PausedTraining:
    """Trains up to an epoch and scores dev after each; returns the last dev outputs, or the pause.

    Args:
        training: what trains, on which rows.
        descent: the optimizer; it goes on from its last step and keeps the epoch records.
        last_epoch: the last epoch to train, counted from 1 over the whole run.
        start: a checkpoint whose unfinished epoch is at most `last_epoch`.
        until: pause after this many steps, counted over the whole run; None: do not pause.
    """
    spec, stack = training.spec, training.forward.stack
    losses: list[tuple[Tensor | float, int]] = list(start.losses) if start else []
    spent = start.seconds if start else 0.0
    outputs: NDArray[np.float32] | None = None
    if start:
        descent.resume(start)
    for epoch in range(len(descent.epochs) + 1, last_epoch + 1):
        began = time.perf_counter() - spent
        stack.train(frozen_dropout=spec.frozen_dropout)
        for batch in itertools.islice(descent.batches(epoch), len(losses), None):
            if descent.n_done == until or descent.is_over:
                break
            losses.append((descent.step(batch), len(batch.positions)))
        if descent.n_done == until:  # before the epoch is scored, if this was its last step
            checkpoint = descent.checkpoint(losses, time.perf_counter() - began)
            return PausedTraining(checkpoint, training.predict(training.dev_sample))
        mean_loss = _mean_loss(losses, epoch)
        outputs = training.predict(training.dev)
        record = EpochRecord(
            epoch=epoch,
            train_loss=mean_loss,
            metrics=scores(training.kind, training.metric_names, training.dev.labels, outputs),
            learning_rate=descent.rate,
            n_steps=len(losses),
            seconds=time.perf_counter() - began,
        )
        training.on_epoch(record)
        descent.epochs.append(record)
        losses, spent = [], 0.0
    assert outputs is not None, "there is at least one epoch to train"
    return outputs


def diverged(training: Training, epochs: Sequence[EpochRecord], n_classes: int) -> Trained:
    """The outcome of a run that diverged after these epochs: it has failed, and answers with the best constant."""
    kind, names, labels = training.kind, training.metric_names, training.dev.labels
    constant = kind.best_constant(names[0], labels)
    outputs, of_train = (
        kind.constant_outputs(constant, n_rows, n_classes) for n_rows in (len(labels), len(training.train))
    )
    record = EpochRecord(
        epoch=len(epochs) + 1,
        train_loss=None,
        metrics=scores(kind, names, labels, outputs),
        learning_rate=0.0,
        n_steps=0,
        seconds=0.0,
    )
    training.on_epoch(record)
    return Trained([*epochs, record], outputs, of_train, is_diverged=True)


def scores(kind: Kind, names: Sequence[str], labels: Labels, outputs: NDArray[np.float32]) -> dict[str, float]:
    """Each named metric of these outputs."""
    return {name: kind.score(name, labels, outputs) for name in names}


class Descent:
    """The optimizer with its schedule: one step per batch; the learning rate rises, then falls."""

    def __init__(self, training: Training) -> None:
        spec = training.spec
        self._training = training
        self._n_steps = n_steps(spec, len(training.train))
        self.n_done = 0
        """steps so far"""
        self.epochs: list[EpochRecord] = []
        """records of the finished epochs"""
        self._loss = loss_of(training.kind)
        self._parameters = _trainable(training)
        self._optimizer = _optimizer(spec, self._parameters)

    def go_on_with(self, training: Training) -> None:
        """Moves to the next phase: its parameters train from here on; those that trained before keep their moments."""
        self._training = training
        self._parameters = _trainable(training)
        known = {id(parameter) for parameter in self._all_parameters}
        if new := [parameter for parameter in self._parameters if id(parameter) not in known]:
            self._optimizer.add_param_group({"params": new})

    @property
    def _all_parameters(self) -> list[torch.nn.Parameter]:
        """All parameters that trained in this phase or an earlier one, in the optimizer's order."""
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]

    @property
    def is_over(self) -> bool:
        """Whether all steps are done."""
        return self.n_done == self._n_steps

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        spec = self._training.spec
        return spec.learning_rate * _rate_share(self.n_done, self._n_steps, spec.warmup_share)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch, pass after pass: each is the epoch it would be if dev were scored after it."""
        training = self._training
        split, size, n_passes = training.train, training.spec.batch_size, training.spec.passes
        for number in range((epoch - 1) * n_passes + 1, epoch * n_passes + 1):
            yield from training_batches(
                split.encoded, size, seed=training.order_seed, epoch=number, positions=split.positions
            )

    def step(self, batch: Batch) -> Tensor:
        """Forward, backward, clip, update; the batch's mean loss."""
        training = self._training
        n_together = training.spec.micro_batch_size or len(batch.positions)
        if n_together >= len(batch.positions):
            loss = self._mean_loss(batch)
            loss.backward()
        else:
            loss = torch.zeros(())
            for start in range(0, len(batch.positions), n_together):
                some = make_batch(training.train.encoded, batch.positions[start : start + n_together])
                part = self._mean_loss(some) * (len(some.positions) / len(batch.positions))
                part.backward()  # gradients add up, and each part leaves its activations behind
                loss = loss + part.detach().cpu()
        self._clip(training.spec.clip_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = self.rate
        self._optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None
        self.n_done += 1
        return loss.detach()

    def _mean_loss(self, batch: Batch) -> Tensor:
        training = self._training
        labels, scale = batch.labels, training.label_scale
        wanted = labels if scale is None else (labels - scale[0]) / scale[1]
        return self._loss(training.forward.logits(batch, training.train), wanted)

    def _clip(self, most: float) -> None:
        """Clips the gradient norm as torch does, but does not multiply short gradients by 1."""
        norm = get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        is_long = float(norm) > most - 1e-6
        if isinstance(self._optimizer, AdamW):
            # The fused optimizer scales gradients while it reads them, which saves one pass over all of them.
            self._optimizer.grad_scale = (norm + 1e-6) / most if is_long else None  # type: ignore[attr-defined]
        elif is_long:
            clip_grads_with_norm_(self._parameters, most, norm)

    def checkpoint(self, losses: Sequence[tuple[Tensor | float, int]], seconds: float) -> Checkpoint:
        """The state after the last step, with the losses and the time of the unfinished epoch."""
        return Checkpoint(
            n_steps=self.n_done,
            epochs=[record.to_json() for record in self.epochs],
            losses=[(float(loss), n_rows) for loss, n_rows in losses],
            seconds=seconds,
            weights=[parameter.detach().cpu() for parameter in self._all_parameters],
            optimizer=self._optimizer.state_dict()["state"],
            generator=_generator_state(self._parameters[0].device),
        )

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restores a checkpoint. All phases up to the checkpoint's must have been entered, in order."""
        self.n_done = checkpoint.n_steps
        self.epochs = [EpochRecord.from_json(record) for record in checkpoint.epochs]
        parameters = self._all_parameters
        with torch.no_grad():
            for parameter, weight in zip(parameters, checkpoint.weights, strict=True):
                parameter.copy_(weight)
        state = {
            number: {part: _laid_out_like(parameters[number], tensor) for part, tensor in parts.items()}
            for number, parts in checkpoint.optimizer.items()
        }
        settings = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state, "param_groups": settings})
        _set_generator_state(self._parameters[0].device, checkpoint.generator)


def _trainable(training: Training) -> list[torch.nn.Parameter]:
    return [parameter for parameter in training.forward.stack.model.parameters() if parameter.requires_grad]


def _laid_out_like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """The tensor with the strides of its parameter: the fused optimizer walks over the memory of both in one order."""
    if tensor.shape != parameter.shape or tensor.stride() == parameter.stride():
        return tensor
    return torch.empty_like(parameter).copy_(tensor)


def _generator_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_generator_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def _mean_loss(losses: Sequence[tuple[Tensor | float, int]], epoch: int) -> float:
    n_rows = sum(rows for _, rows in losses)
    mean = sum(float(loss) * rows for loss, rows in losses) / n_rows
    if not math.isfinite(mean):
        raise DivergedError(f"the training loss became {mean} in epoch {epoch}; try a lower learning rate")
    return mean


Loss = Callable[[Tensor, Tensor], Tensor]
"""Logits (rows, outputs) and labels (rows,) → the mean loss."""


def loss_of(kind: Kind) -> Loss:
    """The loss of a kind of task, from its import path."""
    function: Loss = imported(kind.torch_loss)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        # Values are converted before they move: not every device has double precision.
        given = labels.to(logits.dtype) if labels.is_floating_point() else labels
        return function(logits, given.to(logits.device))

    return loss


def squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean squared error of (rows, 1) against (rows,), and of no other shapes: they would broadcast (TRAPS 17)."""
    if logits.shape != (len(labels), 1):
        raise FrostlineError(f"regression needs one output per row; the model gives {tuple(logits.shape)}")
    return functional.mse_loss(logits[:, 0], labels)


def _optimizer(spec: RunSpec, parameters: list[torch.nn.Parameter]) -> Optimizer:
    if spec.optimizer == "sgd":
        return SGD(parameters, lr=spec.learning_rate, weight_decay=spec.weight_decay)
    # Fused: one pass over memory. The plain optimizer takes a quarter of a full step on a CPU.
    return AdamW(parameters, lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True)


def _rate_share(step: int, n_steps: int, warmup_share: float) -> float:
    """Share of the peak rate at a step: a linear rise over the warm-up, then a linear fall to 0."""
    n_warmup = math.ceil(n_steps * warmup_share)
    if step < n_warmup:
        return step / n_warmup
    return max(0.0, (n_steps - step) / max(1, n_steps - n_warmup))
