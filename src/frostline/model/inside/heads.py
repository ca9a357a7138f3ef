"""The attention heads of a model: which rows and columns of its weights belong to each.

A head is a slice of four matrices. Its queries, keys and values are rows of three projections (or of one, where the
three are fused), and its output is what some columns of the output projection read. Which rows those are in a fused
matrix differs from family to family: GPT-2, ModernBERT and Phi-3 store all queries, then all keys, then all values;
GPT-NeoX stores query, key and value of the first head, then those of the second.

Projections are found by their names and shapes. Whether the slices are right is found by experiment, on the top layer:
what one head hands to the output projection must depend on its own rows and on no others. So a family that stores its
heads in another order is refused, not trained in the wrong place.

In grouped-query attention several queries share a key and a value. Such a group is one attention head here, because no
smaller part of the model can be trained or pruned on its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from frostline.errors import UsageError
from frostline.model.structure import Reached, in_eval, probed_tokens
from frostline.records.parameters import AttentionHead

if TYPE_CHECKING:
    from frostline.model.stack import Stack

_QUERIES = ("query", "query_proj", "q_proj", "q_lin", "q")
_KEYS = ("key", "key_proj", "k_proj", "k_lin", "k")
_VALUES = ("value", "value_proj", "v_proj", "v_lin", "v")
_FUSED = ("c_attn", "query_key_value", "Wqkv", "qkv_proj")
_OUTPUTS = (
    "attention.output.dense", "attention.attn.o", "attention.out_lin", "attn.Wo", "attn.c_proj", "self_attn.out_proj",
    "attention.dense", "self_attn.o_proj",
)  # fmt: skip
"""The last linear module of attention, by its name in a layer."""

_PROBED = 3
"""tokens of the row that heads are checked with"""


@dataclass(frozen=True)
class Part:
    """A parameter of which every attention head of a layer has a slice."""

    module: str
    """its module's name in the model"""
    name: str
    """its name in the module: weight or bias"""
    dim: int
    """the dimension along which it is cut"""
    places: tuple[tuple[int, ...], ...]
    """for each head, its places along that dimension"""


@dataclass(frozen=True)
class LayerHeads:
    """The attention heads of one layer."""

    layer: int
    """counted from 1"""
    n_heads: int
    width: int
    """how many inputs of the output projection one head computes"""
    output: str
    """name of the output projection"""
    parts: tuple[Part, ...]
    """weights and biases of query, key and value, and the weight of the output projection; its bias is no head's own"""

    @property
    def heads(self) -> tuple[AttentionHead, ...]:
        """All of them, in order."""
        return tuple(AttentionHead(self.layer, number) for number in range(self.n_heads))


def attention_heads(stack: Stack) -> tuple[LayerHeads, ...]:
    """The attention heads of every layer, the lowest first; a UsageError in one line if they cannot be told apart."""
    counted = getattr(stack.model.config, "num_attention_heads", None)
    if not isinstance(counted, int) or counted < 1:
        raise _refused(stack, "its configuration does not count them")
    modules = dict(stack.model.named_modules())
    places = [f"{stack.structure.layers_name}.{number}" for number in range(stack.n_layers)]
    projections = [_projections(stack, modules, place) for place in places]
    if len({len(one.inputs) for one in projections}) > 1:
        raise _refused(stack, "its layers differ")
    for layout in (_stacked, _interleaved) if len(projections[0].inputs) == 1 else (_separate,):
        found = [_layer(number, one, counted, layout) for number, one in enumerate(projections, start=1)]
        layers = [layer for layer in found if layer is not None]
        if len(layers) == len(found) and _is_confirmed(stack, layers[-1]):
            return tuple(layers)
    raise _refused(stack, "its projections do not hold the heads in any known order")


@dataclass(frozen=True)
class _Projections:
    """The projections of one layer's attention: query, key and value (or one that is all three), and output."""

    inputs: tuple[tuple[str, nn.Linear | Conv1D], ...]
    output: tuple[str, nn.Linear | Conv1D]


def _refused(stack: Stack, reason: str) -> UsageError:
    return UsageError(
        f"the attention heads of {type(stack.model).__name__} cannot be told apart: {reason}; use freeze:N, or another "
        "model, e.g. BERT, RoBERTa, GPT-2, Llama"
    )


def _projections(stack: Stack, modules: dict[str, nn.Module], layer: str) -> _Projections:
    linear = {name: m for name, m in modules.items() if name.startswith(f"{layer}.") and _is_linear(m)}
    outputs = [name for end in _OUTPUTS if (name := f"{layer}.{end}") in linear]
    if len(outputs) != 1:
        raise _refused(stack, "its attention does not end in a linear module")
    found = [name for name in linear if name.rpartition(".")[2] in _FUSED]
    if not found:
        by_function = [
            [name for name in linear if name.rpartition(".")[2] in names] for names in (_QUERIES, _KEYS, _VALUES)
        ]
        found = [names[0] for names in by_function if len(names) == 1]
    if len(found) not in (1, 3):
        raise _refused(stack, "it has no linear modules for query, key and value")
    as_linear = {name: m for name, m in linear.items() if isinstance(m, nn.Linear | Conv1D)}
    return _Projections(tuple((name, as_linear[name]) for name in found), (outputs[0], as_linear[outputs[0]]))


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


def _sizes(module: nn.Linear | Conv1D) -> tuple[int, int]:
    """How many numbers a projection reads and gives. GPT-2 stores its matrices transposed."""
    rows, columns = module.weight.shape
    return (rows, columns) if isinstance(module, Conv1D) else (columns, rows)


Places = list[list[int]]
"""for each head, its outputs of a projection"""
Layout = Callable[[Sequence[int], int, int], list[Places] | None]
"""from the outputs of each projection, the number of queries and the width of one: for each projection, the places of
each head; None if these sizes do not fit"""


