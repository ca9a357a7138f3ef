"""Finds the layers of a model, and what lies below and above them, by structure and never by name.

- The **layers** are the only ModuleList whose members are all of one class and as many as the configuration counts
  layers. If the configuration does not count them, the largest such list is used.
- The **head** is found by experiment. Every layer is replaced by a stand-in that passes a state on, and one tiny row is
  run. The parameters that the answer still has a gradient for lie above the layers.
- Everything else lies **below**: embeddings, and parameters that several layers read.

Looking must leave no trace: modes, `requires_grad` and random generators are as before. No real layer but the last is
run, because users' models may count calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.errors import UsageError, one_line
from frostline.model.added.pass_through import PassThrough, passing_through
from frostline.model.packing import packed

PROBED_TOKENS = 6
"""Probing a model looks up only tokens below this number."""

HeadReads = Literal["first", "last", "all"]
"""Which tokens of a row the head reads in the state after the last layer."""


class NoDepthError(UsageError):
    """The model has no single stack of layers, so it cannot be cut at a depth."""


class Reached(Exception):  # noqa: N818 - leaves a forward pass, never an error
    """The wanted state was computed; the rest of the forward pass is skipped."""


@dataclass(frozen=True)
class Structure:
    """Where the parts of a model are, as names of its modules and parameters."""

    layers_name: str
    layer_parameters: tuple[tuple[str, ...], ...]
    below_parameters: tuple[str, ...]
    above_parameters: tuple[str, ...]
    below_modules: tuple[str, ...]
    output_length: int | None
    """a layer returns a tuple of this length with the state first; None: it returns a bare tensor"""
    width: int
    """size of the state per token"""
    is_token_first: bool
    """layers work on (tokens, batch, width), as in XLNet, not on (batch, tokens, width)"""


@contextlib.contextmanager
def in_eval(model: nn.Module) -> Iterator[None]:
    """Inside this context, all modules are in evaluation mode; afterwards each has its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:  # not with `eval()`: a held module (hold.py) would remember it as the user's request
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def find_structure(model: PreTrainedModel) -> Structure:
    """The structure of a model; raises a NoDepthError with the reason if it cannot be cut at a depth."""
    name, layers = find_layers(model)
    with in_eval(model):
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
        width=state.shape[-1],
        is_token_first=_is_token_first(model, state),
    )


