"""A tail: one task over a trunk. Its module tree is its own; every weight that the task did not change is the trunk's.

Half-precision bundles are widened to fp32 when they are loaded, because the trunk computes in fp32.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from frostline.errors import DataError, some
from frostline.kinds import Kind, imported, kind_named
from frostline.model.added.assembly import config_of, empty_model, fill, fixed_buffers, named_tensors
from frostline.model.added.readers import READER, Reader
from frostline.model.added.walking import ConcurrentStack
from frostline.model.faults import one_line_errors
from frostline.model.identity import other_layers
from frostline.model.load import quiet
from frostline.model.stack import Stack
from frostline.serving.bundle import CONFIG, TAIL, Bundle, first_difference
from frostline.serving.rows import Limits, RowBatch, TokenRow, joined
from frostline.serving.trunk import Trunk, bytes_of
from frostline.storage.sealed import reading
from frostline.strategies import parse

# While a model is built, the library patches functions of torch for the whole process.
_building = threading.Lock()

_PROBED = ((5, 4, 3, 5, 4), (4, 3, 5))
"""Rows of tokens that every vocabulary has."""


@final
@dataclass(frozen=True, eq=False)
class Tail:
    """One task over a trunk. Nothing in it changes after it was loaded, so any thread may use it."""

    bundle: Bundle
    trunk: Trunk
    depth: int | None
    """where it leaves the trunk; None: it computes every layer itself, and shares only storage"""
    model: ConcurrentStack | None
    """the task's model; None: a reader answers from states of the trunk"""
    reader: Reader | None
    tensors: Mapping[str, Tensor]
    """those that are not the trunk's, by name in the task's model"""
    n_outputs: int
    """numbers per row: one per class, or one value"""

    @property
    def limits(self) -> Limits:
        """How it joins and cuts texts."""
        return Limits(self.bundle.manifest.max_length, self.bundle.manifest.pair_joiner)

    @property
    def kind(self) -> Kind:
        """The kind of task, which turns outputs into answers."""
        return kind_named(self.bundle.manifest.kind)

    @property
    def shares_compute(self) -> bool:
        """Whether layers of the trunk are computed for this task and others together."""
        return self.depth is not None

    @property
    def read_depths(self) -> tuple[int, ...]:
        """The depths of the trunk whose states it reads, ascending."""
        if self.depth is None:
            return ()
        return (self.depth,) if self.reader is None else self.reader.depths

    @property
    def reads_first_tokens(self) -> bool:
        """Whether it reads only the first token of each row in the state after the last layer."""
        return self.model is not None and self.model.head_reads == "first"

    @property
    def n_bytes(self) -> int:
        """Memory of what it adds to the trunk."""
        return bytes_of(self.tensors)

    def outputs(self, rows: RowBatch, states: Mapping[int, Tensor]) -> Tensor:
        """The raw outputs (rows, outputs), given the trunk's states (all tokens, width) at each of `read_depths`.

        If it `reads_first_tokens`, the state after the last layer may be that of the first tokens alone, (rows, width).
        """
        if self.reader is not None:
            outputs: Tensor = self.reader([rows.padded(states[depth]) for depth in self.reader.depths], rows.mask)
            return outputs
        assert self.model is not None
        if self.depth is None:
            return _logits(self.model, rows, 0, None)
        return _logits(self.model, rows, self.depth, states[self.depth])


def load_tail(trunk: Trunk, bundle: Bundle) -> Tail:
    """The task of a bundle over this trunk.

    Raises a DataError that names the bundle if it was made for another trunk or tokenizer, or if its files are not
    those that were checked when it was opened.
    """
    try:
        if bundle.manifest.tokenizer != trunk.tokenizer:
            raise DataError(
                f"was made with another tokenizer than that of {trunk.name}, so the trunk would read other tokens; "
                f"serve it over its own trunk ({bundle.manifest.trunk.name})"
            )
        with one_line_errors(str(bundle.folder), "bundle"):
            with _building, quiet():
                tail = _built(trunk, bundle)
            _check_answers(tail)
    except DataError as error:
        if error.path is not None:
            raise
        raise DataError(str(error), path=bundle.folder) from error
    return tail