def _separate(n_outputs: Sequence[int], n_queries: int, width: int) -> list[Places] | None:
    """Query, key and value each have a matrix of their own."""
    query, key, value = n_outputs
    n_heads = key // width
    if query != n_queries * width or key != value or key != n_heads * width or not n_heads or n_queries % n_heads:
        return None
    return [_blocks(n_heads, size // n_heads) for size in n_outputs]


def _stacked(n_outputs: Sequence[int], n_queries: int, width: int) -> list[Places] | None:
    """All queries, then all keys, then all values."""
    n_heads = _n_fused(n_outputs[0], n_queries, width)
    if n_heads is None:
        return None
    queries = _blocks(n_heads, n_queries * width // n_heads)
    keys = _blocks(n_heads, width, start=n_queries * width)
    values = _blocks(n_heads, width, start=(n_queries + n_heads) * width)
    return [[[*query, *key, *value] for query, key, value in zip(queries, keys, values, strict=True)]]


def _interleaved(n_outputs: Sequence[int], n_queries: int, width: int) -> list[Places] | None:
    """Queries, key and value of the first head, then those of the second."""
    n_heads = _n_fused(n_outputs[0], n_queries, width)
    return None if n_heads is None else [_blocks(n_heads, n_outputs[0] // n_heads)]


def _n_fused(n_outputs: int, n_queries: int, width: int) -> int | None:
    """How many keys a fused projection has, from its size; None if there is no such number."""
    n_heads, rest = divmod(n_outputs - n_queries * width, 2 * width)
    return None if rest or n_heads < 1 or n_queries % n_heads else n_heads


def _blocks(number: int, size: int, start: int = 0) -> Places:
    return [list(range(start + size * place, start + size * (place + 1))) for place in range(number)]


def _layer(number: int, found: _Projections, n_queries: int, layout: Layout) -> LayerHeads | None:
    """The heads of a layer, if its matrices have the sizes that a layout needs."""
    (output_name, output), read = found.output, _sizes(found.output[1])[0]
    if read % n_queries:
        return None
    places = layout([_sizes(module)[1] for _, module in found.inputs], n_queries, read // n_queries)
    if places is None:
        return None
    parts = [
        Part(name, parameter, _dim(module, parameter, is_output=True), tuple(map(tuple, of_heads)))
        for (name, module), of_heads in zip(found.inputs, places, strict=True)
        for parameter in ("weight", "bias")
        if getattr(module, parameter) is not None
    ]
    n_heads = len(places[0])
    width = read // n_heads
    columns = tuple(map(tuple, _blocks(n_heads, width)))
    parts.append(Part(output_name, "weight", _dim(output, "weight", is_output=False), columns))
    return LayerHeads(number, n_heads, width, output_name, tuple(parts))


def _dim(module: nn.Module, parameter: str, *, is_output: bool) -> int:
    """The dimension of a projection's outputs, or of its inputs."""
    return 0 if parameter == "bias" else int(is_output == isinstance(module, Conv1D))


def _is_confirmed(stack: Stack, top: LayerHeads) -> bool:
    """Whether what each head of the top layer computes depends on weights of its own slices and on no others."""
    parts = [part for part in top.parts if part.name == "weight" and part.module != top.output]
    weights = [stack.model.get_submodule(part.module).get_parameter("weight") for part in parts]
    with _with_gradients(weights):
        seen = _read_by_output(stack, top.output)
        for number in range(top.n_heads):
            own = seen[:, number * top.width : (number + 1) * top.width]
            # Unequal factors: the plain sum could be 0 where terms cancel out.
            factors = torch.arange(1.0, own.numel() + 1, dtype=own.dtype, device=own.device).view(own.shape)
            gradients = torch.autograd.grad((own * factors).sum(), weights, retain_graph=True)
            moved = [_places_with(gradient, part.dim) for gradient, part in zip(gradients, parts, strict=True)]
            if not any(moved) or any(not m <= {*part.places[number]} for m, part in zip(moved, parts, strict=True)):
                return False
    return True


def _places_with(gradient: Tensor, dim: int) -> set[int]:
    """The places along a dimension where a gradient is not 0."""
    return set(gradient.ne(0).any(1 - dim).nonzero()[:, 0].tolist())


def _read_by_output(stack: Stack, output: str) -> Tensor:
    """What the top layer's output projection reads for one row of any state, (tokens, inputs). No other layer runs."""
    seen: list[Tensor] = []

    def leave(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
        seen.append(args[0])
        raise Reached

    weight = next(stack.model.parameters())
    places = torch.arange(1.0, _PROBED * stack.structure.width + 1, dtype=weight.dtype, device=weight.device)
    state = torch.sin(places).view(1, _PROBED, -1)
    handle = stack.model.get_submodule(output).register_forward_pre_hook(leave)
    try:
        with contextlib.suppress(Reached), in_eval(stack.model):
            stack.logits_from(stack.n_layers - 1, state, {"input_ids": probed_tokens(stack.model, _PROBED)[None]})
    finally:
        handle.remove()
    if not seen:
        raise _refused(stack, "its attention does not call its output projection")
    return seen[0].reshape(-1, seen[0].shape[-1])


@contextlib.contextmanager
def _with_gradients(weights: Sequence[nn.Parameter]) -> Iterator[None]:
    """Inside this context, gradients are recorded for these weights."""
    before = [weight.requires_grad for weight in weights]
    try:
        with torch.enable_grad():
            for weight in weights:
                weight.requires_grad_(True)
            yield
    finally:
        for weight, was_trained in zip(weights, before, strict=True):
            weight.requires_grad_(was_trained)
