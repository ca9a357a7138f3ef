"""Layers without padding for models whose attention is their own (MPNet, DeBERTa, XLNet): the layout "mixed".

Between layers, the state is padded, and the model's own code makes masks and relative positions for it. Inside a layer,
everything but attention works on each token by itself, so it gets the real tokens alone, joined into one row. Where
attention begins they are padded again, for its products only: its own projections of tokens get the real ones too.

The module that attends is found by experiment, not by name: one token of the top layer's input is changed, and the
innermost module in which other tokens change is the one where tokens meet. Whether all of this is exact is checked for
each model (`probe.py`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from frostline.errors import FrostlineError
from frostline.model.added.pass_through import first_tensor, with_state
from frostline.model.stack import Stack
from frostline.model.structure import in_eval, probed_tokens

_N_TOKENS = 5
"""Tokens of the row that shows where tokens meet."""

_Forward = Callable[..., Any]


@dataclass(frozen=True)
class Meeting:
    """Where tokens meet in a layer, as names of modules below it."""

    attention: str
    """the innermost module whose output for a token depends on other tokens"""
    projections: Mapping[str, bool]
    """its parts that work on each token by itself; true if they get nothing else (DeBERTa's get positions too)"""


def find_meeting(stack: Stack) -> Meeting | None:
    """Where tokens meet in each layer of a model; None if that is not one module below the layer."""
    plain, changed = (_calls_in_top_layer(stack, is_changed=is_changed) for is_changed in (False, True))
    meeting = [name for name in plain if _is_meeting(plain[name], changed[name])]
    attention = max(meeting, key=len, default="")
    if not attention or any(not f"{attention}.".startswith(f"{name}." if name else "") for name in meeting):
        return None
    top = _layers(stack)[-1]
    own = {name: calls for name, calls in plain.items() if name.rpartition(".")[0] == attention}
    of_tokens = [name for name, calls in own.items() if any(call.is_of_tokens for call in calls)]
    has_weights = {name: any(True for _ in top.get_submodule(name).parameters()) for name in of_tokens}
    return Meeting(attention, {name: len(own[name]) == 1 for name in of_tokens if has_weights[name]})


@contextlib.contextmanager
def without_padding(stack: Stack, meeting: Meeting, mask: Tensor) -> Iterator[None]:
    """Inside this context, what works on each token by itself in a layer computes only the tokens of this mask.

    Args:
        stack: the model; it gets a padded batch.
        meeting: where tokens meet in its layers.
        mask: (batch, tokens) true at tokens, false at padding.
    """
    if bool(mask.all()):
        yield
        return
    changed: list[nn.Module] = []

    def change(module: nn.Module, forward: Callable[..., Any]) -> None:
        # Set on the object, below its hooks: those see padded states, as without this context.
        vars(module)["forward"] = functools.partial(forward, module.forward)
        changed.append(module)

    real = _RealTokens.of(mask.t() if stack.structure.is_token_first else mask)
    try:
        for layer in _layers(stack):
            padded = _Padded(real)
            for name, gets_tokens_only in meeting.projections.items():
                change(layer.get_submodule(name), padded.project_any if gets_tokens_only else padded.project)
            attention = layer.get_submodule(meeting.attention)
            change(attention, functools.partial(_near_positions, attention))
            change(attention, padded.attend)
            change(layer, padded.layer)
        yield
    finally:
        for module in changed:
            vars(module).pop("forward", None)


@final
class _Padded:
    """The calls of one layer, with the state that its attention works on."""

    def __init__(self, real: _RealTokens) -> None:
        self._real = real
        self._padded: Tensor | None = None
        self._packed: Tensor | None = None

    def layer(self, forward: _Forward, *args: object, **kwargs: object) -> object:
        """A layer, on the real tokens of a padded state."""
        return _with_first(forward, args, kwargs, self._real.packed, self._real.padded)

    def attend(self, forward: _Forward, *args: object, **kwargs: object) -> object:
        """Attention, on real tokens that are padded for it."""

        def padded(state: Tensor) -> Tensor:
            self._packed, self._padded = state, self._real.padded(state)
            return self._padded

        try:
            return _with_first(forward, args, kwargs, padded, self._real.packed)
        finally:
            self._packed = self._padded = None

    def project(self, forward: _Forward, states: Tensor, *args: object, **kwargs: object) -> object:
        """A projection in attention: on the real tokens, if it gets the state that attention got."""
        if states is not self._padded:
            return forward(states, *args, **kwargs)
        return self._real.padded(forward(self._packed, *args, **kwargs))

    def project_any(self, forward: _Forward, states: Tensor, *args: object, **kwargs: object) -> object:
        """A projection in attention that gets nothing but padded tokens."""
        packed = self._packed if states is self._padded else self._real.packed(states)
        return self._real.padded(forward(packed, *args, **kwargs))


def _near_positions(attention: nn.Module, forward: _Forward, *args: object, **kwargs: object) -> object:
    """Attention with embeddings of only those relative positions that occur in the batch.

    DeBERTa projects the embeddings of all 512 relative positions in every layer, and multiplies every token with each
    of them. Rows of 40 tokens need 79, which are in the middle of the table. Other models are called as they are.
    """
    positions, table = kwargs.get("relative_pos"), kwargs.get("rel_embeddings")
    span = vars(attention).get("pos_ebd_size")
    if not isinstance(positions, Tensor) or not isinstance(table, Tensor) or not isinstance(span, int):
        return forward(*args, **kwargs)
    near = min(int(positions.abs().max()) + 1, span)
    vars(attention)["pos_ebd_size"] = near
    try:
        return forward(*args, **{**kwargs, "rel_embeddings": table[span - near : span + near]})
    finally:
        vars(attention)["pos_ebd_size"] = span


def _with_first(
    forward: _Forward,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    given: Callable[[Tensor], Tensor],
    answered: Callable[[Tensor], Tensor],
) -> object:
    """Calls a module with its first tensor changed by `given`, and the first tensor of its answer by `answered`."""
    args, kwargs = with_state(args, kwargs, given(first_tensor(args or tuple(kwargs.values()))))
    answer = forward(*args, **kwargs)
    if isinstance(answer, tuple):
        return (answered(first_tensor(answer)), *answer[1:])
    return answered(answer)


@dataclass(frozen=True)
class _RealTokens:
    """Where the tokens of a padded batch are."""

    shape: tuple[int, int]
    """of the batch, in the layers' own order of dimensions"""
    places: Tensor
    """(all tokens,) place of each token in the flattened batch"""

    @classmethod
    def of(cls, mask: Tensor) -> _RealTokens:
        return cls((mask.shape[0], mask.shape[1]), mask.reshape(-1).nonzero()[:, 0])

    def packed(self, states: Tensor) -> Tensor:
        """A padded state → (1, all tokens, width)."""
        if tuple(states.shape[:2]) != self.shape:
            raise FrostlineError(f"a layer got {tuple(states.shape[:2])} tokens instead of {self.shape}")
        packed: Tensor = _Pack.apply(states, self)  # type: ignore[no-untyped-call]
        return packed

    def padded(self, states: Tensor) -> Tensor:
        """(1, all tokens, width) → a padded state, 0 at padding."""
        padded: Tensor = _Pad.apply(states, self)  # type: ignore[no-untyped-call]
        return padded

    def select(self, states: Tensor) -> Tensor:
        return states.reshape(-1, states.shape[-1]).index_select(0, self.places)[None]

    def spread(self, states: Tensor) -> Tensor:
        rows, columns = self.shape
        flat = states.new_zeros(rows * columns, states.shape[-1])
        return flat.index_copy_(0, self.places, states[0]).view(rows, columns, -1)


# Two autograd functions of our own: the backward pass of plain indexing would be a scatter-add.


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, real: _RealTokens) -> Tensor:
        ctx.real = real
        return real.select(states)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.real.spread(gradient), None


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, real: _RealTokens) -> Tensor:
        ctx.real = real
        return real.spread(states)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.real.select(gradient), None