@contextlib.contextmanager
def _probed(model: PreTrainedModel) -> Iterator[None]:
    """Turns the errors of a model that cannot process a row of two plain tokens into a NoDepthError."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise NoDepthError(
            f"{type(model).__name__} cannot be split into layers: it fails on a row of two tokens "
            f"({one_line(error, at_most=200)}); use a model of text tokens with one plain stack, e.g. BERT, RoBERTa, "
            "GPT-2"
        ) from error


def uncalled(model: PreTrainedModel, layer: int) -> NoDepthError:
    """The error for a model that gives an answer without calling this layer, counted from 1."""
    return NoDepthError(
        f"{type(model).__name__} cannot be split into layers: it answers without calling layer {layer}; use a model "
        "with one plain stack, e.g. BERT, RoBERTa, GPT-2"
    )


def find_layers(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """Name and list of the layers; raises a NoDepthError if they are shared, nested, parallel or of several classes."""
    counted = getattr(model.config, "num_hidden_layers", None)
    lists = {name: module for name, module in model.named_modules() if isinstance(module, nn.ModuleList)}
    alike = {name: members for name, members in lists.items() if _is_homogeneous(members)}
    outermost = {n: m for n, m in alike.items() if not any(n.startswith(f"{other}.") for other in alike)}
    if counted is None:
        largest = max(outermost, key=lambda name: sum(p.numel() for p in outermost[name].parameters()), default="")
        fitting = {name: outermost[name] for name in [largest] if name}
    else:
        fitting = {name: members for name, members in outermost.items() if len(members) == counted}
    if len(fitting) == 1 and not model.config.is_encoder_decoder:
        ((name, layers),) = fitting.items()
        if not isinstance(layers[0], nn.ModuleList):
            return name, layers
    raise NoDepthError(_no_depth(model, counted, outermost))


def _no_depth(model: PreTrainedModel, counted: int | None, lists: Mapping[str, nn.ModuleList]) -> str:
    """Why a model cannot be cut at a depth, and what the user can do."""
    found = ", ".join(f"{name} ({len(members)})" for name, members in lists.items()) or "none"
    if model.config.is_encoder_decoder:
        reason = "it has an encoder and a decoder: two stacks, and the head reads the second"
    elif not lists:
        reason = "it has no list of equal layers: they are of several classes, or not in a ModuleList"
    elif any(isinstance(members[0], nn.ModuleList) for members in lists.values()):
        reason = "its layers are nested in groups that differ"
    elif counted is not None and all(len(members) == 1 < counted for members in lists.values()):
        reason = f"its {counted} layers share their weights"
    elif counted is not None and all(len(members) != counted for members in lists.values()):
        reason = f"its configuration counts {counted} layers, but no list has as many: correct config.num_hidden_layers"
    else:
        reason = "its layers are spread over parallel lists"
    return (
        f"{type(model).__name__} has no single stack of layers to freeze from the bottom: {reason} (lists of equal "
        f"modules: {found}). `frostline train … --frozen full` trains all of it; to freeze layers use a model with one "
        "plain stack, e.g. BERT, RoBERTa, ELECTRA, DeBERTa, ModernBERT, XLNet, GPT-2, Llama"
    )


def observe_reading(model: PreTrainedModel, structure: Structure) -> HeadReads:
    """Which tokens of a row the head reads, found from the gradient of the logits. No layer is run."""
    layers = model.get_submodule(structure.layers_name)
    assert isinstance(layers, nn.ModuleList)
    weight = next(model.parameters())
    places = torch.arange(1.0, 2 * structure.width + 1, dtype=weight.dtype, device=weight.device)
    # A state of two tokens. Any unequal numbers will do; random ones would advance the run's generator.
    state = torch.sin(places).view((2, 1, -1) if structure.is_token_first else (1, 2, -1))
    stand_ins = [PassThrough(layer, structure.output_length) for layer in layers]
    with in_eval(model), torch.enable_grad(), passing_through(layers, stand_ins, state.requires_grad_()):
        logits = answers_to_a_row(model)[0]
        # Weighted, because the plain sum over classes can be 0 where their weights cancel out.
        weights = torch.arange(1, logits.shape[-1] + 1, device=logits.device)
        (gradient,) = torch.autograd.grad((logits * weights).sum(), [state])
    by_token = gradient.transpose(0, 1) if structure.is_token_first else gradient
    first, last = (bool(by_token[:, place].any()) for place in (0, -1))
    return "all" if first == last else "first" if first else "last"


def _is_homogeneous(members: nn.ModuleList) -> bool:
    same_class = len({type(member) for member in members}) == 1
    return same_class and all(any(True for _ in member.parameters()) for member in members)


def _is_token_first(model: PreTrainedModel, state: Tensor) -> bool:
    """Whether the state of a row of two tokens has the shape (2, 1, width)."""
    if tuple(state.shape[:2]) not in ((1, 2), (2, 1)):
        raise NoDepthError(
            f"{type(model).__name__} turns a row of 2 tokens into a state of shape {tuple(state.shape)}; use a model "
            "whose layers keep the number of tokens"
        )
    return state.shape[0] == 2


def probed_tokens(model: PreTrainedModel, n: int) -> Tensor:
    """`n` token numbers (n,), none of them padding."""
    pad = getattr(model.config, "pad_token_id", None)
    plain = [token for token in range(3, PROBED_TOKENS) if token != pad]
    return torch.tensor([plain[place % len(plain)] for place in range(n)], device=model.device)


def probed_row(model: PreTrainedModel) -> Tensor:
    """A row of two tokens (1, 2), none of them padding."""
    return probed_tokens(model, 2)[None]


def answers_to_a_row(model: PreTrainedModel) -> list[Tensor]:
    """The model's output tensors for one row of two tokens: logits, or states if the model has no head.

    Without a mask and a pad token this works on the meta device too: nothing asks for the value of a tensor.
    """
    row, config = probed_row(model), model.config
    pad = getattr(config, "pad_token_id", None)
    try:
        if pad is not None:
            config.pad_token_id = None
        with packed(None):
            output = model(input_ids=row)
    finally:
        if pad is not None:
            config.pad_token_id = pad
    return [answer for answer in output.values() if isinstance(answer, Tensor)]


def _observe_last_layer(model: PreTrainedModel, layers: nn.ModuleList) -> tuple[int | None, Tensor]:
    """The length of the tuple that the last layer returns (None: a bare tensor), and a state.

    The last layer is called with the first layer's input. The layers below it are not run: users may count calls there.
    """
    last, seen = layers[-1], list[object]()

    class Shortcut(PassThrough):
        def forward(self, *args: object, **kwargs: object) -> object:
            seen.append(last(*args, **kwargs))
            raise Reached

    shortcut = Shortcut(layers[0], output_length=None)
    with torch.no_grad(), _probed(model), contextlib.suppress(Reached), passing_through(layers, [shortcut]):
        answers_to_a_row(model)
    if not seen:
        raise uncalled(model, 1)
    output = seen[-1]
    length, state = (len(output), output[0]) if isinstance(output, tuple) else (None, output)
    assert isinstance(state, Tensor)
    return length, state


def _observe_head(
    model: PreTrainedModel, layers: nn.ModuleList, output_length: int | None, state: Tensor
) -> tuple[set[str], set[str]]:
    """Names of the parameters above the last layer that the answer depends on, and of the modules called there."""
    called: set[str] = set()

    def answers_above() -> list[Tensor]:
        handles: list[torch.utils.hooks.RemovableHandle] = []
        stand_ins = [PassThrough(layer, output_length) for layer in layers]
        with passing_through(layers, stand_ins, state.detach().requires_grad_()):
            is_above = [False]
            handles.append(stand_ins[-1].register_forward_hook(lambda *_: is_above.__setitem__(0, True)))
            for name, module in model.named_modules():
                if not isinstance(module, PassThrough):
                    handles.append(module.register_forward_pre_hook(_note_call(called, name, is_above)))
            try:
                return answers_to_a_row(model)
            finally:
                for handle in handles:
                    handle.remove()

    return parameters_behind(model, answers_above), called


def parameters_behind(model: PreTrainedModel, compute: Callable[[], list[Tensor]]) -> set[str]:
    """Names of the parameters that the result of `compute` depends on, found from its gradient; in eval mode."""
    parameters = dict(model.named_parameters())
    were_trained = {name: p.requires_grad for name, p in parameters.items()}
    try:
        for parameter in parameters.values():
            parameter.requires_grad_(True)
        with torch.enable_grad(), in_eval(model):
            sums = [computed.sum() for computed in compute()]
        gradients = torch.autograd.grad(sums, list(parameters.values()), allow_unused=True)
    finally:
        for name, parameter in parameters.items():
            parameter.requires_grad_(were_trained[name])
    return {name for name, gradient in zip(parameters, gradients, strict=True) if gradient is not None}


def _note_call(called: set[str], name: str, is_above: list[bool]) -> Callable[..., None]:
    def note(*_: object) -> None:
        if is_above[0]:
            called.add(name)

    return note


def _modules_below(model: nn.Module, layers_name: str, above: set[str]) -> tuple[str, ...]:
    """Modules outside the layers that are not called above them and do not contain the layers."""

    def is_below(name: str) -> bool:
        holds_layers = name == "" or layers_name == name or layers_name.startswith(f"{name}.")
        in_layers = name.startswith(f"{layers_name}.")
        reaches_above = any(a == name or a.startswith(f"{name}.") for a in above)
        return not (holds_layers or in_layers or reaches_above)

    return tuple(name for name, _ in model.named_modules() if is_below(name))
