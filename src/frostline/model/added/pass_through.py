"""Stand-ins for layers: how a model starts above some of its layers without being rewritten.

To run a model from the state after layer N, the lowest N layers are replaced for one forward pass by modules that
return their input, and the model's own forward is called. Everything else in that forward (masks, positions, what
happens between two layers) is the library's code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn


class PassThrough(nn.Module):
    """Stands in for a layer: returns its input, or a state that was set, in the form that the layer would."""

    def __init__(self, layer: nn.Module, output_length: int | None) -> None:
        super().__init__()
        self.output_length = output_length
        self.state: Tensor | None = None
        self._stood_for = (layer,)  # in a tuple, so that torch does not register it as a submodule

    def __getattr__(self, name: str) -> Any:
        """The layer's attribute: ModernBERT, for example, asks its layers for `attention_type`."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_stood_for"][0], name)

    def forward(self, hidden_states: Tensor, *_: object, **__: object) -> object:
        """The state, as a tensor or as the first item of a tuple."""
        state = hidden_states if self.state is None else self.state
        return state if self.output_length is None else (state, *[None] * (self.output_length - 1))


@contextlib.contextmanager
def passing_through(
    layers: nn.ModuleList, stand_ins: Sequence[PassThrough], state: Tensor | None = None
) -> Iterator[None]:
    """Inside this context, stand-ins replace the lowest layers, one each.

    Args:
        layers: the layers of the model.
        stand_ins: replace as many of the lowest layers.
        state: what the topmost stand-in returns instead of its input.
    """
    # The module dictionary is swapped as a whole. Replacing layers one by one through ModuleList's own methods takes
    # longer than the rest of a training step of the head.
    # The swap is visible to everyone who holds the model. That is safe only while one thread uses it: a second thread
    # in the same model would run without its lowest layers. Runs therefore never share a model between threads; the
    # sweep uses processes.
    kept = layers._modules
    try:
        layers._modules = {**kept, **{str(index): stand_in for index, stand_in in enumerate(stand_ins)}}
        if state is not None:
            stand_ins[-1].state = state
        yield
    finally:
        layers._modules = kept
        if state is not None:
            stand_ins[-1].state = None


def first_tensor(values: tuple[object, ...]) -> Tensor:
    """The first of a layer's arguments or outputs, which is the state in every family."""
    assert isinstance(values[0], Tensor)
    return values[0]


def with_state(
    args: tuple[object, ...], kwargs: dict[str, object], state: Tensor
) -> tuple[tuple[object, ...], dict[str, object]]:
    """A layer's arguments with this state in the first place."""
    if args:
        return (state, *args[1:]), kwargs
    first = next(iter(kwargs))
    return args, {**kwargs, first: state}
