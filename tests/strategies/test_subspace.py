"""`subspace:D`: the same projection everywhere, gradients of the explicit matrix, memory, dropout, merging."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from frostline.errors import UsageError
from frostline.model.inside.subspace import (
    SubspaceUpdate,
    add_subspace,
    moved_parameters,
    places_of,
    scale_of,
    subspace_parameter,
)
from frostline.model.stack import Stack
from frostline.records.results import PausedRun
from frostline.strategies import Subspace, parse
from frostline.testing.models import Family, make_model, make_spec, make_stack, make_task
from frostline.testing.strategies import make_tiny_spec, run_tiny
from frostline.training.memory import MemoryMeter
from frostline.training.run import Runner

FAMILIES: tuple[Family, ...] = ("bert", "gpt2", "xlnet", "opt", "modernbert")
INPUTS = {"input_ids": torch.tensor([[2, 5, 6, 7, 3]]), "attention_mask": torch.ones(1, 5, dtype=torch.int64)}


@pytest.mark.parametrize(
    ("name", "n_dimensions", "seed", "first", "digest"),
    [
        ("layer.0.weight", 1000, 0, [789, 849, 1832], "d26997b38d3746304a882d9bc5652e97"),
        ("layer.0.weight", 1000, 7, [1645, 627, 131], "72f97e9d9ca94c391e2a280ce87db79d"),
        ("layer.1.bias", 3, 2**31 - 1, [2, 2, 0], "360ceb81a6be72eb4799f16952acbd69"),
    ],
)
def test_the_projection_is_the_same_on_any_machine(
    name: str, n_dimensions: int, seed: int, first: list[int], digest: str
) -> None:
    places = places_of(name, 100_000, n_dimensions, seed)
    assert places[:3].tolist() == first
    assert hashlib.sha256(places.astype("<i4").tobytes()).hexdigest()[:32] == digest, "recorded on Linux, x86-64"
    assert np.array_equal(places[:500], places_of(name, 500, n_dimensions, seed)), "of any length"


def test_the_entries_keep_the_first_order_progress_up_to_a_limit() -> None:
    assert [scale_of(10**6, n) for n in (10**6, 10**4, 10**2, 1)] == [1, 10, 100, 100]


def test_every_number_gets_its_share_with_either_sign() -> None:
    counts = np.bincount(places_of("w", 1_000_000, 50, 3), minlength=100)
    spread = (counts - 10_000) / math.sqrt(10_000)
    assert np.abs(spread).max() < 4.5
    assert 0.8 < spread.std() < 1.2, "as random as a fair draw"


def _explicit(stack: Stack, n_dimensions: int, seed: int) -> dict[str, Tensor]:
    """The rows of P for each tensor that moves (weights, dimensions)."""
    parameters, rows = dict(stack.model.named_parameters()), {}
    for name in moved_parameters(stack):
        places = torch.from_numpy(places_of(name, parameters[name].numel(), n_dimensions, seed)).long()
        matrix = torch.zeros(len(places), n_dimensions)
        matrix[torch.arange(len(places)), places % n_dimensions] = 1 - 2 * (places >= n_dimensions).float()
        rows[name] = matrix * scale_of(stack.count(moved_parameters(stack)), n_dimensions)
    return rows


def _gradient(stack: Stack, rows: dict[str, Tensor], z: Tensor) -> Tensor:
    """Of the summed squared logits with respect to z, through θ₀ + P·z."""
    z = z.clone().requires_grad_()
    parameters = dict(stack.model.named_parameters())
    moved = {name: parameters[name].detach() + (matrix @ z).view_as(parameters[name]) for name, matrix in rows.items()}
    logits = functional_call(stack.model, moved, (), dict(INPUTS)).logits
    (gradient,) = torch.autograd.grad(logits.square().sum(), [z])
    return gradient


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_through_the_explicit_matrix(family: Family) -> None:
    plain, stack = make_stack(family, n_layers=2), make_stack(family, n_layers=2)
    plain.eval()
    rows, z = _explicit(plain, 7, seed=3), 0.01 * torch.randn(7, generator=torch.Generator().manual_seed(0))
    name = subspace_parameter(stack)
    add_subspace(stack, 7, seed=3)
    stack.eval()
    ours = dict(stack.model.named_parameters())[name]
    with torch.no_grad():
        ours.copy_(z)
    stack.logits(INPUTS).square().sum().backward()
    assert ours.grad is not None
    wanted = _gradient(plain, rows, z)
    assert torch.allclose(ours.grad, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))
    first = next(iter(rows))
    twin = _gradient(plain, rows | {first: -rows[first]}, z)
    assert not torch.allclose(ours.grad, twin, rtol=1e-2), "twin: other signs in one tensor are another gradient"


def test_it_starts_at_the_pretrained_weights_and_only_there() -> None:
    stack = make_stack("bert", n_layers=2)
    stack.eval()
    with torch.no_grad():
        before = stack.logits(INPUTS)
        name = subspace_parameter(stack)
        add_subspace(stack, 9, seed=0)
        assert torch.equal(stack.logits(INPUTS), before), "to the bit"
        dict(stack.model.named_parameters())[name][4] = 0.1
        assert not torch.allclose(stack.logits(INPUTS), before, atol=1e-3)


def test_a_step_moves_all_weights_alike_and_the_optimizer_sees_z_and_the_head(tmp_path: Path) -> None:
    spec = make_tiny_spec("subspace:20", "bert", tmp_path).replace(optimizer="adamw", learning_rate=1e-2)
    with Runner(max_cache_bytes=0).descending(spec.replace(warmup_share=0.0)) as (training, descent):
        stack = training.forward.stack
        sizes = sorted(p.numel() for group in descent._optimizer.param_groups for p in group["params"])
        assert sizes == [2, 16, 20], "the bias and the weight of the classifier, and z"
        before = _computed(stack)
        descent.step(next(iter(descent.batches(1))))
        moved = {name: (after - before[name]).abs() for name, after in _computed(stack).items()}
        scale = math.sqrt(sum(one.numel() for one in moved.values()) / 20)
        assert 5 < scale < 20
        assert max(float(one.max()) for one in moved.values()) == pytest.approx(1e-2 * scale, rel=1e-3)
        assert min(float(one.max()) for one in moved.values()) > 1e-3 * scale, "all of them move"


def _computed(stack: Stack) -> dict[str, Tensor]:
    """The tensors that move, as the model computes with them."""
    found = {}
    for name, module in stack.model.named_modules():
        for tensor in getattr(module, "parametrizations", ()):
            found[f"{name}.{tensor}"] = getattr(module, tensor).detach().clone()
    return found


def test_layers_keep_their_dropout_and_embeddings_do_not(tmp_path: Path) -> None:
    stack, plan = Runner(max_cache_bytes=0).begin(make_tiny_spec("subspace:20", "bert", tmp_path))
    stack.apply(plan.phases[0].trained)
    stack.train()
    layers = stack.model.get_submodule(stack.structure.layers_name)
    assert all(layer.training for layer in layers), "every layer moves"
    assert not stack.model.get_submodule("bert.embeddings").training
    frozen, plan = Runner(max_cache_bytes=0).begin(make_tiny_spec("subspace:0", "bert", tmp_path))
    frozen.apply(plan.phases[0].trained)
    frozen.train()
    assert not any(layer.training for layer in frozen.model.get_submodule(frozen.structure.layers_name)), "twin"


def test_without_dimensions_it_is_the_pretrained_trunk_with_a_trained_head(tmp_path: Path) -> None:
    spec = make_tiny_spec("subspace:0", "bert", tmp_path)
    begun, plan = Runner(max_cache_bytes=0).begin(spec)
    assert plan.phases[0].trained == ("classifier.weight", "classifier.bias")
    trained = run_tiny(spec).stack
    kept = [name for name in begun.all_parameters if not name.startswith("classifier")]
    before, after = dict(begun.model.named_parameters()), dict(trained.model.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in kept)
    assert not torch.equal(before["classifier.weight"], after["classifier.weight"])


def test_merged_it_is_an_ordinary_model() -> None:
    stack = make_stack("gpt2", n_layers=2)
    names = stack.all_parameters
    strategy = Subspace(11)
    name = subspace_parameter(stack)
    strategy.add_modules(stack)
    assert any(isinstance(module, SubspaceUpdate) for module in stack.model.modules())
    stack.eval()
    with torch.no_grad():
        dict(stack.model.named_parameters())[name].fill_(0.05)
        apart = stack.logits(INPUTS)
        assert strategy.merge_modules(stack)
        assert torch.equal(stack.logits(INPUTS), apart)
    assert stack.all_parameters == names
    assert not any(isinstance(module, SubspaceUpdate) for module in stack.model.modules())


def test_a_seed_draws_its_own_projection_and_a_pause_changes_no_bit(tmp_path: Path) -> None:
    model, task = make_model(tmp_path / "bert", n_layers=3), make_task(tmp_path / "task.csv", n_rows=64)
    spec = make_spec(model, task, strategy="subspace:30", layout="packed", learning_rate=1e-2, epochs=2)
    runner = Runner(max_cache_bytes=0)
    stacks = [runner.begin(spec.replace(seed=seed))[0] for seed in (0, 0, 1)]
    one, same, other = (next(m for m in s.model.modules() if isinstance(m, SubspaceUpdate)).places for s in stacks)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    whole = runner.run(spec)
    paused = runner.advance(spec, until=5)
    assert isinstance(paused, PausedRun)
    resumed = runner.advance(spec, checkpoint=paused.checkpoint)
    assert not isinstance(resumed, PausedRun)
    assert resumed.predictions == whole.predictions
    assert whole.epochs[-1].train_loss is not None
    assert whole.epochs[0].train_loss is not None
    assert whole.epochs[-1].train_loss < whole.epochs[0].train_loss, "it learns"


def test_a_subspace_larger_than_the_weights_is_refused_in_one_line() -> None:
    stack = make_stack("bert", n_layers=2)
    n_weights = stack.count(moved_parameters(stack))
    parse(f"subspace:{n_weights}").plan(stack)
    with pytest.raises(UsageError, match=f"use at most {n_weights}, or full"):
        parse(f"subspace:{n_weights + 1}").plan(stack)


def test_memory_is_linear_in_the_weights() -> None:
    """Weights, their places in z and the moved weights, and one tensor at a time while it moves: below 4 in all."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=200, hidden_size=384, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=6,
        max_position_embeddings=16,
    )  # fmt: skip

    def peak_over_weights() -> float:
        with MemoryMeter("cpu") as meter:
            stack = Stack(BertForSequenceClassification(config))
            weights = 4 * stack.count(stack.all_parameters)
            plan = Subspace(1000).plan(stack)
            Subspace(1000).add_modules(stack)
            stack.apply(plan.phases[0].trained)
            stack.train()
            optimizer = torch.optim.AdamW([p for p in stack.model.parameters() if p.requires_grad])
            for _ in range(2):
                stack.logits(INPUTS).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            assert meter.peak_bytes is not None
            return meter.peak_bytes / weights

    # What earlier tests left in the allocator can only add to a peak.
    assert 2.5 < min(peak_over_weights() for _ in range(2)) < 4
