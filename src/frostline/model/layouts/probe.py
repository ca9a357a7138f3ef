"""Which layout a model's batches may have: each way without padding is compared with the model itself, padded.

No list of names decides. Attention that goes through transformers' attention interface is packed. A model with
attention of its own gets the layout "mixed" (`inner.py`). A model that gives other states than padded stays padded, and
the reason becomes a warning.

What gives the comparison teeth:
- Rows of uneven lengths are joined. One that reads its neighbour, or has wrong positions, differs in most features.
- Small models are compared in double precision: with the usual initial weights of 0.02 and a small width, attention
  hardly matters, and single precision would hide a forgotten mask (TRAPS 22). At real widths single precision shows it.
- An option that packed attention does not know is an error even if it makes no difference yet: a soft cap does nothing
  as long as weights are small.
- A window longer than the rows would not show. There, the library's masks for longer rows are compared with ours;
  no layer is run on them. That includes windows that only the configuration names: some models put them into their
  masks and do not tell their attention.

The lowest layer is not run if there are others: users may count calls there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from frostline.errors import FrostlineError, one_line
from frostline.model.added.attention import PACKED_ATTENTION, AttentionCall, noting_calls
from frostline.model.added.pass_through import PassThrough, passing_through
from frostline.model.layouts.inner import find_meeting, without_padding
from frostline.model.packing import Packing, packed
from frostline.model.stack import Stack
from frostline.model.structure import in_eval, probed_tokens

_LENGTHS = (3, 5, 12)
_LONGEST = 2048
"""Rows longer than this are not tried; a window that long has no effect on shorter ones."""
_MOST_DOUBLED = 5_000_000
"""Models with at most this many numbers are compared in double precision; of larger ones it would take much memory."""
_CLOSE = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Largest difference as a share of the state. Some norms compute in single precision in every model."""

_FAULTS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError, FrostlineError)
"""What a model raises that cannot process a packed batch."""


@dataclass(frozen=True)
class FoundLayout:
    """How the batches of a model are computed on a CPU."""

    layout: Literal["packed", "mixed", "padded"]
    reason: str | None = None
    """why they are padded, if the model differs from itself without padding"""


_found: dict[str, FoundLayout] = {}
"""by fingerprint: a process looks at a model once"""


def known_layout(stack: Stack, fingerprint: str) -> FoundLayout:
    """The layout of the model with this fingerprint; see `find_layout`."""
    if fingerprint not in _found:
        _found[fingerprint] = find_layout(stack)
    return _found[fingerprint]


def find_layout(stack: Stack) -> FoundLayout:
    """The layout that gives the model's own states, from a few short rows. The model can be cut at a depth.

    Leaves the model as it was, but its weights may be in other memory.
    """
    with torch.no_grad(), in_eval(stack.model):
        # Not every model can compute in double precision.
        for in_precision in (_doubled, contextlib.nullcontext):
            with in_precision(stack.model):
                probe = _probe(stack)
                if probe is not None:
                    return probe.find()
    return FoundLayout("padded", "its states are not finite")


def _probe(stack: Stack) -> _Probe | None:
    """The rows to compare; None if the model gives no finite states for them."""
    try:
        probe = _Probe(stack)
    except _FAULTS:
        return None
    return probe if bool(probe.wanted.isfinite().all()) else None


