"""A transformers model as embeddings, layers and head, which can start and stop at any depth.

The model is never rewritten. To start above some layers, stand-ins replace them and the model's own forward is called.
To stop below some layers, a hook takes the state and leaves that forward with an exception.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.errors import FrostlineError, check_between
from frostline.model.added.attention import PACKED_ATTENTION
from frostline.model.added.dropout import quicken
from frostline.model.added.pass_through import PassThrough, first_tensor, passing_through, with_state
from frostline.model.added.readers import READER, Reader
from frostline.model.added.top_token import can_read_one_token, top_layer_on
from frostline.model.added.vocabulary import first_position, vocabulary_cut_to
from frostline.model.structure import (
    HeadReads,
    NoDepthError,
    Reached,
    Structure,
    find_layers,
    find_structure,
    in_eval,
    observe_reading,
    probed_tokens,
    uncalled,
)

__all__ = ["FrozenMovedError", "NoDepthError", "Stack"]


class FrozenMovedError(FrostlineError):
    """A frozen parameter or buffer has changed."""


class Stack:
    """A model as embeddings, layers 1…`n_layers` and head, which can start and stop at any depth."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._accepted = set(inspect.signature(model.forward).parameters)
        # Decoders would fill a key-value cache and XLNet its memory, which nobody reads.
        self._always = {name: False for name in ("use_cache", "use_mems") if name in self._accepted}

    @functools.cached_property
    def structure(self) -> Structure:
        """What lies below, in and above the layers; raises a NoDepthError if the model cannot be cut at a depth."""
        return find_structure(self.model)

    def forget_structure(self) -> None:
        """Call this after modules were added or removed: the structure is then found again."""
        for name in ("structure", "all_parameters", "can_read_one_token"):
            self.__dict__.pop(name, None)

    @property
    def reader(self) -> Reader | None:
        """The added head that reads the states of chosen layers instead of the model's own head, if there is one."""
        reader = getattr(self.model, READER, None)
        return reader if isinstance(reader, Reader) else None

    @functools.cached_property
    def n_layers(self) -> int:
        """The number of layers; if the model cannot be cut at a depth, as the configuration counts them."""
        counted = getattr(self.model.config, "num_hidden_layers", None)
        return len(find_layers(self.model)[1]) if counted is None else int(counted)

    @functools.cached_property
    def head_reads(self) -> HeadReads:
        """Which tokens the head reads; "all" if the model cannot be cut at a depth."""
        try:
            structure = self.structure
        except NoDepthError:
            return "all"
        return observe_reading(self.model, structure)

    def check_depths(self) -> None:
        """Raises a NoDepthError unless the model gives the same answer when it is cut at a depth and joined again.

        This finds models in which something besides the state passes between layers. The lowest layer is replaced by a
        stand-in if there are others: users may count calls there.
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
                f"{type(self.model).__name__} gives another answer when cut after {depth} layers and joined again: "
                f"off by {float((joined - whole).abs().max()):.2g}. Something besides the state passes between its "
                "layers; use a model with one plain stack, e.g. BERT, RoBERTa, GPT-2"
            )

    @functools.cached_property
    def first_position(self) -> int:
        """The position number of a row's first token."""
        return first_position(self.model)

    @functools.cached_property
    def can_read_one_token(self) -> bool:
        """The head reads only the first token, and the top layer can be called with that token only."""
        return self.head_reads == "first" and can_read_one_token(self.model.config, self._layers[-1])

    def allow_packing(self) -> None:
        """Prepares the model for packed batches, and replaces dropout with a faster version."""
        self.model.set_attn_implementation(PACKED_ATTENTION)
        self.quicken()

    def quicken(self) -> None:
        """Replaces dropout with a faster version."""
        quicken(self.model)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = self.model.device
        return device

    @functools.cached_property
    def all_parameters(self) -> tuple[str, ...]:
        """Names of all parameters, in the model's order; a tied tensor appears once."""
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
        """Makes exactly these parameters trainable; raises if the model does not have them all."""
        wanted = set(trained)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in wanted)
        actual = {name for name, p in self.model.named_parameters() if p.requires_grad}
        if actual != wanted:
            raise FrozenMovedError(f"the trainable parameters differ from the plan in {sorted(actual ^ wanted)[:5]}")

    def unmap(self) -> None:
        """Copies trained parameters out of the mapped checkpoint file into ordinary memory.

        Mapped files use small memory pages; with the large pages of ordinary memory a step is about 5% faster.
        """
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.clone()

    def train(self, *, frozen_dropout: bool = False) -> None:
        """Training mode. Modules with no trained parameters stay in evaluation mode, unless `frozen_dropout`."""
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
        """Evaluation mode for all modules."""
        self.model.eval()

    def frozen_modules(self) -> list[nn.Module]:
        """The modules below the layers, and each layer, if none of their parameters trains."""
        found, part = self.structure, self.model.get_submodule
        # Under all of its names: one parameter may move the weights of several layers (model/inside/subspace.py).
        named = self.model.named_parameters(remove_duplicate=False)
        trained = {name for name, parameter in named if parameter.requires_grad}
        frozen = [] if trained & set(found.below_parameters) else [part(name) for name in found.below_modules]
        for index, names in enumerate(found.layer_parameters):
            if not trained & set(names):
                frozen.append(part(f"{found.layers_name}.{index}"))
        return frozen

    def digest(self, trained: Iterable[str]) -> str:
        """A hash of all buffers and of all parameters that are not trained."""
        skipped, digest = set(trained), hashlib.sha256()
        for name, tensor in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if name not in skipped:
                digest.update(name.encode())
                digest.update(bits_of(tensor))
        return digest.hexdigest()

    def logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The logits of the whole model (batch, classes)."""
        # Some tokenizers return token types that the model does not accept.
        taken = {name: tensor for name, tensor in inputs.items() if name in self._accepted}
        logits = self.model(**taken, **self._always).logits
        assert isinstance(logits, Tensor)
        return logits

    def outputs(self, inputs: Mapping[str, Tensor], mask: Tensor) -> Tensor:
        """The outputs (batch, classes) for rows padded on the right, from an added reader or the model's own head."""
        if self.reader is not None:
            outputs: Tensor = self.reader([self.state_at(depth, inputs) for depth in self.reader.depths], mask)
            return outputs
        if self.head_reads == "all":
            return self.logits(inputs)
        # By the mask: a head that looks for the pad token takes an end token that also serves as one for padding.
        read = (torch.arange(len(mask), device=mask.device), mask.sum(1) - 1 if self.head_reads == "last" else 0)
        state, tokens = self.state_at(self.n_layers, inputs)[read], inputs["input_ids"][read]
        return self.logits_from(self.n_layers, state[:, None], {"input_ids": tokens[:, None]})

    def logits_from(self, depth: int, state: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        """The logits, computed from the state after `depth` layers (batch, tokens, width)."""
        layers, state = self._layers, self._turned(state)
        if depth == self.n_layers:
            with passing_through(layers, self._stand_ins, state):
                return self.logits(inputs)
        with passing_through(layers, self._stand_ins[:depth]):
            # Set at the first real layer: what a model does between two layers (DeBERTa, TRAPS 27) is already part of
            # the given state.
            handle = layers[depth].register_forward_pre_hook(
                lambda _module, args, kwargs: with_state(args, kwargs, state), with_kwargs=True, prepend=True
            )
            try:
                return self.logits(inputs)
            finally:
                handle.remove()

    def state_at(self, depth: int, inputs: Mapping[str, Tensor]) -> Tensor:
        """The state after `depth` layers (0: after the embeddings), (batch, tokens, width). Nothing above is run."""
        return self._state(depth, lambda: self.logits(inputs))

    def frozen_state_at(self, depth: int, inputs: Mapping[str, Tensor]) -> Tensor:
        """The state after `depth` layers, without gradient and with the whole model in evaluation mode.

        The whole model, because a module may be used below and above: XLNet has one dropout for embeddings and output.
        """
        with torch.no_grad(), in_eval(self.model):
            return self.state_at(depth, inputs)

    def frozen_states_at(self, depths: Sequence[int], inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """The states after each of these depths, in ascending order, as `frozen_state_at`; every layer runs once."""
        with torch.no_grad(), in_eval(self.model):
            states = [self.state_at(depths[0], inputs)]
            for below, depth in itertools.pairwise(depths):
                states.append(self.state_between(below, states[-1], depth, inputs))
        return states

    def state_between(self, start: int, state: Tensor, depth: int, inputs: Mapping[str, Tensor]) -> Tensor:
        """The state after `depth` layers, computed from the state after `start` layers."""
        return state if start == depth else self._state(depth, lambda: self.logits_from(start, state, inputs))

    def vocabulary_cut_to(self, tokens: Tensor) -> contextlib.AbstractContextManager[None]:
        """Inside this context, the embedding matrix has only the rows of these tokens; see `added/vocabulary.py`."""
        return vocabulary_cut_to(self.model, tokens)

    def top_layer_on(self, tokens: Tensor) -> contextlib.AbstractContextManager[None]:
        """Inside this context, the top layer computes only these tokens; see `added/top_token.py`."""
        return top_layer_on(self._layers[-1], tokens)

    def without_weights(self) -> Stack:
        """A copy of the stack on the meta device: the same modules and names, no memory for weights."""
        weights = [*self.model.parameters(), *self.model.buffers()]
        # deepcopy takes what its memo already holds instead of copying it.
        memo: dict[int, object] = {id(tensor): _on_meta(tensor) for tensor in weights}
        bare = Stack(copy.deepcopy(self.model, memo))
        bare.structure = self.structure
        return bare

    def _state(self, depth: int, forward: Callable[[], Tensor]) -> Tensor:
        layers, seen = self._layers, list[Tensor]()

        def leave_before(_module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            seen.append(first_tensor(args or tuple(kwargs.values())))
            raise Reached

        def leave_after(_module: nn.Module, _args: object, output: object) -> None:
            seen.append(first_tensor(output if isinstance(output, tuple) else (output,)))
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
        """Converts between the layers' own order of dimensions and (batch, tokens, width), either way."""
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
    """The bytes of a tensor on any device."""
    return memoryview(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def _on_meta(tensor: Tensor) -> Tensor:
    on_meta = tensor.detach().to("meta")
    return nn.Parameter(on_meta, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else on_meta
