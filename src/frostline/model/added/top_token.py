"""Top-token attention: the top layer computes only the tokens that the head reads.

A classification head usually reads one token per row (BERT's `[CLS]`). Below the top layer every token matters, because
higher layers attend to it. In the top layer only that one token's output is used. So the top layer is called with one
token per row: queries, feed-forward part and norms shrink to one token, while attention still looks at all tokens of
the row, which are remembered in a `TopLayerInput`.

Keys and values of all tokens need not be projected either. With one query q per row, the scores are
q·(W_k x + b_k) = (W_kᵀ q)·x + q·b_k: the query is projected once, instead of every token's key. In the same way the
output Σ p (W_v x + b_v) = W_v (Σ p x) + b_v Σ p needs one projection per row. With dropout on the shares p, Σ p is
not 1, hence the second term.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedConfig

from frostline.model.added.dropout import drop
from frostline.model.added.pass_through import first_tensor, with_state
from frostline.model.packing import Packing

# Families with separate key and value projections and a norm after attention: the names of the two projections.
_PROJECTIONS = {
    "bert": ("key", "value"),
    "roberta": ("key", "value"),
    "xlm-roberta": ("key", "value"),
    "electra": ("key", "value"),
    "distilbert": ("k_lin", "v_lin"),
}


@dataclass
class TopLayerInput:
    """What the top layer computes and attends to when it is called with one token per row."""

    tokens: Tensor
    """(batch,) the place of each row's token among all tokens"""
    states: Tensor | None = None
    """(1, all tokens, width) the input of the top layer; None until the forward pass gets there"""


_current: contextvars.ContextVar[TopLayerInput | None] = contextvars.ContextVar("top layer input", default=None)


def can_read_one_token(config: PreTrainedConfig, top: nn.Module) -> bool:
    """Whether the top layer can be called with one token per row.

    The family must be a known one, and its projections must be plain: a LoRA update, for example, adds to them. A
    weight that is put together from trained slices (`inside/slices.py`) is read like any other.
    """
    names = _PROJECTIONS.get(config.model_type)
    if names is None:
        return False
    projections = [module for name, module in top.named_modules() if name.rpartition(".")[2] in names]
    return len(projections) == len(names) and all(_is_plain(module) for module in projections)


def _is_plain(module: nn.Module) -> bool:
    # torch gives a module with a parametrization a class of its own, below the module's class.
    return type(module) is nn.Linear or (isinstance(module, nn.Linear) and parametrize.is_parametrized(module))


@contextlib.contextmanager
def top_layer_on(layer: nn.Module, tokens: Tensor) -> Iterator[None]:
    """Inside this context, the top layer computes only these tokens, and the head gets each as a row of its own."""
    handles = narrow_when_asked(layer)
    try:
        with reading_one_token(tokens):
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def reading_one_token(tokens: Tensor) -> Iterator[None]:
    """Inside this context, a layer that was given to `narrow_when_asked` computes only these tokens."""
    token = _current.set(TopLayerInput(tokens))
    try:
        yield
    finally:
        _current.reset(token)


def narrow_when_asked(layer: nn.Module) -> list[RemovableHandle]:
    """Makes a top layer compute only the tokens of `reading_one_token`, if the calling thread is inside it.

    The head then gets each of them as a row of its own. Outside, the layer works as before.
    """
    return [layer.register_forward_pre_hook(_narrow, with_kwargs=True), layer.register_forward_hook(_to_rows)]


def _narrow(
    _module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]] | None:
    top = _current.get()
    if top is None:
        return None
    top.states = first_tensor(args or tuple(kwargs.values()))
    return with_state(args, kwargs, top.states[:, top.tokens])


def _to_rows(_module: nn.Module, _args: object, output: object) -> object:
    if _current.get() is None:
        return None  # the output stays as it is
    if isinstance(output, tuple):
        return (first_tensor(output).transpose(0, 1), *output[1:])
    return first_tensor((output,)).transpose(0, 1)


def top_layer_states() -> Tensor | None:
    """All tokens (1, all tokens, width), if the top layer is now being called with one token per row."""
    top = _current.get()
    return None if top is None else top.states


def top_token_attention(
    module: nn.Module, query: Tensor, states: Tensor, packing: Packing, options: dict[str, Any]
) -> Tensor:
    """Attention of one query per row, (1, heads, batch, width), to all tokens of its row; (1, batch, heads, width)."""
    keys, values = _projections(module)
    _, n_heads, n_rows, width = query.shape
    query = query[0] * score_scale(width, options)
    projected = torch.bmm(query, keys.weight.view(n_heads, width, -1)).transpose(0, 1)
    constant = query.new_zeros(n_rows, n_heads, 1)
    if keys.bias is not None:
        constant = (query * keys.bias.view(n_heads, 1, width)).sum(-1).t()[..., None]
    means, sums = [], []
    split = states[0].split(packing.n_tokens), projected.split(packing.n_rows), constant.split(packing.n_rows)
    for group, tokens, queries, added in zip(packing.groups, *split, strict=True):
        padded = tokens.index_select(0, group.source).view(*group.is_real.shape, -1)
        scores = queries @ padded.transpose(1, 2) + added
        shares = (scores + score_bias(group.is_real[:, None], scores.dtype)).softmax(-1)
        shares = drop(shares, options.get("dropout", 0.0))
        means.append(shares @ padded)
        sums.append(shares.sum(-1, keepdim=True))
    mean = torch.cat(means).transpose(0, 1)
    output = torch.bmm(mean, values.weight.view(n_heads, width, -1).transpose(1, 2)).transpose(0, 1)
    if values.bias is not None:
        output = output + torch.cat(sums) * values.bias.view(n_heads, width)
    return output.reshape(1, n_rows, n_heads, width)


def score_scale(width: int, options: dict[str, Any]) -> float:
    """The factor for attention scores: the model's own if it passes one, else 1/√width."""
    given = options.get("scaling")
    return float(width**-0.5 if given is None else given)


def score_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Added to attention scores: 0 where the mask is true, the lowest number of the type where it is false."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)


def _projections(module: nn.Module) -> tuple[nn.Linear, nn.Linear]:
    keys, values = (module.get_submodule(name) for name in _PROJECTIONS[module.config.model_type])  # type: ignore[union-attr, index]
    assert isinstance(keys, nn.Linear)
    assert isinstance(values, nn.Linear)
    return keys, values
