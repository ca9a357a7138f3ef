"""Attention heads: which weights are whose in every family, slices that train alone, gates that prune."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, LlamaConfig, Phi3Config, PreTrainedConfig

from frostline.errors import UsageError
from frostline.model.inside import heads as heads_module
from frostline.model.inside.gates import pruned
from frostline.model.inside.heads import LayerHeads, attention_heads
from frostline.model.inside.slices import add_slices, merge_slices, merged_state, slice_parameters
from frostline.model.stack import Stack
from frostline.records.parameters import AttentionHead, read_heads, written_heads
from frostline.testing.models import FAMILIES, Family, make_stack
from tiny import TEETH, Case, distance

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

TOLD_APART = [family for family in FAMILIES if family != "xlnet"]
GROUPED = ("llama", "qwen2", "qwen3")
"""their two queries share one key and value"""
_GROUPS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
CONFIGS: dict[str, PreTrainedConfig] = {
    "llama in two groups": LlamaConfig(**_GROUPS, intermediate_size=16, vocab_size=20, pad_token_id=0),
    "phi3, fused and in two groups": Phi3Config(
        **_GROUPS, intermediate_size=16, vocab_size=20, pad_token_id=0, bos_token_id=1, eos_token_id=2
    ),
}


def stack_of(which: str) -> Stack:
    if which in CONFIGS:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            config = copy.deepcopy(CONFIGS[which])
            config.initializer_range = 0.5
            stack = Stack(AutoModelForSequenceClassification.from_config(config))
    else:
        stack = make_stack(which, dropout=0.0)  # type: ignore[arg-type]
    stack.eval()
    return stack


def read_by_outputs(stack: Stack, layers: tuple[LayerHeads, ...]) -> list[Tensor]:
    """What the output projection of each layer reads for one row, by layer."""
    seen: list[Tensor] = []
    handles = [
        stack.model.get_submodule(layer.output).register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        for layer in layers
    ]
    with torch.no_grad():
        stack.logits({"input_ids": torch.tensor([[5, 6, 7, 8, 9]])})
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize("which", [*TOLD_APART, *CONFIGS])
def test_the_weights_of_a_head_move_its_own_output_and_no_other(which: str) -> None:
    stack = stack_of(which)
    layers = attention_heads(stack)
    top = layers[-1]
    assert [layer.layer for layer in layers] == [1, 2]
    assert top.n_heads == (1 if which in GROUPED else 2)
    before = read_by_outputs(stack, layers)[-1]
    for number in range(top.n_heads):
        changed = copy.deepcopy(stack)
        with torch.no_grad():
            for part in top.parts:
                if part.module != top.output:
                    weight = changed.model.get_submodule(part.module).get_parameter(part.name)
                    weight.index_copy_(
                        part.dim,
                        torch.tensor(part.places[number]),
                        1.5 * weight.index_select(part.dim, torch.tensor(part.places[number])),
                    )
        moved = (read_by_outputs(changed, layers)[-1] - before).abs().flatten(0, -2).amax(0)
        own = slice(number * top.width, (number + 1) * top.width)
        assert moved[own].min() > 1e-4, "all of its own output moves"
        assert moved.sum() == moved[own].sum(), "nothing of the others does"


@pytest.mark.parametrize("which", [*TOLD_APART, *CONFIGS])
def test_every_place_of_a_weight_belongs_to_one_head(which: str) -> None:
    stack = stack_of(which)
    for layer in attention_heads(stack):
        for part in layer.parts:
            size = stack.model.get_submodule(part.module).get_parameter(part.name).shape[part.dim]
            assert sorted(place for places in part.places for place in places) == list(range(size))
    assert not any(part.module == layer.output and part.name == "bias" for part in layer.parts), "no head's own"


def test_looking_leaves_no_trace() -> None:
    stack = make_stack("gpt2")
    stack.apply(stack.parameters_above(1))
    stack.model.train()
    before = [(p.requires_grad, p.grad) for p in stack.model.parameters()]
    digest, state = stack.digest(()), torch.get_rng_state()
    attention_heads(stack)
    assert [(p.requires_grad, p.grad) for p in stack.model.parameters()] == before
    assert (stack.digest(()), stack.model.training) == (digest, True)
    assert torch.equal(torch.get_rng_state(), state)


def test_xlnet_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="attention heads of XLNetForSequenceClassification cannot be told apart") as e:
        attention_heads(make_stack("xlnet"))
    assert "\n" not in str(e.value)


def test_an_order_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = make_stack("gpt2")
    monkeypatch.setattr(heads_module, "_stacked", lambda *_: None)
    with pytest.raises(UsageError, match="do not hold the heads in any known order"):
        attention_heads(stack)


def test_the_experiment_has_teeth() -> None:
    stack = make_stack("bert")
    top = attention_heads(stack)[-1]
    value = next(part for part in top.parts if part.module.endswith("value") and part.name == "weight")
    swapped = dataclasses.replace(value, places=value.places[::-1])
    wrong = dataclasses.replace(top, parts=tuple(swapped if part is value else part for part in top.parts))
    assert heads_module._is_confirmed(stack, top)
    assert not heads_module._is_confirmed(stack, wrong)


def test_names() -> None:
    heads = (AttentionHead(3, 0), AttentionHead(12, 5))
    assert read_heads(written_heads(heads)) == heads
    assert [read_heads(text) for text in ("", "3", "0.1", "3.0+3.0", "3.-1", "3.01", "3.0+")] == [None] * 7


def trained_for_a_moment(stack: Stack) -> None:
    """Steps of AdamW with weight decay: what it can reach moves."""
    inputs = {"input_ids": torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]])}
    parameters = [p for p in stack.model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        stack.logits(inputs).square().sum().backward()
        optimizer.step()


def moved_places(stack: Stack, other: Stack, layers: tuple[LayerHeads, ...]) -> set[str]:
    """What differs between two plain models: names of parameters and, of those with heads, which heads."""
    of_heads = {f"{part.module}.{part.name}": (layer, part) for layer in layers for part in layer.parts}
    found = set()
    theirs = dict(other.model.named_parameters())
    for name, parameter in stack.model.named_parameters():
        differs = parameter.ne(theirs[name])
        if name not in of_heads:
            found |= {name} if differs.any() else set()
            continue
        layer, part = of_heads[name]
        for head in layer.heads:
            if differs.index_select(part.dim, torch.tensor(part.places[head.number])).any():
                found.add(f"{head}")
    return found


@pytest.mark.parametrize("family", ["bert", "gpt2", "gpt_neox", "modernbert", "deberta-v2"])
def test_slices_train_and_everything_else_keeps_every_bit(family: Family) -> None:
    stack, pretrained = (make_stack(family, dropout=0.0) for _ in range(2))
    layers, trained = attention_heads(stack), frozenset({AttentionHead(1, 1), AttentionHead(2, 0)})
    inputs = {"input_ids": torch.tensor([[5, 6, 7, 8]])}
    before = stack.logits(inputs)
    add_slices(stack, layers, trained)
    assert torch.equal(stack.logits(inputs), before), "adding changes nothing"
    stack.apply(slice_parameters(layers, trained))
    trained_for_a_moment(stack)
    after, state = stack.logits(inputs), merged_state(stack.model)
    merge_slices(stack)
    assert torch.equal(stack.logits(inputs), after), "merging changes nothing"
    assert stack.model.state_dict().keys() == pretrained.model.state_dict().keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in stack.model.state_dict().items())
    assert moved_places(stack, pretrained, layers) == {"1.1", "2.0"}


def test_a_masked_gradient_would_not_do() -> None:
    """The twin: Adam with weight decay moves whole matrices, and the check sees it."""
    stack, pretrained = (make_stack("bert", dropout=0.0) for _ in range(2))
    layers = attention_heads(stack)
    parts = [part for part in layers[0].parts if part.name == "weight"]
    stack.apply(tuple(f"{part.module}.weight" for part in parts))
    for part in parts:  # only head 1.1 gets a gradient
        mask = torch.zeros(stack.model.get_submodule(part.module).get_parameter("weight").shape)
        mask.index_fill_(part.dim, torch.tensor(part.places[1]), 1.0)
        stack.model.get_submodule(part.module).get_parameter("weight").register_hook(
            lambda grad, mask=mask: grad * mask
        )
    trained_for_a_moment(stack)
    assert moved_places(stack, pretrained, layers) == {"1.0", "1.1"}


@pytest.mark.parametrize("family", ["bert", "distilbert", "deberta-v2", "gpt2", "gpt_neox", "llama", "mpnet"])
def test_pruning_is_deleting_the_weights(family: Family) -> None:
    stack, batch = Case(family).stack(), Case(family).batch()
    layers = attention_heads(stack)
    gone = frozenset({AttentionHead(1, 0), AttentionHead(2, layers[1].n_heads - 1)})
    by_hand = copy.deepcopy(stack)
    with torch.no_grad():
        for layer in layers:
            for part in layer.parts:
                weight = by_hand.model.get_submodule(part.module).get_parameter(part.name)
                for head in gone & {*layer.heads}:
                    weight.index_fill_(part.dim, torch.tensor(part.places[head.number]), 0.0)
        deleted = by_hand.outputs(batch.padded_inputs(), batch.mask)
        with pruned(stack, layers, gone):
            found = stack.outputs(batch.padded_inputs(), batch.mask)
        whole = stack.outputs(batch.padded_inputs(), batch.mask)
        with pruned(stack, layers, gone - {AttentionHead(1, 0)}):
            fewer = stack.outputs(batch.padded_inputs(), batch.mask)
    assert distance(found, deleted) < 1e-5
    assert distance(whole, deleted) > TEETH, "the twin: the whole model answers otherwise"
    assert distance(fewer, deleted) > TEETH, "and so does one with another number of heads"


def test_pruning_is_a_model_with_smaller_matrices() -> None:
    stack, batch = Case("bert").stack(), Case("bert").batch()
    layers = attention_heads(stack)
    smaller = copy.deepcopy(stack)
    attention = smaller.model.get_submodule("bert.encoder.layer.1.attention")
    width = layers[1].width
    for name in ("query", "key", "value"):
        linear = attention.get_submodule(f"self.{name}")
        assert isinstance(linear, nn.Linear)
        linear.weight, linear.bias = (nn.Parameter(p.detach()[width:]) for p in (linear.weight, linear.bias))
    dense, own = attention.get_submodule("output.dense"), attention.get_submodule("self")
    dense.weight = nn.Parameter(dense.get_parameter("weight").detach()[:, width:])
    vars(own)["num_attention_heads"], vars(own)["all_head_size"] = 1, width
    with torch.no_grad(), pruned(stack, layers, {AttentionHead(2, 0)}):
        found = stack.outputs(batch.padded_inputs(), batch.mask)
    with torch.no_grad():
        assert distance(found, smaller.outputs(batch.padded_inputs(), batch.mask)) < 1e-5
