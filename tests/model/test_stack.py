"""A model that starts and stops at any depth answers as the whole one does."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from frostline.errors import UsageError
from frostline.model.stack import FrozenMovedError, Stack
from frostline.testing.models import Family, make_stack
from tiny import BASIC, CASES, TEETH, Case, distance

N_LAYERS = 3
DEPTHS = range(N_LAYERS + 1)

# By hand, from the library's source; not from what the code under test finds.
_ENCODER_LAYER = (
    "attention.self.query.weight", "attention.self.query.bias",
    "attention.self.key.weight", "attention.self.key.bias",
    "attention.self.value.weight", "attention.self.value.bias",
    "attention.output.dense.weight", "attention.output.dense.bias",
    "attention.output.LayerNorm.weight", "attention.output.LayerNorm.bias",
    "intermediate.dense.weight", "intermediate.dense.bias",
    "output.dense.weight", "output.dense.bias",
    "output.LayerNorm.weight", "output.LayerNorm.bias",
)  # fmt: skip
_GPT2_LAYER = (
    "ln_1.weight", "ln_1.bias",
    "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
    "ln_2.weight", "ln_2.bias",
    "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias",
)  # fmt: skip
EMBEDDINGS: dict[Family, set[str]] = {
    "bert": {
        "bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight",
        "bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.bias",
    },
    "roberta": {
        "roberta.embeddings.word_embeddings.weight", "roberta.embeddings.position_embeddings.weight",
        "roberta.embeddings.token_type_embeddings.weight",
        "roberta.embeddings.LayerNorm.weight", "roberta.embeddings.LayerNorm.bias",
    },
    "gpt2": {"transformer.wte.weight", "transformer.wpe.weight"},
}  # fmt: skip
LAYERS: dict[Family, list[set[str]]] = {
    "bert": [{f"bert.encoder.layer.{i}.{name}" for name in _ENCODER_LAYER} for i in (0, 1)],
    "roberta": [{f"roberta.encoder.layer.{i}.{name}" for name in _ENCODER_LAYER} for i in (0, 1)],
    "gpt2": [{f"transformer.h.{i}.{name}" for name in _GPT2_LAYER} for i in (0, 1)],
}
HEAD: dict[Family, set[str]] = {
    "bert": {"bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"},
    "roberta": {
        "classifier.dense.weight", "classifier.dense.bias", "classifier.out_proj.weight", "classifier.out_proj.bias",
    },
    "gpt2": {"transformer.ln_f.weight", "transformer.ln_f.bias", "score.weight"},
}  # fmt: skip
# A weight of the lowest layer that every token's state goes through.
LOWEST_WEIGHT: dict[Family, str] = {
    "bert": "bert.encoder.layer.0.attention.self.value.weight",
    "roberta": "roberta.encoder.layer.0.attention.self.value.weight",
    "gpt2": "transformer.h.0.attn.c_attn.weight",
}


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def _ready(case: Case) -> tuple[Stack, dict[str, Tensor]]:
    return case.stack(n_layers=N_LAYERS), case.batch().padded_inputs()


def _row_by_row(stack: Stack, inputs: dict[str, Tensor]) -> Tensor:
    """What the plain model answers to each row alone: no padding, no batch, nothing of ours."""
    answers = []
    for row, is_real in enumerate(inputs["attention_mask"].bool()):
        alone = {name: values[row][is_real][None] for name, values in inputs.items()}
        answers.append(stack.model(**alone).logits)
    return torch.cat(answers)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_prefix_tail_and_head_make_up_the_model(case: Case) -> None:
    stack, inputs = _ready(case)
    whole = _row_by_row(stack, inputs)
    assert distance(stack.logits(inputs), whole) < 1e-5
    for depth in DEPTHS:
        state = stack.state_at(depth, inputs)
        assert state.shape == (*inputs["input_ids"].shape, 8)
        assert distance(stack.logits_from(depth, state, inputs), whole) < 1e-5


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_state_is_the_same_from_whichever_depth_it_is_reached(case: Case) -> None:
    stack, inputs = _ready(case)
    states = [stack.state_at(depth, inputs) for depth in DEPTHS]
    for start in DEPTHS:
        for depth in range(start, N_LAYERS + 1):
            assert torch.equal(stack.state_between(start, states[start], depth, inputs), states[depth])
    for lower, upper in itertools.pairwise(states):
        assert distance(lower, upper) > TEETH


@pytest.mark.parametrize("family", BASIC)
def test_the_states_are_the_librarys_hidden_states(family: Family) -> None:
    stack, inputs = _ready(Case(family))
    hidden = stack.model(**inputs, output_hidden_states=True).hidden_states
    # GPT-2 reports its last state above the final norm, which belongs to the head.
    for depth in range(N_LAYERS if family == "gpt2" else N_LAYERS + 1):
        assert torch.equal(stack.state_at(depth, inputs), hidden[depth])


# A causal model cannot see padding on the right: there a dropped mask would change nothing.
@pytest.mark.parametrize("case", [Case("bert"), Case("roberta")], ids=str)
@pytest.mark.parametrize("depth", range(N_LAYERS))
def test_twin_a_dropped_mask_shows(case: Case, depth: int) -> None:
    stack, inputs = _ready(case)
    state = stack.state_at(depth, inputs)
    blind = {**inputs, "attention_mask": torch.ones_like(inputs["attention_mask"])}
    assert distance(stack.logits_from(depth, state, blind), stack.logits(inputs)) > TEETH
    if depth:
        below = stack.state_between(0, stack.state_at(0, inputs), depth, blind)
        assert distance(below, state) > TEETH


@pytest.mark.parametrize("family", BASIC)
@pytest.mark.parametrize("depth", DEPTHS)
def test_twin_shifted_positions_show(family: Family, depth: int) -> None:
    stack, inputs = _ready(Case(family))
    positions = torch.arange(inputs["input_ids"].shape[1])[None] + stack.first_position
    right, shifted = ({**inputs, "position_ids": positions + by} for by in (0, 1))
    whole = stack.logits(inputs)
    assert distance(stack.logits_from(depth, stack.state_at(depth, right), inputs), whole) < 1e-5
    assert distance(stack.logits_from(depth, stack.state_at(depth, shifted), inputs), whole) > TEETH


@pytest.mark.parametrize("family", BASIC)
@pytest.mark.parametrize("depth", DEPTHS)
def test_twin_swapped_rows_show(family: Family, depth: int) -> None:
    stack, inputs = _ready(Case(family))
    state = stack.state_at(depth, inputs)
    swapped = state[[1, 0, *range(2, len(state))]]
    difference = stack.logits_from(depth, swapped, inputs) - stack.logits(inputs)
    assert difference[:2].abs().max() > TEETH
    assert difference[2:].abs().max() < 1e-5


@pytest.mark.parametrize("family", BASIC)
@pytest.mark.parametrize("depth", range(1, N_LAYERS + 1))
def test_twin_a_nudged_frozen_weight_shows(family: Family, depth: int) -> None:
    stack, inputs = _ready(Case(family))
    whole = stack.logits(inputs)
    stack.model.get_parameter(LOWEST_WEIGHT[family])[0] += 0.5
    assert distance(stack.logits_from(depth, stack.state_at(depth, inputs), inputs), whole) > TEETH


@pytest.mark.parametrize("family", BASIC)
def test_nothing_above_a_state_runs(family: Family) -> None:
    stack, inputs = _ready(Case(family))
    ran: list[int] = []
    for number, layer in enumerate(stack._layers, start=1):
        layer.register_forward_hook(lambda *_, number=number: ran.append(number))
    for depth in DEPTHS:
        stack.state_at(depth, inputs)
        assert ran == list(range(1, depth + 1))
        ran.clear()
        stack.logits_from(depth, stack.state_at(depth, inputs), inputs)
        assert ran[depth:] == list(range(depth + 1, N_LAYERS + 1))
        ran.clear()


@pytest.mark.parametrize("family", BASIC)
def test_exactly_what_stands_above_the_cut_trains(family: Family) -> None:
    stack = make_stack(family)
    lower, upper = LAYERS[family]
    wanted = {0: HEAD[family] | lower | upper, 1: HEAD[family] | upper, 2: HEAD[family]}
    for depth, names in wanted.items():
        above = stack.parameters_above(depth)
        assert set(above) == names
        assert len(above) == len(names)
        stack.apply(above)
        assert {name for name, p in stack.model.named_parameters() if p.requires_grad} == names
    assert set(stack.all_parameters) == EMBEDDINGS[family] | wanted[0]


def test_a_depth_the_model_does_not_have_is_refused() -> None:
    stack = make_stack("bert")
    for depth in (-1, 3):
        with pytest.raises(UsageError, match=f"n_frozen is {depth}; it must lie between 0 and 2"):
            stack.parameters_above(depth)


def test_a_set_that_cannot_be_had_is_refused() -> None:
    stack = make_stack("gpt2")
    with pytest.raises(FrozenMovedError, match=r"no\.such\.weight"):
        stack.apply((*stack.parameters_above(1), "no.such.weight"))
    # Tied: the matrix goes by its first name only, and asking for the other would freeze it in silence.
    tied = nn.Linear(8, 20, bias=False)
    tied.weight = stack.model.get_input_embeddings().weight
    stack.model.tied = tied
    with pytest.raises(FrozenMovedError, match=r"tied\.weight"):
        stack.apply(("tied.weight",))


@pytest.mark.parametrize("family", BASIC)
def test_the_digest_sees_every_frozen_bit_and_no_trained_one(family: Family) -> None:
    stack = make_stack(family)
    trained = stack.parameters_above(1)
    before = stack.digest(trained)
    for name, parameter in stack.model.named_parameters():
        kept = parameter.clone()
        parameter.view(-1)[-1] = torch.nextafter(parameter.view(-1)[-1], torch.tensor(9.0))
        assert (stack.digest(trained) == before) == (name in trained), name
        parameter.copy_(kept)
    assert stack.digest(trained) == before
    for _, buffer in stack.model.named_buffers():
        buffer.view(-1)[0] += 1
        assert stack.digest(trained) != before
        buffer.view(-1)[0] -= 1
    assert stack.digest(trained) == before


def test_bert_and_roberta_have_a_buffer_to_see() -> None:
    assert all(list(make_stack(family).model.buffers()) for family in ("bert", "roberta"))


@contextlib.contextmanager
def _recording(stack: Stack) -> Iterator[dict[str, bool]]:
    """The mode each module is in when its forward is called."""
    modes: dict[str, bool] = {}

    def record(name: str, module: nn.Module) -> None:
        modes[name] = module.training

    handles = [
        module.register_forward_pre_hook(lambda m, _args, name=name: record(name, m))
        for name, module in stack.model.named_modules()
    ]
    try:
        yield modes
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("family", BASIC)
@pytest.mark.parametrize("depth", range(3))
def test_frozen_modules_run_in_eval(family: Family, depth: int) -> None:
    stack, inputs = make_stack(family), Case(family).batch().padded_inputs()
    stack.apply(stack.parameters_above(depth))
    stack.train()
    _ = stack.structure, stack.head_reads  # probing must not put the modes right or wrong
    with _recording(stack) as modes:
        stack.logits(inputs)
    starts = {"bert": "bert.encoder.layer", "roberta": "roberta.encoder.layer", "gpt2": "transformer.h"}[family]
    below = {"bert": ("bert.embeddings",), "roberta": ("roberta.embeddings",), "gpt2": ("transformer.w",)}[family]
    frozen = (*below, "transformer.drop", *(f"{starts}.{number}" for number in range(depth)))
    assert {name for name, mode in modes.items() if not mode} == {name for name in modes if name.startswith(frozen)}
    assert any("dropout" in name or "drop" in name for name in modes if name.startswith(frozen))
    assert any(modes[name] for name in modes if not name.startswith(frozen))


@pytest.mark.parametrize("family", BASIC)
@pytest.mark.parametrize("depth", range(3))
def test_a_prefix_state_is_the_same_twice_in_training(family: Family, depth: int) -> None:
    stack, inputs = make_stack(family), Case(family).batch().padded_inputs()
    stack.apply(stack.parameters_above(depth))
    stack.train()
    assert torch.equal(stack.state_at(depth, inputs), stack.state_at(depth, inputs))
    stack.train(frozen_dropout=True)
    assert distance(stack.state_at(depth, inputs), stack.state_at(depth, inputs)) > TEETH
    stack.eval()
    assert not any(module.training for module in stack.model.modules())


def test_full_fine_tuning_has_dropout_everywhere() -> None:
    stack, inputs = make_stack("bert"), Case("bert").batch().padded_inputs()
    stack.apply(stack.all_parameters)
    stack.train()
    with _recording(stack) as modes:
        stack.logits(inputs)
    assert all(modes.values())


def test_a_cut_vocabulary_changes_no_answer_and_comes_back_whole() -> None:
    stack, batch = make_stack("gpt2"), Case("gpt2").batch(n_rows=6)
    stack.eval()
    inputs = batch.padded_inputs()
    embedding = stack.model.get_input_embeddings()
    whole, weight = stack.logits(inputs), embedding.weight.clone()
    occurring = inputs["input_ids"].unique()
    absent = [token for token in range(6, 20) if token not in occurring.tolist()]
    assert absent, "the twin needs a token that does not occur"
    with stack.vocabulary_cut_to(occurring):
        assert len(embedding.weight) < len(weight)
        assert torch.equal(stack.logits(inputs), whole)
        with pytest.raises(IndexError):
            stack.logits({**inputs, "input_ids": torch.full_like(inputs["input_ids"], absent[0])})
        embedding.weight += 1
    moved = (embedding.weight - weight)[:, 0]
    assert torch.allclose(moved[occurring], torch.ones(len(occurring)))
    assert not moved[absent].any()
