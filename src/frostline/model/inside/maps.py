"""What the layers of a model do with rows: attention maps and states, both from one forward pass.

Fast attention functions never build the maps. Inside `showing_attention` the model uses the library's plain function
instead, which returns them; where a family has only one function, that one returns them.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from frostline.model.added.pass_through import first_tensor
from frostline.model.load import quiet
from frostline.model.stack import Stack

_PLAIN = "eager"


@dataclass(frozen=True)
class Seen:
    """What a forward pass showed."""

    maps: list[Tensor]
    """(batch, attention heads, tokens, tokens) for each layer: how much each token attends to each; rows of a map sum
    to 1. Empty if the model gives none."""
    states: list[Tensor]
    """(batch, tokens, width) after the embeddings and after each layer"""


@contextlib.contextmanager
def showing_attention(stack: Stack) -> Iterator[None]:
    """Inside this context, the model computes attention in the way that gives maps."""
    model = stack.model
    before = model.config._attn_implementation
    with quiet():  # a family with one attention function says that it cannot change it
        if before != _PLAIN:
            model.set_attn_implementation(_PLAIN)
        try:
            yield
        finally:
            if before != _PLAIN:
                model.set_attn_implementation(before)


def seen(stack: Stack, inputs: Mapping[str, Tensor]) -> Seen:
    """Maps and states of padded rows, in evaluation mode and without gradient. Call it inside `showing_attention`."""
    states: list[Tensor] = []
    layers = stack.model.get_submodule(stack.structure.layers_name)
    assert isinstance(layers, nn.ModuleList)
    # The state after a layer is what the next one gets: some models change it in between (TRAPS 27).
    handles = [layer.register_forward_pre_hook(_kept_input(states), with_kwargs=True) for layer in layers]
    handles.append(layers[-1].register_forward_hook(_kept_output(states)))
    accepted = inspect.signature(stack.model.forward).parameters
    taken = {name: tensor for name, tensor in inputs.items() if name in accepted}
    never = {name: False for name in ("use_cache", "use_mems") if name in accepted}
    stack.eval()
    try:
        with torch.no_grad():
            maps = stack.model(**taken, **never, output_attentions=True).get("attentions")
    finally:
        for handle in handles:
            handle.remove()
    is_turned = stack.structure.is_token_first
    return Seen(
        maps=[one for one in maps or () if one is not None] if _is_complete(maps, len(layers)) else [],
        states=[state.transpose(0, 1) if is_turned else state for state in states],
    )


def _is_complete(maps: tuple[Tensor | None, ...] | None, n_layers: int) -> bool:
    """Whether every layer gave a map with the same number of attention heads."""
    found = [one for one in maps or () if isinstance(one, Tensor) and one.ndim == 4]
    return len(found) == n_layers and len({one.shape[1] for one in found}) == 1


def _kept_input(states: list[Tensor]) -> Callable[..., None]:
    def keep(_module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        states.append(first_tensor(args or tuple(kwargs.values())))

    return keep


def _kept_output(states: list[Tensor]) -> Callable[..., None]:
    def keep(_module: nn.Module, _args: object, output: object) -> None:
        states.append(first_tensor(output if isinstance(output, tuple) else (output,)))

    return keep
