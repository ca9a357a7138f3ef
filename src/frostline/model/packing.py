"""The rows of a batch in one row of tokens: no padding in any linear layer, and attention within each row only.

Attention goes through a function registered with transformers' attention interface. It pads queries, keys and values
for the moment of the product, rows of like length together, and un-pads what comes out. Outside of `packed(…)` it is
the library's own sdpa attention.

Where the head reads one token of each row, the top layer need only compute that one: it is called with those tokens
alone, and here keys and values are projected from all.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from frostline.model.added.dropout import drop

NAME = "frostline_packed"

# Families whose attention goes through the interface, by where their positions start.
_FROM_ZERO = (
    "bert", "electra", "distilbert", "modernbert", "gpt2", "opt", "gpt_neox", "llama", "qwen2", "qwen3",
)  # fmt: skip
_ABOVE_PADDING = ("roberta", "xlm-roberta")


_LIKE = 2
"""Rows attend together while the longest is at most so many times as long as the shortest."""


@dataclass(frozen=True)
class Group:
    """Where the tokens are of rows that stand next to each other and attend together."""

    is_real: Tensor
    """(rows, tokens) true where a padded batch has a token"""
    source: Tensor
    """(rows × tokens,) for each place of a padded batch, the place in the packed row"""
    target: Tensor
    """(all tokens,) for each place of the packed row, the place in a padded batch"""
    _by_head: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, is_real: Tensor) -> Group:
        """The group of rows with this mask."""
        flat = is_real.reshape(-1)
        return cls(is_real, (flat.cumsum(0) - 1).clamp(min=0), flat.nonzero()[:, 0])

    def by_head(self, n_heads: int) -> tuple[Tensor, Tensor]:
        """Source and target of each head's part: (rows × heads × tokens,) and (all tokens × heads,)."""
        if n_heads not in self._by_head:
            n_rows, n_tokens = self.is_real.shape
            heads = torch.arange(n_heads, device=self.source.device)
            source = self.source.view(n_rows, 1, n_tokens) * n_heads + heads[:, None]
            rows, places = self.target // n_tokens, self.target % n_tokens
            target = (rows[:, None] * n_heads + heads) * n_tokens + places[:, None]
            self._by_head[n_heads] = source.view(-1), target.view(-1)
        return self._by_head[n_heads]


@dataclass(frozen=True)
class Packing:
    """Where the tokens of each row of a batch are."""

    is_real: Tensor
    """(batch, tokens) true where a padded batch has a token"""
    groups: tuple[Group, ...]
    """all rows, in their order"""
    is_varlen: bool = False
    """attention takes the rows as they are, where it can; otherwise they are padded for it"""

    @classmethod
    def of(cls, is_real: Tensor, *, is_varlen: bool = False) -> Packing:
        """The packing of a batch with this mask: few groups where rows stand in the order of their length."""
        spans = _like(is_real.sum(1).tolist())
        return cls(is_real, tuple(Group.of(is_real[a:b, :longest]) for a, b, longest in spans), is_varlen)

    @property
    def n_tokens(self) -> list[int]:
        """All tokens of each group."""
        return [len(group.target) for group in self.groups]

    @property
    def n_rows(self) -> list[int]:
        """Rows of each group."""
        return [len(group.is_real) for group in self.groups]


def _like(lengths: list[int]) -> Iterator[tuple[int, int, int]]:
    """Rows next to each other and of like length: first, one after the last, longest.

    >>> list(_like([3, 4, 6, 7, 9, 30]))
    [(0, 3, 6), (3, 5, 9), (5, 6, 30)]
    """
    start = 0
    for end in range(1, len(lengths) + 1):
        inside = lengths[start:end]
        if end == len(lengths) or max(*inside, lengths[end]) > _LIKE * min(*inside, lengths[end]):
            yield start, end, max(inside)
            start = end


@dataclass
class Reading:
    """What the top layer sees when it is called with one token of each row."""

    states: Tensor | None = None
    """(1, all tokens, width) input of the top layer, once it is there"""


