"""The parameter table of a model.

As in the paper, the pooler counts as part of the pretrained model, and the task head does not.
"""

from __future__ import annotations

import statistics

import torch
from transformers import AutoModel, AutoModelForSequenceClassification, BertConfig, PreTrainedConfig, RobertaConfig

from frostline.model.faults import one_line_errors
from frostline.model.load import load_config, quiet
from frostline.model.stack import NoDepthError, Stack
from frostline.model.structure import find_layers
from frostline.records.parameters import Census, DepthCount

_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}

PAPER_MODELS: dict[str, PreTrainedConfig] = {
    "bert-base-uncased": BertConfig(),
    "bert-large-uncased": BertConfig(**_LARGE),
    "roberta-base": RobertaConfig(**_ROBERTA),
    "roberta-large": RobertaConfig(**_ROBERTA, **_LARGE),
}
"""The four models of the paper: their parameters can be counted without a download."""


def census(name: str) -> Census:
    """How many parameters each part of the model has, and how many train at each depth (head for two classes)."""
    config = PAPER_MODELS.get(name) or load_config(name)
    with quiet(), one_line_errors(name):
        with torch.device("meta"):
            pretrained = AutoModel.from_config(config)
        stack = _stack_of(config)
    structure = stack.structure
    total = sum(p.numel() for p in pretrained.parameters())
    _, layers = find_layers(pretrained)
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    embeddings = stack.count(structure.below_parameters)
    everything = stack.count(stack.all_parameters)
    pretrained_names = {name for name, _ in pretrained.named_parameters()}
    prefix = f"{stack.model.base_model_prefix}."
    head = [n for n in structure.above_parameters if n.removeprefix(prefix) not in pretrained_names]
    trained = [stack.count(stack.parameters_above(depth)) for depth in range(stack.n_layers + 1)]
    return Census(
        model=name,
        n_layers=stack.n_layers,
        embeddings=embeddings,
        layer=statistics.mode(sizes),  # the most frequent size: ModernBERT's first layer lacks a norm
        layers=sum(sizes),
        pooler=total - embeddings - sum(sizes),
        total=total,
        head=stack.count(head),
        full=everything,
        depths=tuple(
            DepthCount(n_frozen=depth, trained_parameters=count, share=count / everything)
            for depth, count in enumerate(trained)
        ),
    )


def _stack_of(config: PreTrainedConfig) -> Stack:
    """The model with a task head; on the meta device, without memory for weights, if its structure is found there."""
    with torch.device("meta"):
        stack = Stack(AutoModelForSequenceClassification.from_config(config))
        find_layers(stack.model)
    try:
        _ = stack.structure
    except NoDepthError:  # XLNet's positions cannot be computed on the meta device
        return Stack(AutoModelForSequenceClassification.from_config(config))
    return stack