def _built(trunk: Trunk, bundle: Bundle) -> Tail:
    manifest = bundle.manifest
    config = config_of(json.loads(_content(bundle, CONFIG)))
    if config.pad_token_id is None:
        config.pad_token_id = trunk.pad_token_id  # a decoder's head refuses batches without one
    tensors = _own_tensors(bundle)
    # Of depth 0 only the embeddings are shared, which every pass computes anyway.
    depth = (manifest.depth or None) if trunk.structure is not None else None
    _check_trunk(bundle, trunk, -1 if depth is None else depth)
    for field in ("model_type", "num_hidden_layers"):  # before anything is built, however much it would be
        own, expected = (getattr(one, field, None) for one in (config, trunk.model.config))
        if own != expected:
            raise DataError(f"its configuration has the {field} {own!r:.80}; {trunk.name} has {expected!r}")
    if depth is not None and (fields := other_layers(trunk.model.config, config)):
        raise DataError(f"its layers are configured differently from those of {trunk.name}: {some(fields)}")
    stack = Stack(empty_model(imported(kind_named(manifest.kind).head_class), config))
    base_names = {id(tensor): name for name, tensor in named_tensors(stack.model)}
    _add_modules(stack, trunk, bundle, tensors)
    reader = stack.reader
    if reader is not None:
        fill(reader, lambda name, _: tensors.get(f"{READER}.{name}"))
        if depth is None or reader.depths[-1] > depth:
            raise DataError(f"reads layer {reader.depths[-1]}, but only its lowest {depth or 0} are the trunk's")
        read = {name: tensor for name, tensor in tensors.items() if name.startswith(f"{READER}.")}
        return Tail(bundle, trunk, depth, None, reader.eval(), read, config.num_labels)
    used = _fill(stack.model, tensors, trunk, base_names)
    if used:
        _check_trunk(bundle, trunk, max(_layers_of(used, trunk), default=0))
    model = ConcurrentStack(stack, trunk.structure, is_packed=trunk.model.first_position is not None)
    if model.first_position != trunk.model.first_position:
        positions = f"{model.first_position}, {trunk.name} from {trunk.model.first_position}"
        raise DataError(f"numbers the positions of tokens from {positions}; make the bundle again over this trunk")
    return Tail(bundle, trunk, depth, model, None, tensors, config.num_labels)


def _add_modules(stack: Stack, trunk: Trunk, bundle: Bundle, tensors: Mapping[str, Tensor]) -> None:
    """Adds the modules of the bundle's strategy, if its tensors are not all the model's own."""
    if trunk.structure is not None:
        stack.structure = trunk.structure  # both have the same class, and looking needs weights
    strategy = parse(bundle.manifest.strategy)
    if _unknown(stack.model, tensors) and strategy.plan(stack).added:
        with torch.device("meta"):
            strategy.add_modules(stack)
        if trunk.structure is not None:
            stack.structure = trunk.structure
    if unknown := _unknown(stack.model, tensors):
        raise DataError(f"holds {some(unknown)}, which a {type(stack.model).__name__} does not have")


def _unknown(model: nn.Module, tensors: Mapping[str, Tensor]) -> list[str]:
    return sorted(tensors.keys() - {name for name, _ in named_tensors(model)})


def _fill(model: nn.Module, tensors: Mapping[str, Tensor], trunk: Trunk, base_names: Mapping[int, str]) -> set[str]:
    """Gives every parameter and buffer the bundle's tensor or the trunk's; returns the names of those of the trunk.

    Args:
        base_names: what tensors were called before modules were added: a wrapped matrix gets another name.
    """
    own: dict[int, Tensor] = {}
    for name, empty in named_tensors(model):
        if name in tensors:
            own[id(empty)] = tensors[name]  # a tied tensor is stored under one of its names
    fixed = fixed_buffers(model)
    used: set[str] = set()

    def tensor_of(name: str, empty: Tensor) -> Tensor | None:
        if id(empty) in own:
            return own[id(empty)]
        base_name = base_names.get(id(empty), name)
        shared = trunk.tensors.get(base_name)
        if name in fixed:
            return shared if shared is not None and torch.equal(shared, empty) else empty
        if shared is not None:
            used.add(base_name)
        return shared

    fill(model, tensor_of)
    return used


