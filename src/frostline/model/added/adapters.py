"""Modules put into a model: low-rank updates through peft, and bottleneck adapters behind a layer's parts."""

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
"""Standard deviation of a new adapter's weights: near to passing on what it is given."""


def check_peft() -> None:
    """Raises, with what to install, unless peft is there."""
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("peft, which lora needs,", "lora") from error


def lora_parameters(targets: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters that updates of these modules add."""
    return tuple(f"{name}.lora_{part}.default.weight" for name in targets for part in "AB")


def add_lora(stack: Stack, targets: Sequence[str], *, rank: int, alpha: int) -> None:
    """Puts a low-rank update beside each of these modules, as peft does; at first it adds nothing."""
    from peft import LoraConfig, inject_adapter_in_model

    is_turned = isinstance(stack.model.get_submodule(targets[0]), Conv1D)  # GPT-2 keeps its matrices that way
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets), fan_in_fan_out=is_turned)
    inject_adapter_in_model(config, stack.model)
    stack.forget_structure()


def merge_lora(stack: Stack) -> None:
    """Adds the updates to the weights that they are of: the model is of its own class again."""
    from peft.tuners.lora import LoraLayer

    wrapped = [(name, module) for name, module in stack.model.named_modules() if isinstance(module, LoraLayer)]
    for name, module in wrapped:
        module.merge()
        parent, _, last = name.rpartition(".")
        setattr(stack.model.get_submodule(parent), last, module.get_base_layer())
    stack.forget_structure()


class Bottleneck(nn.Module):
    """Adds to its input what a narrow layer makes of it."""

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
    """Names of the parameters that adapters behind these modules add."""
    with torch.device("meta"):
        names = [name for name, _ in Bottleneck(1, 1).named_parameters()]
    return tuple(f"{place}.{_ADAPTER}.{name}" for place in places for name in names)


def add_adapters(stack: Stack, places: Sequence[str], narrow: int) -> None:
    """Hooks an adapter to what each of these modules puts out."""
    for place in places:
        module = stack.model.get_submodule(place)
        module.add_module(_ADAPTER, Bottleneck(stack.structure.width, narrow).to(stack.device))
        module.register_forward_hook(_adapted)
    stack.forget_structure()


def _adapted(module: nn.Module, _args: Any, output: Tensor) -> Tensor:
    adapted: Tensor = module.get_submodule(_ADAPTER)(output)
    return adapted
