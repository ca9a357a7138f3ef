"""`freeze` in the loops people have: transformers' own Trainer, plain torch, Accelerate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import frostline
from families import matrix
from frostline import tasks
from frostline.errors import UsageError
from frostline.kinds import CLASSIFICATION
from frostline.model.load import load_model, load_tokenizer, quiet
from frostline.model.stack import FrozenMovedError, Stack
from frostline.saving.freeze import FrozenPlan
from frostline.testing.models import Family, make_rows, make_stack, make_tokenizer, pad_token_of
from tiny import TEETH, distance

N_LAYERS, N_FROZEN, N_STEPS = 6, 3, 50

Rows = list[dict[str, Any]]
CHECKPOINTING: dict[str, dict[str, Any]] = {
    "plain": {},
    "checkpointing": {"gradient_checkpointing": True},
    "reentrant": {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
}


def _model(family: Family = "bert") -> PreTrainedModel:
    return make_stack(family, n_layers=N_LAYERS).model


def _tokenizer(model: PreTrainedModel) -> PreTrainedTokenizerBase:
    tokenizer = make_tokenizer(model.config.model_type)
    pad_token_of(tokenizer)
    return tokenizer


def _rows(tokenizer: PreTrainedTokenizerBase, rows: tasks.Rows) -> Rows:
    return [{**tokenizer(text), "labels": int(label)} for text, label in zip(rows.texts, rows.labels, strict=True)]


class _Trainer(Trainer):  # type: ignore[misc]
    """The real one, for 50 quiet steps on toy rows unless told otherwise."""

    def __init__(self, folder: Path, callbacks: list[TrainerCallback], *, settings: dict[str, Any], **own: Any) -> None:
        recipe = {
            "per_device_train_batch_size": 8, "max_steps": N_STEPS, "learning_rate": 1e-2, "save_strategy": "steps",
            "save_steps": 25, "eval_strategy": "steps", "eval_steps": 20, "report_to": [], "use_cpu": True,
            "disable_tqdm": True, "dataloader_pin_memory": False, **settings,
        }  # fmt: skip
        tokenizer = own.pop("tokenizer", None) or _tokenizer(_model())
        rows = own.pop("rows", None) or _rows(tokenizer, make_rows())
        super().__init__(
            args=TrainingArguments(str(folder), **recipe),
            train_dataset=rows,
            eval_dataset=rows[:8],
            data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=callbacks,
            **own,
        )


def _bits(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


def _moved(model: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in _bits(model).items() if not torch.equal(tensor, before[name])}


@contextmanager
def _modes_within(model: nn.Module) -> Iterator[dict[str, set[bool]]]:
    """The modes each module was in during its own forward, of the passes that train."""
    modes: dict[str, set[bool]] = defaultdict(set)

    def note(name: str, module: nn.Module) -> None:
        if model.training:
            modes[name].add(module.training)

    handles = [
        module.register_forward_pre_hook(lambda module, _args, name=name: note(name, module))
        for name, module in model.named_modules()
    ]
    try:
        yield modes
    finally:
        for handle in handles:
            handle.remove()


def _frozen_modules(model: PreTrainedModel) -> set[str]:
    """Names of what stands below the layers and of the lowest ones, with all that is in them."""
    found = Stack(model).structure
    lowest = tuple(f"{found.layers_name}.{number}" for number in range(N_FROZEN))
    return {*found.below_modules, *(name for name, _ in model.named_modules() if name.startswith(lowest))}


def _check_trained(model: PreTrainedModel, plan: FrozenPlan, before: dict[str, Tensor]) -> None:
    """Frozen bits are what they were, trained ones all moved."""
    moved = _moved(model, before)
    assert moved <= set(plan.trained)
    # A key's bias moves no softmax.
    assert all("key.bias" in name for name in set(plan.trained) - moved)
    plan.verify()


@pytest.mark.parametrize(("family", "kind"), matrix(("bert", "gpt2"), tuple(CHECKPOINTING)))
def test_trainer_moves_nothing_frozen(family: Family, kind: str, tmp_path: Path) -> None:
    model = _model(family)
    before = _bits(model)
    plan = frostline.freeze(model, N_FROZEN)
    frozen = _frozen_modules(model)
    with quiet():
        settings, tokenizer = CHECKPOINTING[kind], _tokenizer(model)
        trainer = _Trainer(tmp_path, [plan.callback()], settings=settings, model=model, tokenizer=tokenizer)
        with _modes_within(model) as modes:
            trainer.train()
    assert trainer.state.global_step == N_STEPS
    _check_trained(model, plan, before)
    assert len(frozen & set(modes)) > 10
    assert all(modes[name] == {name not in frozen} for name in modes)
    held = {id(p) for group in trainer.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for name, p in model.named_parameters() if name in plan.trained}


def test_a_resumed_training_and_its_best_model_pass_the_callback(tmp_path: Path) -> None:
    settings = {"save_steps": 10, "eval_steps": 10, "load_best_model_at_end": True}
    for n_steps in (10, 30):
        model = _model()
        before = _bits(model)
        plan = frostline.freeze(model, N_FROZEN)
        with quiet():
            trainer = _Trainer(tmp_path, [plan.callback()], settings={**settings, "max_steps": n_steps}, model=model)
            trainer.train(resume_from_checkpoint=n_steps > 10)
        assert trainer.state.global_step == n_steps
        _check_trained(model, plan, before)


def test_twin_without_freeze_frozen_modules_train(tmp_path: Path) -> None:
    model = _model()
    Stack(model).apply(Stack(model).parameters_above(N_FROZEN))
    with quiet():
        trainer = _Trainer(tmp_path, [], settings={"max_steps": 2, "save_strategy": "no"}, model=model)
        with _modes_within(model) as modes:
            trainer.train()
    assert all(True in modes[name] for name in _frozen_modules(model) & set(modes))


class _Nudge(TrainerCallback):  # type: ignore[misc]
    """Somebody else's code that touches what is frozen."""

    def __init__(self, tensor: Tensor, step: int) -> None:
        self.tensor, self.step = tensor, step

    def on_step_end(self, _args: Any, state: Any, *_: object, **__: object) -> None:
        if state.global_step == self.step:
            self.tensor.data += 1


