"""`transformers.Trainer` as the benches use it: the demo's model, SST-2 rows, our recipe."""

from __future__ import annotations

import math
import tempfile
from typing import Any

import numpy as np
import torch
from transformers import (
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

from bench.workload import BATCH, FULL, MODEL
from frostline.model.load import load_model, load_tokenizer
from frostline.model.stack import Stack
from frostline.saving.freeze import freeze
from frostline.tasks import Rows, TaskData

MAX_LENGTH = 128


def tokenised(rows: Rows, tokenizer: PreTrainedTokenizerBase, **options: Any) -> list[dict[str, Any]]:
    """The rows as Trainer takes them."""
    texts = [(text,) for text in rows.texts] if rows.pairs is None else list(zip(rows.texts, rows.pairs, strict=True))
    return [
        {**tokenizer(*text, truncation=True, max_length=MAX_LENGTH, **options), "labels": int(label)}
        for text, label in zip(texts, rows.labels, strict=True)
    ]


def frozen_model(
    kind: str,
    data: TaskData,
    tokenizer: PreTrainedTokenizerBase,
    head_seed: int,
    *,
    in_eval: bool = False,
    name: str = MODEL,
) -> PreTrainedModel:
    """The pretrained model with a new head; what a kind of run does not train has no gradient, and may stay in eval."""
    model = load_model(name, head_seed=head_seed, head=data.head, pad_token_id=tokenizer.pad_token_id)
    depth = kind.removeprefix("freeze:")
    if in_eval:
        freeze(model, int(depth))
        return model
    stack = Stack(model)
    stack.apply(stack.all_parameters if kind == FULL else stack.parameters_above(int(depth)))
    return model


def make_trainer(
    model: PreTrainedModel,
    train: list[dict[str, Any]],
    tokenizer: PreTrainedTokenizerBase,
    folder: str,
    **settings: Any,
) -> Trainer:
    """A Trainer that pads each batch to its longest row, and neither saves, reports nor prints."""
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=64,
            weight_decay=0.0,
            lr_scheduler_type="linear",
            max_grad_norm=1.0,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            **settings,
        ),
        train_dataset=train,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def trained_score(
    kind: str, data: TaskData, *, epochs: int, rate: float, seed: int, head_seed: int, in_eval: bool = False
) -> float:
    """The accuracy on dev after a whole run of Trainer."""
    tokenizer = load_tokenizer(MODEL)
    model = frozen_model(kind, data, tokenizer, head_seed, in_eval=in_eval)
    train, dev = (tokenised(part, tokenizer) for part in (data.train, data.dev))
    n_steps = epochs * math.ceil(len(train) / BATCH)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(
            model,
            train,
            tokenizer,
            folder,
            num_train_epochs=epochs,
            learning_rate=rate,
            warmup_steps=math.ceil(0.1 * n_steps),
            seed=seed,
        )
        trainer.train()
        outputs = trainer.predict(dev).predictions
    return float(np.mean(np.argmax(outputs, axis=1) == data.dev.labels))
