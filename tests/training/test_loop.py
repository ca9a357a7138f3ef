"""The loop: cached or not, packed or not, the same steps; what is frozen stays; the same seeds give the same bits."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import functional

from families import matrix
from frostline import strategies
from frostline.analysis import has_failed
from frostline.errors import FrostlineError
from frostline.kinds import CLASSIFICATION, REGRESSION, kind_of
from frostline.model.load import load_model
from frostline.model.stack import FrozenMovedError, Stack
from frostline.records.arrays import StoredArray
from frostline.records.plans import Plan
from frostline.records.results import RunResult
from frostline.records.specs import Layout, RunSpec
from frostline.strategies import Strategy
from frostline.testing.models import Family, make_model, make_spec, make_task
from frostline.training.batches import Batch, training_batches
from frostline.training.loop import Descent, _rate_share, loss_of
from frostline.training.prefix import Split, States, compute_states
from frostline.training.prepare import seed_for
from frostline.training.run import Runner
from losses import losses_of
from tiny import BASIC, STEPS, TEETH, Case, step_losses

SPEC = STEPS.replace(learning_rate=0.05, epochs=5)
N_ROWS = 80  # ten steps an epoch
CLOSE = 1e-5
LAYOUTS: tuple[Layout, ...] = ("padded", "packed")
STRATEGIES = ("full", "freeze:0", "freeze:1", "freeze:2")


def _is_sample(family: Family, layout: Layout, depth: int) -> bool:
    """Every layout at every depth, each on one of the families."""
    return family == BASIC[(depth + LAYOUTS.index(layout)) % len(BASIC)]


def _step_losses(
    case: Case,
    spec: RunSpec,
    depth: int,
    *,
    dropout: float = 0.0,
    change: Callable[[States, NDArray[np.int64]], States] | None = None,
) -> NDArray[np.float64]:
    """The loss of every step of a run above the depth; `change` is done to its states, if it has any."""
    stack, encoded = case.stack(dropout=dropout), case.encoded(N_ROWS)
    if spec.layout == "packed":
        stack.allow_packing()
    states = compute_states(stack, encoded, depth) if spec.is_cached else None
    if states is not None and change is not None:
        states = change(states, encoded.labels.astype(np.int64))
    split = Split(encoded, states)
    return step_losses(stack, depth, spec, split)


def _swap_two_rows(states: States, labels: NDArray[np.int64]) -> States:
    """Two rows of one length and unlike labels trade their states; their numbers stay, so no check can tell."""
    lengths = np.diff(states.offsets)
    one, other = next(
        (i, j) for i in range(len(labels)) for j in range(i) if lengths[i] == lengths[j] and labels[i] != labels[j]
    )
    values = states.values.copy()
    for to, source in ((one, other), (other, one)):
        taken = states.values[states.offsets[source] : states.offsets[source + 1]]
        values[states.offsets[to] : states.offsets[to + 1]] = taken
    return dataclasses.replace(states, values=values)


@pytest.mark.parametrize(("family", "layout", "depth"), matrix(BASIC, LAYOUTS, range(3), is_sample=_is_sample))
def test_cached_and_uncached_training_agree(family: Family, layout: str, depth: int) -> None:
    spec = SPEC.replace(layout=layout)
    cached = _step_losses(Case(family), spec, depth)
    uncached = _step_losses(Case(family), spec.replace(is_cached=False), depth)
    assert len(cached) == 50
    assert np.abs(cached - uncached).max() < 1e-5
    assert np.abs(np.diff(cached)).max() > TEETH
    swapped = _step_losses(Case(family), spec, depth, change=_swap_two_rows)
    assert np.abs(swapped - uncached).max() > TEETH


@pytest.mark.parametrize(("family", "depth"), matrix(BASIC, range(3)))
def test_packed_and_padded_training_agree(family: Family, depth: int) -> None:
    packed, padded = (_step_losses(Case(family), SPEC.replace(layout=one), depth) for one in ("packed", "padded"))
    # Float noise grows from step to step where the loss is steep.
    assert np.abs(packed - padded).max() < 1e-4


@pytest.mark.parametrize(
    ("case", "layout"),
    matrix((Case("gpt2", side="left"), Case("bert", n_outputs=1), Case("bert", is_pair=True)), LAYOUTS),
    ids=str,
)
def test_cached_and_uncached_agree_on_other_rows_and_heads(case: Case, layout: str) -> None:
    spec = SPEC.replace(layout=layout, learning_rate=0.01)
    cached, uncached = (_step_losses(case, spec.replace(is_cached=is_cached), 1) for is_cached in (True, False))
    assert np.abs(cached - uncached).max() < 1e-5


@pytest.mark.parametrize(("family", "layout"), matrix(BASIC, LAYOUTS))
def test_with_adamw_and_dropout_the_difference_is_float_noise(family: Family, layout: str) -> None:
    spec = SPEC.replace(layout=layout, optimizer="adamw", learning_rate=3e-3)
    cached, uncached = (
        _step_losses(Case(family), spec.replace(is_cached=is_cached), 1, dropout=0.1) for is_cached in (True, False)
    )
    assert np.abs(cached - uncached).max() < 1e-4
    assert np.abs(cached - _step_losses(Case(family), spec, 1, dropout=0.0)).max() > TEETH


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models, by family, without dropout, and a toy task."""
    folder = tmp_path_factory.mktemp("train")
    for family in BASIC:
        make_model(folder / family, family, dropout=0.0)
    make_model(folder / "learner", initializer_range=0.1)
    make_task(folder / "task.csv", n_rows=80)
    return folder


