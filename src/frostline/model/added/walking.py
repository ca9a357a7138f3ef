"""A model that many threads run at once, each from its own depth to its own depth.

`Stack` starts and stops a model by replacing layers and adding hooks for the time of one call. Every thread that holds
the model sees that, so two calls at once would read each other's layers (TRAPS 32). Here the layers are replaced once,
when the model is loaded, and never again. What a call wants is a `_Walk` in a context variable, which each thread has
for itself: where to start and with which state, which states to note, where to leave.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import final

from torch import Tensor, nn
from transformers import PreTrainedConfig

from frostline.errors import UsageError
from frostline.model.added.pass_through import PassThrough, first_tensor, with_state
from frostline.model.added.top_token import narrow_when_asked, reading_one_token
from frostline.model.stack import Stack
from frostline.model.structure import HeadReads, Reached, Structure, uncalled


@dataclass
class _Walk:
    """What one forward pass does at the layers."""

    start: int
    """layers that are skipped"""
    state: Tensor | None
    """the state after them, in the layers' own order of dimensions; None: the pass starts from the tokens"""
    wanted: frozenset[int]
    """depths whose states are noted; the pass ends at the highest. Empty: it goes up to the logits"""
    seen: dict[int, Tensor] = field(default_factory=dict)

    def reach(self, depth: int, state: Tensor) -> None:
        """Notes the state if it is wanted, and leaves the pass if it is the last one."""
        if depth in self.wanted:
            self.seen[depth] = state
            if len(self.seen) == len(self.wanted):
                raise Reached


_current: contextvars.ContextVar[_Walk | None] = contextvars.ContextVar("walk", default=None)


@final
class _WalkedLayer(PassThrough):
    """Stands in for a layer for good: calls it, skips it or leaves the pass, as the walk of the calling thread says."""

    def __init__(self, layer: nn.Module, output_length: int | None, number: int, *, is_last: bool) -> None:
        super().__init__(layer, output_length)
        self.number = number
        self.is_last = is_last

    def forward(self, *args: object, **kwargs: object) -> object:
        """The output of the layer, or of a stand-in for it."""
        layer, walk = self._stood_for[0], _current.get()
        if walk is None:
            return layer(*args, **kwargs)
        if self.number <= walk.start:
            # Above the last layer there is no other place to set the state.
            given = walk.state if self.is_last else None
            return super().forward(first_tensor(args or tuple(kwargs.values())) if given is None else given)
        if self.number == walk.start + 1 and walk.state is not None:
            # Set at the first real layer: what a model does between two layers (DeBERTa, TRAPS 27) is already part of
            # the given state.
            args, kwargs = with_state(args, kwargs, walk.state)
        walk.reach(self.number - 1, first_tensor(args or tuple(kwargs.values())))
        output = layer(*args, **kwargs)
        if self.is_last:
            walk.reach(self.number, first_tensor(output if isinstance(output, tuple) else (output,)))
        return output


