"""`heads`: the same steps as training whole matrices where all heads train, and not a bit moves elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from families import matrix
from frostline import strategies
from frostline.errors import UsageError
from frostline.kinds import CLASSIFICATION
from frostline.model.inside.heads import attention_heads
from frostline.model.stack import Stack
from frostline.records.depth import Rank
from frostline.records.parameters import AttentionHead
from frostline.records.specs import Layout
from frostline.strategies import Heads, RankedHeads
from frostline.testing.models import Family, make_model, make_spec, make_stack, make_task
from frostline.training.forward import Forward
from frostline.training.loop import Descent, Training
from frostline.training.prefix import Split
from frostline.training.run import Runner
from tiny import PACKED, STEPS, Case

FAMILIES: tuple[Family, ...] = ("bert", "gpt2", "gpt_neox", "llama", "mpnet")


def losses(stack: Stack, trained: tuple[str, ...], depth: int, family: Family) -> NDArray[np.float64]:
    """The loss of each of 50 steps of SGD, packed where the family can be; dropout on."""
    layout: Layout = "packed" if family in PACKED else "padded"
    if layout == "packed":
        stack.allow_packing()
    spec = STEPS.replace(epochs=10, learning_rate=3e-3, layout=layout)
    split = Split(Case(family).encoded(40))
    stack.apply(trained)
    training = Training(
        spec=spec,
        forward=Forward(stack, depth, layout),
        train=split,
        dev=split,
        kind=CLASSIFICATION,
        metric_names=("accuracy",),
        order_seed=0,
        on_epoch=lambda _: None,
    )
    found: list[float] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        descent = Descent(training)
        for epoch in range(1, spec.epochs + 1):
            stack.train()
            found += [float(descent.step(batch)) for batch in descent.batches(epoch)]
    assert len(found) == 50
    return np.array(found)


@pytest.mark.parametrize("family", matrix(FAMILIES, is_sample=lambda family: family in ("bert", "gpt2", "llama")))
def test_all_heads_above_n_are_attention_without_its_output_bias(family: Family) -> None:
    n_frozen = 1
    whole = make_stack(family, n_layers=3)
    layers = attention_heads(whole)[n_frozen:]
    heads = frozenset(head for layer in layers for head in layer.heads)
    biases = {f"{layer.output}.bias" for layer in layers}
    trained = strategies.parse(f"attention@{n_frozen}").plan(whole).phases[0].trained
    wanted = losses(whole, tuple(name for name in trained if name not in biases), n_frozen, family)
    assert np.abs(losses_of_heads(heads, n_frozen, family) - wanted).max() < 1e-5
    if family == "bert":  # the twins: with a head less, or with the output bias, the losses differ
        fewer = losses_of_heads(heads - {AttentionHead(3, 0)}, n_frozen, family)
        more = losses(make_stack(family, n_layers=3), trained, n_frozen, family)
        assert min(np.abs(other - wanted).max() for other in (fewer, more)) > 1e-4


def losses_of_heads(heads: frozenset[AttentionHead], n_frozen: int, family: Family) -> NDArray[np.float64]:
    """The losses of training these heads."""
    stack, strategy = make_stack(family, n_layers=3), Heads(heads)
    plan = strategy.plan(stack)
    strategy.add_modules(stack)
    return losses(stack, plan.phases[0].trained, n_frozen, family)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT of three layers, and a toy task."""
    folder = tmp_path_factory.mktemp("heads")
    make_model(folder / "model", "bert", n_layers=3)
    make_task(folder / "task.csv", n_rows=40)
    return folder


