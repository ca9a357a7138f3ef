"""Rows and batches for tiny models, and how far two tensors are apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.kinds import CLASSIFICATION, REGRESSION
from frostline.model.stack import Stack
from frostline.records.specs import RunSpec, TaskSpec
from frostline.testing.models import Family, make_rows, make_stack, make_tokenizer, pad_token_of
from frostline.training.batches import Batch, Encoded, encode, make_batch
from frostline.training.forward import Forward
from frostline.training.loop import Descent, Training
from frostline.training.prefix import Split

# As in a run: over tiny models several threads only wait for each other.
torch.set_num_threads(1)

BASIC: tuple[Family, ...] = ("bert", "roberta", "gpt2")
"""One family of each kind, for tests that go deep; `test_families` has them all."""

PACKED: tuple[Family, ...] = (
    "bert", "roberta", "xlm-roberta", "electra", "distilbert", "modernbert", "gpt2", "opt", "gpt_neox", "llama",
    "qwen2", "qwen3",
)  # fmt: skip
"""The families whose attention goes through transformers' interface: they are packed."""

OWN_ATTENTION: tuple[Family, ...] = ("mpnet", "deberta-v2", "deberta-v3", "xlnet")
"""The others: all but attention goes without padding."""

STEPS = RunSpec(
    model="tiny",
    model_fingerprint="m",
    task=TaskSpec(name="toy", source=None, data=None, dev=None),
    data_fingerprint="d",
    strategy="freeze:1",
    learning_rate=1e-2,
    epochs=2,
    batch_size=8,
    seed=0,
    is_cached=True,
    optimizer="sgd",
)
"""A run of plain SGD steps over rows that a test holds itself."""

TEETH = 1e-2
"""What is broken on purpose must move something by more than this."""


@dataclass(frozen=True)
class Case:
    """A kind of model and of rows."""

    family: Family
    is_pair: bool = False
    n_outputs: int = 2
    side: Literal["left", "right"] = "right"

    def __str__(self) -> str:
        texts = "pairs" if self.is_pair else "texts"
        return f"{self.family}-{texts}-{self.n_outputs}-{self.side}"

    def stack(self, *, n_layers: int = 2, dropout: float = 0.1) -> Stack:
        """The model, in eval."""
        stack = make_stack(self.family, n_layers=n_layers, n_outputs=self.n_outputs, dropout=dropout)
        stack.eval()
        return stack

    def encoded(self, n_rows: int = 8, *, seed: int = 0) -> Encoded:
        """Rows of uneven length."""
        kind = "regression" if self.n_outputs == 1 else "classification"
        rows = make_rows(n_rows=n_rows, kind=kind, is_pair=self.is_pair, seed=seed)
        tokenizer = make_tokenizer(self.family)
        tokenizer.padding_side = self.side
        pad_token_of(tokenizer)
        joiner = None if tokenizer.sep_token else "\n"
        return encode(rows, tokenizer, max_length=32, pair_joiner=joiner)

    def batch(self, n_rows: int = 8, *, seed: int = 0) -> Batch:
        """The same rows in one batch."""
        encoded = self.encoded(n_rows, seed=seed)
        assert len(set(encoded.lengths)) > 2
        return make_batch(encoded, np.arange(n_rows))


CASES = (
    Case("bert"),
    Case("bert", is_pair=True),
    Case("bert", n_outputs=1),
    Case("roberta"),
    Case("roberta", is_pair=True),
    Case("roberta", n_outputs=1),
    Case("gpt2"),
    Case("gpt2", is_pair=True),
    Case("gpt2", n_outputs=1),
    Case("gpt2", side="left"),
    Case("gpt2", is_pair=True, side="left"),
)


def distance(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference."""
    assert one.shape == other.shape
    return float((one.detach() - other.detach()).abs().max())


def step_losses(stack: Stack, depth: int, spec: RunSpec, split: Split) -> NDArray[np.float64]:
    """The loss of every step of training above a depth."""
    stack.apply(stack.parameters_above(depth))
    training = Training(
        spec=spec,
        forward=Forward(stack, depth, spec.layout),
        train=split,
        dev=split,
        kind=REGRESSION if stack.model.config.num_labels == 1 else CLASSIFICATION,
        metric_names=("accuracy",),
        order_seed=0,
        on_epoch=lambda _: None,
    )
    losses: list[float] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        descent = Descent(training)
        for epoch in range(1, spec.epochs + 1):
            stack.train()
            losses += [float(descent.step(batch)) for batch in descent.batches(epoch)]
    return np.array(losses)
