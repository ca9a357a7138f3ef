"""Finds, by structure and never by name, what stands below, in and above a model's layers.

The layers are the one homogeneous ModuleList with as many members as the configuration counts layers (a configuration
that does not count them: the largest such list). What is above them is what the logits still depend on when every layer
is passed through; the rest is below.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.errors import UsageError, one_line
from frostline.model.packing import packed

PROBED_TOKENS = 6
"""Probing a model looks up tokens below this number."""

HeadReads = Literal["first", "last", "all"]


class NoDepthError(UsageError):
    """The model has no single stack of layers that could be cut at a depth."""


class Reached(Exception):  # noqa: N818 - leaves a forward pass, never an error
    """What was asked for is there; the rest of the forward pass is not needed."""


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
    width: int
    """numbers a token in a layer's state"""
    is_token_first: bool
    """layers work on (tokens, batch, width), as XLNet's do, not on (batch, tokens, width)"""


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
def passing_through(
    layers: nn.ModuleList, stand_ins: Sequence[PassThrough], state: Tensor | None = None
) -> Iterator[None]:
    """The lowest layers are replaced, as many as there are stand-ins, and put back at the end.

    Args:
        state: what the topmost stand-in hands on in place of its input.
    """
    kept = layers._modules  # swapped whole: one by one it takes longer than the rest of a head's step
    try:
        layers._modules = {**kept, **{str(index): stand_in for index, stand_in in enumerate(stand_ins)}}
        if state is not None:
            stand_ins[-1].state = state
        yield
    finally:
        layers._modules = kept
        if state is not None:
            stand_ins[-1].state = None


@contextlib.contextmanager
def in_eval(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; then every module has its own mode back, frozen ones in a training model too."""
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:  # not by `eval()`, which a held module would take for a wish
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def find_structure(model: PreTrainedModel) -> Structure:
    """The structure of a model, or a NoDepthError that says why it has none to cut."""
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
    """Says of a model that cannot answer a row of two plain tokens that it has no depth we could find."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise NoDepthError(
            f"{type(model).__name__} cannot be taken apart: it does not answer a row of two tokens "
            f"({one_line(error, at_most=200)}); use a model of text tokens with one plain stack, e.g. BERT, RoBERTa, "
            "GPT-2"
        ) from error


def uncalled(model: PreTrainedModel, layer: int) -> NoDepthError:
    """Why a model that answers without one of its layers, counted from 1, has no depth."""
    return NoDepthError(
        f"{type(model).__name__} cannot be taken apart: it answers without a call of layer {layer}; use a model with "
        "one plain stack, e.g. BERT, RoBERTa, GPT-2"
    )


