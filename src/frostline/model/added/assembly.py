"""Models put together from tensors that exist already, without copying them.

A model is built on the meta device, where parameters have no memory. Then each gets its tensor: the same object that
another model may hold. So a task over a shared trunk has its own tree of modules, and no weight is in memory twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel

from frostline.errors import DataError, some


def config_of(content: dict[str, Any]) -> PreTrainedConfig:
    """The configuration in a config.json, for a model that computes in fp32 and returns only logits."""
    model_type = content.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise DataError(f"unknown model_type {model_type!r:.80}")
    config: PreTrainedConfig = CONFIG_MAPPING[model_type].from_dict(content)
    # While a model is built the library makes this torch's default type, for all threads.
    config.dtype = torch.float32
    config.output_hidden_states = config.output_attentions = False
    return config


def empty_model(model_class: Any, config: PreTrainedConfig) -> PreTrainedModel:
    """A new model in evaluation mode whose parameters have no memory; buffers that no file holds have their values."""
    with torch.device("meta"):
        model = model_class.from_config(config)
    assert isinstance(model, PreTrainedModel)
    for name, buffer in list(model.named_non_persistent_buffers()):
        _put(model, name, torch.empty_like(buffer, device="cpu"))
    # The library computes the values of these buffers where it draws new weights; on the meta device it draws nothing.
    # It skips what is marked: no module may be, and no parameter needs values (drawing them took half of the time).
    for module in model.modules():
        module.__dict__.pop("_is_hf_initialized", None)
    for parameter in model.parameters():
        parameter.__dict__["_is_hf_initialized"] = True
    model.initialize_weights()
    return model.eval()


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers with their names; a tied one appears under each of its names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def fill(module: nn.Module, tensor_of: Callable[[str, Tensor], Tensor | None]) -> None:
    """Puts a tensor in the place of every parameter and buffer, without copying; raises a DataError if one is missing.

    Args:
        module: a model, or a part of one.
        tensor_of: gives the tensor for a name, and the empty tensor that is there now; None: there is none.
    """
    missing = []
    for name, empty in list(named_tensors(module)):
        tensor = tensor_of(name, empty)
        if tensor is None:
            missing.append(name)
            continue
        if tensor.shape != empty.shape:
            raise DataError(f"{name} has the shape {list(tensor.shape)}; the model needs {list(empty.shape)}")
        _put(module, name, _as_parameter(tensor) if isinstance(empty, nn.Parameter) else tensor)
    if missing:
        raise DataError(f"lacks {some(missing)}")
    assert not any(tensor.is_meta for _, tensor in named_tensors(module))


def fixed_buffers(model: PreTrainedModel) -> Mapping[str, Tensor]:
    """The buffers that no file holds, by name: positions, frequencies."""
    return dict(model.named_non_persistent_buffers())


def _as_parameter(tensor: Tensor) -> nn.Parameter:
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=False)


def _put(module: nn.Module, name: str, tensor: Tensor) -> None:
    parent, _, last = name.rpartition(".")
    # Not into `_parameters`: an LSTM keeps a second list of its weights.
    setattr(module.get_submodule(parent), last, tensor)
