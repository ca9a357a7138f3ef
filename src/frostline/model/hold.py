"""Keeps frozen modules frozen in training loops that are not ours.

A Trainer calls `model.train()` before every epoch, which would switch dropout on in frozen layers. A `Hold` prevents
this in three ways, all with ordinary attributes and hooks of the modules, so a copied or unpickled model is held too:

- Each frozen module gets its own `train`, which leaves it in evaluation mode and remembers the mode asked for.
- The lowest layers are cut out of the backward pass: their inputs and outputs are detached.
- Some models drop out between layers, in the module that contains them. If a test pass draws random numbers below the
  lowest trained layer, such modules are switched to evaluation mode while the forward pass is below it (the "gate").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from frostline.errors import UsageError
from frostline.model.stack import Stack
from frostline.model.structure import in_eval, probed_row


class _StaysInEval:
    """Replaces a module's `train` method: the module stays in eval, and the requested mode is remembered."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.requested = module.training

    def __call__(self, mode: bool = True) -> nn.Module:
        self.requested = mode
        for child in self.module.children():
            child.train(mode)
        for part in self.module.modules():  # includes modules added later
            part.training = False
        return self.module


def is_held(model: nn.Module) -> bool:
    """Whether the model is held, or is a copy of a held one."""
    return any(isinstance(module.__dict__.get("train"), _StaysInEval) for module in model.modules())


class Hold:
    """Keeps modules without trained parameters in eval, and the lowest layers out of the backward pass."""

    def __init__(self, stack: Stack, n_prefix: int) -> None:
        self.modules = _with_parts(stack.frozen_modules())
        self._model = stack.model
        layers = list(stack.model.get_submodule(stack.structure.layers_name).children())
        self._around = _apart_from(stack.model, {*self.modules, *_with_parts(layers)})
        self._above = layers[n_prefix] if n_prefix < len(layers) else None
        self._handles: list[RemovableHandle] = []
        self._closed: list[nn.Module] = []
        try:
            self._take_hold(stack, layers, n_prefix)
        except BaseException:  # Ctrl-C too must not leave the model half held
            self.let_go()
            raise

    def _take_hold(self, stack: Stack, layers: list[nn.Module], n_prefix: int) -> None:
        for module in self.modules:
            module.__dict__["train"] = _StaysInEval(module)
            module.training = False
        if n_prefix > 0:
            self._detach_prefix(stack, layers[0], layers[n_prefix - 1])
        if self._draws_below(stack, n_prefix):
            self._gate(layers[-1])
            if self._draws_below(stack, n_prefix):
                raise UsageError(
                    f"{type(stack.model).__name__} draws random numbers below layer {n_prefix + 1} in evaluation mode "
                    "too; the outputs of its frozen layers would differ from pass to pass"
                )

    def let_go(self) -> None:
        """Ends the hold: every module has the mode that it would have without it.

        A module that was added to a held one later has no earlier mode: it stays in eval until `train()` is called.
        """
        self._open()
        for handle in self._handles:
            handle.remove()
        for module in self.modules:
            held = module.__dict__.pop("train", None)
            if held is not None:
                module.training = held.requested

    def _detach_prefix(self, stack: Stack, lowest: nn.Module, highest: nn.Module) -> None:
        # With gradient checkpointing the library makes the embeddings' output require a gradient (TRAPS 3), and DeBERTa
        # uses that output above the first layer too (TRAPS 27). So it is detached at the source as well.
        for module in _called_first(stack):
            self._handles.append(module.register_forward_hook(self._detach_output))
        self._handles.append(lowest.register_forward_pre_hook(self._detach_inputs, with_kwargs=True))
        self._handles.append(highest.register_forward_hook(self._detach_last_output))

    def _detach_inputs(
        self, _module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        return tuple(_detached(arg) for arg in args), {name: _detached(arg) for name, arg in kwargs.items()}

    def _detach_output(self, _module: nn.Module, _args: object, output: object) -> object:
        return _detached(output)

    def _detach_last_output(self, _module: nn.Module, _args: object, output: object) -> object:
        # Reentrant checkpointing silently trains nothing in a layer whose input requires no gradient.
        is_checkpointed = bool(getattr(self._above, "gradient_checkpointing", False))
        return _detached(output, requires_grad=is_checkpointed and torch.is_grad_enabled())

    def _gate(self, top: nn.Module) -> None:
        """Keeps the modules that contain the layers in eval until the lowest trained layer (TRAPS 25)."""
        self._handles.append(self._model.register_forward_pre_hook(self._close))
        if self._above is None:
            self._handles.append(top.register_forward_hook(self._open))
        else:
            self._handles.append(self._above.register_forward_pre_hook(self._open))
        self._handles.append(self._model.register_forward_hook(self._open, always_call=True))

    def _close(self, *_: object) -> None:
        training = [module for module in self._around if module.training]
        self._closed += training
        for module in training:
            module.training = False

    def _open(self, *_: object) -> None:
        for module in self._closed:
            module.training = True
        self._closed = []

    def _draws_below(self, stack: Stack, n_prefix: int) -> bool:
        """Whether a forward pass in training mode draws random numbers within the prefix."""
        devices = [stack.device] if stack.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.no_grad(), self._in_training():
            before = _random_states(devices)
            stack.state_at(n_prefix, {"input_ids": probed_row(stack.model)})
            after = _random_states(devices)
        return any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))

    @contextmanager
    def _in_training(self) -> Iterator[None]:
        """Inside this context, the modules around the layers are in training mode; no request is remembered."""
        with in_eval(self._model):
            for module in self._around:
                module.training = True
            yield


def _called_first(stack: Stack) -> list[nn.Module]:
    """The modules below the layers that are called before the first layer, not between two layers."""
    called: list[nn.Module] = []
    below = [stack.model.get_submodule(name) for name in stack.structure.below_modules]
    handles = [module.register_forward_pre_hook(lambda module, _args: called.append(module)) for module in below]
    try:
        with torch.no_grad(), in_eval(stack.model):
            stack.state_at(0, {"input_ids": probed_row(stack.model)})
    finally:
        for handle in handles:
            handle.remove()
    return list(dict.fromkeys(called))


def _with_parts(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The modules and all their submodules, each once."""
    return list(dict.fromkeys(part for module in modules for part in module.modules()))


def _apart_from(model: nn.Module, left_out: set[nn.Module]) -> list[nn.Module]:
    return [module for module in model.modules() if module not in left_out]


def _detached(value: object, *, requires_grad: bool = False) -> object:
    if isinstance(value, tuple):
        return tuple(_detached(item, requires_grad=requires_grad) for item in value)
    if not isinstance(value, Tensor):
        return value
    return value.detach().requires_grad_(requires_grad and value.is_floating_point())


def _random_states(devices: list[torch.device]) -> list[Tensor]:
    return [torch.get_rng_state(), *[torch.cuda.get_rng_state(device) for device in devices]]