@pytest.mark.parametrize(
    ("step", "settings", "stopped_at"),
    [
        (3, {"save_strategy": "no", "eval_steps": 4}, 4),
        (3, {"eval_strategy": "no", "save_steps": 5}, 5),
        (3, {"eval_strategy": "no", "save_strategy": "no", "max_steps": 6}, 6),
    ],
    ids=["evaluation", "save", "end"],
)
@pytest.mark.parametrize("name", ["bert.encoder.layer.0.output.dense.weight", "bert.embeddings.position_ids"])
def test_the_callback_stops_a_training_that_moves_what_is_frozen(
    name: str, step: int, settings: dict[str, Any], stopped_at: int, tmp_path: Path
) -> None:
    model = _model()
    plan = frostline.freeze(model, N_FROZEN)
    with quiet():
        nudge = _Nudge(_named(model, name), step)
        trainer = _Trainer(tmp_path, [plan.callback(), nudge], settings=settings, model=model)
        with pytest.raises(FrozenMovedError, match=f"frozen, but changed: {name}$"):
            trainer.train()
    assert trainer.state.global_step == stopped_at


def _named(model: nn.Module, name: str) -> Tensor:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}[name]


def test_the_callback_refuses_to_begin_with_an_optimizer_of_all(tmp_path: Path) -> None:
    model = _model()
    optimizer = AdamW(model.parameters(), lr=1e-3)
    plan = frostline.freeze(model, N_FROZEN)
    with quiet():
        trainer = _Trainer(tmp_path, [plan.callback()], settings={}, model=model, optimizers=(optimizer, None))
        with pytest.raises(UsageError, match="the optimizer has frozen parameters"):
            trainer.train()


@pytest.mark.parametrize(
    ("breaking", "said"),
    [
        (lambda plan: plan.release(), "the plan was released"),
        (lambda plan: plan.model.requires_grad_(True), "the trainable parameters are no longer those of the plan"),
        (lambda plan: plan.model.bert.encoder.layer[0].output.dense.bias.data.add_(1), "frozen, but changed"),
    ],
    ids=["released", "thawed", "moved"],
)
def test_the_callback_refuses_to_begin_when_the_plan_does_not_hold(
    breaking: Callable[[FrozenPlan], None], said: str, tmp_path: Path
) -> None:
    plan = frostline.freeze(_model(), N_FROZEN)
    breaking(plan)
    with quiet():
        trainer = _Trainer(tmp_path, [plan.callback()], settings={}, model=plan.model)
        with pytest.raises((UsageError, FrozenMovedError), match=said):
            trainer.train()


