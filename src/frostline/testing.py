"""Tiny models and toy tasks, for tests here and in other people's code.

A model is built in milliseconds and initialised wide: with the usual 0.02 a dropped mask would move its logits by less
than any tolerance, and no test of equality could fail (TRAPS 22).
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, BertConfig, GPT2Config, PreTrainedConfig, PreTrainedTokenizerFast, RobertaConfig

from frostline.stack.load import quiet

Family = Literal["bert", "roberta", "gpt2"]
FAMILIES: tuple[Family, ...] = ("bert", "roberta", "gpt2")

WORDS = ("good", "great", "fine", "bad", "poor", "dull", "a", "the", "film", "plot", "is", "was", "and", "not", "so")
POSITIVE = WORDS[:3]
NEGATIVE = WORDS[3:6]
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[END]")


def make_model(
    folder: Path,
    family: Family = "bert",
    *,
    n_layers: int = 2,
    dropout: float = 0.1,
    initializer_range: float = 0.5,
    seed: int = 0,
) -> Path:
    """A pretrained-looking model folder: random weights, a tokenizer of 20 words."""
    config = _config(family, n_layers, dropout, initializer_range)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        AutoModel.from_config(config).save_pretrained(folder)
    make_tokenizer(family).save_pretrained(folder)
    return folder


def make_tokenizer(family: Family = "bert") -> PreTrainedTokenizerFast:
    """A word-level tokenizer with the special tokens of a family."""
    inner = Tokenizer(WordLevel({word: number for number, word in enumerate((*_SPECIAL, *WORDS))}, unk_token="[UNK]"))
    inner.pre_tokenizer = WhitespaceSplit()
    if family == "gpt2":
        return PreTrainedTokenizerFast(
            tokenizer_object=inner,
            unk_token="[UNK]",
            eos_token="[END]",
            model_input_names=["input_ids", "attention_mask"],
        )
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1" if family == "bert" else "[CLS] $A [SEP] [SEP] $B [SEP]"
    inner.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair=pair, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    types = ["token_type_ids"] if family == "bert" else []
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", *types, "attention_mask"],
    )


def make_task(
    path: Path,
    *,
    n_rows: int = 64,
    kind: Literal["classification", "regression"] = "classification",
    is_pair: bool = False,
    seed: int = 0,
) -> Path:
    """A CSV whose label follows from one word of each text; texts of uneven length."""
    rng = np.random.default_rng(seed)
    fillers = WORDS[6:]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "text_pair", "label"] if is_pair else ["text", "label"])
        for number in range(n_rows):
            is_good = number % 2 == 0
            words = list(rng.choice(fillers, size=int(rng.integers(1, 9))))
            words.insert(int(rng.integers(len(words) + 1)), str(rng.choice(POSITIVE if is_good else NEGATIVE)))
            label = ("good" if is_good else "bad") if kind == "classification" else f"{1.0 if is_good else -1.0}"
            pair = [" ".join(rng.choice(fillers, size=int(rng.integers(1, 5))))] if is_pair else []
            writer.writerow([" ".join(words), *pair, label])
    return path


def _config(family: Family, n_layers: int, dropout: float, initializer_range: float) -> PreTrainedConfig:
    n_words = len(_SPECIAL) + len(WORDS)
    if family == "gpt2":
        return GPT2Config(
            vocab_size=n_words,
            n_positions=40,
            n_embd=8,
            n_layer=n_layers,
            n_head=2,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            bos_token_id=4,
            eos_token_id=4,
            initializer_range=initializer_range,
        )
    sizes = {
        "vocab_size": n_words,
        "hidden_size": 8,
        "num_hidden_layers": n_layers,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 42,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "initializer_range": initializer_range,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
    }
    return BertConfig(**sizes) if family == "bert" else RobertaConfig(**sizes, type_vocab_size=1)
