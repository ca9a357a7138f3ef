"""One run: a spec goes in, a result (and the trained model) comes out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from frostline import metrics, strategies, tasks
from frostline.analysis import row_variance
from frostline.batches import Encoded, encode
from frostline.checkpoints import start_of, write_checkpoint
from frostline.circumstances import circumstances
from frostline.errors import DataError
from frostline.evaluate import mean_loss, predict, scores
from frostline.forward import Forward
from frostline.keys import derived_seed
from frostline.loop import Checkpoint, Descent, Halted, Trained, Training, train
from frostline.meter import MemoryMeter
from frostline.prefix import Origin, Prefixes, Split
from frostline.records import Cost, EpochRecord, Leg, Paused, Plan, Predictions, RunResult, RunSpec, TaskSpec
from frostline.serial import StoredArray
from frostline.stack import FrozenMovedError, Stack
from frostline.stack.load import fingerprint_of, load_model, load_tokenizer, unknown_share
from frostline.tasks import Rows, TaskData

TRAIN_SAMPLE = 1000
"""Rows of the fixed sample that the training score is taken on."""
TOLD_UNKNOWN = 0.1
"""Share of unknown tokens from which a notice tells of them."""
OnEpoch = Callable[[EpochRecord], None]


@dataclass(frozen=True)
class _Prepared:
    """What a run needs before its model is loaded."""

    data: TaskData
    tokenizer: PreTrainedTokenizerBase
    train: Split
    dev: Split
    prefix_seconds: float
    notes: tuple[str, ...] = ()
    """what went wrong with the prefix states and was mended"""


@dataclass(frozen=True)
class Pace:
    """How fast a run goes."""

    step_seconds: float
    """one training step"""
    row_seconds: float
    """evaluating one row"""


@dataclass
class Runner:
    """Runs specs one after another; keeps data, tokens and prefix states between them."""

    max_cache_bytes: int = 8 * 2**30
    """of the cache of prefix states, all in all"""
    beside: tuple[str, ...] = ()
    """strategies that will be run too: what they start from is computed in one pass, where there is room"""
    _data: dict[TaskSpec, TaskData] = field(default_factory=dict)
    _encoded: dict[tuple[object, ...], Encoded] = field(default_factory=dict)
    _checked: set[tuple[str, str]] = field(default_factory=set)
    _depths: dict[tuple[str, str], int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.prefixes = Prefixes(self.max_cache_bytes)

    def run(self, spec: RunSpec, on_epoch: OnEpoch = lambda _: None) -> RunResult:
        """The result of a spec."""
        return self.train(spec, on_epoch)[0]

    def run_leg(self, spec: RunSpec, leg: Leg, on_epoch: OnEpoch = lambda _: None) -> RunResult | Paused:
        """What a part of a run comes to: paused, or at its end, with the same bits as if it had never paused."""
        with _threads(spec.threads), _flushing():
            return self._train(spec, self._prepare(spec), on_epoch, leg)[0]

    def train(self, spec: RunSpec, on_epoch: OnEpoch = lambda _: None) -> tuple[RunResult, Stack]:
        """The result of a spec, and the model it trained."""
        with _threads(spec.threads), _flushing():
            result, stack = self._train(spec, self._prepare(spec), on_epoch)
        assert isinstance(result, RunResult)
        return result, stack

    def _train(
        self, spec: RunSpec, prepared: _Prepared, on_epoch: OnEpoch, leg: Leg | None = None
    ) -> tuple[RunResult | Paused, Stack]:
        with MemoryMeter(spec.device) as meter, _seeded(spec):
            began = time.perf_counter()
            stack = _load_stack(spec, prepared)
            plan = strategies.parse(spec.strategy).plan(stack)
            training = _training(spec, plan, stack, prepared, on_epoch)
            start = start_of(leg) if leg else None
            trained = _train_as_planned(training, plan, start, leg.until if leg else None)
            if isinstance(trained, Halted):
                assert leg is not None
                write_checkpoint(trained.checkpoint, Path(leg.checkpoint))
                return _paused(training, trained), stack
            train_score = _train_score(training)
            seconds, peak_bytes = time.perf_counter() - began, meter.peak_bytes
            seconds += start.all_seconds if start else 0.0
        cost = _cost(stack, plan, prepared, seconds, peak_bytes)
        return _result(training, plan, prepared, trained, train_score, cost), stack

    def pace(self, spec: RunSpec, n_steps: int) -> Pace:
        """How fast a spec trains and evaluates here, from a few steps; nothing is kept."""
        with self.descending(spec) as (training, descent):
            batches = itertools.islice(itertools.cycle(descent.batches(epoch=1)), n_steps + 1)
            seconds = [_seconds(functools.partial(descent.step, batch)) for batch in batches]
            evaluating = _seconds(lambda: predict(training.forward, training.dev))
        # The first step pays for what the library sets up.
        return Pace(statistics.median(seconds[1:]), evaluating / len(training.dev))

    @contextlib.contextmanager
    def descending(self, spec: RunSpec) -> Iterator[tuple[Training, Descent]]:
        """A run that is ready for its first step: prefix states there, model loaded. What it trains is not kept."""
        with _threads(spec.threads), _flushing(), _seeded(spec):
            prepared = self._prepare(spec)
            stack = _load_stack(spec, prepared)
            plan = strategies.parse(spec.strategy).plan(stack)
            training = _training(spec, plan, stack, prepared, lambda _: None)
            stack.apply(plan.phases[0].trained)
            stack.unmap()
            stack.train(frozen_dropout=spec.frozen_dropout)
            with _spared(training):
                yield training, Descent(training, spec.epochs)

    def _prepare(self, spec: RunSpec) -> _Prepared:
        """Loads what is not there yet: rows, tokens, and the prefix states where the spec says so."""
        tokenizer = load_tokenizer(spec.model)
        if spec.task not in self._data:
            self._data[spec.task] = tasks.load(spec.task)
        data = self._data[spec.task]
        if data.fingerprint != spec.data_fingerprint:
            raise DataError("the data files changed since this run was planned; start again in a new --out folder")
        self._check_model(spec)
        train = Split(self._tokens(spec, data.train, "train", tokenizer))
        dev = Split(self._tokens(spec, data.dev, "dev", tokenizer))
        prepared = _Prepared(data, tokenizer, train, dev, prefix_seconds=0.0)
        if spec.is_cached:
            prepared = self._with_states(spec, prepared)
        return _held_out(prepared) if spec.role == "tuning" else prepared

    def _check_model(self, spec: RunSpec) -> None:
        if (spec.model, spec.model_fingerprint) not in self._checked:
            if fingerprint_of(spec.model) != spec.model_fingerprint:
                raise DataError(f"the model {spec.model} changed since this run was planned; use a new --out folder")
            self._checked.add((spec.model, spec.model_fingerprint))

    def _tokens(self, spec: RunSpec, rows: Rows, name: str, tokenizer: PreTrainedTokenizerBase) -> Encoded:
        key = (spec.model_fingerprint, spec.task, name, spec.max_length, spec.pair_joiner)
        if key not in self._encoded:
            self._encoded[key] = encode(rows, tokenizer, max_length=spec.max_length, pair_joiner=spec.pair_joiner)
        return self._encoded[key]

    def _with_states(self, spec: RunSpec, prepared: _Prepared) -> _Prepared:
        before = self.prefixes.seconds

        @functools.cache
        def load_stack() -> Stack:
            return _load_stack(spec, prepared)

        depth = self._depth(spec, spec.strategy, load_stack)
        if depth is None:
            return prepared
        others = {self._depth(spec, strategy, load_stack) for strategy in self.beside}
        beside = {depth, *(other for other in others if other is not None)}
        train, dev = (
            Split(split.encoded, self.prefixes.states(split.encoded, _origin(spec, name), depth, load_stack, beside))
            for name, split in (("train", prepared.train), ("dev", prepared.dev))
        )
        notes, seconds = tuple(self.prefixes.notes), self.prefixes.seconds - before
        self.prefixes.notes.clear()
        return dataclasses.replace(prepared, train=train, dev=dev, prefix_seconds=seconds, notes=notes)

    def _depth(self, spec: RunSpec, strategy: str, load_stack: Callable[[], Stack]) -> int | None:
        """The depth whose states a strategy starts from, if any."""
        if (known := (spec.model_fingerprint, strategy)) not in self._depths:
            self._depths[known] = _cached_layers(strategies.parse(strategy).plan(load_stack()))
        return self._depths[known]


def _held_out(prepared: _Prepared) -> _Prepared:
    """Some of the training rows take the place of dev, and do not train."""
    train, kind = prepared.train, prepared.data.task.kind
    kept, held = tasks.hold_out(train.encoded.labels, kind)
    return dataclasses.replace(
        prepared, train=dataclasses.replace(train, rows=kept), dev=dataclasses.replace(train, rows=held)
    )


def _origin(spec: RunSpec, split: str) -> Origin:
    return Origin(
        model=spec.model,
        model_fingerprint=spec.model_fingerprint,
        task=spec.task.name,
        split=split,
        layout=spec.layout,
        device=spec.device,
        dtype=spec.cache_dtype,
    )


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def seed_for(spec: RunSpec, purpose: str) -> int:
    """The seed of one thing a run draws: its `head`, the `order` of its rows, its `dropout`."""
    return derived_seed(spec.seed, f"{spec.role} {purpose}")


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    """As many threads as a spec says; what it was comes back after."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _flushing() -> Iterator[None]:
    """Numbers too small for full precision count as 0.

    Without weight decay AdamW's first moment of a token that was not seen for 700 steps is such a number, and a step
    over a matrix of them takes a CPU fifteen times as long.
    """
    was_on = float(torch.tensor(1e-38) / 4) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)


