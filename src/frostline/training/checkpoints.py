"""Checkpoints, and their bytes: what travels between a worker and the driver, and what the store keeps.

Tensors are in the format of safetensors, everything else is JSON, and both are sealed with the key of the run
(`storage.sealed`). Nothing is unpickled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from frostline.errors import DataError
from frostline.storage.sealed import seal_bytes, unseal_bytes


@dataclass(frozen=True)
class Checkpoint:
    """Everything a paused run needs to go on to the same bits."""

    n_steps: int
    """steps done"""
    epochs: list[dict[str, Any]]
    """records of the finished epochs, as JSON"""
    losses: list[tuple[float, int]]
    """mean loss and number of rows of each step of the unfinished epoch"""
    seconds: float
    """spent on the unfinished epoch so far"""
    weights: list[Tensor]
    """all parameters that trained so far, in the optimizer's order"""
    optimizer: dict[int, dict[str, Tensor]]
    """what the optimizer remembers of each of them, by position; its settings follow from the spec"""
    generator: Tensor
    """state of the random generator that dropout draws from"""

    @property
    def epoch(self) -> int:
        """The unfinished epoch, counted from 1; a pause after its last step comes before it is scored."""
        return len(self.epochs) + 1

    @property
    def all_seconds(self) -> float:
        """Spent on all epochs so far."""
        return self.seconds + math.fsum(float(record["seconds"]) for record in self.epochs)


def to_bytes(checkpoint: Checkpoint, key: str) -> bytes:
    """The content of a checkpoint of the run with this key."""
    head = {
        "key": key,
        "n_steps": checkpoint.n_steps,
        "epochs": checkpoint.epochs,
        "seconds": checkpoint.seconds,
        "n_weights": len(checkpoint.weights),
    }
    return seal_bytes(head, save({name: tensor.contiguous() for name, tensor in _tensors(checkpoint)}))


def from_bytes(content: bytes | memoryview | None, key: str, until: int | None = None) -> Checkpoint | None:
    """The checkpoint to go on from; None where the run must start at its first step.

    That is the case without content, with content that is damaged or belongs to another run, and with a checkpoint
    beyond the next pause.
    """
    try:
        head, body = unseal_bytes(content or b"")
    except DataError:
        return None
    if head["key"] != key or (until is not None and head["n_steps"] > until):
        return None
    tensors = load(bytes(body))
    optimizer: dict[int, dict[str, Tensor]] = {}
    for name in tensors:
        if name.startswith("optimizer."):
            _, position, part = name.split(".", 2)
            optimizer.setdefault(int(position), {})[part] = tensors[name]
    losses, n_rows = tensors["losses"].tolist(), tensors["loss_rows"].tolist()
    return Checkpoint(
        n_steps=head["n_steps"],
        epochs=head["epochs"],
        losses=list(zip(losses, n_rows, strict=True)),
        seconds=head["seconds"],
        weights=[tensors[f"weight.{position}"] for position in range(head["n_weights"])],
        optimizer=optimizer,
        generator=tensors["generator"],
    )


def _tensors(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """Everything in a checkpoint whose bits count, by name."""
    yield "generator", checkpoint.generator
    # As tensors, because JSON has no infinity.
    yield "losses", torch.tensor([loss for loss, _ in checkpoint.losses], dtype=torch.float64)
    yield "loss_rows", torch.tensor([n_rows for _, n_rows in checkpoint.losses], dtype=torch.int64)
    for position, weight in enumerate(checkpoint.weights):
        yield f"weight.{position}", weight
    for position, state in checkpoint.optimizer.items():
        for part, tensor in state.items():
            yield f"optimizer.{position}.{part}", tensor
