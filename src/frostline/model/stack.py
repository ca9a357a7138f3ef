"""A transformers model seen as embeddings, layers and head; nothing outside this package knows library attribute names.

The model is never rewritten: to start above some layers they are passed through in place and the model's own forward
is called; to stop below some, that forward is left as soon as the state is there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.errors import FrostlineError, check_between
from frostline.model.added.dropout import quicken
from frostline.model.added.readers import READER, Reader
from frostline.model.packing import NAME as PACKED_ATTENTION
from frostline.model.packing import Reading, can_read_one_token, first_position, reading
from frostline.model.structure import (
    PROBED_TOKENS,
    HeadReads,
    NoDepthError,
    PassThrough,
    Reached,
    Structure,
    find_layers,
    find_structure,
    in_eval,
    observe_reading,
    passing_through,
    probed_tokens,
    uncalled,
    word_embeddings,
)

__all__ = ["FrozenMovedError", "NoDepthError", "Stack"]


class FrozenMovedError(FrostlineError):
    """A parameter or buffer that should have kept every bit did not."""


class Stack:
    """A model as embeddings, layers 1…`n_layers` and head, that can start and stop at any depth."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._accepted = set(inspect.signature(model.forward).parameters)
        # A decoder would fill a key-value cache, XLNet its memory; nobody reads them.
        self._always = {name: False for name in ("use_cache", "use_mems") if name in self._accepted}

    @functools.cached_property
    def structure(self) -> Structure:
        """What stands below, in and above the layers; a NoDepthError where there is no depth to speak of."""
        return find_structure(self.model)

    def forget_structure(self) -> None:
        """Looks anew at what the model consists of: modules were put in or taken out."""
        for name in ("structure", "all_parameters", "can_read_one_token"):
            self.__dict__.pop(name, None)

    @property
    def reader(self) -> Reader | None:
        """What reads the states of chosen layers in the place of the model's own head, if there is such."""
        reader = getattr(self.model, READER, None)
        return reader if isinstance(reader, Reader) else None

    @functools.cached_property
    def n_layers(self) -> int:
        """How many layers there are; without a stack to cut, how many the configuration counts."""
        counted = getattr(self.model.config, "num_hidden_layers", None)
        return len(find_layers(self.model)[1]) if counted is None else int(counted)

    @functools.cached_property
    def head_reads(self) -> HeadReads:
        """Which token's state the head reads; all, where there is no stack below it that could be told apart."""
        try:
            structure = self.structure
        except NoDepthError:
            return "all"
        return observe_reading(self.model, structure)

    def check_depths(self) -> None:
        """Raises a NoDepthError unless the model, cut at a depth and joined again, answers as it does in one go.

        The lowest layer is passed through where there are others: what is counted there is of the user's rows.
        """
        lowest = min(1, self.n_layers - 1)
        lengths = (5, 3)
        tokens = probed_tokens(self.model, sum(lengths)).split(lengths)
        rows = nn.utils.rnn.pad_sequence(list(tokens), batch_first=True)
        mask = torch.arange(max(lengths), device=self.device) < rows.new_tensor(lengths)[:, None]
        inputs = {"input_ids": rows, "attention_mask": mask.long()}
        with torch.no_grad(), in_eval(self.model):
            with passing_through(self._layers, self._stand_ins[:lowest]):
                start, whole = self.state_at(lowest, inputs), self.logits(inputs)
            for depth in sorted({lowest, self.n_layers // 2, self.n_layers}):
                state = self.state_between(lowest, start, depth, inputs)
                self._check_joined(depth, self.logits_from(depth, state, inputs), whole)
            if self.head_reads != "all":
                read = slice(0, 1) if self.head_reads == "first" else slice(-1, None)
                state, token = state[:1, read], {"input_ids": rows[:1, read]}
                self._check_joined(self.n_layers, self.logits_from(self.n_layers, state, token), whole[:1])

    def _check_joined(self, depth: int, joined: Tensor, whole: Tensor) -> None:
        if not torch.allclose(joined, whole, rtol=1e-3, atol=1e-4):
            raise NoDepthError(
                f"{type(self.model).__name__} cut after {depth} layers and joined again answers otherwise: off by "
                f"{float((joined - whole).abs().max()):.2g}. Something besides the state passes between its layers; "
                "use a model with one plain stack, e.g. BERT, RoBERTa, GPT-2"
            )

    @functools.cached_property
    def first_position(self) -> int:
        """Position of a row's first token, where rows can be packed."""
        position = first_position(self.model.config)
        assert position is not None, "only a family that can be packed is"
        return position

    @functools.cached_property
    def can_read_one_token(self) -> bool:
        """The head reads the first token alone, and the top layer can be called with that one alone."""
        return self.head_reads == "first" and can_read_one_token(self.model.config, self._layers[-1])

    def allow_packing(self) -> None:
        """From here on attention can take packed rows, and dropout draws fast."""
        self.model.set_attn_implementation(PACKED_ATTENTION)
        quicken(self.model)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.model.device
        return device

    @functools.cached_property
    def all_parameters(self) -> tuple[str, ...]:
        """Names of all parameters, in the model's order; tied ones once."""
        return tuple(name for name, _ in self.model.named_parameters())

    def parameters_above(self, n_frozen: int) -> tuple[str, ...]:
        """Names of the parameters of the layers above `n_frozen` and of the head, in the model's order."""
        check_between("n_frozen", n_frozen, 0, self.n_layers)
        return self.parameters_of(range(n_frozen + 1, self.n_layers + 1))

    def parameters_of(self, layers: Iterable[int]) -> tuple[str, ...]:
        """Names of the parameters of these layers (counted from 1) and of the head, in the model's order."""
        found = self.structure
        wanted = {name for layer in layers for name in found.layer_parameters[layer - 1]} | set(found.above_parameters)
        return tuple(name for name in self.all_parameters if name in wanted)

    def count(self, names: Iterable[str]) -> int:
        """How many numbers the named parameters hold."""
        parameters = dict(self.model.named_parameters())
        return sum(parameters[name].numel() for name in names)

    def apply(self, trained: tuple[str, ...]) -> None:
        """Let exactly these parameters train; raises unless the model then agrees."""
        wanted = set(trained)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in wanted)
        actual = {name for name, p in self.model.named_parameters() if p.requires_grad}
        if actual != wanted:
            raise FrozenMovedError(f"the trainable set differs from the plan in {sorted(actual ^ wanted)[:5]}")

    def unmap(self) -> None:
        """Gives each parameter that trains memory of its own.

        A model's weights lie where the file is mapped, in small pages; in large ones a step is a twentieth faster.
        """
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.clone()

    def train(self, *, frozen_dropout: bool = False) -> None:
        """Training mode; what has no trained parameter stays in eval, unless `frozen_dropout`."""
        if self.reader is not None:
            self.model.eval()
            self.reader.train()
            return
        self.model.train()
        is_partial = any(not p.requires_grad for p in self.model.parameters())
        if is_partial and not frozen_dropout:
            for module in self.frozen_modules():
                module.eval()

    def eval(self) -> None:
        """Evaluation mode throughout."""
        self.model.eval()

    def frozen_modules(self) -> list[nn.Module]:
        """What stands below the layers, and each layer, as far as none of its parameters trains."""
        found, part = self.structure, self.model.get_submodule
        trained = {name for name, p in self.model.named_parameters() if p.requires_grad}
        frozen = [] if trained & set(found.below_parameters) else [part(name) for name in found.below_modules]
        for index, names in enumerate(found.layer_parameters):
            if not trained & set(names):
                frozen.append(part(f"{found.layers_name}.{index}"))
        return frozen

    def digest(self, trained: Iterable[str]) -> str:
        """A hash of every parameter that is not trained and of every buffer."""
        skipped, digest = set(trained), hashlib.sha256()
        for name, tensor in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if name not in skipped:
                digest.update(name.encode())
                digest.update(bits_of(tensor))
        return digest.hexdigest()

    def logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """What the whole model answers (batch, classes)."""
        # Generic tokenizers give token types, which not every model takes.
        taken = {name: tensor for name, tensor in inputs.items() if name in self._accepted}
        logits = self.model(**taken, **self._always).logits
        assert isinstance(logits, Tensor)
        return logits

    def logits_from(self, depth: int, state: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        """What the model answers when the state after `depth` layers is this (batch, tokens, width)."""
        layers, state = self._layers, self._turned(state)
        if depth == self.n_layers:
            with passing_through(layers, self._stand_ins, state):
                return self.logits(inputs)
        with passing_through(layers, self._stand_ins[:depth]):
            # Handed in at the first real layer, above whatever the model does between two layers (TRAPS 27).
            handle = layers[depth].register_forward_pre_hook(
                lambda _module, args, kwargs: _with_state(args, kwargs, state), with_kwargs=True, prepend=True
            )
            try:
                return self.logits(inputs)
            finally:
                handle.remove()

    def state_at(self, depth: int, inputs: Mapping[str, Tensor]) -> Tensor:
        """The state after `depth` layers (0: after the embeddings), (batch, tokens, width); nothing above it runs."""
        return self._state(depth, lambda: self.logits(inputs))

    def frozen_state_at(self, depth: int, inputs: Mapping[str, Tensor]) -> Tensor:
        """The state after `depth` layers, out of the gradient and with all of the model in eval.

        All, because one module may serve above and below: XLNet has one dropout for embeddings and output.
        """
        with torch.no_grad(), in_eval(self.model):
            return self.state_at(depth, inputs)

    def frozen_states_at(self, depths: Sequence[int], inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """The states after each of these depths, ascending, as `frozen_state_at` gives one; every layer runs once."""
        with torch.no_grad(), in_eval(self.model):
            states = [self.state_at(depths[0], inputs)]
            for below, depth in itertools.pairwise(depths):
                states.append(self.state_between(below, states[-1], depth, inputs))
        return states

    def state_between(self, start: int, state: Tensor, depth: int, inputs: Mapping[str, Tensor]) -> Tensor:
        """The state after `depth` layers, from the one after `start` layers."""
        return state if start == depth else self._state(depth, lambda: self.logits_from(start, state, inputs))

    @contextlib.contextmanager
    def vocabulary_cut_to(self, tokens: Tensor) -> Iterator[None]:
        """While this lasts, the embedding matrix has only the rows of these tokens; then all rows are back.

        The row of a token that never occurs has no gradient and, without weight decay, never moves; leaving it out
        spares the optimizer most of the matrix and changes nothing else. A matrix that others read too stays whole.
        """
        embedding = word_embeddings(self.model)
        if embedding is None or self._n_places(embedding.weight) > 1:
            yield
            return
        whole = embedding.weight
        kept = torch.cat([tokens.to(whole.device).unique(), torch.arange(PROBED_TOKENS, device=whole.device)])
        padding = embedding.padding_idx
        if padding is not None:
            kept = torch.cat([kept, kept.new_tensor([padding])])
        kept = kept.unique()
        places = torch.full((len(whole),), -1, device=whole.device)  # a token that was not announced is an error
        places[kept] = torch.arange(len(kept), device=whole.device)
        embedding.weight = nn.Parameter(whole.detach()[kept], requires_grad=whole.requires_grad)
        embedding.padding_idx = None if padding is None else int(places[padding])
        handle = embedding.register_forward_pre_hook(lambda _module, args: (places[args[0]], *args[1:]))
        try:
            yield
        finally:
            handle.remove()
            with torch.no_grad():
                whole[kept] = embedding.weight
            embedding.weight, embedding.padding_idx = whole, padding

    def _n_places(self, parameter: Tensor) -> int:
        return sum(p is parameter for module in self.model.modules() for p in module.parameters(recurse=False))

    @contextlib.contextmanager
    def top_layer_on(self, tokens: Tensor) -> Iterator[None]:
        """While this lasts, the top layer computes these tokens only, and the head sees each as a row of its own."""
        top = Reading()

        def narrow(
            _module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
        ) -> tuple[tuple[object, ...], dict[str, object]]:
            top.states = _first(args or tuple(kwargs.values()))
            return _with_state(args, kwargs, top.states[:, tokens])

        def spread(_module: nn.Module, _args: object, output: object) -> object:
            if isinstance(output, tuple):
                return (_first(output).transpose(0, 1), *output[1:])
            return _first((output,)).transpose(0, 1)

        layer = self._layers[-1]
        handles = [layer.register_forward_pre_hook(narrow, with_kwargs=True), layer.register_forward_hook(spread)]
        try:
            with reading(top):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _state(self, depth: int, forward: Callable[[], Tensor]) -> Tensor:
        layers, seen = self._layers, list[Tensor]()

        def leave_before(_module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            seen.append(_first(args or tuple(kwargs.values())))
            raise Reached

        def leave_after(_module: nn.Module, _args: object, output: object) -> None:
            seen.append(_first(output if isinstance(output, tuple) else (output,)))
            raise Reached

        handle = (
            layers[-1].register_forward_hook(leave_after)
            if depth == self.n_layers
            else layers[depth].register_forward_pre_hook(leave_before, with_kwargs=True)
        )
        try:
            forward()
        except Reached:
            return self._turned(seen[0])
        finally:
            handle.remove()
        raise uncalled(self.model, min(depth + 1, self.n_layers))

    def _turned(self, state: Tensor) -> Tensor:
        """From the layers' own order of dimensions to (batch, tokens, width), and back."""
        return state.transpose(0, 1) if self.structure.is_token_first else state

    @functools.cached_property
    def _stand_ins(self) -> list[PassThrough]:
        return [PassThrough(layer, self.structure.output_length) for layer in self._layers]

    @property
    def _layers(self) -> nn.ModuleList:
        layers = self.model.get_submodule(self.structure.layers_name)
        assert isinstance(layers, nn.ModuleList)
        return layers


def bits_of(tensor: Tensor) -> memoryview:
    """Every bit of a tensor, wherever it is."""
    return memoryview(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def _first(values: tuple[object, ...]) -> Tensor:
    assert isinstance(values[0], Tensor)
    return values[0]


def _with_state(
    args: tuple[object, ...], kwargs: dict[str, object], state: Tensor
) -> tuple[tuple[object, ...], dict[str, object]]:
    """A layer's arguments with the state in the first place, where every family has it."""
    if args:
        return (state, *args[1:]), kwargs
    first = next(iter(kwargs))
    return args, {**kwargs, first: state}
