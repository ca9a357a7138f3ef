"""`freeze` on any model: exact, held in eval, out of the backward pass, verified, and undone without a trace."""

from __future__ import annotations

import copy
import inspect
import io
import itertools
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

import frostline
from burrow import Burrow, BurrowConfig
from families import matrix
from frostline.errors import FrostlineError, UsageError
from frostline.model.load import quiet
from frostline.model.stack import FrozenMovedError, NoDepthError, Stack
from frostline.saving.freeze import FrozenPlan
from frostline.strategies import Freeze, Layers
from frostline.testing.models import FAMILIES, Family, make_stack
from tiny import TEETH, Case, distance

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

N_LAYERS = 4
WISHES: tuple[dict[str, Any], ...] = (
    {"n_frozen": 0},
    {"n_frozen": 2},
    {"n_frozen": N_LAYERS},
    {"train_layers": {1, 3}},
    {"train_layers": {2, 4}},
)


def _name_of(wish: dict[str, Any] | str) -> str:
    return wish if isinstance(wish, str) else "-".join(f"{name}={value}" for name, value in wish.items())


def _model(family: Family = "bert", *, dropout: float = 0.3) -> PreTrainedModel:
    return make_stack(family, n_layers=N_LAYERS, dropout=dropout).model.train()


def _inputs(model: PreTrainedModel, family: Family = "bert") -> dict[str, Tensor]:
    batch = Case(family).batch()
    taken = inspect.signature(model.forward).parameters
    inputs = {name: tensor for name, tensor in batch.padded_inputs().items() if name in taken}
    return {**inputs, "labels": batch.labels.long()}


def _layers(model: PreTrainedModel) -> list[nn.Module]:
    return list(Stack(model)._layers)


def _trained_layers(wish: dict[str, Any]) -> set[int]:
    return wish.get("train_layers") or set(range(wish["n_frozen"] + 1, N_LAYERS + 1))


