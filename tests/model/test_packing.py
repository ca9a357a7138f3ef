"""Rows packed into one row give the answers and the gradients that padded rows give."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForSequenceClassification

from families import matrix
from frostline.model.added import attention
from frostline.model.packing import Packing, packed
from frostline.model.stack import Stack
from frostline.records.specs import Layout
from frostline.testing.models import Family
from frostline.training.batches import Batch, Encoded, Padding, make_batch
from frostline.training.forward import Forward
from frostline.training.prefix import Split
from tiny import CASES, PACKED, TEETH, Case, distance

N_LAYERS = 3
LAYOUTS: tuple[Layout, ...] = ("padded", "varlen")
DEPTHS = (None, *range(N_LAYERS + 1))
CLOSE = 1e-5
ONE_TOKEN: tuple[Family, ...] = ("bert", "roberta", "xlm-roberta", "electra", "distilbert")
"""Families whose top layer can be called with the head's token alone."""
PACKED_CASES = (*CASES, *(Case(family, is_pair=True) for family in PACKED), Case("modernbert", n_outputs=1))


def _stack(case: Case, depth: int | None = None) -> Stack:
    """Without dropout, in training mode, with what is above the depth training; double, for wide weights blow up."""
    stack = case.stack(n_layers=N_LAYERS, dropout=0.0)
    stack.model.double()
    stack.apply(stack.all_parameters if depth is None else stack.parameters_above(depth))
    stack.train()
    return stack


def _packable(case: Case, depth: int | None = None) -> Stack:
    stack = _stack(case, depth)
    stack.allow_packing()
    return stack


def _split(case: Case) -> tuple[Batch, Split]:
    return case.batch(), Split(case.encoded())


def _gradients(stack: Stack, logits: Tensor) -> dict[str, Tensor]:
    target = torch.arange(logits.numel()).view_as(logits) % 3
    stack.model.zero_grad()
    functional.mse_loss(logits, target.float()).backward()
    return {name: p.grad for name, p in stack.model.named_parameters() if p.grad is not None}


def _relative_distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    norm = torch.cat([grad.flatten() for grad in one.values()]).norm()
    return max(float((one[name] - other[name]).norm() / norm) for name in one)


# `make test` does every case from one depth, and a BERT and a GPT-2 from all of them.
@pytest.mark.parametrize(
    ("case", "depth"),
    matrix(
        PACKED_CASES,
        DEPTHS,
        is_sample=lambda case, depth: (
            case in (Case("bert"), Case("gpt2")) or depth == DEPTHS[PACKED_CASES.index(case) % len(DEPTHS)]
        ),
    ),
    ids=str,
)
def test_packed_answers_and_gradients_are_the_padded_ones(case: Case, depth: int | None) -> None:
    batch, split = _split(case)
    plain, packable = _stack(case, depth), _packable(case, depth)
    inputs = batch.padded_inputs()
    whole = plain.logits(inputs)
    wanted = _gradients(plain, whole)
    assert set(wanted) == {name for name, p in plain.model.named_parameters() if p.requires_grad}
    for stack, is_packed in ((plain, False), (packable, False), (packable, True)):
        logits = Forward(stack, depth, layout="packed" if is_packed else "padded").logits(batch, split)
        assert distance(logits, whole) < CLOSE
        found = _gradients(stack, logits)
        assert _relative_distance(wanted, found) < CLOSE


@pytest.mark.parametrize("family", PACKED)
def test_twin_the_gradients_of_other_rows_are_others(family: Family) -> None:
    case = Case(family)
    stack = _packable(case)
    forward = Forward(stack, layout="packed")
    one, other = (
        _gradients(stack, forward.logits(case.batch(seed=seed), Split(case.encoded(seed=seed)))) for seed in (0, 1)
    )
    assert _relative_distance(one, other) > TEETH


