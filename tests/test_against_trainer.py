"""The recipe is that of transformers' own Trainer: the same losses, step by step, full and frozen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DataCollatorWithPadding, Trainer, TrainerCallback, TrainingArguments

from families import matrix
from frostline import tasks
from frostline.model.load import load_model, load_tokenizer, quiet
from frostline.records.specs import RunSpec
from frostline.testing.models import Family, make_model, make_spec, make_task
from frostline.training.prepare import seed_for
from frostline.training.run import Runner
from losses import losses_of
from tiny import BASIC, TEETH

STRATEGIES, LAYOUTS = ("full", "freeze:1"), ("padded", "packed")


def _is_sample(family: Family, strategy: str, layout: str) -> bool:
    """Each strategy in each layout, on one of the families."""
    return family == BASIC[(2 * STRATEGIES.index(strategy) + LAYOUTS.index(layout)) % len(BASIC)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models, by family, without dropout, and a toy task."""
    folder = tmp_path_factory.mktemp("trainer")
    for family in BASIC:
        make_model(folder / family, family, dropout=0.0)
    make_task(folder / "task.csv", n_rows=80)
    return folder


class _LossLog(TrainerCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_log(self, *_: object, logs: dict[str, float], **__: object) -> None:
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))


def _trainer_losses(spec: RunSpec, trained: tuple[str, ...], folder: Path, **settings: Any) -> list[float]:
    """What the real Trainer logs for the same model, head, rows and recipe: one batch of all rows an epoch."""
    data = tasks.load(spec.task)
    tokenizer = load_tokenizer(spec.model)
    model = load_model(
        spec.model,
        head_seed=seed_for(spec, "head"),
        head=data.head,
        pad_token_id=tokenizer.pad_token_id,
    )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    rows = [
        {**tokenizer(text, truncation=True, max_length=spec.max_length), "labels": int(label)}
        for text, label in zip(data.train.texts, data.train.labels, strict=True)
    ]
    log = _LossLog()
    recipe = {
        "per_device_train_batch_size": len(rows), "num_train_epochs": spec.epochs, "weight_decay": 0.0,
        "learning_rate": spec.learning_rate, "warmup_steps": 0.1, "lr_scheduler_type": "linear", "max_grad_norm": 1.0,
        "logging_steps": 1, "save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]), quiet():
        trainer = Trainer(
            model=model,
            args=TrainingArguments(str(folder), **{**recipe, **settings}),
            train_dataset=rows,
            data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=[log],
        )
        trainer.train()
    return log.losses


@pytest.mark.parametrize(("family", "strategy", "layout"), matrix(BASIC, STRATEGIES, LAYOUTS, is_sample=_is_sample))
def test_the_recipe_is_trainers(family: Family, strategy: str, layout: str, folder: Path, tmp_path: Path) -> None:
    spec = make_spec(
        folder / family, folder / "task.csv", strategy=strategy, layout=layout, is_cached=strategy != "full",
        epochs=20, batch_size=1000, learning_rate=1e-2,
    )  # fmt: skip
    result = Runner().run(spec)
    ours = np.array([epoch.train_loss for epoch in result.epochs])
    theirs = np.array(_trainer_losses(spec, result.plan.phases[0].trained, tmp_path))
    assert [epoch.n_steps for epoch in result.epochs] == [1] * 20
    assert np.abs(ours - theirs).max() < 1e-4
    assert np.abs(np.diff(ours)).max() > TEETH


@pytest.mark.parametrize(
    "other",
    [
        {"warmup_steps": 0},
        {"max_grad_norm": 0.1, "optim": "sgd", "learning_rate": 1.0},
        pytest.param({"lr_scheduler_type": "constant_with_warmup"}, marks=pytest.mark.thorough),
        pytest.param({"weight_decay": 1.0}, marks=pytest.mark.thorough),
        pytest.param({"adam_beta2": 0.9}, marks=pytest.mark.thorough),
    ],
    ids=lambda other: next(iter(other)),
)
def test_twin_another_recipe_shows(other: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    spec = make_spec(
        folder / "bert", folder / "task.csv", strategy="freeze:1", epochs=20, batch_size=1000, learning_rate=1e-2
    )
    result = Runner().run(spec)
    theirs = _trainer_losses(spec, result.plan.phases[0].trained, tmp_path, **other)
    assert max(abs(ours - loss) for ours, loss in zip(losses_of(result), theirs, strict=True)) > 1e-3
