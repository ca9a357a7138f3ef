"""Tiny models and toy tasks, for our tests and for tests in other projects.

A model is built in milliseconds. Its weights are initialised with a large standard deviation: with the usual 0.02, a
forgotten mask would change the logits by less than any tolerance, and no equality test could fail (TRAPS 22).
"""

from __future__ import annotations

import csv
import typing
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
)

from frostline import tasks
from frostline.kinds import Labels, kind_named
from frostline.model.load import describe, quiet
from frostline.model.stack import Stack
from frostline.records.specs import RunSpec
from frostline.tasks import Rows

Family = Literal[
    "bert", "roberta", "xlm-roberta", "electra", "distilbert", "mpnet", "deberta-v2", "deberta-v3", "modernbert",
    "xlnet", "gpt2", "opt", "gpt_neox", "llama", "qwen2", "qwen3",
]  # fmt: skip
FAMILIES: tuple[Family, ...] = typing.get_args(Family)

WORDS = ("good", "great", "fine", "bad", "poor", "dull", "a", "the", "film", "plot", "is", "was", "and", "not", "so")
POSITIVE = WORDS[:3]
NEGATIVE = WORDS[3:6]
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_END = "[END]"
_VOCABULARY = (*_SPECIAL, *WORDS, _END)


def make_model(
    folder: Path,
    family: Family = "bert",
    *,
    n_layers: int = 2,
    dropout: float = 0.1,
    initializer_range: float = 0.5,
    seed: int = 0,
) -> Path:
    """A model folder as for a pretrained model, with random weights and a tokenizer of 20 words."""
    config = _config(family, n_layers, dropout, initializer_range)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        model = AutoModel.from_config(config)
        _draw_all(model)
        model.save_pretrained(folder)
    make_tokenizer(family).save_pretrained(folder)
    return folder


class _Template(NamedTuple):
    """Where a family's tokenizer puts special tokens; a number after a colon is the token type."""

    single: str
    pair: str
    has_types: bool = False


_DECODERS = ("gpt2", "opt", "gpt_neox", "llama", "qwen2", "qwen3")
_BERT = _Template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", has_types=True)
_NO_TYPES = _Template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]")
_ROBERTA = _Template("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]")
_XLNET = _Template("$A [SEP] [CLS]:2", "$A [SEP] $B:1 [SEP]:1 [CLS]:2", has_types=True)
_TEMPLATES: dict[Family, _Template] = {
    "bert": _BERT, "electra": _BERT, "deberta-v2": _BERT, "deberta-v3": _BERT, "distilbert": _NO_TYPES,
    "modernbert": _NO_TYPES, "roberta": _ROBERTA, "xlm-roberta": _ROBERTA, "mpnet": _ROBERTA, "xlnet": _XLNET,
}  # fmt: skip


def make_tokenizer(family: Family = "bert") -> PreTrainedTokenizerFast:
    """A word-level tokenizer with the special tokens of a family; decoders have only an end token."""
    if family == "qwen2":  # the library loads the folder as this class, whatever class was saved
        vocabulary, merges = _pieces()
        return Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    inner = Tokenizer(WordLevel({word: number for number, word in enumerate(_VOCABULARY)}, unk_token="[UNK]"))
    inner.pre_tokenizer = WhitespaceSplit()
    if family in _DECODERS:
        return PreTrainedTokenizerFast(
            tokenizer_object=inner,
            unk_token="[UNK]",
            eos_token=_END,
            model_input_names=["input_ids", "attention_mask"],
        )
    template = _TEMPLATES[family]
    inner.post_processor = TemplateProcessing(
        single=template.single, pair=template.pair, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    own = {"padding_side": "left", "pad_token_type_id": 3} if family == "xlnet" else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", *(["token_type_ids"] if template.has_types else []), "attention_mask"],
        **own,
    )


def _pieces() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A byte-pair vocabulary with one token per word, with and without a leading space, and its merges."""
    words = [f"{space}{word}" for space in ("Ġ", "") for word in WORDS]
    merges = dict.fromkeys((word[:end], word[end]) for word in words for end in range(1, len(word)))
    known = ["<|endoftext|>", *sorted({letter for word in words for letter in word}), "Ċ"]
    known += [f"{one}{other}" for one, other in merges]
    return {piece: number for number, piece in enumerate(dict.fromkeys(known))}, list(merges)


def make_stack(
    family: Family = "bert", *, n_layers: int = 2, n_outputs: int = 2, dropout: float = 0.1, seed: int = 0
) -> Stack:
    """A model with a head for `n_outputs` classes (1: regression), in memory only."""
    config = _config(family, n_layers, dropout, initializer_range=1.0)
    config.num_labels = n_outputs
    config.pad_token_id = pad_token_of(make_tokenizer(family))
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(config)
        _draw_all(model)
    return Stack(model)


def pad_token_of(tokenizer: PreTrainedTokenizerFast) -> int:
    """The tokenizer's pad token; a tokenizer without one gets the end token."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return int(tokenizer.pad_token_id)