@pytest.mark.parametrize(("family", "depth"), matrix(ONE_TOKEN, DEPTHS[:-1]))
def test_the_top_layer_on_one_token_answers_as_on_all(
    family: Family, depth: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, split = _split(Case(family))
    narrow, wide = _packable(Case(family), depth), _packable(Case(family), depth)
    assert narrow.can_read_one_token
    monkeypatch.setattr(wide, "can_read_one_token", False)
    seen = {stack: _tokens_through_the_top(stack) for stack in (narrow, wide)}
    one, whole = (Forward(stack, depth, layout="packed").logits(batch, split) for stack in (narrow, wide))
    assert distance(one, whole) < CLOSE
    assert _relative_distance(_gradients(wide, whole), _gradients(narrow, one)) < CLOSE
    # The probes' rows have two tokens.
    assert set(seen[narrow]) - {2} == {len(batch.labels)}
    assert set(seen[wide]) - {2} == {len(batch.tokens)}


def _tokens_through_the_top(stack: Stack) -> list[int]:
    """How many tokens each later call of the top layer's feed-forward part sees."""
    seen: list[int] = []
    top = stack._layers[-1].get_submodule("ffn.lin1" if "distil" in stack.model.config.model_type else "intermediate")
    top.register_forward_hook(lambda _module, _args, output: seen.append(output.shape[1]))
    return seen


@pytest.mark.parametrize("family", ONE_TOKEN)
def test_twin_the_top_layer_on_another_token_answers_differently(family: Family) -> None:
    batch, stack = Case(family).batch(), _packable(Case(family))
    inputs = batch.packed_inputs(stack.first_position)
    first, last = batch.ends
    with torch.no_grad(), packed(Packing.of(batch.mask)):
        every = stack.state_at(N_LAYERS, inputs)[0]
        with stack.top_layer_on(first):
            narrow = stack.state_at(N_LAYERS, inputs)[:, 0]
    assert distance(narrow, every[first]) < CLOSE
    assert distance(narrow, every[last]) > TEETH


@pytest.mark.parametrize("family", PACKED)
@pytest.mark.parametrize("depth", [None, 0])
def test_twin_other_positions_show(family: Family, depth: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, split = _split(Case(family))
    stack = _packable(Case(family), depth)
    right = Forward(stack, depth, layout="packed").logits(batch, split)
    # Rotated positions do not feel a shift, so the second half of each row is moved on.
    places = batch.places
    monkeypatch.setattr(Batch, "places", places + (places > 1).long())
    assert distance(Forward(stack, depth, layout="packed").logits(batch, split), right) > TEETH


def test_twin_a_window_that_is_not_kept_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, split = _split(Case("modernbert"))
    stack = _packable(Case("modernbert"))
    right = Forward(stack, layout="packed").logits(batch, split)
    genuine = attention._mask
    monkeypatch.setattr(attention, "_mask", lambda p, *, is_causal, **_: genuine(p, is_causal=is_causal))
    assert distance(Forward(stack, layout="packed").logits(batch, split), right) > TEETH


def test_a_causal_window_is_the_librarys() -> None:
    config = Case("qwen2").stack().model.config
    config.layer_types, config.sliding_window, config.num_labels = ["sliding_attention", "full_attention"], 2, 2
    torch.manual_seed(0)
    stack = Stack(AutoModelForSequenceClassification.from_config(config).double().eval())
    batch, split = _split(Case("qwen2"))
    with torch.no_grad():
        alone = Forward(stack).logits(batch, split)
        config.sliding_window = 200
        assert distance(Forward(stack).logits(batch, split), alone) > 1e-3
        config.sliding_window = 2
        stack.allow_packing()
        assert distance(Forward(stack, layout="packed").logits(batch, split), alone) < CLOSE


@pytest.mark.parametrize("case", PACKED_CASES, ids=str)
@torch.no_grad()
def test_packed_states_are_the_padded_ones_and_those_of_another_packing_are_not(case: Case) -> None:
    batch, stack = case.batch(), _packable(case)
    inputs = batch.packed_inputs(stack.first_position)
    for depth in range(N_LAYERS + 1):
        with packed(Packing.of(batch.mask)):
            state = stack.state_at(depth, inputs)[0]
        assert distance(state, stack.state_at(depth, batch.padded_inputs())[batch.mask]) < CLOSE
        with packed(Packing.of(batch.mask.flip(0))):
            wrong = stack.state_at(depth, inputs)[0]
        assert (distance(wrong, state) > TEETH) == (depth > 0)


@pytest.mark.parametrize("family", PACKED)
def test_twin_causality_shows(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, split = _split(Case(family))
    # The first token of a row sees itself alone where it is causal; the top layer on one token needs no such mask.
    stack = _packable(Case(family))
    monkeypatch.setattr(stack, "can_read_one_token", False)
    right = Forward(stack, layout="packed").logits(batch, split)
    genuine = attention._mask
    monkeypatch.setattr(
        attention, "_mask", lambda p, *, is_causal, **window: genuine(p, is_causal=not is_causal, **window)
    )
    assert distance(Forward(stack, layout="packed").logits(batch, split), right) > TEETH


@pytest.mark.parametrize("family", PACKED)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@torch.no_grad()
def test_outside_of_packing_attention_is_the_librarys(family: Family, implementation: str) -> None:
    if (family, implementation) == ("modernbert", "eager"):
        pytest.skip("the library's own gives NaN where padding sees nothing but padding in its window")
    case = Case(family)
    plain, packable, inputs = _stack(case), _packable(case), case.batch().padded_inputs()
    plain.model.set_attn_implementation(implementation)
    assert distance(packable.logits(inputs), plain.logits(inputs)) < 10 * CLOSE  # eager takes its softmax in single
    if plain.head_reads == "last":
        inputs["attention_mask"][:, 1] = 0  # a decoder never sees padding on the right: hide a real token
    blind = {**inputs, "attention_mask": torch.ones_like(inputs["attention_mask"])}
    assert distance(packable.logits(inputs), plain.logits(inputs)) < 10 * CLOSE  # eager takes its softmax in single
    assert distance(packable.logits(blind), plain.logits(inputs)) > TEETH


def test_packing_ends_with_its_block() -> None:
    batch, stack = Case("gpt2").batch(), _packable(Case("gpt2"))
    before = stack.logits(batch.padded_inputs())
    with pytest.raises(RuntimeError, match="on purpose"), packed(Packing.of(batch.mask)):
        raise RuntimeError("on purpose")
    assert torch.equal(stack.logits(batch.padded_inputs()), before)


@pytest.mark.parametrize("family", ONE_TOKEN)
def test_the_top_layer_is_whole_again_after_its_block(family: Family) -> None:
    batch, stack = Case(family).batch(), _packable(Case(family))
    inputs = batch.packed_inputs(stack.first_position)
    with torch.no_grad(), packed(Packing.of(batch.mask)):
        before = stack.state_at(N_LAYERS, inputs)
        with stack.top_layer_on(batch.ends[0]):
            stack.state_at(N_LAYERS, inputs)
        assert torch.equal(stack.state_at(N_LAYERS, inputs), before)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in stack.model.modules())


_STACKS = {family: _packable(Case(family)) for family in PACKED}
for _double in _STACKS.values():
    _double.model.double()  # wide weights blow up what single precision rounds off


@pytest.mark.parametrize("family", PACKED)
@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6), seed=st.integers(0, 9))
def test_rows_of_any_lengths_do_not_see_each_other(family: Family, lengths: list[int], seed: int) -> None:
    stack = _STACKS[family]
    tokens = np.random.default_rng(seed).integers(4, 19, size=sum(lengths))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    encoded = Encoded(
        row_ids=np.arange(len(lengths)),
        labels=np.zeros(len(lengths), dtype=np.int64),
        tokens=tokens,
        token_types=None,
        offsets=offsets,
        padding=Padding(token=0, token_type=0),
        n_cut=0,
    )
    batch = make_batch(encoded, np.arange(len(lengths)))
    with torch.no_grad():
        found = Forward(stack, layout="packed").logits(batch, Split(encoded))
        rows = [torch.from_numpy(tokens[start:end])[None] for start, end in itertools.pairwise(offsets)]
        alone = torch.cat([stack.model(input_ids=row).logits for row in rows])
    assert distance(found, alone) < CLOSE


