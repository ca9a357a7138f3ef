"""What identifies a pretrained model: its weights, its configuration and its tokenizer, not its name.

A name may stand for another model tomorrow: a `latest` link, or a branch of the Hub, can move during a sweep. A run is
planned for a fingerprint. Every model and tokenizer that a run loads is compared with the model that has this
fingerprint before anything is trained or cached.

The fingerprint is computed with the head that the model's own configuration describes. A run loads the model with the
head of its task, so that a classifier's own head may be missing or have another shape. That is why loaded models are
compared tensor by tensor.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from frostline.errors import DataError, some
from frostline.model.stack import bits_of
from frostline.records.keys import key_of

# Fields of a configuration about the task or the library, not the pretrained model; left out of the fingerprint.
_NOT_OF_THE_MODEL = {
    "_name_or_path", "architectures", "dtype", "finetuning_task", "id2label", "label2id", "num_labels",
    "problem_type", "torch_dtype", "transformers_version",
}  # fmt: skip
# Fields that decide how a model trains, starts, reads out or generates, but not what its embeddings and layers compute.
_NOT_OF_THE_LAYERS = {
    "bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id", "gradient_checkpointing", "output_attentions",
    "output_hidden_states", "prefix", "return_dict", "task_specific_params", "tie_word_embeddings", "tokenizer_class",
    "use_cache",
}  # fmt: skip
_NOT_OF_THE_LAYERS_BEGIN = ("classifier_", "initializer_", "pooler_", "summary_")
# Parameters of tokenizers that do not change the tokens of a text, or are limits of their own.
_NOT_OF_THE_TOKENS = {"clean_up_tokenization_spaces", "model_max_length", "padding_side"}


@final
@dataclass(frozen=True)
class Loaded:
    """A pretrained model and what the checkpoint said about it, as they were read."""

    name: str
    model: PreTrainedModel
    missing: set[str]
    """names of the weights that were not in the checkpoint"""
    mismatched: set[str]
    """names of the weights that had another shape there"""

    @property
    def pretrained(self) -> Mapping[str, Tensor]:
        """The tensors that came from the checkpoint, by name."""
        drawn = self.missing | self.mismatched
        return {name: tensor for name, tensor in self.model.state_dict().items() if name not in drawn}


def fingerprint(loaded: Loaded, raw_config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> str:
    """A key of the pretrained weights, the configuration and the tokenizer.

    Args:
        loaded: with the model's own head.
        raw_config: the content of config.json.
        tokenizer: as it was loaded: its first call changes it.
    """
    digest = hashlib.sha256()
    for name, tensor in loaded.pretrained.items():
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(bits_of(tensor))
    has_types = (getattr(loaded.model.config, "type_vocab_size", None) or 0) > 1
    settings = _tokenizer_settings(tokenizer, has_types=has_types)
    return key_of(
        {
            "weights": digest.hexdigest(),
            "config": {field: value for field, value in raw_config.items() if field not in _NOT_OF_THE_MODEL},
            "tokenizer": _vocabulary(tokenizer),
            **({"tokenizer_settings": settings} if settings else {}),
        }
    )


@final
@dataclass(frozen=True)
class Identity:
    """The content of a model that has the fingerprint a run was planned for."""

    name: str
    weights: Mapping[str, str]
    """digest of every pretrained tensor, by name"""
    config: Mapping[str, Any]
    tokenizer: str

    @classmethod
    def of(cls, loaded: Loaded, tokenizer: PreTrainedTokenizerBase) -> Identity:
        """The identity of a model that was loaded with its own head."""
        weights = {name: _digest(tensor) for name, tensor in loaded.pretrained.items()}
        return cls(loaded.name, weights, loaded.model.config.to_dict(), _tokenizer_key(tokenizer))

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Raises if another tokenizer was loaded under the same name."""
        if _tokenizer_key(tokenizer) != self.tokenizer:
            raise changed(self.name, "its tokenizer is another one")

    def check_model(self, loaded: Loaded, head_tensors: Set[str], head_fields: Iterable[str]) -> None:
        """Raises if another model was loaded under the same name.

        Args:
            loaded: with the head of any task.
            head_tensors: names of the parameters of the head, which the checkpoint need not have.
            head_fields: fields of the configuration that the task sets.
        """
        now = loaded.model.config.to_dict()
        fields = (self.config.keys() | now.keys()) - _NOT_OF_THE_MODEL - {*head_fields}
        if other := sorted(field for field in fields if now.get(field) != self.config.get(field)):
            raise changed(self.name, f"its configuration differs in {some(other)}")
        pretrained = loaded.pretrained
        in_one = (self.weights.keys() ^ pretrained.keys()) & loaded.model.state_dict().keys() - head_tensors
        in_both = self.weights.keys() & pretrained.keys()
        differing = in_one | {name for name in in_both if _digest(pretrained[name]) != self.weights[name]}
        if differing:
            raise changed(self.name, f"its weights differ in {some(sorted(differing))}")