@contextlib.contextmanager
def _seeded(spec: RunSpec) -> Iterator[None]:
    """Torch's global generator, which dropout draws from, seeded for one run; what it was comes back after."""
    devices = list(range(torch.cuda.device_count())) if spec.device == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed_for(spec, "dropout"))
        yield


def _load_stack(spec: RunSpec, prepared: _Prepared) -> Stack:
    model = load_model(
        spec.model,
        head_seed=seed_for(spec, "head"),
        label_names=prepared.data.label_names,
        pad_token_id=prepared.tokenizer.pad_token_id,
    )
    stack = Stack(model.to(spec.device))
    if spec.layout != "padded":
        stack.allow_packing()
    return stack


def _cached_layers(plan: Plan) -> int | None:
    """The depth below which nothing changes in any phase."""
    depths = [phase.cached_layers for phase in plan.phases]
    known = [depth for depth in depths if depth is not None]
    return min(known) if len(known) == len(depths) else None


def _training(spec: RunSpec, plan: Plan, stack: Stack, prepared: _Prepared, on_epoch: OnEpoch) -> Training:
    # With dropout on in the frozen layers they are run as part of the training pass, as plain `requires_grad` does.
    depth = None if spec.frozen_dropout else _cached_layers(plan)
    return Training(
        spec=spec,
        forward=Forward(stack, depth, spec.layout, autocast=spec.precision == "bf16"),
        train=prepared.train,
        dev=prepared.dev,
        metric_names=prepared.data.task.metrics,
        order_seed=seed_for(spec, "order"),
        on_epoch=on_epoch,
    )