class _AveragingHead(nn.Module):
    """Reads every token: packed rows have to be padded for it again."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 2)

    def forward(self, features: Tensor, **_: object) -> Tensor:
        answer: Tensor = self.out(torch.tanh(features).sum(1))
        return answer


@torch.no_grad()
def test_a_head_that_reads_all_tokens_gets_them_all() -> None:
    case = Case("roberta")
    batch, split = _split(case)
    stack = _packable(case)
    torch.manual_seed(0)
    stack.model.classifier = _AveragingHead().double()
    assert stack.head_reads == "all"
    assert not stack.can_read_one_token
    state = stack.state_at(N_LAYERS, batch.padded_inputs()) * batch.mask[..., None]
    wanted = stack.model.classifier(state)
    found = Forward(stack, layout="packed").logits(batch, split)
    assert distance(found, wanted) < CLOSE
    assert distance(found, stack.model.classifier(state[:, :1])) > TEETH


def _varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> Tensor:
    """What the library says its kernel, which runs on CUDA alone, computes: row after row, (tokens, heads, width)."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert max_q == max_k == int(cu_seq_q.diff().max())
    found = []
    for start, end in itertools.pairwise(cu_seq_q.tolist()):
        queries, keys, values = (part[start:end].transpose(0, 1) for part in (query, key, value))
        ahead = torch.arange(end - start)[None, :] - torch.arange(end - start)[:, None]
        before, after = (size if size >= 0 else end for size in window_size)
        mask = (ahead >= -before) & (ahead <= after)
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, scale=scale, enable_gqa=enable_gqa
        )
        found.append(attended.transpose(0, 1))
    return torch.cat(found)


@pytest.fixture
def n_calls(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry a call of the kernel, for which `_varlen_attn` stands in."""
    calls: list[None] = []

    def counted(*args: Any, **options: Any) -> Tensor:
        calls.append(None)
        return _varlen_attn(*args, **options)

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", counted)
    return calls


@pytest.mark.parametrize("family", PACKED)
def test_attention_of_rows_of_any_length_is_asked_for_as_the_library_says(family: Family, n_calls: list[None]) -> None:
    stack, (batch, split) = _packable(Case(family)), _split(Case(family))
    padded, varlen = (Forward(stack, layout=layout).logits(batch, split) for layout in LAYOUTS)
    assert distance(padded, varlen) < CLOSE
    assert len(n_calls) == N_LAYERS - (family in ONE_TOKEN)


def test_a_kernel_that_knows_no_dropout_is_not_asked_for_any(n_calls: list[None]) -> None:
    stack, (batch, split) = Case("bert").stack(dropout=0.1), _split(Case("bert"))
    stack.allow_packing()
    for is_training in (True, False):
        stack.model.train(is_training)
        Forward(stack, layout="varlen").logits(batch, split)
        assert bool(n_calls) is not is_training
