"""Every strategy keeps the promises that all share, on five families; and each promise can be broken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from families import matrix
from frostline import strategies
from frostline.errors import UsageError
from frostline.model.added.adapters import Bottleneck
from frostline.model.added.readers import LinearReader
from frostline.model.stack import Stack
from frostline.records.plans import Plan
from frostline.strategies import Freeze
from frostline.testing import strategies as conformance
from frostline.testing.models import Family
from frostline.testing.strategies import TinyRun, check_strategy, make_tiny_spec, run_tiny
from frostline.training.batches import Batch, Encoded
from frostline.training.prefix import States
from frostline.training.run import Runner

FAMILIES: tuple[Family, ...] = ("bert", "roberta", "xlnet", "gpt2", "llama")
NAMES = (
    "full", "freeze:0", "freeze:2", "freeze:+1", "layers:1+3", "reinit:1", "transfer:1", "lora:2", "lora:2@1",
    "adapter:2", "adapter:2@1", "bitfit", "norms", "features", "features@2.mean", "features:bilstm", "gradual",
    "attention@1", "ffn@1", "heads:2.0+4.0",
    "subspace:20", "setfit:1",
)  # fmt: skip
REFUSED = {
    ("xlnet", "lora:2"): "no separate modules for the query and value projections",
    ("xlnet", "lora:2@1"): "no separate modules for the query and value projections",
    ("xlnet", "adapter:2"): "no place for adapters",
    ("xlnet", "adapter:2@1"): "no place for adapters",
    ("llama", "bitfit"): "have no biases",
    ("xlnet", "attention@1"): "attention and feed-forward part cannot be told apart",
    ("xlnet", "ffn@1"): "attention and feed-forward part cannot be told apart",
    ("xlnet", "heads:2.0+4.0"): "cannot be told apart",
    ("gpt2", "setfit:1"): "sentence embeddings are its last layer's states",
    ("llama", "setfit:1"): "sentence embeddings are its last layer's states",
}


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """An LSTM of 768 takes a tiny model's run from a second to twenty."""
    monkeypatch.setattr("frostline.model.added.readers.HIDDEN", 8)


