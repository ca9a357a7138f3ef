"""How many rows of a batch are computed together: all of them, unless memory would not suffice.

The parts of a batch are computed one after another and their gradients added up, so the numbers are those of whole
batches up to float noise; only dropout draws other numbers. The number of rows is chosen before any run, from the
longest rows of the data, an estimate of the memory of a step, and the memory of the machine. What is free at the moment
does not count, because two commands on one folder must choose the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from frostline.model.load import Pretrained
from frostline.records.environment import n_cores
from frostline.records.requests import StudyRequest
from frostline.records.specs import Layout
from frostline.training.memory import machine_bytes

_COPIES = 4
"""of each weight: itself, its gradient and the optimizer's two moments"""
_NUMBERS_PER_TOKEN = 30
"""of one layer, in widths. A layer keeps 17 of them for the backward pass; with temporary ones, the measured peaks of
MiniLM-L6 grow by 30"""
_NUMBERS_PER_PAIR = 3
"""kept by one attention head for two tokens of a row: scores, shares, and shares after dropout"""
_BYTES = 4
_MOST_SHARE = 0.7
"""of the machine's memory; the rest is for other programs, data, libraries and what the estimate leaves out"""


@final
@dataclass(frozen=True)
class ModelSize:
    """What the memory of a step depends on."""

    n_parameters: int
    n_layers: int
    width: int
    n_pair_heads: int
    """attention heads of a layer that keep numbers for each pair of tokens"""
    is_packed: bool
    """rows are computed without padding"""


def step_bytes(size: ModelSize, lengths: NDArray[np.int64]) -> int:
    """An estimate of the memory that one step on rows of these lengths takes, if all layers train."""
    computed = lengths if size.is_packed else np.full_like(lengths, lengths.max(initial=0))
    n_tokens, n_pairs = int(computed.sum()), int((computed**2).sum())
    per_layer = n_tokens * _NUMBERS_PER_TOKEN * size.width + n_pairs * _NUMBERS_PER_PAIR * size.n_pair_heads
    return _BYTES * (_COPIES * size.n_parameters + size.n_layers * per_layer)


def rows_together(size: ModelSize, lengths: NDArray[np.int64], batch_size: int, memory: int | None) -> int | None:
    """How many rows of a batch fit into memory, halved until they do; None if all of them do.

    Args:
        size: of the model.
        lengths: tokens of the training rows; the worst batch holds the longest of them.
        batch_size: rows of a batch.
        memory: bytes for one run; None if the system does not say it.
    """
    if memory is None or not size.width:
        return None
    longest = np.sort(lengths)[::-1][:batch_size]
    n_rows = len(longest)
    while n_rows > 1 and step_bytes(size, longest[:n_rows]) > _MOST_SHARE * memory:
        n_rows = (n_rows + 1) // 2
    return None if n_rows == len(longest) else n_rows


def rows_at_once(
    request: StudyRequest, pretrained: Pretrained, lengths: NDArray[np.int64], device: str, layout: Layout
) -> tuple[int | None, str | None]:
    """How many rows of a batch are computed together (None: all), and why not all, if memory decides that."""
    if request.micro_batch_size is not None:
        return (request.micro_batch_size if request.micro_batch_size < request.batch_size else None), None
    size = ModelSize(
        n_parameters=pretrained.n_parameters,
        n_layers=pretrained.n_layers,
        width=pretrained.width,
        n_pair_heads=pretrained.n_pair_heads,
        is_packed=layout in ("packed", "varlen"),
    )
    n_runs = max(1, n_cores() // request.threads) if device == "cpu" else 1
    memory = machine_bytes(device)
    memory = None if memory is None else memory // n_runs
    n_together = rows_together(size, lengths, request.batch_size, memory)
    if n_together is None or memory is None:
        return None, None
    wanted = step_bytes(size, np.sort(lengths)[-request.batch_size :]) / 2**30
    has = f"this machine has {memory / 2**30:.1f} GB for each of {n_runs} runs"
    return n_together, f"{request.batch_size} at once would take about {wanted:.1f} GB, and {has}"
