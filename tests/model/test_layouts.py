"""Which batches go without padding is found by comparing a model with itself; what differs stays padded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AutoConfig, AutoModelForSequenceClassification, PreTrainedModel
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.mistral.modeling_mistral import MistralAttention
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention

from frostline.model.added import attention
from frostline.model.layouts import probe
from frostline.model.layouts.inner import find_meeting, without_padding
from frostline.model.layouts.probe import FoundLayout, find_layout, n_pair_heads
from frostline.model.load import quiet
from frostline.model.stack import Stack
from frostline.records.specs import Layout, RunSpec
from frostline.studies.requests.parse import parse
from frostline.studies.requests.resolve import Resolver
from frostline.studies.requests.settings import CurveSettings
from frostline.testing.models import FAMILIES, Family, make_model, make_task
from frostline.training.batches import Batch
from frostline.training.forward import Forward
from frostline.training.prefix import Split
from frostline.training.run import Runner
from tiny import OWN_ATTENTION, PACKED, TEETH, Case, distance

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

CLOSE = 1e-5
USUAL, WIDE = 0.02, 0.5
"""Of the first weights. The usual ones hardly show what attention does (TRAPS 22)."""
SIZES = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 8, "intermediate_size": 32, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "num_labels": 2,
}  # fmt: skip
UNNAMED: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 4},
    "gemma": {},
    "gemma2": {"sliding_window": 4, "attn_logit_softcapping": 0.5},
    "gemma3_text": {"sliding_window": 4},
    "phi": {},
    "esm": {"mask_token_id": 29, "position_embedding_type": "rotary", "token_dropout": True},
    "eurobert": {"mask_token_id": 29},
}
"""Families that the package does not name anywhere, with windows shorter than rows and a soft cap that bites."""


def _stack(model_type: str, width: float = WIDE, **settings: Any) -> Stack:
    given = {**SIZES, **UNNAMED.get(model_type, {}), "initializer_range": width, **settings}
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(AutoConfig.for_model(model_type, **given))
    return Stack(model.eval())


def _found(stack: Stack) -> FoundLayout:
    with quiet():
        return find_layout(stack)


def _rows() -> tuple[Batch, Split]:
    """Rows of uneven lengths, longer than the windows above."""
    case = Case("gpt2", is_pair=True)
    return case.batch(), Split(case.encoded())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_goes_without_padding(family: Family) -> None:
    assert {*PACKED, *OWN_ATTENTION} == set(FAMILIES)
    assert _found(Case(family).stack()) == FoundLayout("packed" if family in PACKED else "mixed")


@pytest.mark.parametrize("width", [USUAL, WIDE])
@pytest.mark.parametrize("model_type", UNNAMED)
def test_models_that_nobody_named_are_packed(model_type: str, width: float) -> None:
    assert _found(_stack(model_type, width)) == FoundLayout("packed")


@pytest.mark.parametrize("model_type", UNNAMED)
def test_their_packed_answers_and_gradients_are_the_padded_ones(model_type: str) -> None:
    (batch, split), plain, packable = _rows(), _stack(model_type), _stack(model_type)
    packable.allow_packing()
    wanted = Forward(plain).logits(batch, split)
    layouts: tuple[Layout, ...] = ("packed", "padded")
    for layout in layouts:
        found = Forward(packable, layout=layout).logits(batch, split)
        assert distance(found, wanted) < 10 * CLOSE * float(wanted.detach().abs().max())
    one, other = _gradient(plain, wanted), _gradient(packable, Forward(packable, layout="packed").logits(batch, split))
    assert float((one - other).norm() / one.norm()) < 10 * CLOSE  # in single precision: some have norms in no other


def _gradient(stack: Stack, logits: Tensor) -> Tensor:
    stack.model.zero_grad()
    functional.mse_loss(logits, (torch.arange(logits.numel()).view_as(logits) % 3).to(logits.dtype)).backward()
    return torch.cat([p.grad.flatten() for p in stack.model.parameters() if p.grad is not None])


def test_twin_a_soft_cap_that_is_not_kept_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    (batch, split), stack = _rows(), _stack("gemma2")
    stack.allow_packing()
    right = Forward(stack, layout="packed").logits(batch, split)
    genuine: Callable[..., Tensor] = attention._attended
    monkeypatch.setattr(attention, "_attended", lambda *parts: genuine(*parts[:-1], {**parts[-1], "softcap": None}))
    assert distance(Forward(stack, layout="packed").logits(batch, split), right) > TEETH


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert", "mpnet", "xlnet"])
def test_looking_leaves_no_trace(family: Family) -> None:
    stack = Case(family).stack()
    model: PreTrainedModel = stack.model
    model.train()
    next(iter(model.children())).eval()
    modes = [module.training for module in model.modules()]
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    before = model.config._attn_implementation, torch.get_rng_state(), list(model.parameters())
    _found(stack)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(*both) and both[1].dtype == torch.float32 for both in zip(weights, before[2], strict=True))
    assert all(one is other for one, other in zip(before[2], model.parameters(), strict=True))
    assert model.config._attn_implementation == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert not any("forward" in vars(module) or module._forward_hooks for module in model.modules())


def _reads_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> Stack:
    """Tokens of a packed batch see the row before."""
    genuine = BertLayer.forward

    def forward(self: nn.Module, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        state: Tensor = genuine(self, hidden_states, *args, **kwargs)
        shifted = functional.pad(state, (0, 0, 1, 0))[:, :-1]
        return state + 0.01 * shifted

    monkeypatch.setattr(BertLayer, "forward", forward)
    return _stack("bert", USUAL)


def _attends_everywhere(monkeypatch: pytest.MonkeyPatch) -> Stack:
    """Attention looks at all rows of a packed batch."""

    def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **_: Any) -> Any:
        attention._call_of(module, {})
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2), None

    monkeypatch.setitem(AttentionInterface._global_mapping, attention.PACKED_ATTENTION, attend)
    return _stack("bert", USUAL)


def _ignores_causality(_: pytest.MonkeyPatch) -> Stack:
    stack = _stack("mistral", USUAL)
    for module in stack.model.modules():
        if isinstance(module, MistralAttention):
            module.is_causal = False
    return stack


def _ignores_positions(monkeypatch: pytest.MonkeyPatch) -> Stack:
    stack = _stack("bert", USUAL)
    monkeypatch.setattr(stack, "_accepted", stack._accepted - {"position_ids"})
    return stack


def _other_window(n_tokens: int) -> Callable[[pytest.MonkeyPatch], Stack]:
    def make(_: pytest.MonkeyPatch) -> Stack:
        layer_types = ["sliding_attention"] * SIZES["num_hidden_layers"]
        stack = _stack("qwen2", USUAL, sliding_window=n_tokens, use_sliding_window=True, layer_types=layer_types)
        for module in stack.model.modules():
            if isinstance(module, Qwen2Attention):
                module.sliding_window = n_tokens + 1
        return stack

    return make


def _unknown_option(monkeypatch: pytest.MonkeyPatch) -> Stack:
    """Sinks that do not matter yet."""
    genuine = MistralAttention.forward
    monkeypatch.setattr(
        MistralAttention, "forward", lambda self, *args, **kwargs: genuine(self, *args, **kwargs, s_aux=torch.zeros(2))
    )
    return _stack("mistral", USUAL)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (_reads_its_neighbour, "states differ"),
        (_attends_everywhere, "states differ"),
        (_ignores_causality, "states differ"),
        (_ignores_positions, "states differ"),
        (_other_window(4), "states differ"),
        (_other_window(20), "another window than the 21 tokens"),
        (_unknown_option, "its attention needs s_aux"),
    ],
)
def test_twin_a_model_that_differs_is_caught_and_stays_padded(
    broken: Callable[[pytest.MonkeyPatch], Stack], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _found(broken(monkeypatch))
    assert found.layout == "padded"
    assert reason in (found.reason or "")


def _base_spec(family: Family, folder: Path) -> RunSpec:
    model, task = make_model(folder / family, family), make_task(folder / "task.csv")
    parsed = parse(str(model), str(task), {"lr": 1e-3, "epochs": 1, "out": str(folder / "out")}, CurveSettings)
    resolver = Resolver(parsed.options.out, parsed.options.max_cache_bytes)
    return resolver.fill_in(parsed.request, needs_depth=True).base


@pytest.mark.parametrize(("family", "layout"), [("bert", "packed"), ("mpnet", "mixed")])
def test_a_request_gets_the_layout_of_its_model(family: Family, layout: Layout, tmp_path: Path) -> None:
    spec = _base_spec(family, tmp_path)
    assert (spec.layout, spec.padded_because) == (layout, None)


def test_a_model_that_differs_says_why_it_is_padded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _reads_its_neighbour(monkeypatch)
    monkeypatch.setattr(probe, "_found", {})
    spec = _base_spec("bert", tmp_path)
    assert spec.layout == "padded"
    (warning,) = [one for one in Runner().run(spec).warnings if "padded" in one]
    assert "without padding, its states differ by" in warning


@pytest.mark.parametrize("n_tokens", [20, 62])
def test_a_window_longer_than_the_probes_rows_is_compared(n_tokens: int) -> None:
    assert _found(_stack("mistral", sliding_window=n_tokens)) == FoundLayout("packed")


def test_a_window_that_only_the_masks_have_is_caught() -> None:
    """Qwen2-MoE's masks have the window of its configuration; its attention is not told of it."""
    window = {"sliding_window": 20, "use_sliding_window": True, "layer_types": ["sliding_attention"] * 3}
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
    shared = {"shared_expert_intermediate_size": 8, "num_hidden_layers": 3}
    found = _found(_stack("qwen2_moe", USUAL, **window, **experts, **shared))
    assert found == FoundLayout("padded", "its masks have a window that its attention does not ask for")
    unused = _found(_stack("qwen2_moe", USUAL, use_sliding_window=False, **experts, **shared))
    assert unused == FoundLayout("packed")


