"""Tasks to serve: fine-tuned models that differ above a cut, their bundles, and what each of them answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from frostline import tasks
from frostline.kinds import CLASSIFICATION
from frostline.model.load import load_model, load_tokenizer, load_trained, quiet
from frostline.model.stack import Stack
from frostline.serving.bundle import open_bundle
from frostline.serving.bundles.folders import bundle_folder
from frostline.serving.engine import Engine
from frostline.serving.rows import Text
from frostline.serving.share import compute_ratio
from frostline.serving.tail import Tail, load_tail
from frostline.serving.trunk import load_trunk
from frostline.tasks import Rows
from frostline.training.batches import encode
from frostline.training.forward import Forward, predict
from frostline.training.prefix import Split

_NOISE = 0.1
"""How far weights above the cut are moved, in their own standard deviation."""
_MAX_LENGTH = 128


@dataclass(frozen=True)
class Setting:
    """A trunk, and how many of its layers the tasks share."""

    model: str
    n_layers: int
    n_frozen: int

    @property
    def text(self) -> str:
        """In words."""
        return f"{Path(self.model).name}, {self.n_frozen} of {self.n_layers} frozen"

    def bound(self, n_tasks: int) -> float:
        """How many times fewer layers are computed if tasks share the frozen ones."""
        return compute_ratio(n_tasks, self.n_layers, self.n_frozen)


@dataclass(frozen=True)
class BenchTask:
    """One task: as an ordinary model folder, and as a bundle."""

    name: str
    merged: Path
    bundle: Path


def sentences(data: str, at_most: int | None) -> list[Text]:
    """Texts of SST-2's dev set, in the order of the file."""
    rows = tasks.load(tasks.parse("sst2", data=data, max_train=100)).dev
    return [Text(text) for text in rows.texts[:at_most]]


def make_tasks(setting: Setting, n_tasks: int, folder: Path) -> list[BenchTask]:
    """Tasks whose layers above the cut are moved by a seed of their own, each with a head of its own."""
    made = []
    for seed in range(n_tasks):
        name = f"task-{seed:02}"
        merged = folder / "merged" / name
        _make_model(setting, seed, merged)
        bundle_folder(merged, setting.model, folder / "bundles" / name)
        made.append(BenchTask(name, merged, folder / "bundles" / name))
    return made


def _make_model(setting: Setting, seed: int, folder: Path) -> None:
    tokenizer = load_tokenizer(setting.model)
    tokenizer.model_max_length = _MAX_LENGTH
    head = CLASSIFICATION.head(("negative", "positive"))
    stack = Stack(load_model(setting.model, head_seed=seed, head=head, pad_token_id=tokenizer.pad_token_id))
    parameters = dict(stack.model.named_parameters())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name in stack.parameters_above(setting.n_frozen):
            weight = parameters[name]
            weight += _NOISE * weight.std(correction=0) * torch.randn(weight.shape, generator=generator)
    with quiet():
        stack.model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_engine(setting: Setting, made: Sequence[BenchTask]) -> Engine:
    """An engine with all tasks; each shares the frozen layers."""
    engine = Engine(load_trunk(setting.model))
    for task in made:
        tail = load_tail(engine.trunk, open_bundle(task.bundle))
        if tail.depth != setting.n_frozen:
            raise SystemExit(f"{task.name} shares {tail.depth} layers, not {setting.n_frozen}")
        engine.add(tail, task.name)
    return engine


def expected_outputs(task: BenchTask, tail: Tail, texts: Sequence[Text]) -> NDArray[np.float32]:
    """What the merged model of a task answers, as `frostline predict` computes it."""
    numbers = np.arange(len(texts))
    rows = Rows(ids=numbers, texts=[text.first for text in texts], pairs=None, labels=numbers)
    limits = tail.limits
    encoded = encode(
        rows, load_tokenizer(str(task.merged)), max_length=limits.max_length, pair_joiner=limits.pair_joiner
    )
    return predict(Forward(Stack(load_trained(task.merged))), Split(encoded))