@contextmanager
def _outputs_of(layers: list[nn.Module]) -> Iterator[list[list[Tensor]]]:
    """What each layer put out, call by call."""
    seen: list[list[Tensor]] = [[] for _ in layers]
    handles = [
        layer.register_forward_hook(lambda _m, _a, out, kept=kept: kept.append(out[0] if type(out) is tuple else out))
        for layer, kept in zip(layers, seen, strict=True)
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _calls_of(layers: list[nn.Module]) -> Iterator[list[int]]:
    """How often each layer was called; checkpointing may leave the second call half-way, before its output."""
    n_calls = [0] * len(layers)

    def count(number: int) -> None:
        n_calls[number] += 1

    handles = [
        layer.register_forward_pre_hook(lambda *_, number=number: count(number)) for number, layer in enumerate(layers)
    ]
    try:
        yield n_calls
    finally:
        for handle in handles:
            handle.remove()


def _two_passes(model: PreTrainedModel, inputs: dict[str, Tensor]) -> list[float]:
    """How far two passes in training mode are apart, after each layer and in the logits."""
    with _outputs_of(_layers(model)) as seen, torch.no_grad():
        answers = [model.train()(**inputs).logits for _ in range(2)]
    return [distance(*outputs) for outputs in [*seen, answers]]


def _is_wished(family: Family, wish: dict[str, Any]) -> bool:
    """Whether `make test` does it: every wish on BERT, and one on each other family."""
    return family == "bert" or wish == WISHES[FAMILIES.index(family) % len(WISHES)]


@pytest.mark.parametrize(("family", "wish"), matrix(FAMILIES, WISHES, is_sample=_is_wished), ids=_name_of)
def test_exactly_the_plan_trains_and_all_else_stays_in_eval(family: Family, wish: dict[str, Any]) -> None:
    model, stack = _model(family), make_stack(family, n_layers=N_LAYERS)
    plan = frostline.freeze(model, **wish)
    trained_layers = _trained_layers(wish)
    assert plan.trained == stack.parameters_of(trained_layers)
    assert {name for name, p in model.named_parameters() if p.requires_grad} == set(plan.trained)
    assert not set(plan.trained) & set(stack.structure.below_parameters)
    assert sum(group.parameters for group in plan.groups) == model.num_parameters()
    assert sum(group.parameters for group in plan.groups if group.is_trained) == stack.count(plan.trained)
    assert sum(group.share for group in plan.groups) == pytest.approx(1)
    for mode in (True, False, True):
        model.train(mode)
        for number, layer in enumerate(_layers(model), start=1):
            assert layer.train(mode) is layer
            assert {part.training for part in layer.modules()} == {mode and number in trained_layers}
        below = [model.get_submodule(name) for name in stack.structure.below_modules]
        assert not any(module.training for module in below)
    plan.verify()


@pytest.mark.parametrize("family", FAMILIES)
def test_frozen_layers_put_out_the_same_in_two_training_passes(family: Family) -> None:
    model = _model(family)
    inputs = _inputs(model, family)
    loose = _two_passes(model, inputs)
    assert loose[-1] > TEETH
    Stack(model).apply(Stack(model).parameters_above(2))
    assert _two_passes(model, inputs)[1] > TEETH, "twin: without a gradient alone, dropout is on"
    frostline.freeze(model, 2)
    held = _two_passes(model, inputs)
    assert held[:2] == [0.0, 0.0]
    assert min(held[2:]) > TEETH, "above, dropout is on"


def _gradients(model: PreTrainedModel, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    model.train()(**inputs).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def _checkpoint(model: PreTrainedModel, *, is_reentrant: bool) -> None:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": is_reentrant})


def _is_checkpointed(family: Family, kind: str, order: str) -> bool:
    """Whether `make test` does it: all four ways on BERT, and one on each of four other families."""
    others = dict(
        zip(("deberta-v2", "modernbert", "gpt2", "llama"), itertools.product(CHECKPOINTING, ORDERS), strict=True)
    )
    return family == "bert" or others.get(family) == (kind, order)


CHECKPOINTING, ORDERS = ("reentrant", "not"), ("before", "after")


@pytest.mark.parametrize(
    ("family", "kind", "order"), matrix(FAMILIES, CHECKPOINTING, ORDERS, is_sample=_is_checkpointed)
)
def test_checkpointing_leaves_the_frozen_prefix_alone(family: Family, kind: str, order: str) -> None:
    is_reentrant, is_before = kind == "reentrant", order == "before"
    for wish in (WISHES[0], WISHES[2], WISHES[4]):
        whole, model = _model(family, dropout=0.0), _model(family, dropout=0.0)
        inputs = _inputs(model, family)
        wanted = _gradients(whole, inputs)
        if not whole.supports_gradient_checkpointing:
            return
        if is_before:
            _checkpoint(model, is_reentrant=is_reentrant)
        plan = frostline.freeze(model, **wish)
        if not is_before:
            _checkpoint(model, is_reentrant=is_reentrant)
        layers = _layers(model)
        with _outputs_of(layers) as seen, _calls_of(layers) as n_calls:
            got = _gradients(model, inputs)
        assert set(got) == {name for name in plan.trained if name in wanted}
        for name, gradient in got.items():
            assert distance(gradient, wanted[name]) <= 1e-5 * (1 + float(wanted[name].abs().max()))
            assert gradient.abs().max() > 0 or wanted[name].abs().max() == 0
        trained = _trained_layers(wish)
        assert n_calls == [2 if number in trained else 1 for number in range(1, N_LAYERS + 1)]
        prefix = seen[: min(trained, default=N_LAYERS + 1) - 1]
        assert not any(output.grad_fn for outputs in prefix for output in outputs)


def test_twin_checkpointing_alone_walks_through_frozen_layers() -> None:
    model = _model(dropout=0.0)
    Stack(model).apply(Stack(model).parameters_above(2))
    _checkpoint(model, is_reentrant=False)
    layers = _layers(model)
    with _outputs_of(layers) as seen, _calls_of(layers) as n_calls:
        _gradients(model, _inputs(model))
    assert n_calls == [2] * N_LAYERS
    assert all(outputs[0].requires_grad for outputs in seen)


def test_twin_reentrant_checkpointing_of_a_detached_state_would_train_nothing() -> None:
    model = _model(dropout=0.0)
    plan = frostline.freeze(model, 2)
    _checkpoint(model, is_reentrant=True)
    _layers(model)[1].register_forward_hook(lambda _module, _args, out: out.detach())
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad"):
        got = _gradients(model, _inputs(model))
    assert set(got) < set(plan.trained)
    assert all(name.startswith(("bert.pooler", "classifier")) for name in got)


class _Noisy(Burrow):
    """Dropout as a function of the model's own, and one module for its bottom and its top, as XLNet's (TRAPS 25)."""

    always = False

    def __init__(self, config: BurrowConfig) -> None:
        super().__init__(config)
        self.mouth.register_forward_hook(
            lambda _m, _a, out: self.draught(functional.dropout(out, 0.5, training=self.training or self.always))
        )
        self.roof.register_forward_hook(lambda _m, _a, out: self.draught(out))
        for parameter in self.parameters():
            nn.init.normal_(parameter)


@pytest.mark.parametrize("n_frozen", [0, 1, 3])
def test_dropout_that_no_frozen_module_has_is_off_below_the_cut_alone(n_frozen: int) -> None:
    model = _Noisy(BurrowConfig()).train()
    inputs = {"input_ids": torch.arange(3, 11).view(2, 4)}
    stack = Stack(model)
    states = [stack.state_at(n_frozen, inputs) for _ in range(2)]
    assert distance(*states) > TEETH, "twin"
    frostline.freeze(model, n_frozen)
    states = [stack.state_at(n_frozen, inputs) for _ in range(2)]
    assert distance(*states) == 0
    answers = [model(**inputs).logits for _ in range(2)]
    assert distance(*answers) > TEETH
    assert model.training
    assert model.draught.training
    with pytest.raises(IndexError):
        model(input_ids=torch.tensor([[999]]))
    assert model.training, "a pass that failed leaves the modes as they were"
    assert model.draught.training


def test_randomness_in_eval_is_refused_and_leaves_no_trace() -> None:
    model = _Noisy(BurrowConfig(pad_token_id=0)).train()
    model.always = True
    before = _trace(model)
    with pytest.raises(UsageError, match="draws random numbers below layer 2 in evaluation mode too"):
        frostline.freeze(model, 1)
    assert {**_trace(model), "random": None} == {**before, "random": None}


def _trace(model: PreTrainedModel) -> dict[str, object]:
    """Everything `freeze` could leave behind."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_forward_hooks_always_called")
    return {
        "modes": [(name, module.training) for name, module in model.named_modules()],
        "trains": [(name, p.requires_grad) for name, p in model.named_parameters()],
        "hooks": sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds),
        "attributes": [sorted(module.__dict__) for module in model.modules()],
        "config": model.config.to_json_string(),
        "random": torch.get_rng_state().tolist(),
    }


class _Interrupted(Burrow):
    """Somebody presses Ctrl-C in its n-th pass."""

    passes_left = 0

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        if self.passes_left == 0:
            raise KeyboardInterrupt
        self.passes_left -= 1
        return super().forward(input_ids, attention_mask)


def _interrupted() -> _Interrupted:
    model = _Interrupted(BurrowConfig(pad_token_id=0))
    model.train()
    model.slope.requires_grad_(False)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return model


def test_a_freeze_that_is_interrupted_leaves_no_half_of_it() -> None:
    whole = _interrupted()
    whole.passes_left = 1000
    frostline.freeze(whole, 2)
    for passes in range(1000 - whole.passes_left):
        model = _interrupted()
        before, model.passes_left = _trace(model), passes
        with pytest.raises(KeyboardInterrupt):
            frostline.freeze(model, 2)
        assert {**_trace(model), "attributes": None} == {**before, "attributes": None}
        assert not any("train" in module.__dict__ for module in model.modules())
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_freeze_whose_weights_cannot_be_hashed_leaves_no_half_of_it() -> None:
    model = _interrupted()
    model.passes_left, model.depth_marks = 1000, torch.eye(2).to_sparse()
    before = _trace(model)
    with pytest.raises(RuntimeError, match="memory format"):
        frostline.freeze(model, 2)
    assert _trace(model) == before


_CALLS = st.lists(st.tuples(st.sampled_from(["", "bert.encoder.layer.0", "bert.embeddings", "bert"]), st.booleans()))


@settings(deadline=None, max_examples=25)
@given(before=_CALLS, during=_CALLS)
def test_release_leaves_every_mode_as_if_nothing_had_been_frozen(
    before: list[tuple[str, bool]], during: list[tuple[str, bool]]
) -> None:
    held, free = _model(), _model()
    held.bert.pooler.requires_grad_(False)
    free.bert.pooler.requires_grad_(False)

    def call(calls: list[tuple[str, bool]]) -> None:
        for (name, mode), model in ((each, model) for each in calls for model in (held, free)):
            model.get_submodule(name).train(mode)

    call(before)
    plan = frostline.freeze(held, 2)
    assert _trace(held) != _trace(free)
    call(during)
    assert not any(part.training for layer in _layers(held)[:2] for part in layer.modules())
    plan.release()
    assert _trace(held) == _trace(free)
    plan.release()
    with pytest.raises(UsageError, match="released"):
        plan.verify()


def _pickled(model: PreTrainedModel) -> PreTrainedModel:
    return pickle.loads(pickle.dumps(model))  # noqa: S301


def _saved(model: PreTrainedModel) -> PreTrainedModel:
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


@pytest.mark.parametrize("family", ["bert", "xlnet", "opt"])
@pytest.mark.parametrize("copied", [copy.deepcopy, _pickled, _saved])
def test_a_copy_is_held_and_apart_from_its_original(family: Family, copied: Any) -> None:
    model = _model(family)
    frostline.freeze(model, 2)
    other = copied(model)
    inputs = _inputs(model, family)
    model.eval()
    assert _two_passes(other, inputs)[:2] == [0.0, 0.0]
    assert [module.training for module in other.modules()].count(True) > 0
    assert not any(module.training for module in model.modules()), "the copy's modes are its own"
    assert distance(other.eval()(**inputs).logits, model(**inputs).logits) == 0
    with pytest.raises(UsageError, match="frozen already"):
        frostline.freeze(other, 1)


def test_a_copied_plan_releases_the_copy_alone() -> None:
    model = _model("xlnet")
    plan = frostline.freeze(model, 2)
    other = copy.deepcopy(plan)
    other.verify()
    other.release()
    assert all(module.training for module in other.model.modules())
    assert all(p.requires_grad for p in other.model.parameters())
    plan.verify()
    assert not any(part.training for part in _layers(model)[0].modules())


def test_a_saved_model_is_an_ordinary_one(tmp_path: Path) -> None:
    model = _model()
    frostline.freeze(model, 2)
    model.save_pretrained(tmp_path)
    with quiet():
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).train()
    assert all(module.training for module in loaded.modules())
    assert all(torch.equal(one, model.state_dict()[name]) for name, one in loaded.state_dict().items())


def _nudge(*tensors: Tensor) -> None:
    with torch.no_grad():
        for tensor in tensors:
            tensor += 1


@pytest.mark.parametrize(
    ("breaking", "said"),
    [
        (lambda m: _nudge(m.bert.encoder.layer[0].output.dense.bias), "bert.encoder.layer.0.output.dense.bias"),
        (lambda m: _nudge(m.bert.embeddings.position_ids), "bert.embeddings.position_ids"),
        (lambda m: m.bert.embeddings.requires_grad_(True), "no longer those of the plan: bert.embeddings"),
        (lambda m: m.classifier.requires_grad_(False), "no longer those of the plan: classifier.bias, classifier"),
        (lambda m: setattr(m.bert.encoder.layer[1], "training", True), "in training mode: bert.encoder.layer.1"),
        (lambda m: _nudge(*m.parameters()), "and 34 more"),
        (lambda m: m.half(), "frozen, but changed"),
    ],
)
def test_what_moved_is_named(breaking: Any, said: str) -> None:
    model = _model()
    plan = frostline.freeze(model, 2)
    for harmless in (model.classifier.bias, model.bert.encoder.layer[2].output.dense.bias):
        _nudge(harmless)
    model.classifier.register_buffer("seen", torch.zeros(1))
    plan.verify()
    breaking(model)
    with pytest.raises(FrozenMovedError, match=re.escape(said)) as raised:
        plan.verify()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("is_cleared", [True, False], ids=["freeze", "twin"])
def test_an_optimizer_made_before_moves_nothing_frozen(is_cleared: bool) -> None:
    model = _model()
    inputs = _inputs(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(**inputs).loss.backward()
    optimizer.step()
    stale = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    plan = frostline.freeze(model, 2)
    with pytest.raises(UsageError, match=r"the optimizer has frozen parameters: bert.embeddings.* and \d+ more"):
        plan.check_optimizer(optimizer)
    if not is_cleared:
        for name, parameter in model.named_parameters():
            parameter.grad = stale.get(name)
    optimizer.zero_grad(set_to_none=False)
    model(**inputs).loss.backward()
    optimizer.step()
    if is_cleared:
        plan.verify()
    else:
        with pytest.raises(FrozenMovedError):
            plan.verify()


def _with_head(kind: Any, family: Family = "bert") -> PreTrainedModel:
    config = make_stack(family, n_layers=N_LAYERS).model.config
    with quiet():
        return kind.from_config(config)


@pytest.mark.parametrize("family", ["bert", "distilbert", "gpt2", "xlnet"])
@pytest.mark.parametrize("kind", [AutoModel, AutoModelForTokenClassification, AutoModelForQuestionAnswering])
def test_other_heads_and_none(kind: Any, family: Family) -> None:
    model = _with_head(kind, family)
    plan = frostline.freeze(model, 3)
    layers = Stack(model).structure.layers_name
    heads = [name for name in plan.trained if not name.startswith(f"{layers}.3.")]
    words = ["pooler", "ln_f", "summary", "classifier", "qa_outputs", "start_logits", "end_logits", "answer_class"]
    assert all(any(word in name for word in words) for name in heads)
    assert heads or family in ("distilbert", "xlnet"), "these have no pooler"
    answer = model.train()(input_ids=torch.arange(3, 11).view(2, 4))
    torch.stack([each.sum() for each in answer.values() if isinstance(each, Tensor)]).sum().backward()
    plan.verify()


@pytest.mark.parametrize("wish", [{"n_frozen": 0}, {"train_layers": {1}}], ids=_name_of)
@pytest.mark.parametrize(
    ("kind", "family", "names"),
    [
        (AutoModelForCausalLM, "gpt2", ("transformer.wte.weight", "lm_head.weight")),
        (AutoModelForMaskedLM, "bert", ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")),
        (AutoModelForMaskedLM, "distilbert", ("distilbert.embeddings.word_embeddings.weight", "vocab_projector")),
    ],
)
def test_tied_weights_are_refused_until_the_advice_is_followed(
    kind: Any, family: Family, names: tuple[str, str], wish: dict[str, Any], tmp_path: Path
) -> None:
    model = _with_head(kind, family)
    before = _trace(model)
    with pytest.raises(
        UsageError, match=r"are one tensor, part of the embeddings \(to be frozen\) and of the h"
    ) as seen:
        frostline.freeze(model, **wish)
    assert _trace(model) == before
    said = str(seen.value)
    assert all(name in said for name in names)
    assert "\n" not in said
    exec(said.partition("Untie first: ")[2], {"model": model, "torch": torch})
    plan = frostline.freeze(model, **wish)
    row = torch.arange(3, 11).view(2, 4)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    model.train()(input_ids=row, labels=row).loss.backward()
    optimizer.step()
    plan.verify()
    model.save_pretrained(tmp_path)
    with quiet():
        loaded = kind.from_pretrained(tmp_path)
    assert distance(loaded.eval()(input_ids=row).logits, model.eval()(input_ids=row).logits) == 0


class _Borrowing(Burrow):
    """A head that borrows the embedding matrix without a name for it."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        answer = super().forward(input_ids, attention_mask)
        answer["logits"] = answer.logits @ self.mouth.weight[:2, :2]
        return answer


def test_a_layer_that_stands_in_two_places_cannot_be_frozen_in_one() -> None:
    model = make_stack("bert", n_layers=4).model
    model.bert.encoder.layer[2] = model.bert.encoder.layer[0]
    with pytest.raises(UsageError, match=r"of layer 1 \(to be frozen\) and of layer 3 \(to be trained\)"):
        frostline.freeze(model, 1)
    assert all(p.requires_grad for p in model.parameters())
    frostline.freeze(model, 3).release()


def test_a_borrowed_tensor_is_refused_too() -> None:
    with pytest.raises(UsageError, match=r"mouth\.weight is part of the embeddings \(to be frozen\) and"):
        frostline.freeze(_Borrowing(BurrowConfig()), 1)


def test_layers_that_share_a_tensor_train_or_freeze_together() -> None:
    model = _model()
    first, second = (model.bert.encoder.layer[n].output.dense for n in (0, 1))
    second.bias = first.bias
    with pytest.raises(
        UsageError, match=r"0.output.dense.bias and .*1.output.dense.bias are one tensor, part of layer 1"
    ):
        frostline.freeze(model, 1)
    frostline.freeze(model, 2).verify()


@pytest.mark.parametrize(
    ("model", "wish", "said"),
    [
        ("bert", {}, "n_frozen is None, train_layers is None; give one of them"),
        ("bert", {"n_frozen": 1, "train_layers": {2}}, "n_frozen is 1, train_layers is {2}; give one of them"),
        ("bert", {"n_frozen": 5}, "n_frozen is 5; it must lie between 0 and 4"),
        ("bert", {"n_frozen": -1}, "n_frozen is -1; it must lie between 0 and 4"),
        (
            "bert",
            {"n_frozen": True},
            "layers are whole numbers, e.g. n_frozen=3 or train_layers={4, 5, 6}; given: True",
        ),
        ("bert", {"n_frozen": "full"}, "given: 'full'"),
        ("bert", {"train_layers": "12"}, "given: '12'"),
        ("bert", {"train_layers": 3}, "given: 3"),
        ("bert", {"train_layers": {0, 2, 7}}, "the model has no layer 0, 7; its layers are numbered 1 to 4"),
        ("bert", {"train_layers": []}, "no layers to train are named; to train only the head, freeze all 4 layers"),
        ("wrapped", {"n_frozen": 1}, "a DataParallel cannot be frozen, only a transformers model"),
        ("albert", {"n_frozen": 1}, "AlbertForSequenceClassification has no single stack of layers"),
    ],
)
def test_mistakes_are_told_in_one_line(model: str, wish: dict[str, Any], said: str) -> None:
    albert = AlbertConfig(vocab_size=20, embedding_size=4, hidden_size=8, num_attention_heads=2, intermediate_size=16)
    makers: dict[str, Callable[[], Any]] = {
        "bert": _model,
        "wrapped": lambda: nn.DataParallel(_model()),
        "albert": lambda: AutoModelForSequenceClassification.from_config(albert),
    }
    made = makers[model]()
    with pytest.raises(FrostlineError, match=re.escape(said)) as raised:
        frostline.freeze(made, **wish)
    assert isinstance(raised.value, NoDepthError if model == "albert" else UsageError)
    assert "\n" not in str(raised.value)
    assert all(p.requires_grad for p in made.parameters())


def test_the_plan_prints_what_trains() -> None:
    plan = frostline.freeze(_model(), train_layers=range(2, 4))
    assert isinstance(plan, FrozenPlan)
    assert str(plan).splitlines() == [
        "embeddings        528  17.5%",
        "layer 1           600  19.9%",
        "layers 2–3      1,200  39.8%  trained",
        "layer 4           600  19.9%",
        "head               90   3.0%  trained",
        "trained in all  1,290  42.7%",
    ]
    assert plan.plan == Layers(frozenset({2, 3})).plan(make_stack(n_layers=N_LAYERS))
    plan.release()
    assert frostline.freeze(plan.model, 1).plan == Freeze(1).plan(make_stack(n_layers=N_LAYERS))
