"""Finds, by structure and never by name, what stands below, in and above a model's layers.

The layers are the one homogeneous ModuleList with as many members as the configuration counts layers. What is above
them is what the logits still depend on when every layer is passed through; the rest is below.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.errors import UsageError
from frostline.stack.packing import packed

PROBED_TOKENS = 6
"""Probing a model looks up tokens below this number."""

HeadReads = Literal["first", "last", "all"]


class NoDepthError(UsageError):
    """The model has no single stack of layers that could be cut at a depth."""


@dataclass(frozen=True)
class Structure:
    """Where the parts of a model are, as names of its modules and parameters."""

    layers_name: str
    layer_parameters: tuple[tuple[str, ...], ...]
    below_parameters: tuple[str, ...]
    above_parameters: tuple[str, ...]
    below_modules: tuple[str, ...]
    output_length: int | None
    """a layer gives a bare tensor (None), or a tuple of this length with the state first"""


class PassThrough(nn.Module):
    """Stands in for a layer: hands on its input, or a state given to it, in the layer's own output form."""

    def __init__(self, layer: nn.Module, output_length: int | None) -> None:
        super().__init__()
        self.output_length = output_length
        self.state: Tensor | None = None
        self._stood_for = (layer,)  # in a tuple, so that it is no submodule

    def __getattr__(self, name: str) -> Any:
        """What the layer would answer: ModernBERT asks its layers for their `attention_type`."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_stood_for"][0], name)

    def forward(self, hidden_states: Tensor, *_: object, **__: object) -> object:
        """The state, as a tensor or as a tuple with it first."""
        state = hidden_states if self.state is None else self.state
        return state if self.output_length is None else (state, *[None] * (self.output_length - 1))


@contextlib.contextmanager
def passing_through(layers: nn.ModuleList, n_passed: int, output_length: int | None) -> Iterator[list[PassThrough]]:
    """The lowest `n_passed` layers are replaced in place (the list keeps its length) and put back at the end."""
    kept = list(layers[:n_passed])
    stand_ins = [PassThrough(layer, output_length) for layer in kept]
    try:
        for index, stand_in in enumerate(stand_ins):
            layers[index] = stand_in
        yield stand_ins
    finally:
        for index, layer in enumerate(kept):
            layers[index] = layer


@contextlib.contextmanager
def _in_eval(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; then every module has its own mode back, frozen ones in a training model too."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def find_structure(model: PreTrainedModel) -> Structure:
    """The structure of a model, or a NoDepthError that says why it has none to cut."""
    name, layers = find_layers(model)
    with _in_eval(model):
        output_length, state = _observe_last_layer(model, layers)
        above_parameters, above_modules = _observe_head(model, layers, output_length, state)
    layer_parameters = tuple(
        tuple(f"{name}.{i}.{p}" for p, _ in layer.named_parameters()) for i, layer in enumerate(layers)
    )
    in_layers = {p for names in layer_parameters for p in names}
    outside = [p for p, _ in model.named_parameters() if p not in in_layers]
    return Structure(
        layers_name=name,
        layer_parameters=layer_parameters,
        below_parameters=tuple(p for p in outside if p not in above_parameters),
        above_parameters=tuple(p for p in outside if p in above_parameters),
        below_modules=_modules_below(model, name, above_modules),
        output_length=output_length,
    )


def find_layers(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """Name and list of the model's layers."""
    n_layers = int(model.config.num_hidden_layers)
    lists = {name: module for name, module in model.named_modules() if _is_homogeneous(module)}
    outermost = {n: m for n, m in lists.items() if not any(n.startswith(f"{other}.") for other in lists)}
    fitting = {n: m for n, m in outermost.items() if isinstance(m, nn.ModuleList) and len(m) == n_layers}
    if len(fitting) != 1 or model.config.is_encoder_decoder:
        found = ", ".join(f"{n} ({len(m)})" for n, m in outermost.items() if isinstance(m, nn.ModuleList)) or "none"
        raise NoDepthError(
            f"{type(model).__name__} has no single stack of {n_layers} layers to freeze from the bottom "
            f"(lists of like modules: {found}); shared, nested or parallel layers have no depth. "
            "Use a model with one plain stack, e.g. BERT, RoBERTa, DistilBERT, DeBERTa, GPT-2"
        )
    return next((n, m) for n, m in fitting.items() if isinstance(m, nn.ModuleList))