def other_layers(base: PreTrainedConfig, other: PreTrainedConfig) -> list[str]:
    """Fields in which two configurations differ so that the same weights may compute other states."""
    one, two = base.to_dict(), other.to_dict()
    if one.get("pad_token_id") is None:  # a decoder gets one with its head; it reaches no layer
        one["pad_token_id"] = two.get("pad_token_id")
    fields = (one.keys() | two.keys()) - _NOT_OF_THE_MODEL - _NOT_OF_THE_LAYERS
    return sorted(
        field
        for field in fields
        if one.get(field) != two.get(field) and not field.startswith(_NOT_OF_THE_LAYERS_BEGIN) and "drop" not in field
    )


def changed(name: str, how: str) -> DataError:
    """The error for a model that is no longer the one a run was planned for."""
    return DataError(
        f"the model {name} changed since this run was planned: {how}. Nothing was trained or cached with it. Put the "
        "earlier model back and run the command again, or use a new --out folder"
    )


def _digest(tensor: Tensor) -> str:
    digest = hashlib.sha256(f"{tuple(tensor.shape)}".encode())
    digest.update(bits_of(tensor))
    return digest.hexdigest()


def _tokenizer_key(tokenizer: PreTrainedTokenizerBase) -> str:
    return key_of([_vocabulary(tokenizer), _tokenizer_settings(tokenizer, has_types=True)])


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """A key of everything that decides the tokens of a text, for tokenizers that were saved at different times.

    It leaves out cutting and padding. Every call sets them, and a tokenizer that was saved after a call has them still.
    """
    vocabulary = _vocabulary(tokenizer)
    if tokenizer.is_fast:
        vocabulary = {**json.loads(vocabulary), "truncation": None, "padding": None}
    return key_of([vocabulary, _tokenizer_settings(tokenizer, has_types=True)])


def _vocabulary(tokenizer: PreTrainedTokenizerBase) -> Any:
    """A fast tokenizer with everything that its own library knows; the vocabulary of a slow one."""
    return tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())


def _tokenizer_settings(tokenizer: PreTrainedTokenizerBase, *, has_types: bool) -> dict[str, Any]:
    """Settings outside `_vocabulary` that change the tokens of a text, where they differ from the library's defaults.

    Only those: release 0.1 left all settings out of the fingerprint, and its stored folders keep theirs. The padding
    side is not one of them, because batches are always padded on the right.

    Args:
        has_types: the model has embeddings of token types, which a tokenizer for it gives by default.
    """
    plain = {"truncation_side": type(tokenizer).truncation_side, "split_special_tokens": False}
    found = {name: getattr(tokenizer, name) for name, default in plain.items() if getattr(tokenizer, name) != default}
    if has_types and "token_type_ids" not in tokenizer.model_input_names:
        found["token_types"] = False
    return found if tokenizer.is_fast else found | _own_settings(tokenizer)


def _own_settings(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Parameters of a slow tokenizer's own class that were given: lower case, accents, special tokens, …"""
    parameters = inspect.signature(type(tokenizer)).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
    given = {name: tokenizer.init_kwargs.get(name, default) for name, default in defaults.items()}
    return {
        name: str(value)
        for name, value in given.items()
        if not (name in _NOT_OF_THE_TOKENS or name.endswith("_file") or isinstance(value, dict))
        and str(value) != str(defaults[name])
    }