def _layers_of(names: set[str], trunk: Trunk) -> list[int]:
    """The numbers of the layers that these tensors belong to."""
    if trunk.structure is None:
        return []
    return [
        number
        for number, of_layer in enumerate(trunk.structure.layer_parameters, start=1)
        if not names.isdisjoint(of_layer)
    ]


def _check_trunk(bundle: Bundle, trunk: Trunk, highest: int) -> None:
    """Raises unless the trunk is the bundle's own up to this layer (0: the embeddings; -1: nothing of it is used)."""
    own = bundle.manifest.trunk
    if len(own.chain) != len(trunk.chain) or own.chain[: highest + 1] != trunk.chain[: highest + 1]:
        raise DataError(
            f"was made for another trunk: {own.name} and {trunk.name} differ in "
            f"{first_difference(own.chain, trunk.chain)}; serve it over {own.name}"
        )


def _own_tensors(bundle: Bundle) -> dict[str, Tensor]:
    """The tensors of a bundle in memory of their own, widened to fp32."""
    stored = safetensors.torch.load(_content(bundle, TAIL))
    tensors: dict[str, Tensor] = {}
    while stored:  # one at a time: each is freed as soon as it is copied
        name, tensor = stored.popitem()
        # Copied even in fp32: the content of a file is not aligned as torch aligns its own memory.
        tensors[name] = tensor.to(torch.float32 if tensor.is_floating_point() else tensor.dtype, copy=True)
    if wrong := [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]:
        raise DataError(f"holds NaN or infinity, in {some(wrong)}", path=bundle.folder / TAIL)
    return tensors


def _content(bundle: Bundle, name: str) -> bytes:
    """The content of a file, if it is still the one that the manifest seals: it may have been replaced since."""
    path = bundle.folder / name
    with reading("a file of a bundle", path):
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != bundle.manifest.files[name]:
        raise DataError("it changed while the bundle was loaded; load it again", path=path)
    return content


def _check_answers(tail: Tail) -> None:
    """Raises unless a task answers, and gives the same answer over the trunk's states as from the tokens up."""
    rows = [TokenRow(tokens, None, len(tokens)) for tokens in sorted(_PROBED, key=len)]
    trunk = tail.trunk.model
    batch = RowBatch(joined(rows, tail.trunk.texts.padding), np.arange(len(rows)), trunk.first_position)
    with torch.inference_mode(), batch.packed():
        states = trunk.states(tail.read_depths, batch.inputs) if tail.read_depths else {}
        over_trunk = tail.outputs(batch, {depth: batch.flat(state) for depth, state in states.items()})
        if over_trunk.shape != (len(rows), tail.n_outputs):
            raise DataError(f"gives answers of the shape {list(over_trunk.shape)}; make the bundle again")
        if tail.model is None or tail.depth is None:
            return
        alone = _logits(tail.model, batch, 0, None)
    if not torch.allclose(over_trunk, alone, rtol=1e-4, atol=1e-5):
        away = float((over_trunk - alone).abs().max())
        raise DataError(
            f"gives another answer over {tail.trunk.name} than its merged model (off by {away:.2g}): something besides "
            f"its weights differs below layer {tail.depth + 1}"
        )


def _logits(model: ConcurrentStack, rows: RowBatch, start: int, state: Tensor | None) -> Tensor:
    """The logits, from the state after `start` layers (all tokens, width), or from the tokens.

    After the last layer, the state may be that of the one token per row that the head reads, (rows, width).
    """
    top_layer, inputs = model.n_layers, rows.inputs
    shaped = None if state is None else rows.shaped(state)
    first, last = rows.ends
    with rows.packed():
        if rows.packing is not None and model.can_read_one_token and start < top_layer:
            return model.logits(inputs, start, shaped, top_tokens=first)
        if rows.packing is None and model.head_reads == "all":
            return model.logits(inputs, start, shaped)
        if state is None or start < top_layer:
            state = rows.flat(model.states([top_layer], inputs, start, shaped)[top_layer])
        if model.head_reads == "all":
            return model.logits(rows.padded_inputs, top_layer, rows.padded(state))
        # The head gets one token per row. A head that looks for the pad token would take an end token that also serves
        # as the pad token for padding.
        read = first if model.head_reads == "first" else last
        if len(state) != len(rows.positions):  # of all tokens
            state = state[read]
        return model.logits({"input_ids": rows.tokens[read][:, None]}, top_layer, state[:, None])
