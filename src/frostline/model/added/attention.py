"""The attention function for packed batches, registered with transformers' attention interface.

Inside `packing.packed(…)` it splits the packed row into groups of rows, pads queries, keys and values of each group,
attends, and removes the padding again. Outside, it is the library's own sdpa attention.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from frostline.errors import FrostlineError
from frostline.model.added.dropout import drop
from frostline.model.added.top_token import score_bias, score_scale, top_layer_states, top_token_attention
from frostline.model.packing import Packing, RowGroup, current_packing

PACKED_ATTENTION = "frostline_packed"
"""Name of the function in the attention interface."""

_HONOURED = {"dropout", "scaling", "is_causal", "sliding_window", "softcap"}
_WITHOUT_EFFECT = {"position_ids", "use_cache"}
"""Options that attention gets although it does not depend on them."""


class UnknownOptionError(FrostlineError):
    """A model gives its attention an option that packed attention does not know."""


@dataclass(frozen=True)
class AttentionCall:
    """What a layer asked packed attention to look at."""

    is_causal: bool
    window: int | None
    """a token sees those that are less than this many places away; None: all"""

    def mask(self, is_real: Tensor) -> Tensor:
        """The mask of rows that are padded together; see `_mask`."""
        return _mask(is_real, is_causal=self.is_causal, window=self.window)


_calls: contextvars.ContextVar[list[AttentionCall] | None] = contextvars.ContextVar("calls", default=None)


@contextlib.contextmanager
def noting_calls() -> Iterator[list[AttentionCall]]:
    """Yields a list that each packed call of attention inside this context is added to, layer after layer."""
    calls: list[AttentionCall] = []
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    packing = current_packing()
    if packing is None:
        return _ordinary_attention(module, query, key, value, attention_mask, options), None
    call = _call_of(module, options)
    states = top_layer_states()
    if states is not None:
        return top_token_attention(module, query, states, packing, options), None
    if packing.is_varlen and not options.get("dropout") and options.get("softcap") is None:
        return _varlen_attention(query, key, value, packing, is_causal=call.is_causal, options=options), None
    outputs = []
    split = (part.split(packing.n_tokens, dim=2) for part in (query, key, value))
    for group, *parts in zip(packing.groups, *split, strict=True):
        queries, keys, values = (_padded(part, group) for part in parts)
        outputs.append(_unpadded(_attended(queries, keys, values, call.mask(group.is_real), options), group))
    return torch.cat(outputs, dim=1), None


def _call_of(module: nn.Module, options: dict[str, Any]) -> AttentionCall:
    """What a layer asks for; raises if it asks for something that the answer below would not honour."""
    is_causal = options.get("is_causal")
    is_causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    call = AttentionCall(is_causal, options.get("sliding_window"))
    if (calls := _calls.get()) is not None:
        calls.append(call)
    given = {name for name, value in options.items() if value is not None and value is not False}
    if unknown := sorted(given - _HONOURED - _WITHOUT_EFFECT):
        raise UnknownOptionError(f"its attention needs {', '.join(unknown)}")
    return call


def _ordinary_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """Attention of an ordinary batch, (batch, tokens, heads, width)."""
    if options.get("softcap") is None:
        output: Tensor = sdpa_attention_forward(module, query, key, value, mask, **options)[0]
        return output
    # The library's function knows no soft cap.
    if mask is None:  # it leaves out a mask that says nothing but "causal"
        is_real = torch.ones(len(query), query.shape[2], dtype=torch.bool, device=query.device)
        mask = _call_of(module, options).mask(is_real)
    return _attended(query, key, value, mask, options).transpose(1, 2).contiguous()


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
    rate, scale, cap = options.get("dropout", 0.0), score_scale(query.shape[-1], options), options.get("softcap")
    n_groups = query.shape[1] // key.shape[1]
    if not rate and cap is None:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=n_groups > 1
        )
    # With dropout, the library's function does these same steps, but spends more time on random numbers than on the
    # products. `drop` draws faster. It knows no soft cap.
    key, value = (part.repeat_interleave(n_groups, dim=1) if n_groups > 1 else part for part in (key, value))
    scores = (query * scale) @ key.transpose(-1, -2)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    return drop((scores + score_bias(mask, scores.dtype)).softmax(-1), rate) @ value


def _mask(is_real: Tensor, *, is_causal: bool, window: int | None = None) -> Tensor:
    """(batch, 1, 1 or tokens, tokens), true where a query may attend to a key."""
    keys = is_real[:, None, None, :]
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