def _accuracies(result: RunResult) -> list[float]:
    return [epoch.metrics["accuracy"] for epoch in result.epochs]


@pytest.mark.parametrize("layout", matrix(LAYOUTS, is_sample=lambda layout: layout == "packed"))
def test_the_toy_task_is_learnt(layout: str, folder: Path, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task.csv", n_rows=200)
    result = Runner().run(make_spec(folder / "learner", task, layout=layout, epochs=10, learning_rate=5e-3))
    assert result.score == result.train_score == 1.0
    assert result.chance == 0.5
    assert result.epochs[0].metrics["accuracy"] < 1.0
    assert losses_of(result)[-1] < 0.1


def test_the_score_is_the_last_epochs_not_the_best(folder: Path) -> None:
    runner, spec = Runner(), make_spec(folder / "bert", folder / "task.csv", epochs=4, learning_rate=0.03)
    results = [runner.run(spec.replace(seed=seed)) for seed in range(4)]
    assert all(result.score == _accuracies(result)[-1] for result in results)
    assert any(result.score < max(_accuracies(result)) for result in results), "no run to tell the two apart by"


def _bits(result: RunResult) -> tuple[object, ...]:
    losses = [loss.hex() for loss in losses_of(result)]
    return losses, result.predictions.outputs.digest, result.metrics, result.train_score


@pytest.mark.parametrize("strategy", matrix(STRATEGIES, is_sample=lambda name: name in ("full", "freeze:1")))
def test_the_same_spec_gives_the_same_bits(strategy: str, folder: Path) -> None:
    spec = make_spec(folder / "learner", folder / "task.csv", strategy=strategy, is_cached=strategy != "full")
    first = Runner().run(spec)
    busy = Runner()
    busy.run(spec.replace(seed=1))
    torch.rand(3)
    assert _bits(busy.run(spec)) == _bits(first) == _bits(busy.run(spec))
    assert _bits(busy.run(spec.replace(seed=1))) != _bits(first)


def test_every_seed_draws_its_own_head_order_and_dropout(folder: Path) -> None:
    spec = make_spec(folder / "bert", folder / "task.csv", epochs=1)
    encoded = Case("bert").encoded(40)
    heads: dict[bytes, RunSpec] = {}
    orders: dict[tuple[int, ...], RunSpec] = {}
    drawn: set[int] = set()
    specs = [spec.replace(seed=seed, role=role) for seed in range(4) for role in ("replicate", "line_search")]
    for one in specs:
        seeds = [seed_for(one, purpose) for purpose in ("head", "order", "dropout")]
        assert len(set(seeds)) == 3
        drawn |= set(seeds)
        model = load_model(one.model, head_seed=seeds[0], head=CLASSIFICATION.head(("bad", "good")), pad_token_id=0)
        heads[model.classifier.weight.detach().numpy().tobytes()] = one
        batches = training_batches(encoded, 8, seed=seeds[1], epoch=1)
        orders[tuple(int(row) for batch in batches for row in batch.positions)] = one
    assert len(heads) == len(orders) == len(specs)
    assert len(drawn) == 3 * len(specs)
    # The same pair of seeds at every depth and rate.
    for change in ({"strategy": "freeze:1"}, {"learning_rate": 1.0}, {"is_cached": True}, {"layout": "packed"}):
        assert seed_for(spec.replace(**change), "head") == seed_for(spec, "head")
        assert seed_for(spec.replace(**change), "order") == seed_for(spec, "order")


def test_a_line_search_run_is_no_replicate(folder: Path) -> None:
    spec = make_spec(folder / "learner", folder / "task.csv")
    replicate, search = (Runner().run(spec.replace(role=role)) for role in ("replicate", "line_search"))
    assert _bits(replicate) != _bits(search)
    assert replicate.key != search.key


@pytest.mark.parametrize(("family", "strategy"), matrix(BASIC, STRATEGIES))
def test_what_is_frozen_keeps_every_bit_and_the_rest_moves(family: Family, strategy: str, folder: Path) -> None:
    spec = make_spec(folder / family, folder / "task.csv", strategy=strategy, epochs=1)
    result, stack = Runner().train(spec)
    start = load_model(
        spec.model, head_seed=seed_for(spec, "head"), head=CLASSIFICATION.head(result.label_names), pad_token_id=0
    )
    before = {**dict(start.named_parameters()), **dict(start.named_buffers())}
    after = {**dict(stack.model.named_parameters()), **dict(stack.model.named_buffers())}
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    # BERT and RoBERTa have a token type that does not occur; its table moves all the same, in the other row.
    assert moved == set(result.plan.phases[0].trained)


@dataclasses.dataclass(frozen=True)
class _Liar(Strategy):
    """Plans to train the head, and lets a frozen weight or buffer move in training."""

    name: str = "liar"
    moves: str = "bert.embeddings.LayerNorm.bias"

    @classmethod
    def read(cls, argument: str) -> _Liar:
        return cls(argument)

    def plan(self, stack: Stack) -> Plan:
        tensor = {**dict(stack.model.named_parameters()), **dict(stack.model.named_buffers())}[self.moves]

        def nudge(*_: object) -> None:
            with torch.no_grad():
                tensor.view(-1)[0] += 1

        stack.model.classifier.register_forward_hook(nudge)
        trained = stack.parameters_above(2)
        return Plan.one_phase(n_frozen=2, cached_layers=2, trained=trained)


@pytest.mark.parametrize(
    ("moves", "is_caught"),
    [
        ("bert.embeddings.LayerNorm.bias", True),
        ("bert.encoder.layer.1.output.dense.weight", True),
        ("bert.embeddings.position_ids", True),
        ("classifier.bias", False),
    ],
)
def test_a_plan_that_lies_is_caught(moves: str, is_caught: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "parse", lambda _: _Liar(moves=moves))
    spec = make_spec(folder / "bert", folder / "task.csv", strategy="freeze:2", epochs=1, is_cached=True)
    if is_caught:
        with pytest.raises(FrozenMovedError, match="frozen parameter or buffer changed"):
            Runner().run(spec)
    else:
        Runner().run(spec)


def _absurd(rate: float, family: Family, kind: str, folder: Path, tmp_path: Path) -> RunSpec:
    task = make_task(tmp_path / "task.csv", kind=kind)
    return make_spec(folder / family, task, kind=kind, optimizer="sgd", learning_rate=rate, clip_norm=1e9)


@pytest.mark.parametrize(("family", "kind"), matrix(BASIC, ("classification", "regression")))
def test_a_run_that_diverges_is_a_result_that_failed(family: Family, kind: str, folder: Path, tmp_path: Path) -> None:
    result = Runner().run(_absurd(1e30, family, kind, folder, tmp_path))
    labels, outputs = result.predictions.labels.array(), result.predictions.outputs.array()
    assert result.diverged
    assert [epoch.train_loss for epoch in result.epochs] == [None]
    assert len(np.unique(outputs, axis=0)) == 1
    task = kind_of(result.spec.task)
    best = max(task.score(result.spec.task.metric or "", labels, np.tile(one, (len(labels), 1))) for one in _rows(kind))
    assert result.score == pytest.approx(best)
    assert has_failed(result)
    assert RunResult.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False))) == result


