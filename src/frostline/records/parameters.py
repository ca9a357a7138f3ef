"""Where a model's parameters are, how many each depth trains, and how the weights of models differ."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from frostline.records.serial import Record


class AttentionHead(NamedTuple):
    """One attention head. Where several queries share a key and a value (grouped-query attention), one such group."""

    layer: int
    """counted from 1"""
    number: int
    """within its layer, counted from 0"""

    def __str__(self) -> str:
        return f"{self.layer}.{self.number}"


def written_heads(heads: Iterable[AttentionHead]) -> str:
    """Attention heads in one word: `3.0+3.5`."""
    return "+".join(map(str, heads))


def read_heads(text: str) -> tuple[AttentionHead, ...] | None:
    """The attention heads of `3.0+3.5`, each named once, in their order; None if the text cannot be read."""
    found = [re.fullmatch(r"([1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})", part) for part in text.split("+")]
    heads = tuple(AttentionHead(int(one[1]), int(one[2])) for one in found if one is not None)
    return heads if len({*heads}) == len(found) else None


def pruning_steps(n_heads: int) -> list[int]:
    """How many attention heads are pruned after each step: a tenth of them at a time, and at least one.

    >>> pruning_steps(72)
    [7, 14, 22, 29, 36, 43, 50, 58, 65, 72]
    >>> pruning_steps(4)
    [1, 2, 3, 4]
    """
    return sorted({round(n_heads * tenth / 10) for tenth in range(1, 11)} - {0})


@dataclass(frozen=True, kw_only=True)
class DepthCount(Record):
    """What is trained at one depth."""

    n_frozen: int
    """layers frozen from the bottom, embeddings included"""
    trained_parameters: int
    """parameters that train"""
    share: float
    """of all parameters of the model with its head"""


@dataclass(frozen=True, kw_only=True)
class Census(Record):
    """The parameters of a model, by component."""

    model: str
    """the pretrained model"""
    n_layers: int
    """its layers"""
    embeddings: int
    """embeddings and what every layer reads"""
    layer: int
    """one layer"""
    layers: int
    """all layers"""
    pooler: int
    """what the pretrained model has above its layers: pooler or final norm"""
    total: int
    """the pretrained model with its pooler, as the paper counts"""
    head: int
    """the new task head, for two classes"""
    full: int
    """what full fine-tuning trains: the model with its task head"""
    depths: tuple[DepthCount, ...]
    """what each depth trains"""


@dataclass(frozen=True, kw_only=True)
class TensorChange(Record):
    """A tensor that is not the same in two models."""

    name: str
    """its name, without the prefix that a model with a head puts before it"""
    part: str
    """embeddings, layer N or head"""
    what: Literal["changed", "missing", "new", "reshaped"]
    """missing: only in the base; new: only in the other model"""
    relative_change: float | None
    """norm of the difference, divided by the norm of the base's tensor"""
    largest_change: float | None
    """largest absolute difference of one number"""


@dataclass(frozen=True, kw_only=True)
class PartChange(Record):
    """How one part of a model differs from the same part of its base."""

    part: str
    """embeddings, layer N or head"""
    n_tensors: int
    """tensors in the part, in both models together"""
    n_bytes: int
    """size of the part in the base"""
    n_changed: int
    """tensors that are not the same to the bit"""
    relative_change: float | None
    """over all tensors that both have: norm of the difference, divided by the norm of the base; null without any"""
    largest_change: float | None
    """largest absolute difference of one number"""


@dataclass(frozen=True, kw_only=True)
class WeightChange(Record):
    """What differs between a model and its base, from the bottom up."""

    base: str
    """the model that is compared with"""
    tuned: str
    """the other model"""
    n_layers: int | None
    """layers; null if the models have no single stack of layers"""
    shared_layers: int | None
    """layers from the bottom that are the same to the bit, embeddings included; null if the embeddings differ"""
    parts: tuple[PartChange, ...]
    """embeddings, layers and head, from the bottom up"""
    tensors: tuple[TensorChange, ...]
    """the tensors that differ"""


@dataclass(frozen=True, kw_only=True)
class WeightSize(Record):
    """The size of one model on disk."""

    model: str
    """its folder or name"""
    n_bytes: int
    """size of its tensors"""
    shared_bytes: int
    """size of its tensors in the part that all models share"""


@dataclass(frozen=True, kw_only=True)
class PairSharing(Record):
    """How deep two models agree."""

    first: str
    """a model"""
    second: str
    """another one"""
    shared_layers: int | None
    """as in `WeightChange`"""


@dataclass(frozen=True, kw_only=True)
class Sharing(Record):
    """What several models could share: the lowest layers that are the same in all of them."""

    models: tuple[WeightSize, ...]
    """the models, in the order given"""
    n_layers: int | None
    """layers; null if the models have no single stack of layers"""
    shared_layers: int | None
    """layers from the bottom that are the same in all models, embeddings included; null if the embeddings differ"""
    pairs: tuple[PairSharing, ...]
    """every two models"""
    changes: tuple[WeightChange, ...]
    """each other model against the first"""
    bytes_apart: int
    """size of all models"""
    bytes_shared: int
    """size of all models if the shared part is stored once"""
    compute_ratio: float
    """layers computed per text for all models, divided by those with the shared part computed once"""
