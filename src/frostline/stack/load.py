"""Pretrained models and tokenizers from the Hub or a folder, and what identifies them.

Loads with the library's own calls, in fp32, without remote code, and quietly.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as library_logging

from frostline.errors import DataError, UsageError
from frostline.keys import key_of
from frostline.stack import Stack
from frostline.stack.packing import first_position
from frostline.tasks import demo_model_folder

DEMO_MODEL = "all-MiniLM-L6-v2"
"""The model of the `demo` extra."""

# What a configuration says of the task or the library rather than of the pretrained model.
_NOT_OF_THE_MODEL = {
    "_name_or_path", "architectures", "dtype", "finetuning_task", "id2label", "label2id", "num_labels",
    "problem_type", "torch_dtype", "transformers_version",
}  # fmt: skip


@dataclass(frozen=True)
class Pretrained:
    """What is known of a pretrained model before any run."""

    name: str
    fingerprint: str
    n_layers: int
    width: int
    epochs: int
    """the paper's number for this family"""
    max_tokens: int
    """longest row the model takes"""
    pair_joiner: str | None
    is_packable: bool
    """the rows of a batch can go through the layers as one row"""
    tokenizer: PreTrainedTokenizerBase


def describe(name: str) -> Pretrained:
    """Loads a model once and says what identifies it."""
    tokenizer = load_tokenizer(name)
    model, missing = _load(name, head_seed=0)
    check_tokenizer(tokenizer, model)
    return Pretrained(
        name=name,
        fingerprint=_fingerprint(name, model, missing, tokenizer),
        n_layers=Stack(model).n_layers,
        width=int(model.config.hidden_size),
        epochs=10 if model.config.model_type == "roberta" else 3,
        max_tokens=_max_tokens(model.config, tokenizer),
        # A tokenizer without a separator would run the two texts of a pair into each other.
        pair_joiner=None if tokenizer.sep_token else "\n",
        is_packable=first_position(model.config) is not None,
        tokenizer=tokenizer,
    )


def located(name: str) -> str:
    """Where a model is loaded from: the demo model by its name from its package, every other from where it says."""
    is_demo = name == DEMO_MODEL and not Path(name).is_dir()
    return str(demo_model_folder()) if is_demo else name


def load_model(name: str, *, head_seed: int, label_names: Sequence[str], pad_token_id: int | None) -> PreTrainedModel:
    """The pretrained model with a new head drawn from `head_seed`; one output, for regression, without label names."""
    settings: dict[str, Any] = {"num_labels": 1, "problem_type": "regression"}
    if label_names:
        settings = {
            "id2label": dict(enumerate(label_names)),
            "label2id": {label: number for number, label in enumerate(label_names)},
            "problem_type": "single_label_classification",
        }
    model, _ = _load(name, head_seed=head_seed, **settings)
    if model.config.pad_token_id is None:
        model.config.pad_token_id = pad_token_id
    return model


def count_trained(name: str, label_names: Sequence[str], depths: Iterable[int]) -> dict[int | None, int]:
    """How many parameters train at each depth, with the head these classes want; None: how many there are."""
    stack = Stack(load_model(name, head_seed=0, label_names=label_names, pad_token_id=None))
    counts: dict[int | None, int] = {None: stack.count(stack.all_parameters)}
    return counts | {depth: stack.count(stack.parameters_above(depth)) for depth in depths}


def load_config(name: str) -> PreTrainedConfig:
    """The model's configuration."""
    with quiet(), one_line_errors(name):
        config = AutoConfig.from_pretrained(located(name))
    assert isinstance(config, PreTrainedConfig)
    return config


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The model's tokenizer, with a pad token (decoders often have none: the end token serves)."""
    with quiet(), one_line_errors(name):
        tokenizer = AutoTokenizer.from_pretrained(located(name))
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if Path(name).is_dir():
        _check_tokenizer_files(Path(name), tokenizer)
    return tokenizer


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> None:
    """Raises unless every token of the tokenizer has a row in the embedding matrix."""
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise UsageError(f"the tokenizer has {len(tokenizer)} tokens, the model embeddings for {rows}; they do not fit")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars, load reports or retries told by the libraries while this lasts."""
    level, had_bars = library_logging.get_verbosity(), library_logging.is_progress_bar_enabled()
    hub = logging.getLogger("huggingface_hub")
    hub_level = hub.level
    library_logging.set_verbosity_error()
    library_logging.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(hub_level)
        library_logging.set_verbosity(level)
        if had_bars:
            library_logging.enable_progress_bar()


def _load(name: str, *, head_seed: int, **settings: Any) -> tuple[PreTrainedModel, set[str]]:
    """The model and the names of the weights that were not in the checkpoint."""
    with torch.random.fork_rng(devices=[]), quiet(), one_line_errors(name):
        torch.manual_seed(head_seed)
        model, info = AutoModelForSequenceClassification.from_pretrained(
            located(name), dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True, **settings
        )
    assert isinstance(model, PreTrainedModel)
    return model, {str(key) for key in info["missing_keys"]} | {str(item[0]) for item in info["mismatched_keys"]}


def _max_tokens(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    # The RoBERTa family counts positions from the padding token's number on, and has the fewer for it.
    positions = getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length
    return min(int(tokenizer.model_max_length), int(positions) - (first_position(config) or 0))


def _fingerprint(name: str, model: PreTrainedModel, missing: set[str], tokenizer: PreTrainedTokenizerBase) -> str:
    """A key of the pretrained weights, the configuration and the tokenizer."""
    digest = hashlib.sha256()
    for parameter, tensor in model.state_dict().items():
        if parameter not in missing:
            digest.update(f"{parameter}{tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    raw, _ = PreTrainedConfig.get_config_dict(located(name))
    config = {field: value for field, value in raw.items() if field not in _NOT_OF_THE_MODEL}
    vocabulary = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())
    return key_of({"weights": digest.hexdigest(), "config": config, "tokenizer": vocabulary})


def _check_tokenizer_files(folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    # Without its files the library makes, in silence, a tokenizer of five special tokens (TRAPS 31).
    names = {"tokenizer.json", *tokenizer.vocab_files_names.values()}
    if not any((folder / name).is_file() for name in names):
        raise DataError(f"no tokenizer file (one of {', '.join(sorted(names))}); save the tokenizer there", path=folder)


@contextlib.contextmanager
def one_line_errors(name: str) -> Iterator[None]:
    """Turns what the library raises about a model into one line."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        where = "in that folder" if Path(name).is_dir() else "as a folder or on the Hub"
        raise UsageError(f"no usable model {name!r} {where}: {reason[:300]}") from error
