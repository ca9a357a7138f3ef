"""Parts of the layers by their function: query and value projections, sublayer outputs, norms, biases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from torch import nn
from transformers.pytorch_utils import Conv1D

from frostline.errors import UsageError

if TYPE_CHECKING:
    from frostline.model.stack import Stack

_QUERIES = ("query", "query_proj", "q_proj", "q_lin", "q")
_VALUES = ("value", "value_proj", "v_proj", "v_lin", "v")
_FUSED = ("c_attn", "query_key_value", "Wqkv", "qkv_proj")
"""Query, key and value in one matrix (GPT-2, GPT-NeoX, ModernBERT): an update changes the key too."""

# The last module of attention and of the feed-forward part, whose output is added to the residual stream.
_SUBLAYERS = (
    ("attention.output.dense", "output.dense"),
    ("attention.attn.o", "output.dense"),
    ("attention.out_lin", "ffn.lin2"),
    ("attn.Wo", "mlp.Wo"),
    ("attn.c_proj", "mlp.c_proj"),
    ("self_attn.out_proj", "fc2"),
    ("attention.dense", "mlp.dense_4h_to_h"),
    ("self_attn.o_proj", "mlp.down_proj"),
)


def query_and_value(stack: Stack, n_frozen: int) -> tuple[str, ...]:
    """Names of the query and value projections above `n_frozen` layers; raises a UsageError if there are none."""
    found = [name for layer, module in _layers(stack, n_frozen) for name in _projections(layer, module)]
    if len(found) < stack.n_layers - n_frozen:
        raise UsageError(
            f"{type(stack.model).__name__} has no separate modules for the query and value projections, which lora "
            "updates; use freeze:N, bitfit or norms, or another model, e.g. BERT"
        )
    return tuple(found)


def sublayer_outputs(stack: Stack, n_frozen: int = 0) -> tuple[str, ...]:
    """Names of the last modules of attention and feed-forward part, two per layer above `n_frozen`.

    Raises a UsageError if they are not found.
    """
    ends = _sublayer_ends(stack)
    if ends is None:
        raise UsageError(
            f"in the layers of {type(stack.model).__name__}, attention and feed-forward part do not each end in a "
            "linear module, so there is no place for adapters; use freeze:N, bitfit or norms, or another model, e.g. "
            "BERT"
        )
    return tuple(f"{name}.{end}" for name, _ in _layers(stack, n_frozen) for end in ends)


def sublayer_parameters(stack: Stack, part: Literal["attention", "ffn"], n_frozen: int = 0) -> tuple[str, ...]:
    """Names of the weights and biases of the linear modules of attention, or of the feed-forward part.

    Attention is the child of a layer that holds the attention output: query, key, value and output are in it, and what
    positions are projected with. All other linear modules of the layer are the feed-forward part. Norms are in neither.
    Raises a UsageError if the two cannot be told apart.
    """
    ends = _sublayer_ends(stack)
    if ends is None:
        raise UsageError(
            f"in the layers of {type(stack.model).__name__}, attention and feed-forward part cannot be told apart: "
            "they do not each end in a linear module; use freeze:N, bitfit or norms, or another model, e.g. BERT"
        )
    attention = f"{ends[0].partition('.')[0]}."
    return tuple(
        f"{layer}.{name}.{parameter}"
        for layer, module in _layers(stack, n_frozen)
        for name, linear in module.named_modules()
        if isinstance(linear, nn.Linear | Conv1D) and name.startswith(attention) == (part == "attention")
        for parameter, _ in linear.named_parameters(recurse=False)
    )


def norms(stack: Stack, n_frozen: int = 0) -> tuple[str, ...]:
    """Names of the parameters of all norms in the layers above `n_frozen`; raises a UsageError if there are none."""
    found = [
        f"{layer}.{name}.{parameter}"
        for layer, module in _layers(stack, n_frozen)
        for name, part in module.named_modules()
        if _is_norm(part)
        for parameter, _ in part.named_parameters(recurse=False)
    ]
    if not found and n_frozen < stack.n_layers:
        raise UsageError(f"the layers of {type(stack.model).__name__} have no norms to train; use freeze:N or lora:R")
    return tuple(found)


def biases(stack: Stack) -> tuple[str, ...]:
    """Names of all biases in the layers; raises a UsageError if there are none."""
    names = [name for of_layer in stack.structure.layer_parameters for name in of_layer]
    found = tuple(name for name in names if name.rpartition(".")[2].endswith("bias"))
    if not found:
        raise UsageError(
            f"the layers of {type(stack.model).__name__} have no biases for bitfit to train; use "
            "norms, freeze:N or lora:R"
        )
    return found


def pretrained_above(stack: Stack, n_kept: int, *, with_norm: bool) -> tuple[str, ...]:
    """Names of the pretrained parameters above the lowest `n_kept` layers, in the model's order.

    These are the parameters of layers and pooler and, `with_norm`, of a final norm. The task head is new, so it is not
    among them.
    """
    found, model = stack.structure, stack.model
    bare = {id(p) for p in model.base_model.parameters()} if model.base_model is not model else set()
    in_norms = {id(p) for module in model.modules() if _is_norm(module) for p in module.parameters(recurse=False)}
    parameters = dict(model.named_parameters())
    above = {
        name
        for name in found.above_parameters
        if id(parameters[name]) in bare and (with_norm or id(parameters[name]) not in in_norms)
    }
    above.update(name for of_layer in found.layer_parameters[n_kept:] for name in of_layer)
    return tuple(name for name in stack.all_parameters if name in above)


def _sublayer_ends(stack: Stack) -> tuple[str, str] | None:
    """Names, inside each layer, of the last modules of attention and of the feed-forward part; None: not found."""
    layers = [dict(module.named_modules()) for _, module in _layers(stack)]
    for ends in _SUBLAYERS:
        if all(isinstance(layer.get(end), nn.Linear | Conv1D) for layer in layers for end in ends):
            return ends
    return None


def _layers(stack: Stack, n_frozen: int = 0) -> Iterator[tuple[str, nn.Module]]:
    """Name and module of each layer above `n_frozen`."""
    for number in range(n_frozen, stack.n_layers):
        name = f"{stack.structure.layers_name}.{number}"
        yield name, stack.model.get_submodule(name)


def _projections(layer: str, module: nn.Module) -> list[str]:
    linear = {
        name: name.rpartition(".")[2] for name, part in module.named_modules() if isinstance(part, nn.Linear | Conv1D)
    }
    found = [name for name, last in linear.items() if last in _FUSED]
    if not found:
        found = [name for wanted in (_QUERIES, _VALUES) for name, last in linear.items() if last in wanted]
        found = found if len(found) == 2 else []
    return [f"{layer}.{name}" for name in found]


def _is_norm(module: nn.Module) -> bool:
    return type(module).__name__.lower().endswith("norm")