def test_the_callback_refuses_another_model(tmp_path: Path) -> None:
    plan = frostline.freeze(_model(), N_FROZEN)
    with quiet():
        trainer = _Trainer(tmp_path, [plan.callback()], settings={}, model_init=lambda: _model())
        with pytest.raises(UsageError, match="another model than the one that was frozen"):
            trainer.train()


def _batches(model: PreTrainedModel) -> DataLoader[Any]:
    tokenizer = _tokenizer(model)
    rows: Any = _rows(tokenizer, make_rows(n_rows=8 * N_STEPS))
    return DataLoader(rows, batch_size=8, collate_fn=DataCollatorWithPadding(tokenizer))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_plain_loop_moves_nothing_frozen(family: Family) -> None:
    model = _model(family)
    before = _bits(model)
    plan = frostline.freeze(model, N_FROZEN)
    optimizer = AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for batch in _batches(model):
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    _check_trained(model, plan, before)


def test_accelerate_moves_nothing_frozen() -> None:
    model = _model()
    before = _bits(model)
    plan = frostline.freeze(model, train_layers={2, 5})
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    optimizer = AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    prepared, optimizer, batches = accelerator.prepare(model, optimizer, _batches(model))
    with _modes_within(prepared) as modes:
        for batch in batches:
            prepared.train()
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(**batch).loss)
                optimizer.step()
                optimizer.zero_grad()
    plan.check_optimizer(optimizer)
    _check_trained(accelerator.unwrap_model(prepared), plan, before)
    for number in range(1, N_LAYERS + 1):
        layer = f"bert.encoder.layer.{number - 1}"
        assert {mode for name in modes if name.startswith(layer) for mode in modes[name]} == {number in (2, 5)}


@pytest.mark.real
@pytest.mark.thorough  # `make test` does it on tiny models, and the documentation's example on real weights
@pytest.mark.parametrize("kind", ["plain", "reentrant"])
def test_trainer_moves_nothing_frozen_in_real_weights(kind: str, tmp_path: Path) -> None:
    name = str(tasks.demo_model_folder())
    tokenizer = load_tokenizer(name)
    rows = _rows(tokenizer, tasks.load(tasks.resolve(tasks.parse("rotten-tomatoes", max_train=100, max_dev=2))).train)
    model = load_model(name, head_seed=0, head=CLASSIFICATION.head(("negative", "positive")), pad_token_id=0)
    before = _bits(model)
    inputs = DataCollatorWithPadding(tokenizer)(rows[:4])
    assert distance(*_layer_outputs(model, inputs)) > TEETH, "twin: dropout is on"
    plan = frostline.freeze(model, N_FROZEN)
    first, second = _layer_outputs(model, inputs)
    assert torch.equal(first, second)
    recipe = {"per_device_train_batch_size": 2, "learning_rate": 1e-4, "eval_strategy": "no", **CHECKPOINTING[kind]}
    with quiet():
        trainer = _Trainer(tmp_path, [plan.callback()], settings=recipe, model=model, tokenizer=tokenizer, rows=rows)
        with _modes_within(model) as modes:
            trainer.train()
    assert trainer.state.global_step == N_STEPS
    _check_trained(model, plan, before)
    assert torch.equal(_layer_outputs(model, inputs)[0], first)
    frozen = _frozen_modules(model)
    assert all(modes[name] == {name not in frozen} for name in modes)


def _layer_outputs(model: PreTrainedModel, inputs: dict[str, Tensor]) -> list[Tensor]:
    """What the highest frozen layer puts out, in two passes in training mode."""
    seen: list[Tensor] = []
    handle = model.bert.encoder.layer[N_FROZEN - 1].register_forward_hook(lambda _m, _a, out: seen.append(out))
    for _ in range(2):
        model.train()(**inputs)
    handle.remove()
    return seen
