"""The attention function for packed batches, registered with transformers' attention interface.

Inside `packing.packed(…)` it splits the packed row into groups of rows, pads queries, keys and values of each group,
attends, and removes the padding again. Outside, it is the library's own sdpa attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from frostline.model.added.dropout import drop
from frostline.model.added.top_token import score_bias, score_scale, top_layer_states, top_token_attention
from frostline.model.packing import Packing, RowGroup, current_packing

PACKED_ATTENTION = "frostline_packed"
"""Name of the function in the attention interface."""


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    packing = current_packing()
    if packing is None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return output, None
    states = top_layer_states()
    if states is not None:
        return top_token_attention(module, query, states, packing, options), None
    is_causal = options.get("is_causal")
    is_causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    if packing.is_varlen and not options.get("dropout"):
        return _varlen_attention(query, key, value, packing, is_causal=is_causal, options=options), None
    window = options.get("sliding_window")
    outputs = []
    split = (part.split(packing.n_tokens, dim=2) for part in (query, key, value))
    for group, *parts in zip(packing.groups, *split, strict=True):
        queries, keys, values = (_padded(part, group) for part in parts)
        mask = _mask(group, is_causal=is_causal, window=window)
        outputs.append(_unpadded(_attended(queries, keys, values, mask, options), group))
    return torch.cat(outputs, dim=1), None


def _library_mask(*arguments: Any, **options: Any) -> Tensor | None:
    """The library's mask for an ordinary batch. A packed batch needs none: attention builds one per group."""
    return None if current_packing() is not None else sdpa_mask(*arguments, **options)


AttentionInterface.register(PACKED_ATTENTION, _attention)
AttentionMaskInterface.register(PACKED_ATTENTION, _library_mask)


def _varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, *, is_causal: bool, options: dict[str, Any]
) -> Tensor:
    """Attention of a packed row without any padding, (1, heads, all tokens, width) → (1, all tokens, heads, width).

    The kernel needs half precision, which autocast provides, and has no dropout. It runs on CUDA only and has not been
    run here: the tests check only the arguments of the call.
    """
    from torch.nn.attention.varlen import varlen_attn  # needs a newer torch than the rest of the package

    lengths = packing.is_real.sum(1)
    ends = functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    longest, window = packing.is_real.shape[1], options.get("sliding_window")
    before = -1 if window is None else window - 1
    queries, keys, values = (part[0].transpose(0, 1) for part in (query, key, value))
    output = varlen_attn(
        queries,
        keys,
        values,
        ends,
        ends,
        longest,
        longest,
        scale=options.get("scaling"),
        window_size=(before, 0 if is_causal else before),
        enable_gqa=queries.shape[1] != keys.shape[1],
    )
    assert isinstance(output, Tensor)
    return output[None]


def _attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, options: dict[str, Any]) -> Tensor:
    """Attention of a padded batch, (batch, heads, queries, width)."""
    rate, scale = options.get("dropout", 0.0), score_scale(query.shape[-1], options)
    n_groups = query.shape[1] // key.shape[1]
    if not rate:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=n_groups > 1
        )
    # With dropout, the library's function does these same steps, but spends more time on random numbers than on the
    # products. `drop` draws faster.
    key, value = (part.repeat_interleave(n_groups, dim=1) if n_groups > 1 else part for part in (key, value))
    scores = (query * scale) @ key.transpose(-1, -2)
    return drop((scores + score_bias(mask, scores.dtype)).softmax(-1), rate) @ value


def _mask(group: RowGroup, *, is_causal: bool, window: int | None = None) -> Tensor:
    """(batch, 1, 1 or tokens, tokens), true where a query may attend to a key."""
    keys = group.is_real[:, None, None, :]
    n_tokens = keys.shape[-1]
    if not is_causal and (window is None or window >= n_tokens):
        return keys
    places = torch.arange(n_tokens, device=keys.device)
    ahead = places[None, :] - places[:, None]
    allowed = ahead <= (0 if is_causal else n_tokens)
    if window is not None:
        allowed = allowed & (ahead.abs() < window)
    # The diagonal is always true: a padding token that may attend to nothing would give NaN. Its output is dropped.
    return keys & allowed | torch.eye(n_tokens, dtype=torch.bool, device=keys.device)


def _padded(states: Tensor, group: RowGroup) -> Tensor:
    padded: Tensor = _Pad.apply(states, group)  # type: ignore[no-untyped-call]
    return padded


def _unpadded(padded: Tensor, group: RowGroup) -> Tensor:
    rows: Tensor = _Unpad.apply(padded, group)  # type: ignore[no-untyped-call]
    return rows


# Two autograd functions of our own: each direction is one copy. The backward pass of plain indexing would be a
# scatter-add.


class _Pad(torch.autograd.Function):
    """(1, heads, all tokens, width) → (batch, heads, tokens, width).

    Padding repeats a real token. It is masked, so its gradient is 0 and nothing needs to be added up.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, group: RowGroup) -> Tensor:
        ctx.group = group
        return _to_padded(states.transpose(1, 2), group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _to_packed(gradient, ctx.group).transpose(1, 2), None


class _Unpad(torch.autograd.Function):
    """(batch, heads, tokens, width) → (1, all tokens, heads, width); padding gets no gradient."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, group: RowGroup) -> Tensor:
        ctx.group = group
        return _to_packed(padded, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        is_real = ctx.group.is_real[:, None, :, None]
        return _to_padded(gradient, ctx.group).mul_(is_real.to(gradient.dtype)), None


def _to_padded(rows: Tensor, group: RowGroup) -> Tensor:
    """(1, all tokens, heads, width) → (batch, heads, tokens, width)"""
    n_heads, width = rows.shape[2:]
    n_rows, n_tokens = group.is_real.shape
    padded = rows.reshape(-1, width).index_select(0, group.by_head(n_heads)[0])
    return padded.view(n_rows, n_heads, n_tokens, width)


def _to_packed(padded: Tensor, group: RowGroup) -> Tensor:
    """(batch, heads, tokens, width) → (1, all tokens, heads, width)"""
    n_heads, width = padded.shape[1], padded.shape[3]
    rows = padded.reshape(-1, width).index_select(0, group.by_head(n_heads)[1])
    return rows.view(1, -1, n_heads, width)
