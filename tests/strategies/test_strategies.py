"""The promises all strategies share, and what each decides."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from families import matrix
from frostline import strategies, tasks
from frostline.kinds import CLASSIFICATION
from frostline.model.stack import Stack
from frostline.records.specs import RunSpec
from frostline.strategies import Freeze, Full, Layers, Strategy
from frostline.testing.models import Family, make_stack
from frostline.training.forward import Forward
from frostline.training.loop import Descent, Training
from frostline.training.prefix import Split, compute_states
from tiny import TEETH, Case

N_LAYERS = 4
FAMILIES: tuple[Family, ...] = ("bert", "gpt2", "deberta-v2")
STRATEGIES: tuple[Strategy, ...] = (
    Full(),
    Freeze(0),
    Freeze(2),
    Freeze(N_LAYERS),
    Layers(frozenset({1, 3})),
    Layers(frozenset({2})),
    Layers(frozenset({3, 4})),
)

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
# `make test` does each strategy on one family; the conformance suite checks the same promises in whole runs.
on_families = pytest.mark.parametrize(
    ("strategy", "family"), matrix(STRATEGIES, FAMILIES), ids=lambda value: getattr(value, "name", value)
)


def _stack(family: Family, *, dropout: float) -> Stack:
    return make_stack(family, n_layers=N_LAYERS, dropout=dropout)


def _losses(stack: Stack, strategy: Strategy, split: Split, *, depth: int | None, seed: int = 0) -> NDArray[np.float64]:
    """The losses of 12 steps, from the state after `depth` layers up."""
    task = tasks.parse("rotten-tomatoes")
    spec = RunSpec(
        model="tiny", model_fingerprint="m", task=task, data_fingerprint="d", strategy=strategy.name,
        learning_rate=1e-2, epochs=3, batch_size=8, seed=0, is_cached=False, optimizer="sgd",
    )  # fmt: skip
    stack.apply(strategy.plan(stack).phases[0].trained)
    forward = Forward(stack, depth)
    training = Training(
        spec, forward, split, split, CLASSIFICATION, ("accuracy",), order_seed=seed, on_epoch=lambda _: None
    )
    losses: list[float] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        descent = Descent(training)
        for epoch in range(1, spec.epochs + 1):
            stack.train()
            losses += [float(descent.step(batch)) for batch in descent.batches(epoch)]
    return np.array(losses)


def _split(family: Family) -> Split:
    return Split(Case(family).encoded(32))


@on_families
def test_the_plan_is_the_same_twice_and_touches_no_weight(strategy: Strategy, family: Family) -> None:
    stack = _stack(family, dropout=0.1)
    before = stack.digest(())
    assert strategy.plan(stack) == strategy.plan(make_stack(family, n_layers=N_LAYERS, seed=1))
    assert stack.digest(()) == before
    assert all(p.requires_grad for p in stack.model.parameters())


@on_families
def test_untrained_parameters_keep_every_bit_and_trained_ones_move(strategy: Strategy, family: Family) -> None:
    stack = _stack(family, dropout=0.1)
    plan = strategy.plan(stack)
    before = {name: p.detach().clone() for name, p in stack.model.named_parameters()}
    losses = _losses(stack, strategy, _split(family), depth=plan.phases[0].cached_layers)
    assert np.ptp(losses) > TEETH
    moved = {name for name, p in stack.model.named_parameters() if not torch.equal(p, before[name])}
    still = set(plan.phases[0].trained) - moved
    assert moved <= set(plan.phases[0].trained)
    # A key's bias moves no softmax.
    assert all(name.endswith(("key.bias", "key_proj.bias")) for name in still)


@on_families
def test_same_seed_same_losses(strategy: Strategy, family: Family) -> None:
    depth = strategy.plan(_stack(family, dropout=0.1)).phases[0].cached_layers
    once, again, other = (
        _losses(_stack(family, dropout=0.1), strategy, _split(family), depth=depth, seed=seed) for seed in (0, 0, 1)
    )
    assert np.array_equal(once, again)
    assert np.abs(once - other).max() > TEETH


@on_families
def test_cached_computed_and_plain_training_agree(strategy: Strategy, family: Family) -> None:
    split, stack = _split(family), _stack(family, dropout=0.0)
    depth = strategy.plan(stack).phases[0].cached_layers
    plain = _losses(stack, strategy, split, depth=None)
    if depth is None:
        return
    states = compute_states(_stack(family, dropout=0.0), split.encoded, depth)
    computed = _losses(_stack(family, dropout=0.0), strategy, split, depth=depth)
    cached = _losses(_stack(family, dropout=0.0), strategy, Split(split.encoded, states), depth=depth)
    assert np.abs(computed - plain).max() < 1e-4
    assert np.abs(cached - plain).max() < 1e-4
    # Twin: what trains matters, or the agreement would say nothing.
    elsewhere = _losses(_stack(family, dropout=0.0), Freeze(1), split, depth=None)
    assert np.abs(elsewhere - plain).max() > 1e-3


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_a_name_is_read_back(strategy: Strategy) -> None:
    assert strategies.parse(strategy.name) == strategy
