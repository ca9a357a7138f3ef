"""What `attention@N` and `ffn@N` train: every linear parameter of the layers above N is in exactly one of them."""

from __future__ import annotations

import pytest
from torch import nn
from transformers.pytorch_utils import Conv1D

from frostline.errors import UsageError
from frostline.model.stack import Stack
from frostline.strategies import Attention, FeedForward
from frostline.testing.models import Family, make_stack

N_LAYERS, N_FROZEN = 3, 1
SPLIT: dict[Family, tuple[int, int]] = {
    "bert": (8, 4), "roberta": (8, 4), "electra": (8, 4), "distilbert": (8, 4), "mpnet": (8, 4), "deberta-v2": (12, 4),
    "modernbert": (2, 2), "gpt2": (4, 4), "opt": (8, 4), "gpt_neox": (4, 4), "llama": (4, 3), "qwen2": (7, 3),
    "qwen3": (4, 3),
}  # fmt: skip
"""How many tensors attention and the feed-forward part of one layer have; DeBERTa projects positions too."""

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


def _inside(stack: Stack, trained: tuple[str, ...]) -> list[str]:
    head = set(stack.parameters_of(()))
    assert head <= set(trained), "the head trains"
    return [name for name in trained if name not in head]


def _linear(stack: Stack) -> set[str]:
    """Every parameter of a linear module in the layers above the frozen ones."""
    layers = stack.structure.layers_name
    modules = dict(stack.model.named_modules())
    above = {name for one in stack.structure.layer_parameters[N_FROZEN:] for name in one}
    assert all(name.startswith(layers) for name in above)
    return {name for name in above if isinstance(modules[name.rpartition(".")[0]], nn.Linear | Conv1D)}


@pytest.mark.parametrize("family", SPLIT)
def test_each_linear_parameter_is_in_one_of_them_and_norms_are_in_none(family: Family) -> None:
    stack = make_stack(family, n_layers=N_LAYERS)
    plans = [strategy.plan(stack) for strategy in (Attention(N_FROZEN), FeedForward(N_FROZEN))]
    attention, ffn = (_inside(stack, plan.phases[0].trained) for plan in plans)
    assert {plan.phases[0].cached_layers for plan in plans} == {N_FROZEN}
    assert set(attention) | set(ffn) == _linear(stack)
    assert not set(attention) & set(ffn)
    n_layers = N_LAYERS - N_FROZEN
    assert (len(attention), len(ffn)) == tuple(n_layers * number for number in SPLIT[family])


def test_all_layers_frozen_leaves_the_head() -> None:
    stack = make_stack("bert", n_layers=N_LAYERS)
    assert Attention(N_LAYERS).plan(stack).phases[0].trained == stack.parameters_of(())


def test_what_cannot_be_told_apart_is_refused() -> None:
    stack = make_stack("bert", n_layers=N_LAYERS)
    layer = stack.model.get_submodule(f"{stack.structure.layers_name}.1")
    dense = layer.get_submodule("output")
    vars(dense)["_modules"]["last"] = dense._modules.pop("dense")
    for strategy in (Attention(0), FeedForward(0)):
        with pytest.raises(UsageError, match="attention and feed-forward part cannot be told apart"):
            strategy.plan(stack)
