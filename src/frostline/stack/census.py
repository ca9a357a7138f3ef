"""The parameter table of a model: the pretrained model with its pooler, as the paper counts; the task head apart."""

from __future__ import annotations

import torch
from transformers import AutoModel, AutoModelForSequenceClassification, BertConfig, PreTrainedConfig, RobertaConfig

from frostline.records import Census, DepthCount
from frostline.stack import Stack
from frostline.stack.load import load_config, quiet
from frostline.stack.structure import find_layers

_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}

PAPER_MODELS: dict[str, PreTrainedConfig] = {
    "bert-base-uncased": BertConfig(),
    "bert-large-uncased": BertConfig(**_LARGE),
    "roberta-base": RobertaConfig(**_ROBERTA),
    "roberta-large": RobertaConfig(**_ROBERTA, **_LARGE),
}
"""The four models of the paper: counting their parameters takes no download."""


def census(name: str) -> Census:
    """What the model consists of, and what is trained at each depth (with a head for two classes)."""
    config = PAPER_MODELS.get(name) or load_config(name)
    with quiet(), torch.device("meta"):
        pretrained = AutoModel.from_config(config)
        stack = Stack(AutoModelForSequenceClassification.from_config(config))
    total = sum(p.numel() for p in pretrained.parameters())
    _, layers = find_layers(pretrained)
    in_layers = sum(p.numel() for p in layers.parameters())
    embeddings = stack.count(stack.structure.below_parameters)
    everything = stack.count(stack.all_parameters)
    pretrained_names = {name for name, _ in pretrained.named_parameters()}
    prefix = f"{stack.model.base_model_prefix}."
    head = [n for n in stack.structure.above_parameters if n.removeprefix(prefix) not in pretrained_names]
    trained = [stack.count(stack.parameters_above(depth)) for depth in range(stack.n_layers + 1)]
    return Census(
        model=name,
        n_layers=stack.n_layers,
        embeddings=embeddings,
        layer=in_layers // stack.n_layers,
        layers=in_layers,
        pooler=total - embeddings - in_layers,
        total=total,
        head=stack.count(head),
        full=everything,
        depths=tuple(
            DepthCount(n_frozen=depth, trained_parameters=count, share=count / everything)
            for depth, count in enumerate(trained)
        ),
    )