@final
class _Probe:
    """Some rows, and the states that a model gives for them when they are padded."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        tokens = probed_tokens(stack.model, sum(_LENGTHS))
        lengths = torch.tensor(_LENGTHS, device=tokens.device)
        self._mask = torch.arange(max(_LENGTHS), device=tokens.device) < lengths[:, None]
        self._tokens = tokens[None]
        self._padded = {
            "input_ids": torch.zeros_like(self._mask, dtype=torch.long).masked_scatter(self._mask, tokens),
            "attention_mask": self._mask.long(),
        }
        self.wanted = self._top(self._padded)[self._mask]

    def find(self) -> FoundLayout:
        """The layout, and why it is not another one."""
        model = self._stack.model
        implementation = model.config._attn_implementation
        model.set_attn_implementation(PACKED_ATTENTION)
        try:
            with noting_calls() as calls:
                fault = self._fault_of(self._packed)
            if calls and fault is None:
                fault = _fault_of_windows(self._stack, calls)
        finally:
            model.set_attn_implementation(implementation)
        if calls:
            return FoundLayout("packed") if fault is None else FoundLayout("padded", fault)
        fault = self._fault_of(self._mixed)
        return FoundLayout("mixed") if fault is None else FoundLayout("padded", fault)

    def _packed(self) -> Tensor:
        places = (self._mask.cumsum(1) - 1)[self._mask]
        inputs = {"input_ids": self._tokens, "position_ids": places[None] + self._stack.first_position}
        with packed(Packing.of(self._mask)):
            return self._top(inputs)[0]

    def _mixed(self) -> Tensor:
        meeting = find_meeting(self._stack)
        if meeting is None:
            raise FrostlineError("tokens do not meet in one module of a layer")
        with without_padding(self._stack, meeting, self._mask):
            return self._top(self._padded)[self._mask]

    def _top(self, inputs: dict[str, Tensor]) -> Tensor:
        stack = self._stack
        layers = _layers(stack)
        lowest = [PassThrough(layer, stack.structure.output_length) for layer in layers[: min(1, len(layers) - 1)]]
        with passing_through(layers, lowest):
            return stack.state_at(stack.n_layers, inputs)

    def _fault_of(self, compute: Callable[[], Tensor]) -> str | None:
        """Why what this computes is not what the padded rows give; None if it is."""
        try:
            found = compute()
        except _FAULTS as error:
            return one_line(error, at_most=200)
        # By feature, because a few features of a transformer's states are far above the rest.
        sizes = self.wanted.norm(dim=0).clamp(min=torch.finfo(found.dtype).tiny)
        off = float(((found - self.wanted).norm(dim=0) / sizes).median())
        return None if off <= _CLOSE[found.dtype] else f"its states differ by {off:.1g} of their size"


def _fault_of_windows(stack: Stack, calls: Sequence[AttentionCall]) -> str | None:
    """Why packed attention would see other tokens than the library's masks show, in rows longer than the windows."""
    windows = [call.window for call in calls if call.window is not None] + _windows_in(stack.model.config)
    long = [window for window in windows if window >= max(_LENGTHS)]
    positions = getattr(stack.model.config, "max_position_embeddings", None) or _LONGEST
    n_tokens = min(max(long, default=0) + 2, _LONGEST, positions - stack.first_position)
    if not long or n_tokens < min(long):
        return None
    tokens = probed_tokens(stack.model, n_tokens).expand(2, -1)
    is_real = torch.arange(n_tokens, device=tokens.device) < tokens.new_tensor([n_tokens, n_tokens - 1])[:, None]
    masks = _masks_of_layers(stack, {"input_ids": tokens, "attention_mask": is_real.long()})[-len(calls) :]
    for call, mask in zip(calls, masks, strict=True):
        if mask is None or mask.dtype != torch.bool:
            return "its windows cannot be compared: layers get no mask"
        theirs, ours = (one.expand(-1, 1, n_tokens, -1)[is_real[:, None]] for one in (mask, call.mask(is_real)))
        if not torch.equal(theirs, ours):
            if call.window is None:
                return "its masks have a window that its attention does not ask for"
            return f"its layers have another window than the {call.window} tokens that its attention asks for"
    return None


def _windows_in(config: PreTrainedConfig) -> list[int]:
    """The windows and chunks of a configuration: a model may put them into its masks and not tell its attention."""
    named = [(name, value) for name, value in vars(config).items() if "window" in name or "chunk" in name]
    return [value for name, value in named if type(value) is int and "feed_forward" not in name]


def n_pair_heads(config: PreTrainedConfig, found: FoundLayout) -> int:
    """The attention heads of a layer that keep numbers for each pair of tokens until the backward pass.

    Packed attention without dropout keeps none.
    """
    rates = [
        value for name, value in vars(config).items() if ("attention" in name or "attn" in name) and "drop" in name
    ]
    keeps = found.layout != "packed" or any(rates) or not rates
    return int(getattr(config, "num_attention_heads", 0)) if keeps else 0


@final
class _NotesMask(PassThrough):
    """Stands in for a layer and keeps the mask that it gets."""

    mask: Tensor | None = None

    def forward(self, hidden_states: Tensor, *args: object, **kwargs: object) -> object:
        """The input."""
        masks = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.ndim == 4]
        self.mask = masks[0] if masks else None
        return super().forward(hidden_states)


def _masks_of_layers(stack: Stack, inputs: dict[str, Tensor]) -> list[Tensor | None]:
    """The mask (batch, 1, tokens, tokens) that each layer gets; no layer is run."""
    layers = _layers(stack)
    stand_ins = [_NotesMask(layer, stack.structure.output_length) for layer in layers]
    with passing_through(layers, stand_ins):
        stack.state_at(stack.n_layers, inputs)
    return [stand_in.mask for stand_in in stand_ins]


def _layers(stack: Stack) -> nn.ModuleList:
    layers = stack.model.get_submodule(stack.structure.layers_name)
    assert isinstance(layers, nn.ModuleList)
    return layers


@contextlib.contextmanager
def _doubled(model: PreTrainedModel) -> Iterator[None]:
    """Inside this context, a small model has weights in double precision; afterwards it has those that it had."""
    tensors = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()]
    is_small = sum(tensor.numel() for tensor in tensors) <= _MOST_DOUBLED
    if not is_small or any(tensor.dtype != torch.float32 for tensor in tensors):
        yield
        return
    try:
        model.double()
        yield
    finally:
        model.float()