def _paused(training: Training, halted: Halted) -> Paused:
    labels, names, outputs = training.dev_sample.labels, training.metric_names, halted.outputs
    found = scores(names, labels, outputs)
    return Paused(
        spec=training.spec,
        n_steps=halted.checkpoint.n_steps,
        metrics=found,
        score=found[names[0]],
        noise=math.sqrt(row_variance(names[0], labels, [outputs])),
        loss=mean_loss(labels, outputs),
        seconds=halted.checkpoint.all_seconds,
    )


def _train_as_planned(
    training: Training, plan: Plan, start: Checkpoint | None = None, until: int | None = None
) -> Trained | Halted:
    """Applies the plan, trains, and makes sure that what was not to move did not."""
    stack = training.forward.stack
    (phase,) = plan.phases
    stack.apply(phase.trained)
    stack.unmap()
    before = stack.digest(phase.trained)
    with _spared(training):
        trained = train(training, phase, start=start, until=until)
    if stack.digest(phase.trained) != before:
        raise FrozenMovedError("a frozen parameter or buffer changed in training; the result is not kept")
    return trained


def _spared(training: Training) -> contextlib.AbstractContextManager[None]:
    """Spares the optimizer the rows of the embedding matrix that cannot move; a plain run is spared nothing."""
    spec = training.spec
    if spec.weight_decay or spec.frozen_dropout or training.forward.depth is not None:
        return contextlib.nullcontext()
    encoded = [split.encoded for split in (training.train, training.dev)]
    padding = torch.tensor([one.padding.token for one in encoded])
    tokens = [torch.from_numpy(one.tokens) for one in encoded]
    return training.forward.stack.vocabulary_cut_to(torch.cat([*tokens, padding]))


