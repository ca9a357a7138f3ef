"""LoRA updates and bottleneck adapters, which are added inside the layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from frostline.errors import MissingExtraError

if TYPE_CHECKING:
    from frostline.model.stack import Stack

_ADAPTER = "adapter"
_SPREAD = 1e-2
"""Standard deviation of a new adapter's weights: small, so that at first its output is close to its input."""


def check_peft() -> None:
    """Raises if peft is not installed, and says how to install it."""
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("peft, which lora needs,", "lora") from error


def lora_parameters(targets: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters that LoRA adds to these modules."""
    return tuple(f"{name}.lora_{part}.default.weight" for name in targets for part in "AB")


def add_lora(stack: Stack, targets: Sequence[str], *, rank: int, alpha: int) -> None:
    """Wraps each of these modules with a low-rank update by peft; an untrained update changes nothing."""
    from peft import LoraConfig, inject_adapter_in_model

    is_transposed = isinstance(stack.model.get_submodule(targets[0]), Conv1D)  # GPT-2 stores its matrices transposed
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets), fan_in_fan_out=is_transposed)
    inject_adapter_in_model(config, stack.model)
    stack.forget_structure()


def merge_lora(stack: Stack) -> None:
    """Adds each update to the weights it belongs to and removes peft's wrappers: an ordinary model again."""
    from peft.tuners.lora import LoraLayer

    wrapped = [(name, module) for name, module in stack.model.named_modules() if isinstance(module, LoraLayer)]
    for name, module in wrapped:
        module.merge()
        parent, _, last = name.rpartition(".")
        setattr(stack.model.get_submodule(parent), last, module.get_base_layer())
    stack.forget_structure()


class Bottleneck(nn.Module):
    """A residual module: its input plus the output of a narrow two-layer network."""

    def __init__(self, width: int, narrow: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, narrow)
        self.up = nn.Linear(narrow, width)
        for linear in (self.down, self.up):
            nn.init.normal_(linear.weight, std=_SPREAD)
            nn.init.zeros_(linear.bias)

    def forward(self, state: Tensor) -> Tensor:
        """(…, width) → (…, width)"""
        changed: Tensor = self.up(functional.gelu(self.down(state)))
        return state + changed


def adapter_parameters(places: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters of adapters attached to these modules."""
    with torch.device("meta"):
        names = [name for name, _ in Bottleneck(1, 1).named_parameters()]
    return tuple(f"{place}.{_ADAPTER}.{name}" for place in places for name in names)


def add_adapters(stack: Stack, places: Sequence[str], narrow: int) -> None:
    """Attaches an adapter to the output of each of these modules."""
    for place in places:
        module = stack.model.get_submodule(place)
        module.add_module(_ADAPTER, Bottleneck(stack.structure.width, narrow).to(stack.device))
        module.register_forward_hook(_adapted)
    stack.forget_structure()


def _adapted(module: nn.Module, _args: Any, output: Tensor) -> Tensor:
    adapted: Tensor = module.get_submodule(_ADAPTER)(output)
    return adapted
