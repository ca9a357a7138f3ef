"""`transformers.Trainer` as the benches use it: the demo's model, SST-2 rows, our recipe."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments

from frostline.tasks import Rows

MODEL = "all-MiniLM-L6-v2"
BATCH = 16
MAX_LENGTH = 128


def tokenised(rows: Rows, tokenizer: PreTrainedTokenizerBase, **options: Any) -> list[dict[str, Any]]:
    """The rows as Trainer takes them."""
    return [
        {**tokenizer(text, truncation=True, max_length=MAX_LENGTH, **options), "labels": int(label)}
        for text, label in zip(rows.texts, rows.labels, strict=True)
    ]


def make_trainer(
    model: PreTrainedModel,
    train: list[dict[str, Any]],
    tokenizer: PreTrainedTokenizerBase,
    folder: str,
    **settings: Any,
) -> Trainer:
    """A Trainer that pads each batch to its longest row, and neither saves nor reports."""
    return Trainer(
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