def _rows(kind: str) -> np.ndarray:
    """The outputs of constant answers."""
    return np.eye(2) if kind == "classification" else np.linspace(-3, 3, 601)[:, None]


def test_a_run_that_learns_has_not_failed(folder: Path, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task.csv", n_rows=800)
    result = Runner().run(make_spec(folder / "bert", task, epochs=3, learning_rate=1e-2))
    assert not result.diverged
    assert not has_failed(result)
    permuted = np.random.default_rng(0).permutation(result.predictions.outputs.array())
    shuffled = result.replace(predictions=result.predictions.replace(outputs=StoredArray.of(permuted)))
    assert has_failed(shuffled), "twin: the same answers to other rows"


@pytest.mark.parametrize(("family", "kind"), matrix(BASIC, ("classification", "regression")))
def test_no_result_holds_what_is_not_a_number(family: Family, kind: str, folder: Path, tmp_path: Path) -> None:
    # Norms keep a BERT's states finite at rates that are absurd already.
    found = Runner().run(_absurd(1e6, family, kind, folder, tmp_path))
    json.dumps(found.to_json(), allow_nan=False)
    assert np.isfinite(found.predictions.outputs.array()).all()


def test_an_epochs_loss_is_the_mean_over_its_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses: list[float] = []
    sizes: list[int] = []
    genuine = Descent.step

    def step(self: Descent, batch: Batch) -> torch.Tensor:
        loss = genuine(self, batch)
        losses.append(float(loss))
        sizes.append(len(batch.positions))
        return loss

    monkeypatch.setattr(Descent, "step", step)
    result = Runner().run(make_spec(folder / "bert", folder / "task.csv", epochs=1, batch_size=70))
    assert sizes == [70, 2]
    assert losses_of(result)[0] == pytest.approx(np.average(losses, weights=sizes))
    assert abs(losses_of(result)[0] - np.mean(losses)) > 1e-3


@given(n_steps=st.integers(1, 400), warmup=st.floats(0, 1))
def test_the_rate_rises_and_falls_in_straight_lines(n_steps: int, warmup: float) -> None:
    shares = [_rate_share(step, n_steps, warmup) for step in range(n_steps + 1)]
    n_rising = math.ceil(n_steps * warmup)
    rising = [step / n_rising for step in range(n_rising)]
    falling = [(n_steps - step) / (n_steps - n_rising) for step in range(n_rising, n_steps)]
    assert shares[:-1] == pytest.approx(rising + falling)
    assert shares[-1] == 0.0
    assert max(shares) == (1.0 if n_rising < n_steps else max(rising))


def test_the_schedule_of_a_hundred_steps() -> None:
    shares = {step: _rate_share(step, 100, 0.1) for step in (0, 1, 5, 10, 55, 99, 100)}
    assert shares == {0: 0.0, 1: 0.1, 5: 0.5, 10: 1.0, 55: 0.5, 99: pytest.approx(1 / 90), 100: 0.0}


def test_the_loss_is_cross_entropy_or_mean_square() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, classes = torch.randn(5, 3, generator=generator), torch.tensor([0, 2, 1, 1, 0])
    chosen = logits.log_softmax(1)[torch.arange(5), classes]
    assert torch.allclose(loss_of(CLASSIFICATION)(logits, classes), -chosen.mean())
    outputs, values = torch.randn(5, 1, generator=generator), torch.randn(5, generator=generator, dtype=torch.float64)
    assert torch.allclose(loss_of(REGRESSION)(outputs, values), ((outputs[:, 0] - values) ** 2).mean().float())


def test_a_broadcast_never_passes_for_a_loss() -> None:
    values = torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64)
    for shape in ((3, 3), (3, 2), (1, 1), (3,), (1, 3)):
        with pytest.raises(FrostlineError, match="one output per row"):
            loss_of(REGRESSION)(torch.zeros(shape), values)
    # What the check is for: (3,) against (3, 1) is a number too, and another one.
    outputs = torch.tensor([[1.0], [-1.0], [2.0]])
    with pytest.warns(UserWarning, match="different to the input size"):
        broadcast = functional.mse_loss(outputs, values.float())
    assert float(loss_of(REGRESSION)(outputs, values)) == 0.0
    assert float(broadcast) > 1.0


@pytest.mark.parametrize(("layout", "n_together"), matrix(LAYOUTS, (1, 3, 8)))
def test_micro_batches_give_the_losses_of_whole_ones(layout: Layout, n_together: int) -> None:
    spec = SPEC.replace(layout=layout)
    whole = _step_losses(Case("bert"), spec, 1)
    parts = _step_losses(Case("bert"), spec.replace(micro_batch_size=n_together), 1)
    assert np.abs(whole - parts).max() < CLOSE
    assert np.array_equal(whole, parts) == (n_together == SPEC.batch_size)


def test_twin_parts_that_all_count_the_same_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _step_losses(Case("bert"), SPEC, 1)
    # 8 rows as 3, 3 and 2: a plain mean over the parts gives the last one too much weight.
    genuine = Descent._mean_loss
    monkeypatch.setattr(Descent, "_mean_loss", lambda self, some: genuine(self, some) * 8 / 3 / len(some.positions))
    parts = _step_losses(Case("bert"), SPEC.replace(micro_batch_size=3), 1)
    assert np.abs(whole - parts).max() > 100 * CLOSE