def observe_reading(model: PreTrainedModel, layers: nn.ModuleList, output_length: int | None) -> HeadReads:
    """Which of a row's tokens the logits depend on above the last layer: the gradient tells."""
    with _in_eval(model):
        _, state = _observe_last_layer(model, layers)
        with passing_through(layers, len(layers), output_length) as stand_ins, torch.enable_grad():
            stand_ins[-1].state = state = state.detach().requires_grad_()
            logits = _logits_of_a_row(model)
            # Weighted, so that classes whose weights cancel out do not hide a token.
            weights = torch.arange(1, logits.shape[-1] + 1, device=logits.device)
            (gradient,) = torch.autograd.grad((logits * weights).sum(), [state])
    first, last = (bool(gradient[:, place].any()) for place in (0, -1))
    return "all" if first == last else "first" if first else "last"


def _is_homogeneous(module: nn.Module) -> bool:
    if not isinstance(module, nn.ModuleList) or len(module) == 0:
        return False
    same_class = len({type(member) for member in module}) == 1
    return same_class and all(any(True for _ in member.parameters()) for member in module)


def _logits_of_a_row(model: PreTrainedModel) -> Tensor:
    """The model's answer to one row of two tokens; with no mask and no pad token it works on the meta device too."""
    pad = getattr(model.config, "pad_token_id", None)
    token = next(i for i in range(3, PROBED_TOKENS) if i != pad)
    model.config.pad_token_id = None
    try:
        with packed(None):
            logits = model(input_ids=torch.full((1, 2), token, dtype=torch.long, device=model.device)).logits
    finally:
        model.config.pad_token_id = pad
    assert isinstance(logits, Tensor)
    return logits


def _observe_last_layer(model: PreTrainedModel, layers: nn.ModuleList) -> tuple[int | None, Tensor]:
    seen: list[object] = []
    handle = layers[-1].register_forward_hook(lambda _module, _args, output: seen.append(output))
    try:
        with torch.no_grad():
            _logits_of_a_row(model)
    finally:
        handle.remove()
    output = seen[-1]
    length, state = (len(output), output[0]) if isinstance(output, tuple) else (None, output)
    assert isinstance(state, Tensor)
    return length, state


def _observe_head(
    model: PreTrainedModel, layers: nn.ModuleList, output_length: int | None, state: Tensor
) -> tuple[set[str], set[str]]:
    """Names of the parameters the logits depend on above the last layer, and of the modules called there."""
    called: set[str] = set()
    handles: list[torch.utils.hooks.RemovableHandle] = []
    parameters = dict(model.named_parameters())
    were_trained = {name: p.requires_grad for name, p in parameters.items()}
    with passing_through(layers, len(layers), output_length) as stand_ins:
        last = stand_ins[-1]
        last.state = state.detach().requires_grad_()
        is_above = [False]
        handles.append(last.register_forward_hook(lambda *_: is_above.__setitem__(0, True)))
        for name, module in model.named_modules():
            if not isinstance(module, PassThrough):
                handles.append(module.register_forward_pre_hook(_note_call(called, name, is_above)))
        try:
            for parameter in parameters.values():  # the passed layers' too, which are not in the model now
                parameter.requires_grad_(True)
            with torch.enable_grad():
                answer = _logits_of_a_row(model).sum()
            gradients = torch.autograd.grad(answer, list(parameters.values()), allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()
            for name, parameter in parameters.items():
                parameter.requires_grad_(were_trained[name])
    # Read before the layers come back: their names must not be taken for the head's.
    return {name for name, grad in zip(parameters, gradients, strict=True) if grad is not None}, called


def _note_call(called: set[str], name: str, is_above: list[bool]) -> Callable[..., None]:
    def note(*_: object) -> None:
        if is_above[0]:
            called.add(name)

    return note


def _modules_below(model: nn.Module, layers_name: str, above: set[str]) -> tuple[str, ...]:
    """Modules outside the layers of which nothing is called above them; no module that holds the layers."""

    def is_below(name: str) -> bool:
        holds_layers = name == "" or layers_name == name or layers_name.startswith(f"{name}.")
        in_layers = name.startswith(f"{layers_name}.")
        reaches_above = any(a == name or a.startswith(f"{name}.") for a in above)
        return not (holds_layers or in_layers or reaches_above)

    return tuple(name for name, _ in model.named_modules() if is_below(name))
