"""Where each family keeps its layers, and the names of the parameters below and above them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from frostline.testing.models import FAMILIES, Family

DECODERS: tuple[Family, ...] = ("gpt2", "opt", "gpt_neox", "llama", "qwen2", "qwen3")


DISTINCT: tuple[Family, ...] = (
    "bert", "distilbert", "mpnet", "deberta-v2", "modernbert", "xlnet", "gpt2", "opt", "gpt_neox", "llama",
)  # fmt: skip
"""One of each group of families with much the same code: RoBERTa and ELECTRA are like BERT, Qwen is like Llama."""


def sampled(sample: Collection[Family]) -> list[Any]:
    """All families, for `parametrize`; `make test` does those of the sample."""
    return matrix(FAMILIES, is_sample=lambda family: family in sample)


def matrix(*axes: Sequence[Any], is_sample: Callable[..., bool] | None = None) -> list[Any]:
    """Every combination of the values, for `parametrize`; `make test` does a sample of them.

    Without `is_sample` that is a diagonal: as many combinations as the longest axis has values, and every value of
    every axis at least once.
    """
    places = {tuple(number % len(axis) for axis in axes) for number in range(max(map(len, axes)))}
    found = []
    for combination in itertools.product(*(enumerate(axis) for axis in axes)):
        place, values = tuple(number for number, _ in combination), [value for _, value in combination]
        is_kept = place in places if is_sample is None else is_sample(*values)
        found.append(pytest.param(*values, marks=() if is_kept else pytest.mark.thorough))
    return found


def _weights(*names: str) -> set[str]:
    """`a.b` → `a.b.weight` and `a.b.bias`; `a.b.weight` → itself."""
    single = {name for name in names if name.endswith(".weight")}
    return single | {f"{name}.{which}" for name in set(names) - single for which in ("weight", "bias")}


def _embeddings(place: str, *words: str) -> set[str]:
    return _weights(*(f"{place}.{word}_embeddings.weight" for word in words), f"{place}.LayerNorm")


LAYERS: dict[Family, str] = {
    "bert": "bert.encoder.layer", "roberta": "roberta.encoder.layer", "xlm-roberta": "roberta.encoder.layer",
    "electra": "electra.encoder.layer", "distilbert": "distilbert.transformer.layer", "mpnet": "mpnet.encoder.layer",
    "deberta-v2": "deberta.encoder.layer", "deberta-v3": "deberta.encoder.layer", "modernbert": "model.layers",
    "xlnet": "transformer.layer", "gpt2": "transformer.h", "opt": "model.decoder.layers", "gpt_neox": "gpt_neox.layers",
    "llama": "model.layers", "qwen2": "model.layers", "qwen3": "model.layers",
}  # fmt: skip
_DENSE_HEAD = _weights("classifier.dense", "classifier.out_proj")
_ALL = ("word", "position", "token_type")
BELOW: dict[Family, set[str]] = {
    "bert": _embeddings("bert.embeddings", *_ALL),
    "roberta": _embeddings("roberta.embeddings", *_ALL),
    "xlm-roberta": _embeddings("roberta.embeddings", *_ALL),
    "electra": _embeddings("electra.embeddings", *_ALL) | _weights("electra.embeddings_project"),
    "distilbert": _embeddings("distilbert.embeddings", "word", "position"),
    "mpnet": _embeddings("mpnet.embeddings", "word", "position") | {"mpnet.encoder.relative_attention_bias.weight"},
    # What every layer reads, or stands between two of them, is frozen with the embeddings (TRAPS 9, 27).
    "deberta-v2": _embeddings("deberta.embeddings", "word", "position")
    | _weights("deberta.encoder.rel_embeddings.weight", "deberta.encoder.LayerNorm")
    | _weights("deberta.encoder.conv.conv", "deberta.encoder.conv.LayerNorm"),
    "deberta-v3": _embeddings("deberta.embeddings", "word") | {"deberta.encoder.rel_embeddings.weight"},
    "modernbert": {"model.embeddings.tok_embeddings.weight", "model.embeddings.norm.weight"},
    "xlnet": {"transformer.mask_emb", "transformer.word_embedding.weight"},
    "gpt2": {"transformer.wte.weight", "transformer.wpe.weight"},
    "opt": {"model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight"},
    "gpt_neox": {"gpt_neox.embed_in.weight"},
    "llama": {"model.embed_tokens.weight"},
    "qwen2": {"model.embed_tokens.weight"},
    "qwen3": {"model.embed_tokens.weight"},
}
ABOVE: dict[Family, set[str]] = {
    "bert": _weights("bert.pooler.dense", "classifier"),
    "roberta": _DENSE_HEAD,
    "xlm-roberta": _DENSE_HEAD,
    "electra": _DENSE_HEAD,
    "distilbert": _weights("pre_classifier", "classifier"),
    "mpnet": _DENSE_HEAD,
    "deberta-v2": _weights("pooler.dense", "classifier"),
    "deberta-v3": _weights("pooler.dense", "classifier"),
    "modernbert": _weights("model.final_norm.weight", "head.dense.weight", "head.norm.weight", "classifier"),
    "xlnet": _weights("sequence_summary.summary", "logits_proj"),
    "gpt2": _weights("transformer.ln_f", "score.weight"),
    "opt": _weights("model.decoder.final_layer_norm", "score.weight"),
    "gpt_neox": _weights("gpt_neox.final_layer_norm", "score.weight"),
    "llama": _weights("model.norm.weight", "score.weight"),
    "qwen2": _weights("model.norm.weight", "score.weight"),
    "qwen3": _weights("model.norm.weight", "score.weight"),
}
