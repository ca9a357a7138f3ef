"""Holds what is frozen in loops that are not ours: in eval whatever calls `train()`, and out of the backward pass.

All of it hangs on the modules as plain objects, so that a copied or unpickled model is held as well.
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
    """Stands in for a module's `train`: the module stays in eval, and the mode it was asked for is remembered."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.asked = module.training

    def __call__(self, mode: bool = True) -> nn.Module:
        self.asked = mode
        for child in self.module.children():
            child.train(mode)
        for part in self.module.modules():  # also what was put in later
            part.training = False
        return self.module


def is_held(model: nn.Module) -> bool:
    """Whether the model, or the one it was copied from, is held."""
    return any(isinstance(module.__dict__.get("train"), _StaysInEval) for module in model.modules())


class Hold:
    """Keeps the modules of a stack in which nothing trains in eval, and the lowest layers out of the gradient."""

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
        except BaseException:  # a Ctrl-C too leaves no half of it
            self.let_go()
            raise

    def _take_hold(self, stack: Stack, layers: list[nn.Module], n_prefix: int) -> None:
        for module in self.modules:
            module.__dict__["train"] = _StaysInEval(module)
            module.training = False
        if n_prefix > 0:
            self._seal(stack, layers[0], layers[n_prefix - 1])
        if self._draws_below(stack, n_prefix):
            self._gate(layers[-1])
            if self._draws_below(stack, n_prefix):
                raise UsageError(
                    f"{type(stack.model).__name__} draws random numbers below layer {n_prefix + 1} in eval too; its "
                    "frozen layers would differ from pass to pass"
                )

    def let_go(self) -> None:
        """Modes are free again, and are what they would be if nothing had been held.

        What was put into a held module later has no mode to go back to: it stays in eval until `train()` is called.
        """
        self._open()
        for handle in self._handles:
            handle.remove()
        for module in self.modules:
            held = module.__dict__.pop("train", None)
            if held is not None:
                module.training = held.asked

    def _seal(self, stack: Stack, lowest: nn.Module, highest: nn.Module) -> None:
        # With gradient checkpointing the library makes the embeddings' output require a gradient (TRAPS 3), which
        # DeBERTa takes past the first layer (TRAPS 27).
        for module in _called_first(stack):
            self._handles.append(module.register_forward_hook(self._keep_in))
        self._handles.append(lowest.register_forward_pre_hook(self._take_in, with_kwargs=True))
        self._handles.append(highest.register_forward_hook(self._hand_on))

    def _take_in(
        self, _module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        return tuple(_detached(arg) for arg in args), {name: _detached(arg) for name, arg in kwargs.items()}

    def _keep_in(self, _module: nn.Module, _args: object, output: object) -> object:
        return _detached(output)

    def _hand_on(self, _module: nn.Module, _args: object, output: object) -> object:
        # Reentrant checkpointing trains nothing, in silence, in a layer whose input needs no gradient.
        is_checkpointed = bool(getattr(self._above, "gradient_checkpointing", False))
        return _detached(output, requires_grad=is_checkpointed and torch.is_grad_enabled())

    def _gate(self, top: nn.Module) -> None:
        """Holders of the layers are in eval below the lowest trained one: some drop out by themselves (TRAPS 25)."""
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
        """Whether a pass in training mode draws random numbers before it leaves the prefix."""
        devices = [stack.device] if stack.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.no_grad(), self._in_training():
            before = _random_states(devices)
            stack.state_at(n_prefix, {"input_ids": probed_row(stack.model)})
            after = _random_states(devices)
        return any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))

    @contextmanager
    def _in_training(self) -> Iterator[None]:
        """Training mode for a while for what is around the layers; nobody asked for it."""
        with in_eval(self._model):
            for module in self._around:
                module.training = True
            yield


def _called_first(stack: Stack) -> list[nn.Module]:
    """The modules below the layers that are called before the first of them, not between two."""
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
    """The modules and all within them, each once."""
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