# Families with separate key and value projections and a norm after attention, by the names of the two projections.
_PROJECTIONS = {
    "bert": ("key", "value"),
    "roberta": ("key", "value"),
    "xlm-roberta": ("key", "value"),
    "electra": ("key", "value"),
    "distilbert": ("k_lin", "v_lin"),
}

_reading: contextvars.ContextVar[Reading | None] = contextvars.ContextVar("reading", default=None)
_current: contextvars.ContextVar[Packing | None] = contextvars.ContextVar("packing", default=None)


def first_position(config: PreTrainedConfig) -> int | None:
    """Position of a row's first token where the family can be packed; None where it cannot."""
    if config.model_type in _ABOVE_PADDING:
        return int(config.pad_token_id) + 1
    return 0 if config.model_type in _FROM_ZERO else None


def can_read_one_token(config: PreTrainedConfig, top: nn.Module) -> bool:
    """Whether the top layer can be called with one token of each row: of such a family, its projections plain."""
    names = _PROJECTIONS.get(config.model_type)
    if names is None:
        return False
    projections = [module for name, module in top.named_modules() if name.rpartition(".")[2] in names]
    return len(projections) == len(names) and all(type(module) is nn.Linear for module in projections)


@contextlib.contextmanager
def reading(top: Reading) -> Iterator[None]:
    """While this lasts, and once the top layer's input is noted, its attention reads all tokens from there."""
    token = _reading.set(top)
    try:
        yield
    finally:
        _reading.reset(token)


@contextlib.contextmanager
def packed(packing: Packing | None) -> Iterator[None]:
    """While this lasts, attention takes its input for one packed row; with None, for an ordinary batch again."""
    token = _current.set(packing)
    try:
        yield
    finally:
        _current.reset(token)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    packing = _current.get()
    if packing is None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return output, None
    top = _reading.get()
    if top is not None and top.states is not None:
        return _read_attention(module, query, top.states, packing, options), None
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


def _varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, *, is_causal: bool, options: dict[str, Any]
) -> Tensor:
    """Attention of a packed row, (1, heads, all tokens, width) → (1, all tokens, heads, width), never padded.

    The library's kernel wants half precision, which autocast gives it, and knows no dropout. Untested: it runs on CUDA
    alone; only what it is called with is tested.
    """
    from torch.nn.attention.varlen import varlen_attn  # of a newer torch than all else here wants

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


def _read_attention(
    module: nn.Module, query: Tensor, states: Tensor, packing: Packing, options: dict[str, Any]
) -> Tensor:
    """Attention of one query a row, (1, heads, batch, width), over all tokens of its row; (1, batch, heads, width).

    A row's one query times the keys' projection, once, stands for the projection of every token's key; and what the
    values' projection makes of the mean of the tokens, for the mean of every token's value.
    """
    keys, values = _projections(module)
    _, n_heads, n_rows, width = query.shape
    query = query[0] * _scale(width, options)
    of_tokens = torch.bmm(query, keys.weight.view(n_heads, width, -1)).transpose(0, 1)
    constant = query.new_zeros(n_rows, n_heads, 1)
    if keys.bias is not None:
        constant = (query * keys.bias.view(n_heads, 1, width)).sum(-1).t()[..., None]
    means, sums = [], []
    split = states[0].split(packing.n_tokens), of_tokens.split(packing.n_rows), constant.split(packing.n_rows)
    for group, tokens, looking, added in zip(packing.groups, *split, strict=True):
        padded = tokens.index_select(0, group.source).view(*group.is_real.shape, -1)
        scores = looking @ padded.transpose(1, 2) + added
        shares = (scores + _bias(group.is_real[:, None], scores.dtype)).softmax(-1)
        shares = drop(shares, options.get("dropout", 0.0))
        means.append(shares @ padded)
        sums.append(shares.sum(-1, keepdim=True))
    mean = torch.cat(means).transpose(0, 1)
    output = torch.bmm(mean, values.weight.view(n_heads, width, -1).transpose(1, 2)).transpose(0, 1)
    if values.bias is not None:
        output = output + torch.cat(sums) * values.bias.view(n_heads, width)
    return output.reshape(1, n_rows, n_heads, width)