def cases() -> Iterator[Any]:
    """Each strategy on each family; `make test` does it on BERT, every fourth one on another, and all refusals."""
    others = {name: FAMILIES[1 + place // 4 % 4] for place, name in enumerate(NAMES) if place % 4 == 0}
    yield from matrix(
        FAMILIES,
        NAMES,
        is_sample=lambda family, name: family in ("bert", others.get(name)) or (family, name) in REFUSED,
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tiny models are, a folder for each family."""
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize(("family", "name"), list(cases()))
def test_all_promises_are_kept(family: Family, name: str, models: Path) -> None:
    folder = models / family
    folder.mkdir(exist_ok=True)
    if (family, name) in REFUSED:
        with pytest.raises(UsageError, match=REFUSED[family, name]):
            check_strategy(name, family, folder)
    else:
        check_strategy(name, family, folder)


def test_no_strategy_is_left_out() -> None:
    tried = {type(strategies.parse(name)) for name in NAMES}
    known = {kind for kind in _leaves(strategies.Strategy) if kind.__module__.startswith("frostline.")}
    # A ranking becomes names before any run, and a model as it was saved trains nothing.
    others = {type(strategies.parse(name)) for name in ("freeze:+1", "heads:1@top", "saved")}
    assert known <= tried | others


def _leaves(kind: Any) -> set[type[strategies.Strategy]]:
    """The classes below one that have none below them."""
    below = kind.__subclasses__()
    return set[type[strategies.Strategy]]().union(*(_leaves(one) for one in below)) if below else {kind}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tiny BERT is."""
    return tmp_path_factory.mktemp("bert")


@pytest.fixture
def tiny_run(folder: Path) -> TinyRun:
    """A short run with cached states."""
    return run_tiny(make_tiny_spec("freeze:2", "bert", folder))


class TestTeeth:
    """What is broken on purpose is found."""

    def test_a_frozen_weight_that_moved(self, tiny_run: TinyRun) -> None:
        with torch.no_grad():
            dict(tiny_run.stack.model.named_parameters())["bert.encoder.layer.0.output.dense.weight"][0, 0] += 1
        with pytest.raises(AssertionError, match="keep every bit"):
            conformance.check_untrained(tiny_run)

    def test_nothing_that_moved(self, tiny_run: TinyRun) -> None:
        stack, _ = Runner(max_cache_bytes=0).begin(tiny_run.spec)
        with pytest.raises(AssertionError, match="something trains"):
            conformance.check_untrained(dataclasses.replace(tiny_run, stack=stack))

    def test_a_run_that_differs_from_itself(self, tiny_run: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("frostline.training.run.seed_for", lambda *_: int(torch.randint(2**31, ())))
        with pytest.raises(AssertionError, match="same seed"):
            conformance.check_repeats(tiny_run)

    def test_a_seed_that_does_not_matter(self, tiny_run: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in ("run", "prepare"):
            monkeypatch.setattr(f"frostline.training.{module}.seed_for", lambda *_: 0)
        with pytest.raises(AssertionError, match="other outputs"):
            conformance.check_repeats(run_tiny(tiny_run.spec))

    def test_states_of_other_rows(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        of = States.of

        def swapped(states: States, batch: Batch, encoded: Encoded) -> Tensor:
            return of(states, batch, encoded).flip(0)

        monkeypatch.setattr(States, "of", swapped)
        with pytest.raises(AssertionError, match="cached and uncached"):
            conformance.check_cache(run_tiny(make_tiny_spec("freeze:2", "bert", folder)))

    def test_a_part_lost_in_saving(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        adapted = run_tiny(make_tiny_spec("adapter:2", "bert", folder).replace(learning_rate=0.3))
        fitted = run_tiny(make_tiny_spec("features", "bert", folder))
        monkeypatch.setattr(Bottleneck, "forward", lambda _, state: state)
        with pytest.raises(AssertionError, match="predicts the same"):
            conformance.check_saved(adapted, tmp_path / "adapted")
        monkeypatch.setattr(LinearReader, "depths", property(lambda _: (1,)))
        fitted.stack.reader.chosen[0] = 3  # type: ignore[union-attr, operator]
        with pytest.raises(AssertionError, match="predicts the same"):
            conformance.check_saved(fitted, tmp_path / "fitted")

    def test_a_plan_that_changes(self, tiny_run: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
        depths = iter(range(10))
        plan = Freeze.plan
        monkeypatch.setattr(Freeze, "plan", lambda self, stack: plan(Freeze(min(self.n_frozen, next(depths))), stack))
        with pytest.raises(AssertionError, match="the same twice"):
            conformance.check_plan(tiny_run.spec)

    def test_a_plan_that_touches_a_weight(self, tiny_run: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
        plan = Freeze.plan

        def touching(self: Freeze, stack: Stack) -> Plan:
            with torch.no_grad():
                next(iter(stack.model.parameters())).view(-1)[0] += 1
            return plan(self, stack)

        monkeypatch.setattr(Freeze, "plan", touching)
        with pytest.raises(AssertionError, match="touches no weight"):
            conformance.check_plan(tiny_run.spec)


def test_gradual_unfreezing_goes_from_the_top_to_everything(folder: Path) -> None:
    stack, plan = Runner(max_cache_bytes=0).begin(make_tiny_spec("gradual", "bert", folder))
    assert [phase.cached_layers for phase in plan.phases] == [3, 2, 1, None]
    assert plan.phases[-1].trained == stack.all_parameters
    by_epochs: dict[int, Sequence[int | None]] = {
        n: [plan.phase_at(epoch, n).cached_layers for epoch in range(1, n + 1)] for n in (1, 2, 3, 4, 6)
    }
    assert by_epochs == {
        1: [None],
        2: [2, None],
        3: [2, 1, None],
        4: [3, 2, 1, None],
        6: [3, 2, 2, 1, None, None],
    }


def test_what_joins_late_has_not_moved_before(folder: Path) -> None:
    """Of two epochs the first trains the top half: what is below starts its descent in the second."""
    spec = make_tiny_spec("gradual", "bert", folder).replace(epochs=2)
    early, late = run_tiny(spec.replace(strategy="freeze:2", epochs=2)), run_tiny(spec)
    first = [tiny_run.result.epochs[0].train_loss for tiny_run in (early, late)]
    assert first[0] == pytest.approx(first[1], abs=1e-6), "the first epoch is that of half the layers frozen"
    assert np.abs(early.outputs - late.outputs).max() > conformance.FAR, "the second is not"