def make_rows(*, n_rows: int = 64, kind: str = "classification", is_pair: bool = False, seed: int = 0) -> Rows:
    """Rows of different lengths whose label depends on one word: 1 (or 1.0) for a good word, 0 (or -1.0) for a bad."""
    rng = np.random.default_rng(seed)
    fillers = WORDS[6:]
    texts: list[str] = []
    pairs: list[str] = []
    for number in range(n_rows):
        words = list(rng.choice(fillers, size=int(rng.integers(1, 9))))
        words.insert(int(rng.integers(len(words) + 1)), str(rng.choice(NEGATIVE if number % 2 else POSITIVE)))
        texts.append(" ".join(words))
        if is_pair:
            pairs.append(" ".join(rng.choice(fillers, size=int(rng.integers(1, 5)))))
    is_good = 1 - np.arange(n_rows, dtype=np.int64) % 2
    labels: Labels = is_good if kind_named(kind).has_classes else is_good.astype(np.float64) * 2 - 1
    return Rows(ids=np.arange(n_rows), texts=texts, pairs=pairs if is_pair else None, labels=labels)


def make_task(
    path: Path, *, n_rows: int = 64, kind: str = "classification", is_pair: bool = False, seed: int = 0
) -> Path:
    """The rows of `make_rows` as a CSV file with the columns text, text_pair (for pairs) and label."""
    rows = make_rows(n_rows=n_rows, kind=kind, is_pair=is_pair, seed=seed)
    names = ("bad", "good")
    written = [kind_named(kind).decode(label, names) for label in rows.labels]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "label"] if rows.pairs is None else ["text", "text_pair", "label"])
        columns = [rows.texts, written] if rows.pairs is None else [rows.texts, rows.pairs, written]
        writer.writerows(zip(*columns, strict=True))
    return path


def make_spec(model: Path, task: Path, *, kind: str = "classification", **changes: Any) -> RunSpec:
    """The spec of one run of a model folder on a file: a short full run, with the fields in `changes` replaced."""
    resolved = tasks.resolve(tasks.parse(str(task), kind=kind))
    pretrained = describe(str(model))
    spec = RunSpec(
        model=str(model),
        model_fingerprint=pretrained.fingerprint,
        task=resolved,
        data_fingerprint=tasks.load(resolved).fingerprint,
        strategy="full",
        learning_rate=1e-2,
        epochs=2,
        batch_size=8,
        seed=0,
        is_cached=False,
        pair_joiner=pretrained.pair_joiner if resolved.text_pair else None,
    )
    return spec.replace(**changes)


def _draw_all(model: PreTrainedModel) -> None:
    """Randomises biases and norms too. They start at 0 and 1, and tests would not notice a missing one."""
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)


_RELATIVE = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 4}
_OWN_SETTINGS: dict[Family, dict[str, Any]] = {
    "roberta": {"type_vocab_size": 1},
    "xlm-roberta": {"type_vocab_size": 1},
    "electra": {"embedding_size": 4},
    "deberta-v2": {**_RELATIVE, "conv_kernel_size": 3, "conv_act": "gelu", "norm_rel_ebd": "layer_norm"},
    "deberta-v3": {**_RELATIVE, "position_biased_input": False, "share_att_key": True, "type_vocab_size": 0},
    "modernbert": {"local_attention": 4, "global_attn_every_n_layers": 2, "cls_token_id": 2, "sep_token_id": 3},
    "xlnet": {"d_head": 4, "d_inner": 16},
    "opt": {"ffn_dim": 16, "word_embed_proj_dim": 8},
    "gpt_neox": {"rotary_pct": 0.5},
    "llama": {"num_key_value_heads": 1},
    "qwen2": {"num_key_value_heads": 1, "vocab_size": len(_pieces()[0])},
    "qwen3": {"num_key_value_heads": 1, "head_dim": 4},
}


def _config(family: Family, n_layers: int, dropout: float, initializer_range: float) -> PreTrainedConfig:
    is_decoder = family in _DECODERS
    settings: dict[str, Any] = {
        "vocab_size": len(_VOCABULARY),
        "hidden_size": 8,
        "num_hidden_layers": n_layers,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 42,
        "initializer_range": initializer_range,
        "pad_token_id": None if is_decoder else 0,
        "bos_token_id": _VOCABULARY.index(_END) if is_decoder else 2,
        "eos_token_id": _VOCABULARY.index(_END) if is_decoder else 3,
        **_OWN_SETTINGS.get(family, {}),
    }
    if family == "xlnet":  # its positions are relative, without a limit
        del settings["max_position_embeddings"], settings["intermediate_size"]
    if family == "distilbert":
        settings["hidden_dim"] = settings.pop("intermediate_size")
    config = AutoConfig.for_model("deberta-v2" if family == "deberta-v3" else family, **settings)
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float) and name != "layerdrop":
            setattr(config, name, dropout)
    assert isinstance(config, PreTrainedConfig)
    return config