def _train_score(training: Training) -> float:
    """The score on a fixed sample of the training rows."""
    sample = training.train.sample("train sample", TRAIN_SAMPLE)
    return metrics.evaluate(training.metric_names[0], sample.labels, predict(training.forward, sample))


def _cost(stack: Stack, plan: Plan, prepared: _Prepared, seconds: float, peak_bytes: int | None) -> Cost:
    states = (prepared.train.states, prepared.dev.states)
    return Cost(
        seconds=seconds,
        prefix_seconds=prepared.prefix_seconds,
        peak_bytes=peak_bytes,
        cache_bytes=sum({id(s): s.values.nbytes for s in states if s is not None}.values()),
        trained_parameters=stack.count({name for phase in plan.phases for name in phase.trained}),
        total_parameters=stack.count(stack.all_parameters),
    )


def _result(
    training: Training, plan: Plan, prepared: _Prepared, trained: Trained, train_score: float, cost: Cost
) -> RunResult:
    spec, data, dev = training.spec, prepared.data, prepared.dev
    last = trained.epochs[-1].metrics
    return RunResult(
        spec=spec,
        plan=plan,
        epochs=tuple(trained.epochs),
        score=last[data.task.metrics[0]],
        metrics=last,
        chance=metrics.chance(data.task.metrics[0], dev.labels),
        train_score=train_score,
        predictions=Predictions(
            rows=StoredArray.of(dev.row_ids.astype(np.int32)),
            labels=StoredArray.of(dev.labels),
            outputs=StoredArray.of(trained.outputs),
        ),
        label_names=data.label_names,
        n_train=len(prepared.train),
        n_dev=len(dev),
        n_layers=training.forward.stack.n_layers,
        cost=cost,
        notices=(*data.notices, *_cut_notices(spec, prepared), *_unknown_notices(prepared), *prepared.notes),
        circumstances=circumstances(spec.device),
    )


def _unknown_notices(prepared: _Prepared) -> list[str]:
    share = unknown_share(prepared.tokenizer, prepared.train.encoded.tokens)
    return [f"{share:.0%} of the training tokens are unknown to the tokenizer"] if share > TOLD_UNKNOWN else []


def _cut_notices(spec: RunSpec, prepared: _Prepared) -> list[str]:
    splits = (("training", prepared.train.encoded), ("dev", prepared.dev.encoded))
    return [
        f"{encoded.n_cut} of {len(encoded)} {name} texts were cut at {spec.max_length} tokens"
        for name, encoded in splits
        if encoded.n_cut
    ]