@final
class ConcurrentStack:
    """A model, in evaluation mode, that any number of threads run at once, from any depth to any depth.

    It takes the stack over: its layers are replaced, so that nothing else may run or change that model afterwards.
    States are (batch, tokens, width), as in `Stack`.
    """

    def __init__(self, stack: Stack, structure: Structure | None, *, is_packed: bool) -> None:
        """Takes the model over.

        Args:
            stack: holds the model.
            structure: where its parts are; None: it cannot be cut at a depth and is only run as a whole.
            is_packed: it gets packed batches; only if it can be cut at a depth.
        """
        _check_constant(stack)
        stack.eval()
        self.stack = stack
        """the model with its layers replaced; only to look at"""
        self._is_token_first = structure is not None and structure.is_token_first
        self.head_reads: HeadReads = "all" if structure is None else stack.head_reads
        self.first_position = stack.first_position if is_packed else None
        """the position number of a row's first token; None if batches are padded"""
        self.can_read_one_token = False
        """the head reads only the first token, and in a packed batch the top layer can be called with it alone"""
        if is_packed:
            stack.allow_packing()
        if structure is not None:
            self._replace_layers(stack, structure)

    def _replace_layers(self, stack: Stack, structure: Structure) -> None:
        layers = stack.model.get_submodule(structure.layers_name)
        assert isinstance(layers, nn.ModuleList)
        if self.first_position is not None and stack.can_read_one_token:
            narrow_when_asked(layers[-1])
            self.can_read_one_token = True
        layers._modules = {
            str(place): _WalkedLayer(layer, structure.output_length, place + 1, is_last=place + 1 == len(layers))
            for place, layer in enumerate(layers)
        }

    @property
    def n_layers(self) -> int:
        """The number of layers."""
        return self.stack.n_layers

    @property
    def config(self) -> PreTrainedConfig:
        """The configuration of the model."""
        config: PreTrainedConfig = self.stack.model.config
        return config

    def logits(
        self,
        inputs: Mapping[str, Tensor],
        start: int = 0,
        state: Tensor | None = None,
        *,
        top_tokens: Tensor | None = None,
    ) -> Tensor:
        """The logits (batch, classes).

        Args:
            inputs: of the model; where `state` is given, as far as it reads them above `start`.
            start: the number of layers that are skipped.
            state: the state after them; None: the pass starts from the tokens.
            top_tokens: (batch,) places of the tokens that the top layer computes, one per row of a packed batch; only
                if `can_read_one_token` and the top layer is not skipped. None: all tokens.
        """
        with self._passing(self._walk(start, state, ()), top_tokens):
            return self.stack.logits(inputs)

    def states(
        self,
        depths: Collection[int],
        inputs: Mapping[str, Tensor],
        start: int = 0,
        state: Tensor | None = None,
        *,
        top_tokens: Tensor | None = None,
    ) -> dict[int, Tensor]:
        """The states after each of these depths, from one pass that ends at the highest.

        The other arguments are those of `logits`. With `state`, all depths must be above `start`. With `top_tokens`,
        the state after the last layer is (batch, 1, width).
        """
        walk = self._walk(start, state, depths)
        with self._passing(walk, top_tokens):
            try:
                self.stack.logits(inputs)
            except Reached:
                return {depth: self._turned(seen) for depth, seen in walk.seen.items()}
        raise uncalled(self.stack.model, max(depths))

    @contextlib.contextmanager
    def _passing(self, walk: _Walk, top_tokens: Tensor | None) -> Iterator[None]:
        """Inside this context, a pass of the calling thread takes this walk."""
        assert top_tokens is None or (self.can_read_one_token and walk.start < self.n_layers)
        token = _current.set(walk)
        try:
            with contextlib.nullcontext() if top_tokens is None else reading_one_token(top_tokens):
                yield
        finally:
            _current.reset(token)

    def _turned(self, state: Tensor) -> Tensor:
        """Converts between the layers' own order of dimensions and (batch, tokens, width), either way."""
        return state.transpose(0, 1) if self._is_token_first else state

    def _walk(self, start: int, state: Tensor | None, depths: Collection[int]) -> _Walk:
        return _Walk(start, None if state is None else self._turned(state), frozenset(depths))


def _check_constant(stack: Stack) -> None:
    """Raises if a pass changes the model: some rotary positions follow the longest row that came by."""
    for module in stack.model.modules():
        kinds = getattr(module, "rope_type", None)
        for kind in kinds.values() if isinstance(kinds, dict) else [kinds]:
            if kind is not None and ("dynamic" in kind or kind == "longrope"):
                raise UsageError(
                    f"{type(stack.model).__name__} has rotary positions of the type {kind!r}, which depend on the "
                    "longest text of a batch; a text would get another answer next to other texts. Use a model with "
                    "fixed positions"
                )
