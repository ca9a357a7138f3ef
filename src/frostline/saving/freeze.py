"""`frostline.freeze`: freezing layers of any transformers model for a training loop that is not ours.

Frozen modules are held in evaluation mode (`model/hold.py`), and their weights are verified by hashes.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel, TrainerCallback

from frostline.errors import UsageError, check_between, some
from frostline.model.hold import Hold, is_held
from frostline.model.stack import FrozenMovedError, Stack, bits_of
from frostline.records.plans import Plan
from frostline.report import numbers
from frostline.saving.ties import Tie, find_ties
from frostline.strategies import Freeze, Layers


def freeze(
    model: PreTrainedModel, n_frozen: int | None = None, *, train_layers: Collection[int] | None = None
) -> FrozenPlan:
    """Freezes the embeddings and the lowest layers; the plan it returns can be printed, verified and released.

    Frozen parameters get no gradient and take no part in the backward pass, and frozen modules stay in evaluation mode
    even when something calls `model.train()`. Everything else trains, including parameters that had
    `requires_grad=False` before; `release` restores it. A copied or unpickled model is frozen too; to release a copy,
    copy the plan (`copy.deepcopy(plan)`).

    Args:
        model: a transformers model with one plain stack of layers and any head or none, not yet wrapped or compiled.
        n_frozen: how many layers to freeze from the bottom; 0 freezes only the embeddings.
        train_layers: instead of `n_frozen`, the layers to train, counted from 1 at the bottom; the head trains too.
    """
    strategy = _strategy(n_frozen, train_layers)
    if not isinstance(model, PreTrainedModel):
        raise UsageError(
            f"a {type(model).__name__} cannot be frozen, only a transformers model (a PreTrainedModel); freeze the "
            "model before it is wrapped or compiled"
        )
    if is_held(model):
        raise UsageError("the model is frozen already; call release() on the plan that froze it, then freeze it again")
    stack = Stack(model)
    if isinstance(strategy, Freeze):
        check_between("n_frozen", strategy.n_frozen, 0, stack.n_layers)
    plan = strategy.plan(stack)
    _check_ties(stack, _trained_layers(strategy, stack.n_layers))
    return FrozenPlan(stack, plan)


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """A part of a model that is trained or frozen as a whole."""

    name: str
    """`embeddings`, `layers 1–3`, `layer 4` or `head`"""
    parameters: int
    """how many parameters it has"""
    share: float
    """its share of all parameters of the model"""
    is_trained: bool
    """trained; otherwise frozen"""


class FrozenPlan:
    """What trains in a model and what is frozen. The plan is in force until it is released."""

    def __init__(self, stack: Stack, plan: Plan) -> None:
        (phase,) = plan.phases
        self.plan = plan
        """the decision as a record"""
        self.model = stack.model
        """the frozen model"""
        self.trained = phase.trained
        """names of the trained parameters"""
        self.groups = _groups(stack, set(phase.trained))
        """the parts of the model, from the bottom up"""
        self._required_grad = {name: p.requires_grad for name, p in stack.model.named_parameters()}
        self._hold: Hold | None = None
        assert phase.cached_layers is not None
        try:
            stack.apply(phase.trained)
            self._hold = Hold(stack, phase.cached_layers)
            self._frozen_buffers = _frozen_buffers(stack, self._hold)
            self._digests = self._digest()
        except BaseException:  # Ctrl-C too must not leave the model half frozen
            self._undo()
            raise
        for parameter in stack.model.parameters():
            if not parameter.requires_grad:
                parameter.grad = None  # an optimizer made earlier would still apply it (TRAPS 4)

    def __str__(self) -> str:
        """A table of the parts: parameters, share, whether they train."""
        whole = sum(group.parameters for group in self.groups)
        trained = sum(group.parameters for group in self.groups if group.is_trained)
        rows = [
            (
                group.name,
                numbers.count(group.parameters),
                numbers.share(group.share),
                "trained" if group.is_trained else "",
            )
            for group in self.groups
        ]
        rows.append(("trained in all", numbers.count(trained), numbers.share(trained / whole), ""))
        names, counts, shares = (max(len(row[column]) for row in rows) for column in range(3))
        return "\n".join(f"{a:<{names}}  {b:>{counts}}  {c:>{shares}}  {d}".rstrip() for a, b, c, d in rows)

    def verify(self) -> None:
        """Raises a FrozenMovedError, with names, if anything frozen has changed by a single bit."""
        if self._hold is None:
            raise UsageError("the plan was released; freeze the model again to verify it")
        training = {name for name, p in self.model.named_parameters() if p.requires_grad}
        if differing := training ^ set(self.trained):
            raise FrozenMovedError(
                f"the trainable parameters are no longer those of the plan: {some(sorted(differing))}"
            )
        now = self._digest()
        if moved := [name for name, digest in self._digests.items() if now.get(name) != digest]:
            raise FrozenMovedError(f"frozen, but changed: {some(moved)}")
        if awake := [name or "the model" for name, module in self._held() if module.training]:
            raise FrozenMovedError(f"frozen, but in training mode: {some(awake)}")

    def release(self) -> None:
        """Undoes the freezing: `requires_grad` is as before, and modules follow `train()` again."""
        if self._hold is not None:
            self._undo()

    def callback(self) -> FrozenCallback:
        """A callback for `Trainer(callbacks=[…])`: verifies before and after training, at every evaluation and save."""
        return FrozenCallback(self)

    def check_optimizer(self, optimizer: Any) -> None:
        """Raises a UsageError if an optimizer has frozen parameters."""
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        frozen = [name for name, p in self.model.named_parameters() if id(p) in held and name not in self.trained]
        if frozen:
            raise UsageError(
                f"the optimizer has frozen parameters: {some(frozen)}; create it after freeze, only with parameters "
                "that have requires_grad"
            )

    def _undo(self) -> None:
        if self._hold is not None:
            self._hold.let_go()
            self._hold = None
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(self._required_grad.get(name, parameter.requires_grad))

    def _digest(self) -> dict[str, str]:
        trained = set(self.trained)
        frozen: list[tuple[str, Tensor]] = [(n, p) for n, p in self.model.named_parameters() if n not in trained]
        frozen += [(name, buffer) for name, buffer in self.model.named_buffers() if name in self._frozen_buffers]
        return {name: hashlib.sha256(bits_of(tensor)).hexdigest() for name, tensor in frozen}

    def _held(self) -> list[tuple[str, nn.Module]]:
        held = set() if self._hold is None else set(self._hold.modules)
        return [(name, module) for name, module in self.model.named_modules() if module in held]


class FrozenCallback(TrainerCallback):  # type: ignore[misc]
    """Stops the Trainer with an error if its optimizer has frozen parameters, or if anything frozen has changed."""

    def __init__(self, plan: FrozenPlan) -> None:
        self.plan = plan

    def on_train_begin(self, *_: object, model: nn.Module, optimizer: Any = None, **__: object) -> None:
        """Checks that the Trainer has the frozen model, that nothing changed, and the optimizer."""
        if not any(module is self.plan.model for module in model.modules()):
            raise UsageError(
                "the Trainer has another model than the one that was frozen (model_init makes a new one); freeze the "
                "model that the Trainer gets"
            )
        self.plan.verify()
        if optimizer is not None:
            self.plan.check_optimizer(optimizer)

    def on_evaluate(self, *_: object, **__: object) -> None:
        """Verifies the plan."""
        self.plan.verify()

    def on_save(self, *_: object, **__: object) -> None:
        """Verifies the plan."""
        self.plan.verify()

    def on_train_end(self, *_: object, **__: object) -> None:
        """Verifies the plan."""
        self.plan.verify()


def _strategy(n_frozen: int | None, train_layers: Collection[int] | None) -> Freeze | Layers:
    if (n_frozen is None) == (train_layers is None):
        raise UsageError(
            f"n_frozen is {n_frozen}, train_layers is {train_layers}; give one of them: how many layers to freeze, or "
            "which layers to train"
        )
    given = [n_frozen] if n_frozen is not None else train_layers
    if not isinstance(given, Collection) or not all(isinstance(n, Integral) and not isinstance(n, bool) for n in given):
        wrong = n_frozen if train_layers is None else train_layers
        raise UsageError(f"layers are whole numbers, e.g. n_frozen=3 or train_layers={{4, 5, 6}}; given: {wrong!r}")
    numbers = [int(n) for n in given if n is not None]
    return Freeze(numbers[0]) if train_layers is None else Layers(frozenset(numbers))


def _trained_layers(strategy: Freeze | Layers, n_layers: int) -> Collection[int]:
    return strategy.trained if isinstance(strategy, Layers) else range(strategy.n_frozen + 1, n_layers + 1)


def _check_ties(stack: Stack, layers: Collection[int]) -> None:
    """Raises a UsageError if one tensor belongs to a frozen part and to a trained one."""
    places = {*layers, stack.n_layers + 1}
    ties = find_ties(stack)
    for tie in ties:
        if tie.places & places and tie.places - places:
            # All tied tensors are named: when the library loads a model again, it ties all or none.
            copied = [name for other in ties for name in other.names[1:]]
            raise UsageError(f"{_contradiction(tie, places, stack.n_layers)}. {_untying(copied)}")


def _contradiction(tie: Tie, trained: set[int], n_layers: int) -> str:
    def named(places: Iterable[int]) -> str:
        return ", ".join(
            "the embeddings" if p == 0 else "the head" if p > n_layers else f"layer {p}" for p in sorted(places)
        )

    places = f"{named(tie.places - trained)} (to be frozen) and of {named(tie.places & trained)} (to be trained)"
    is_one = len(tie.names) == 1
    what = f"{tie.names[0]} is part of" if is_one else f"{' and '.join(tie.names)} are one tensor, part of"
    return f"{what} {places}; it cannot be both"


def _untying(copied: Sequence[str]) -> str:
    if not copied:
        return "Use a model whose head has its own weights"
    copies = [f"model.{name} = torch.nn.Parameter(model.{name}.detach().clone())" for name in copied]
    return f"Untie first: {'; '.join(['model.config.tie_word_embeddings = False', *copies])}"


def _groups(stack: Stack, trained: set[str]) -> tuple[ModelPart, ...]:
    """Embeddings, ranges of layers that are trained or frozen, head."""
    found, own = stack.structure, set(stack.all_parameters)  # a tensor that two layers share counts for the first
    whole = stack.count(own)

    def group(name: str, parameters: Iterable[str], *, is_trained: bool) -> ModelPart:
        count = stack.count(parameters)
        return ModelPart(name=name, parameters=count, share=count / whole, is_trained=is_trained)

    groups = [group("embeddings", found.below_parameters, is_trained=False)]
    numbered = enumerate(found.layer_parameters, start=1)
    for is_trained, run in itertools.groupby(numbered, key=lambda layer: bool(trained & set(layer[1]))):
        layers = list(run)
        first, last = layers[0][0], layers[-1][0]
        name = f"layer {first}" if first == last else f"layers {first}–{last}"
        groups.append(group(name, [p for _, names in layers for p in names if p in own], is_trained=is_trained))
    return (*groups, group("head", found.above_parameters, is_trained=True))


def _frozen_buffers(stack: Stack, hold: Hold) -> set[str]:
    """Names of the buffers of held modules and of the modules that contain the layers, not of the head."""
    layers = f"{stack.structure.layers_name}."
    owners = {name for name, module in stack.model.named_modules() if module in set(hold.modules)}
    owners |= {name for name, _ in stack.model.named_modules() if name == "" or layers.startswith(f"{name}.")}
    return {name for name, _ in stack.model.named_buffers() if name.rpartition(".")[0] in owners}