def find_layers(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """Name and list of the model's layers; a NoDepthError where they are shared, nested, parallel or of two kinds."""
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
    """Why a model cannot be cut at a depth, and what can be done."""
    found = ", ".join(f"{name} ({len(members)})" for name, members in lists.items()) or "none"
    if model.config.is_encoder_decoder:
        reason = "it is an encoder with a decoder: two stacks, and the head reads the second"
    elif not lists:
        reason = "no list of like layers: they are of several kinds, or kept in something else than a ModuleList"
    elif any(isinstance(members[0], nn.ModuleList) for members in lists.values()):
        reason = "its layers are nested in blocks that differ"
    elif counted is not None and all(len(members) == 1 < counted for members in lists.values()):
        reason = f"its {counted} layers share their weights"
    elif counted is not None and all(len(members) != counted for members in lists.values()):
        reason = f"its configuration counts {counted} layers, which no list holds: correct config.num_hidden_layers"
    else:
        reason = "its layers are spread over parallel lists"
    return (
        f"{type(model).__name__} has no single stack of layers to freeze from the bottom: {reason} (lists of like "
        f"modules: {found}). `frostline train … --frozen full` trains all of it; for a depth use a model with one "
        "plain stack, e.g. BERT, RoBERTa, ELECTRA, DeBERTa, ModernBERT, XLNet, GPT-2, Llama"
    )


def observe_reading(model: PreTrainedModel, structure: Structure) -> HeadReads:
    """Which of a row's tokens the logits depend on above the last layer: the gradient tells. No layer is run."""
    layers = model.get_submodule(structure.layers_name)
    assert isinstance(layers, nn.ModuleList)
    weight = next(model.parameters())
    places = torch.arange(1.0, 2 * structure.width + 1, dtype=weight.dtype, device=weight.device)
    # Of two tokens; any numbers will do that are not alike, and random ones would be drawn from the run's own.
    state = torch.sin(places).view((2, 1, -1) if structure.is_token_first else (1, 2, -1))
    stand_ins = [PassThrough(layer, structure.output_length) for layer in layers]
    with in_eval(model), torch.enable_grad(), passing_through(layers, stand_ins, state.requires_grad_()):
        logits = answers_to_a_row(model)[0]
        # Weighted, so that classes whose weights cancel out do not hide a token.
        weights = torch.arange(1, logits.shape[-1] + 1, device=logits.device)
        (gradient,) = torch.autograd.grad((logits * weights).sum(), [state])
    by_token = gradient.transpose(0, 1) if structure.is_token_first else gradient
    first, last = (bool(by_token[:, place].any()) for place in (0, -1))
    return "all" if first == last else "first" if first else "last"


def _is_homogeneous(members: nn.ModuleList) -> bool:
    same_class = len({type(member) for member in members}) == 1
    return same_class and all(any(True for _ in member.parameters()) for member in members)


def _is_token_first(model: PreTrainedModel, state: Tensor) -> bool:
    """Whether the state of the probed row of two tokens is (2, 1, width)."""
    if tuple(state.shape[:2]) not in ((1, 2), (2, 1)):
        raise NoDepthError(
            f"{type(model).__name__} turns a row of 2 tokens into a state of shape {tuple(state.shape)}, which cannot "
            "be kept token by token; use a model whose layers keep the number of tokens"
        )
    return state.shape[0] == 2


def probed_tokens(model: PreTrainedModel, n: int) -> Tensor:
    """`n` tokens (n), none of them padding."""
    pad = getattr(model.config, "pad_token_id", None)
    plain = [token for token in range(3, PROBED_TOKENS) if token != pad]
    return torch.tensor([plain[place % len(plain)] for place in range(n)], device=model.device)


def probed_row(model: PreTrainedModel) -> Tensor:
    """A row of two tokens (1, 2), none of them padding."""
    return probed_tokens(model, 2)[None]


def answers_to_a_row(model: PreTrainedModel) -> list[Tensor]:
    """What the model answers to one row of two tokens: its logits, or a model's without a head its states.

    With no mask and no pad token it works on the meta device too.
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


def word_embeddings(model: PreTrainedModel) -> nn.Embedding | None:
    """The table that tokens are looked up in; None where there is none of the plain kind."""
    try:
        words = model.get_input_embeddings()
    except NotImplementedError:  # a class the library does not know: whichever table is given the tokens
        words = _table_given_the_tokens(model)
    return words if isinstance(words, nn.Embedding) else None


def _table_given_the_tokens(model: PreTrainedModel) -> nn.Embedding | None:
    row, seen = probed_row(model), list[nn.Embedding]()

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Embedding) and torch.equal(args[0], row):
            seen.append(module)

    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    handles = [table.register_forward_pre_hook(note) for table in tables]
    try:
        with torch.no_grad(), in_eval(model):
            answers_to_a_row(model)
    finally:
        for handle in handles:
            handle.remove()
    return seen[0] if seen else None


def _observe_last_layer(model: PreTrainedModel, layers: nn.ModuleList) -> tuple[int | None, Tensor]:
    """How long a tuple the last layer gives (None: a bare tensor), and a state; called with what the first would get.

    The layers below it are not run: what is counted or traced there is of the user's rows.
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
    """Names of the parameters the answers depend on above the last layer, and of the modules called there."""
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
    """Names of the parameters that what `compute` gives, in eval, depends on: the gradient tells."""
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
    """Modules outside the layers of which nothing is called above them; no module that holds the layers."""

    def is_below(name: str) -> bool:
        holds_layers = name == "" or layers_name == name or layers_name.startswith(f"{name}.")
        in_layers = name.startswith(f"{layers_name}.")
        reaches_above = any(a == name or a.startswith(f"{name}.") for a in above)
        return not (holds_layers or in_layers or reaches_above)

    return tuple(name for name, _ in model.named_modules() if is_below(name))
