"""The promises that every strategy must keep, checked on a tiny model of any family.

The checks do real runs on a toy task. A broken promise raises an AssertionError that names it. A strategy that does not
fit a family must refuse it with a UsageError before training.
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
from frostline.saving.manifest import read_manifest
from frostline.saving.predict import load_saved
from frostline.saving.save import save_model
from frostline.strategies import parse
from frostline.testing.models import Family, make_model, make_spec, make_task
from frostline.training.forward import Forward, predict
from frostline.training.run import Runner

N_LAYERS = 4
NEAR = 1e-4
"""Largest difference between numbers that differ only in the order of summation."""
FAR = 1e-3
"""Smallest difference when something is really different."""


@dataclass(frozen=True)
class TinyRun:
    """A finished run of a strategy on a tiny model: its spec, its result and the trained model."""

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
    """The spec of a short run of a strategy. The tiny model and the toy task are made in the folder."""
    model, task = folder / "model", folder / "task.csv"
    if not model.is_dir():
        make_model(model, family, n_layers=N_LAYERS)
        make_task(task, n_rows=24)
    resolved = parse(strategy).resolved(N_LAYERS, "classification")
    rate = 1e-2 if resolved.has_rate else 0.0
    spec = make_spec(model, task, strategy=resolved.name, epochs=3, optimizer="sgd", learning_rate=rate)
    return spec.replace(is_cached=resolved.is_worth_caching(N_LAYERS))


def run_tiny(spec: RunSpec) -> TinyRun:
    """Does a run without any cache from earlier runs."""
    result, stack = Runner(max_cache_bytes=0).train(spec)
    return TinyRun(spec, result, stack)


def check_strategy(strategy: str, family: Family, folder: Path) -> None:
    """Raises an AssertionError unless a strategy keeps all promises on a tiny model of this family."""
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
    assert set(planned[0].edits) <= set(plan.trained(1)), "re-initialised weights exist"
    depths, n_prefix = {phase.cached_layers for phase in planned[0].phases}, strategy.n_prefix_layers(N_LAYERS)
    assert not n_prefix or depths == {n_prefix}, "the plan caches what the strategy calls its prefix"


def check_untrained(tiny_run: TinyRun) -> None:
    """Untrained parameters keep every bit; trained ones change."""
    stack, plan = Runner(max_cache_bytes=0).begin(tiny_run.spec)
    trained = plan.trained(tiny_run.spec.epochs)
    moved = {name for name, same in _same(stack, tiny_run.stack).items() if not same}
    assert moved - {CHOSEN} <= trained, (
        f"untrained parameters keep every bit, but {sorted(moved - trained)[:3]} changed"
    )
    assert moved, "something trains"
    # Not all: some get no gradient. The bias of a key, for example, does not change the softmax.
    assert len(moved) >= len(trained) / 2, f"trained parameters change, but only {len(moved)} of {len(trained)} did"


def check_repeats(tiny_run: TinyRun) -> None:
    """The same seed gives the same bits; another seed gives other outputs."""
    again, other = run_tiny(tiny_run.spec), run_tiny(tiny_run.spec.replace(seed=tiny_run.spec.seed + 1))
    assert np.array_equal(tiny_run.losses, again.losses), "same seed, same losses"
    assert np.array_equal(tiny_run.outputs, again.outputs), "same seed, same outputs"
    if tiny_run.result.plan.fit == "gradient":  # a closed-form fit may be the same with other held-out rows
        assert np.abs(tiny_run.outputs - other.outputs).max() > FAR, "another seed, other outputs"


def check_cache(tiny_run: TinyRun) -> None:
    """Training from cached states agrees with computing them in every step."""
    if not tiny_run.spec.is_cached:
        return
    computed = run_tiny(tiny_run.spec.replace(is_cached=False))
    assert np.abs(tiny_run.losses - computed.losses).max() < NEAR, "cached and uncached losses agree"
    assert np.abs(tiny_run.outputs - computed.outputs).max() < 10 * NEAR, "cached and uncached outputs agree"


def check_saved(tiny_run: TinyRun, folder: Path) -> None:
    """The saved and loaded model gives the same predictions. Do not use the run's model afterwards."""
    tokenizer = load_tokenizer(tiny_run.spec.model)
    save_model(tiny_run.result, tiny_run.stack, tokenizer, folder)
    model = load_saved(folder, read_manifest(folder))
    dev = Runner(max_cache_bytes=0).preparer.prepare(tiny_run.spec.replace(strategy="full", is_cached=False)).dev
    apart = np.abs(predict(Forward(Stack(model)), dev) - tiny_run.outputs).max()
    assert apart < 10 * NEAR, f"saved and loaded, it predicts the same; {apart:.2g} apart"


def _same(one: Stack, other: Stack) -> dict[str, bool]:
    """For each parameter and buffer, whether it is equal to the bit in two models of the same shape."""
    theirs = dict([*other.model.named_parameters(), *other.model.named_buffers()])
    mine = [*one.model.named_parameters(), *one.model.named_buffers()]
    assert {name for name, _ in mine} == theirs.keys(), "training adds and removes nothing"
    return {name: torch.equal(tensor, theirs[name]) for name, tensor in mine}