@pytest.mark.parametrize(("rate", "n_heads"), [(0.1, 2), (0.0, 0)])
def test_packed_attention_keeps_pairs_of_tokens_only_for_dropout(rate: float, n_heads: int) -> None:
    config = _stack("bert", attention_probs_dropout_prob=rate).model.config
    assert n_pair_heads(config, FoundLayout("packed")) == n_heads
    assert n_pair_heads(config, FoundLayout("padded")) == 2


def _double(family: Family, depth: int | None) -> Stack:
    stack = Case(family).stack(n_layers=3, dropout=0.0)
    stack.model.double()
    stack.apply(stack.all_parameters if depth is None else stack.parameters_above(depth))
    stack.train()
    return stack


@pytest.mark.parametrize("depth", [None, 0, 1, 2, 3])
@pytest.mark.parametrize(
    "case", [Case(name, is_pair=pair) for name in OWN_ATTENTION for pair in (True, False)], ids=str
)
def test_mixed_answers_and_gradients_are_the_padded_ones(case: Case, depth: int | None) -> None:
    batch, split, stack = case.batch(), Split(case.encoded()), _double(case.family, depth)
    wanted, found = (Forward(stack, depth, layout=layout).logits(batch, split) for layout in ("padded", "mixed"))
    assert distance(wanted, found) < CLOSE
    one, other = _gradient(stack, wanted), _gradient(stack, found)
    assert float((one - other).norm() / one.norm()) < CLOSE