def moved(before: Stack, after: Stack) -> set[str]:
    """The attention heads, and the parameters that no head has a part of, that differ between two plain models."""
    found: set[str] = set()
    first, last = dict(before.model.named_parameters()), dict(after.model.named_parameters())
    parts = {f"{p.module}.{p.name}": (layer, p) for layer in attention_heads(before) for p in layer.parts}
    for name, parameter in first.items():
        differs = parameter.ne(last[name])
        if name in parts:
            layer, part = parts[name]
            heads = [(head, torch.tensor(part.places[head.number])) for head in layer.heads]
            found |= {str(head) for head, places in heads if differs.index_select(part.dim, places).any()}
        elif differs.any():
            found.add(name)
    return found


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_run_moves_its_heads_and_the_task_head_alone(is_cached: bool, folder: Path) -> None:
    spec = make_spec(folder / "model", folder / "task.csv", strategy="heads:2.1+3.0", layout="packed")
    spec = spec.replace(is_cached=is_cached, weight_decay=0.1)
    runner = Runner(max_cache_bytes=0)
    before, _ = runner.begin(spec.replace(strategy="full", is_cached=False))
    _, stack = runner.train(spec)
    assert strategies.parse(spec.strategy).merge_modules(stack)
    task_head = set(before.parameters_of(()))
    assert moved(before, stack) == {"2.1", "3.0"} | task_head
    # The twin: training a layer moves all of its heads, and what no head has a part of.
    _, other = runner.train(spec.replace(strategy="layers:2"))
    assert {"2.0", "2.1", "bert.encoder.layer.1.attention.output.dense.bias"} <= moved(before, other)


def test_a_paused_run_goes_on_to_the_same_bits(folder: Path) -> None:
    spec = make_spec(folder / "model", folder / "task.csv", strategy="heads:2.1+3.0", layout="packed")
    runner = Runner(max_cache_bytes=0)
    paused = runner.advance(spec, until=3)
    gone_on = runner.advance(spec, checkpoint=paused.checkpoint)  # type: ignore[union-attr]
    whole = runner.run(spec)
    assert np.array_equal(gone_on.predictions.outputs.array(), whole.predictions.outputs.array())  # type: ignore[union-attr]


def test_what_it_trains_and_caches() -> None:
    stack = make_stack("bert", n_layers=3)
    strategy = strategies.parse("heads:2.1+3.0+3.1")
    plan = strategy.plan(stack)
    assert plan.phases[0].cached_layers == strategy.n_prefix_layers(3) == 1
    assert strategy.n_trained_layers(3) == 2
    strategy.add_modules(stack)
    sliced = [name for name in plan.trained(1) if name.startswith("bert.encoder")]
    # Width 8, two heads of 4: three matrices and biases of 4 rows, and 4 columns of the output, per head.
    assert stack.count(sliced) == 3 * (3 * (4 * 8 + 4) + 8 * 4)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("heads:3", "as layer.head"),
        ("heads:0.1", "layers from 1"),
        ("heads:1.0+1.0", "each once"),
        ("heads:0@top", "at least 1"),
        ("heads:3@size", "not by 'size'"),
        ("heads", "as layer.head"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        strategies.parse(text)
    assert "\n" not in str(caught.value)


def test_heads_that_the_model_does_not_have_are_refused() -> None:
    stack = make_stack("bert")
    with pytest.raises(UsageError, match=r"layer 2 has no attention head 2; .* Did you mean 'heads:2.1'"):
        strategies.parse("heads:1.0+2.2").plan(stack)
    with pytest.raises(UsageError, match="the model has 2 layers"):
        strategies.parse("heads:3.0").plan(stack)
    with pytest.raises(UsageError, match=r"the model has 2 attention heads.*heads:2@top"):
        RankedHeads(3, "top").first_of((AttentionHead(1, 0), AttentionHead(1, 1)))
    with pytest.raises(UsageError, match="is not ranked yet"):
        strategies.parse("heads:1@random").plan(stack)


@pytest.mark.parametrize("rank", ["importance", "change", "random", "top"])
def test_names_are_canonical(rank: Rank) -> None:
    assert strategies.parse(f"heads:3@{rank}") == RankedHeads(3, rank)
    assert strategies.parse(f"heads:3@{rank}").name == f"heads:3@{rank}"
    assert strategies.parse("heads:10.0+2.11+2.3").name == "heads:2.3+2.11+10.0"
