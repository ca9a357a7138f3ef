"""Where a model's parameters are, and how many each depth trains."""

from __future__ import annotations

from dataclasses import dataclass

from frostline.records.serial import Record


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