@pytest.mark.parametrize("family", OWN_ATTENTION)
@torch.no_grad()
def test_padding_passes_no_linear_layer(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(family)
    batch, split, stack = case.batch(), Split(case.encoded()), case.stack(n_layers=3)
    n_seen: list[int] = []
    genuine = functional.linear

    def linear(states: Tensor, *weights: Tensor) -> Tensor:
        n_seen.append(states[..., 0].numel())
        return genuine(states, *weights)

    monkeypatch.setattr(functional, "linear", linear)
    n_real, n_padded = len(batch.tokens), batch.mask.numel()
    Forward(stack, layout="mixed").logits(batch, split)
    assert n_real in n_seen
    assert n_padded not in n_seen
    Forward(stack, layout="padded").logits(batch, split)
    assert n_padded in n_seen


@pytest.mark.parametrize("family", OWN_ATTENTION)
@torch.no_grad()
def test_twin_another_mask_shows(family: Family) -> None:
    batch, stack = Case(family).batch(), Case(family).stack(n_layers=3)
    meeting, inputs = find_meeting(stack), batch.padded_inputs()
    assert meeting is not None
    with without_padding(stack, meeting, batch.mask):
        right = stack.state_at(3, inputs)
    with without_padding(stack, meeting, batch.mask.flip(0)):
        wrong = stack.state_at(3, inputs)
    assert distance(right[batch.mask], wrong[batch.mask]) > TEETH


@torch.no_grad()
def test_twin_positions_that_are_cut_too_near_show(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, stack = Case("deberta-v3").batch(), Case("deberta-v3").stack(n_layers=3)
    meeting, inputs = find_meeting(stack), batch.padded_inputs()
    assert meeting is not None
    with without_padding(stack, meeting, batch.mask):
        right = stack.state_at(3, inputs)
        monkeypatch.setattr(Tensor, "abs", lambda self: torch.zeros_like(self))
        wrong = stack.state_at(3, inputs)
    monkeypatch.undo()
    assert distance(right[batch.mask], wrong[batch.mask]) > TEETH
