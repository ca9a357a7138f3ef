"""A step of everybody else's: Trainer with dynamic padding, the same bare, Trainer padded to 128."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from bench.trainer import frozen_model, make_trainer, tokenised
from bench.workload import BATCH, MODEL
from frostline.model.load import load_tokenizer
from frostline.tasks import TaskData

WAYS = {
    "trainer": "Trainer, padded to the batch's longest row",
    "bare": "a bare torch loop, padded likewise",
    "padded": "Trainer, padded to 128 (run_glue.py)",
}
"""The other ways to train a run."""

_WARM_UP = 2
_SCORED_AT_ONCE = 64

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Timed:
    """How fast a way is at one kind of run."""

    step_seconds: float
    """a step, on average"""
    dev_seconds: float
    """scoring dev once"""


def sampled_steps(way: str, n_steps: int) -> int:
    """How many steps of a way are timed: padded to one length they are all alike, and long."""
    return max(2, n_steps // 4) if way == "padded" else n_steps


def timed(way: str, data: TaskData, kind: str, n_steps: int, seed: int, *, model_name: str = MODEL) -> Timed:
    """How fast one way is at one kind of run, from so many steps after a few to warm up."""
    tokenizer = load_tokenizer(model_name)
    model = frozen_model(kind, data, tokenizer, head_seed=seed, name=model_name)
    padding: dict[str, Any] = {"padding": "max_length"} if way == "padded" else {}
    train, dev = (tokenised(part, tokenizer, **padding) for part in (data.train, data.dev))
    if way == "bare":
        return _bare(model, train, dev, DataCollatorWithPadding(tokenizer), n_steps, seed)
    return _trainer(model, train, dev, tokenizer, n_steps, seed)


class _Clock(TrainerCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: object, **__: object) -> None:
        self.ends.append(time.perf_counter())


def _trainer(
    model: PreTrainedModel, train: Rows, dev: Rows, tokenizer: PreTrainedTokenizerBase, n_steps: int, seed: int
) -> Timed:
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder:
        n_all = n_steps + _WARM_UP
        trainer = make_trainer(model, train, tokenizer, folder, max_steps=n_all, learning_rate=3e-5, seed=seed)
        trainer.add_callback(clock)
        trainer.train()
        return Timed(_mean_step(clock.ends), _seconds(lambda: trainer.predict(dev)))


def _bare(model: PreTrainedModel, train: Rows, dev: Rows, collate: Any, n_steps: int, seed: int) -> Timed:
    """What a plain torch loop does, nothing else: such batches, AdamW in one pass, clipping."""
    torch.manual_seed(seed)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-5, weight_decay=0.0, fused=True)
    model.train()
    batches = _endless(DataLoader(train, batch_size=BATCH, shuffle=True, collate_fn=collate))  # type: ignore[arg-type]
    ends = []
    for _ in range(n_steps + _WARM_UP):
        model(**next(batches)).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ends.append(time.perf_counter())
    model.eval()
    rows: DataLoader[Any] = DataLoader(dev, batch_size=_SCORED_AT_ONCE, collate_fn=collate)  # type: ignore[arg-type]

    def score() -> None:
        with torch.no_grad():
            for batch in rows:
                model(**batch)

    return Timed(_mean_step(ends), _seconds(score))


def _mean_step(ends: list[float]) -> float:
    """The mean over all steps after those to warm up: tokens differ from batch to batch, so no median."""
    return (ends[-1] - ends[_WARM_UP - 1]) / (len(ends) - _WARM_UP)


def _endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
