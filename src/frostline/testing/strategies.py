"""The promises that all strategies keep, on a tiny model of any family: what a new strategy is held to.

Real runs on a toy task. A promise that is broken raises an AssertionError that names it; a strategy that a family has
not what it takes for refuses with a UsageError before anything is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from frostline.model.added.readers import CHOSEN
from frostline.model.load import load_tokenizer
from frostline.model.stack import Stack
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.saving.save import load_saved, read_manifest, save_model
from frostline.strategies import parse
from frostline.testing.models import Family, make_model, make_spec, make_task
from frostline.training.forward import Forward, predict
from frostline.training.run import Runner

N_LAYERS = 4
NEAR = 1e-4
"""How far numbers may be apart that differ in the order of their sums alone."""
FAR = 1e-3
"""How far they are apart at least where something is different."""


@dataclass(frozen=True)
class TinyRun:
    """A strategy on a tiny model: its spec, what came of it, and the trained model."""

    spec: RunSpec
    result: RunResult
    stack: Stack

    @property
    def losses(self) -> NDArray[np.float64]:
        """The mean training loss of each epoch."""
        return np.array([epoch.train_loss for epoch in self.result.epochs])

    @property
    def outputs(self) -> NDArray[np.float32]:
        """Raw outputs on dev."""
        return self.result.predictions.outputs.array()


def make_tiny_spec(strategy: str, family: Family, folder: Path) -> RunSpec:
    """A short run of a strategy on a tiny model, made in the folder, and a toy task."""
    model, task = folder / "model", folder / "task.csv"
    if not model.is_dir():
        make_model(model, family, n_layers=N_LAYERS)
        make_task(task, n_rows=80)
    settled = parse(strategy).resolved(N_LAYERS, "classification")
    rate = 0.0 if settled.is_closed_form else 1e-2
    spec = make_spec(model, task, strategy=settled.name, epochs=3, optimizer="sgd", learning_rate=rate)
    return spec.replace(is_cached=settled.is_worth_caching(N_LAYERS))


def run_tiny(spec: RunSpec) -> TinyRun:
    """A run from nothing: nothing kept by another is used."""
    result, stack = Runner(max_cache_bytes=0).train(spec)
    return TinyRun(spec, result, stack)


def check_strategy(strategy: str, family: Family, folder: Path) -> None:
    """Raises unless a strategy keeps all promises on a tiny model of a family."""
    spec = make_tiny_spec(strategy, family, folder)
    check_plan(spec)
    tiny_run = run_tiny(spec)
    check_untrained(tiny_run)
    check_repeats(tiny_run)
    check_cache(tiny_run)
    check_saved(tiny_run, folder / "saved" / spec.key)


def check_plan(spec: RunSpec) -> None:
    """The plan is the same twice, and planning touches no weight."""
    stack, plan = Runner(max_cache_bytes=0).begin(spec.replace(strategy="full"))
    before, strategy = stack.digest(()), parse(spec.strategy)
    planned = [strategy.plan(stack) for _ in range(2)]
    assert planned[0] == planned[1], "the plan is the same twice"
    assert stack.digest(()) == before, "planning touches no weight"
    assert set(planned[0].edits) <= set(plan.trained(1)), "what is drawn anew is there"
    depths = {phase.cached_layers for phase in planned[0].phases}
    assert not strategy.n_prefix_layers(N_LAYERS) or depths == {strategy.n_prefix_layers(N_LAYERS)}, (
        "it says what may be kept"
    )


def check_untrained(tiny_run: TinyRun) -> None:
    """What the plan does not train keeps every bit; something that it trains moves."""
    stack, plan = Runner(max_cache_bytes=0).begin(tiny_run.spec)
    trained = plan.trained(tiny_run.spec.epochs)
    moved = {name for name, same in _same(stack, tiny_run.stack).items() if not same}
    assert moved - {CHOSEN} <= trained, f"untrained parameters keep every bit, but {sorted(moved - trained)[:3]} moved"
    assert moved, "something trains"
    # Weights that get no gradient: the bias of a key moves no softmax, and the like.
    assert len(moved) >= len(trained) / 2, f"what trains moves, but only {len(moved)} of {len(trained)} did"


def check_repeats(tiny_run: TinyRun) -> None:
    """The same seed gives the same bits, another one others."""
    again, other = run_tiny(tiny_run.spec), run_tiny(tiny_run.spec.replace(seed=tiny_run.spec.seed + 1))
    assert np.array_equal(tiny_run.losses, again.losses), "same seed, same losses"
    assert np.array_equal(tiny_run.outputs, again.outputs), "same seed, same outputs"
    if tiny_run.result.plan.fit == "gradient":  # a fit in one go may choose the same from other held-out rows
        assert np.abs(tiny_run.outputs - other.outputs).max() > FAR, "another seed, other outputs"


def check_cache(tiny_run: TinyRun) -> None:
    """Training from kept states agrees with computing them in every step."""
    if not tiny_run.spec.is_cached:
        return
    computed = run_tiny(tiny_run.spec.replace(is_cached=False))
    assert np.abs(tiny_run.losses - computed.losses).max() < NEAR, "cached and uncached losses agree"
    assert np.abs(tiny_run.outputs - computed.outputs).max() < 10 * NEAR, "cached and uncached outputs agree"


def check_saved(tiny_run: TinyRun, folder: Path) -> None:
    """Saving and loading gives the same predictions. The run's model is of no use afterwards."""
    tokenizer = load_tokenizer(tiny_run.spec.model)
    save_model(tiny_run.result, tiny_run.stack, tokenizer, folder)
    model = load_saved(folder, read_manifest(folder))
    dev = Runner(max_cache_bytes=0).preparer.prepare(tiny_run.spec.replace(strategy="full", is_cached=False)).dev
    apart = np.abs(predict(Forward(Stack(model)), dev) - tiny_run.outputs).max()
    assert apart < 10 * NEAR, f"saved and loaded, it predicts the same; {apart:.2g} apart"


def _same(one: Stack, other: Stack) -> dict[str, bool]:
    """Whether each parameter and buffer of a model has the bits that it has in another of the same shape."""
    theirs = dict([*other.model.named_parameters(), *other.model.named_buffers()])
    mine = [*one.model.named_parameters(), *one.model.named_buffers()]
    assert {name for name, _ in mine} == theirs.keys(), "training neither adds nor takes away"
    return {name: torch.equal(tensor, theirs[name]) for name, tensor in mine}