def _attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, options: dict[str, Any]) -> Tensor:
    """Attention of a padded batch, (batch, heads, queries, width)."""
    rate, scale = options.get("dropout", 0.0), _scale(query.shape[-1], options)
    n_groups = query.shape[1] // key.shape[1]
    if not rate:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=n_groups > 1
        )
    # With dropout the library does the same steps, but draws for longer than it multiplies.
    key, value = (part.repeat_interleave(n_groups, dim=1) if n_groups > 1 else part for part in (key, value))
    scores = (query * scale) @ key.transpose(-1, -2)
    return drop((scores + _bias(mask, scores.dtype)).softmax(-1), rate) @ value


def _scale(width: int, options: dict[str, Any]) -> float:
    """What scores are multiplied with: the model's own factor, else the usual one."""
    given = options.get("scaling")
    return float(width**-0.5 if given is None else given)


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores: nothing where the mask is true, all there is to take where it is not."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)


def _projections(module: nn.Module) -> tuple[nn.Linear, nn.Linear]:
    keys, values = (module.get_submodule(name) for name in _PROJECTIONS[module.config.model_type])  # type: ignore[union-attr, index]
    assert isinstance(keys, nn.Linear)
    assert isinstance(values, nn.Linear)
    return keys, values


def _padded(states: Tensor, group: Group) -> Tensor:
    padded: Tensor = _Pad.apply(states, group)  # type: ignore[no-untyped-call]
    return padded


def _unpadded(padded: Tensor, group: Group) -> Tensor:
    rows: Tensor = _Unpad.apply(padded, group)  # type: ignore[no-untyped-call]
    return rows


class _Pad(torch.autograd.Function):
    """(1, heads, all tokens, width) → (batch, heads, tokens, width); padding repeats a real token and is masked.

    One copy each way. Attention gives padding no gradient, so that what is repeated has nothing to add up.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return _to_padded(states.transpose(1, 2), group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _to_packed(gradient, ctx.group).transpose(1, 2), None


class _Unpad(torch.autograd.Function):
    """(batch, heads, tokens, width) → (1, all tokens, heads, width); to padding goes no gradient."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return _to_packed(padded, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        is_real = ctx.group.is_real[:, None, :, None]
        return _to_padded(gradient, ctx.group).mul_(is_real.to(gradient.dtype)), None


def _to_padded(rows: Tensor, group: Group) -> Tensor:
    """(1, all tokens, heads, width) → (batch, heads, tokens, width)"""
    n_heads, width = rows.shape[2:]
    n_rows, n_tokens = group.is_real.shape
    padded = rows.reshape(-1, width).index_select(0, group.by_head(n_heads)[0])
    return padded.view(n_rows, n_heads, n_tokens, width)


def _to_packed(padded: Tensor, group: Group) -> Tensor:
    """(batch, heads, tokens, width) → (1, all tokens, heads, width)"""
    n_heads, width = padded.shape[1], padded.shape[3]
    rows = padded.reshape(-1, width).index_select(0, group.by_head(n_heads)[1])
    return rows.view(1, -1, n_heads, width)


def _mask(group: Group, *, is_causal: bool, window: int | None = None) -> Tensor:
    """(batch, 1, 1 or tokens, tokens), true where a token may be looked at."""
    keys = group.is_real[:, None, None, :]
    n_tokens = keys.shape[-1]
    if not is_causal and (window is None or window >= n_tokens):
        return keys
    places = torch.arange(n_tokens, device=keys.device)
    ahead = places[None, :] - places[:, None]
    below = ahead <= (0 if is_causal else n_tokens)
    if window is not None:
        below = below & (ahead.abs() < window)
    # The diagonal stays on for padding, whose output is dropped: a row that may look at nothing gives NaN.
    return keys & below | torch.eye(n_tokens, dtype=torch.bool, device=keys.device)


def _library_mask(*arguments: Any, **options: Any) -> Tensor | None:
    return None if _current.get() is not None else sdpa_mask(*arguments, **options)


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _library_mask)