@dataclass(frozen=True)
class _Call:
    """The first tensor that a module got and gave."""

    given: Tensor
    answer: Tensor

    @property
    def is_of_tokens(self) -> bool:
        return _is_of_tokens(self.given) and _is_of_tokens(self.answer)


def _is_of_tokens(tensor: Tensor) -> bool:
    return tensor.ndim == 3 and tuple(tensor.shape[:2]) in ((1, _N_TOKENS), (_N_TOKENS, 1))


def _is_meeting(plain: list[_Call], changed: list[_Call]) -> bool:
    """Whether tokens met in a module: only the first of those that it got has changed, but others that it gave."""
    if len(plain) != 1 or len(changed) != 1 or not plain[0].is_of_tokens:
        return False
    return not _others_differ(plain[0].given, changed[0].given) and _others_differ(plain[0].answer, changed[0].answer)


def _others_differ(one: Tensor, other: Tensor) -> bool:
    """Whether two rows differ in any token but the first."""
    return not torch.equal(one.flatten(0, 1)[1:], other.flatten(0, 1)[1:])


def _calls_in_top_layer(stack: Stack, *, is_changed: bool) -> dict[str, list[_Call]]:
    """The calls of each module of the top layer, by name ("": the layer), for a row with or without another token."""
    tokens, width = probed_tokens(stack.model, _N_TOKENS)[None], stack.structure.width
    # Any unequal numbers will do; random ones would advance the run's generator.
    state = torch.sin(torch.arange(1.0, _N_TOKENS * width + 1)).view(1, _N_TOKENS, width)
    state = state.to(next(stack.model.parameters()))
    if is_changed:
        state[:, 0] = state[:, 0].flip(-1) + 1
    seen: dict[str, list[_Call]] = {}
    handles = [
        module.register_forward_hook(functools.partial(_note, seen.setdefault(name, [])), with_kwargs=True)
        for name, module in _layers(stack)[-1].named_modules()
    ]
    try:
        with torch.no_grad(), in_eval(stack.model):
            inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
            stack.state_between(stack.n_layers - 1, state, stack.n_layers, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _note(
    calls: list[_Call], _module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object
) -> None:
    given = (*args, *kwargs.values())
    answer = output if isinstance(output, tuple) else (output,)
    if given and isinstance(given[0], Tensor) and isinstance(answer[0], Tensor):
        calls.append(_Call(given[0], answer[0]))


def _layers(stack: Stack) -> nn.ModuleList:
    layers = stack.model.get_submodule(stack.structure.layers_name)
    assert isinstance(layers, nn.ModuleList)
    return layers
