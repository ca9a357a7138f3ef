"""One run: a spec goes in, a result (and the trained model) comes out."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from frostline import strategies
from frostline.analysis import row_variance
from frostline.model.added.readers import CHOSEN, LinearReader
from frostline.model.added.redraw import redraw
from frostline.model.load import unknown_share
from frostline.model.stack import FrozenMovedError, Stack
from frostline.records.environment import circumstances
from frostline.records.keys import derived_seed
from frostline.records.plans import Phase, Plan
from frostline.records.results import Cost, EpochRecord, Leg, Paused, Predictions, RunResult
from frostline.records.serial import StoredArray
from frostline.records.specs import RunSpec
from frostline.training.checkpoints import start_of, write_checkpoint
from frostline.training.evaluate import predict, scores
from frostline.training.fit import LinearFit
from frostline.training.forward import Forward
from frostline.training.loop import Checkpoint, Descent, Halted, Trained, Training, train
from frostline.training.memory import MemoryMeter
from frostline.training.prefix import Prefixes
from frostline.training.prepare import Prepared, Preparer, load_stack, seed_for

TRAIN_SAMPLE = 1000
"""Rows of the fixed sample that the training score is taken on."""
TOLD_UNKNOWN = 0.1
"""Share of unknown tokens above which there is a warning."""
OnEpoch = Callable[[EpochRecord], None]


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

    def __post_init__(self) -> None:
        self.prefixes = Prefixes(self.max_cache_bytes)
        self.preparer = Preparer(self.prefixes)

    def run(self, spec: RunSpec, on_epoch: OnEpoch = lambda _: None) -> RunResult:
        """The result of a spec."""
        return self.train(spec, on_epoch)[0]

    def run_leg(self, spec: RunSpec, leg: Leg, on_epoch: OnEpoch = lambda _: None) -> RunResult | Paused:
        """What a part of a run comes to: paused, or at its end, with the same bits as if it had never paused."""
        with _threads(spec.threads), _flushing():
            return self._train(spec, self.preparer.prepare(spec), on_epoch, leg)[0]

    def train(self, spec: RunSpec, on_epoch: OnEpoch = lambda _: None) -> tuple[RunResult, Stack]:
        """The result of a spec, and the model it trained."""
        with _threads(spec.threads), _flushing():
            result, stack = self._train(spec, self.preparer.prepare(spec), on_epoch)
        assert isinstance(result, RunResult)
        return result, stack

    def _train(
        self, spec: RunSpec, prepared: Prepared, on_epoch: OnEpoch, leg: Leg | None = None
    ) -> tuple[RunResult | Paused, Stack]:
        with MemoryMeter(spec.device) as meter, _seeded(spec):
            began = time.perf_counter()
            run = _begun(spec, prepared, on_epoch)
            start = start_of(leg) if leg else None
            trained = run.fit() if run.plan.fit == "closed_form" else run.train(start, leg.until if leg else None)
            if isinstance(trained, Halted):
                assert leg is not None
                write_checkpoint(trained.checkpoint, Path(leg.checkpoint))
                return _paused(run.training, trained), run.stack
            train_score = run.train_score(trained)
            seconds, peak_bytes = time.perf_counter() - began, meter.peak_bytes
            seconds += start.all_seconds if start else 0.0
        return _result(run, trained, train_score, _cost(run, seconds, peak_bytes)), run.stack

    def begin(self, spec: RunSpec) -> tuple[Stack, Plan]:
        """The model of a run before its first step, weights drawn anew and modules put in; and its plan."""
        with _seeded(spec):
            run = _begun(spec, self.preparer.prepare(spec), lambda _: None)
        return run.stack, run.plan

    def pace(self, spec: RunSpec, n_steps: int) -> Pace:
        """How fast a spec trains and evaluates here, from a few steps; nothing is kept."""
        if strategies.parse(spec.strategy).rates == "none":  # no steps: a whole fit, told by the row
            result = self.run(spec)
            return Pace(0.0, result.cost.seconds / (result.n_train + result.n_dev))
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
            run = _begun(spec, self.preparer.prepare(spec), lambda _: None)
            phase = run.plan.phase_at((spec.epochs + 1) // 2, spec.epochs)  # where phases differ, one in the middle
            training = run.training_in(phase)
            run.stack.apply(phase.trained)
            run.stack.unmap()
            run.stack.train(frozen_dropout=spec.frozen_dropout)
            with _spared(training):
                yield training, Descent(training)


@dataclass(frozen=True)
class _Run:
    """A run whose model is as its plan wants it before the first step."""

    spec: RunSpec
    prepared: Prepared
    stack: Stack
    plan: Plan
    on_epoch: OnEpoch

    @property
    def training(self) -> Training:
        """What the last epoch works on."""
        return self.training_in(self.plan.phase_at(self.spec.epochs, self.spec.epochs))

    def training_in(self, phase: Phase) -> Training:
        """What the loop works on in a phase."""
        spec = self.spec
        # With dropout on in the frozen layers they are run as part of the training pass, as plain `requires_grad` does.
        depth = None if spec.frozen_dropout else phase.cached_layers
        split, dev = self.prepared.at(depth)
        return Training(
            spec=spec,
            forward=Forward(self.stack, depth, spec.layout, autocast=spec.precision == "bf16"),
            train=split,
            dev=dev,
            kind=self.prepared.data.kind,
            metric_names=self.prepared.data.task.metrics,
            order_seed=seed_for(spec, "order"),
            on_epoch=self.on_epoch,
        )

    def train(self, start: Checkpoint | None, until: int | None) -> Trained | Halted:
        """Trains phase after phase, one way down."""
        epochs: list[EpochRecord] = []
        descent: Descent | None = None
        numbers = range(1, self.spec.epochs + 1)
        for phase, group in itertools.groupby(numbers, lambda epoch: self.plan.phase_at(epoch, self.spec.epochs)):
            training = self.training_in(phase)
            with _verified(self.stack, phase), _spared(training):
                if descent is None:
                    descent = Descent(training)
                else:
                    descent.go_on_with(training)
                trained = train(training, descent, max(group), start=start, until=until)
            if isinstance(trained, Halted):
                return trained
            epochs += trained.epochs
        return Trained(epochs, trained.outputs)

    def fit(self) -> Trained:
        """Fits what is chosen in one go."""
        spec, task, (phase,) = self.spec, self.prepared.data.task, self.plan.phases
        kind = self.prepared.data.kind
        train_split, dev = self.prepared.train, self.prepared.dev
        reader = self.stack.reader
        assert isinstance(reader, LinearReader)
        began = time.perf_counter()
        before = self.stack.digest((*phase.trained, CHOSEN))
        fit = LinearFit(
            kind=kind,
            metric=task.metrics[0],
            n_outputs=reader.linear.out_features,
            train=self.prepared.pooled[id(train_split.encoded)],
            train_labels=train_split.labels,
            dev=self.prepared.pooled[id(dev.encoded)],
            dev_labels=dev.labels,
            seed=seed_for(spec, "held out"),
            threads=spec.threads,
        )
        fitted = fit.run()
        weight, bias = (torch.from_numpy(values) for values in (fitted.model.weight, fitted.model.bias))
        reader.choose(fitted.chosen.depth, fitted.chosen.pooling, weight, bias)
        if self.stack.digest((*phase.trained, CHOSEN)) != before:
            raise FrozenMovedError("a frozen parameter or buffer changed in a fit; the result is not kept")
        outputs, train_outputs = fit.outputs(fitted, fit.dev), fit.outputs(fitted, fit.train)
        record = EpochRecord(
            epoch=1,
            train_loss=kind.mean_loss(fit.train_labels, train_outputs),
            metrics=scores(kind, task.metrics, fit.dev_labels, outputs),
            learning_rate=0.0,
            n_steps=0,
            seconds=time.perf_counter() - began,
        )
        self.on_epoch(record)
        return Trained([record], outputs, train_outputs, fitted.probes)

    def train_score(self, trained: Trained) -> float:
        """The score on a fixed sample of the training rows."""
        training = self.training
        sample = training.train.sample("train sample", TRAIN_SAMPLE)
        known = trained.train_outputs
        outputs = predict(training.forward, sample) if known is None else known[sample.positions]
        return training.kind.score(training.metric_names[0], sample.labels, outputs)


def _begun(spec: RunSpec, prepared: Prepared, on_epoch: OnEpoch) -> _Run:
    """A run with its model loaded, weights drawn anew and modules put in, as its plan says."""
    stack, strategy, seed = load_stack(spec, prepared), strategies.parse(spec.strategy), seed_for(spec, "head")
    plan = strategy.plan(stack)
    if plan.edits:
        redraw(stack.model, plan.edits, seed)
    if plan.added:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(seed, "added"))
            strategy.put_in(stack)
    return _Run(spec, prepared, stack, plan, on_epoch)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


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


def _paused(training: Training, halted: Halted) -> Paused:
    kind, names = training.kind, training.metric_names
    labels, outputs = training.dev_sample.labels, halted.outputs
    found = scores(kind, names, labels, outputs)
    return Paused(
        spec=training.spec,
        n_steps=halted.checkpoint.n_steps,
        metrics=found,
        score=found[names[0]],
        noise=math.sqrt(row_variance(kind, names[0], labels, [outputs])),
        loss=kind.mean_loss(labels, outputs),
        seconds=halted.checkpoint.all_seconds,
    )


@contextlib.contextmanager
def _verified(stack: Stack, phase: Phase) -> Iterator[None]:
    """Lets a phase's parameters train, and makes sure that what was not to move did not."""
    stack.apply(phase.trained)
    stack.unmap()
    before = stack.digest(phase.trained)
    yield
    if stack.digest(phase.trained) != before:
        raise FrozenMovedError("a frozen parameter or buffer changed in training; the result is not kept")


def _spared(training: Training) -> contextlib.AbstractContextManager[None]:
    """Spares the optimizer the rows of the embedding matrix that cannot move; a plain run is spared nothing."""
    spec = training.spec
    if spec.weight_decay or spec.frozen_dropout or training.forward.depth is not None:
        return contextlib.nullcontext()
    encoded = [split.encoded for split in (training.train, training.dev)]
    padding = torch.tensor([one.padding.token for one in encoded])
    tokens = [torch.from_numpy(one.tokens) for one in encoded]
    return training.forward.stack.vocabulary_cut_to(torch.cat([*tokens, padding]))


def _cost(run: _Run, seconds: float, peak_bytes: int | None) -> Cost:
    return Cost(
        seconds=seconds,
        prefix_seconds=run.prepared.prefix_seconds,
        peak_bytes=peak_bytes,
        cache_bytes=run.prepared.cache_bytes,
        trained_parameters=run.stack.count(run.plan.trained(run.spec.epochs)),
        total_parameters=run.stack.count(run.stack.all_parameters),
    )


def _result(run: _Run, trained: Trained, train_score: float, cost: Cost) -> RunResult:
    spec, prepared, data, dev = run.spec, run.prepared, run.prepared.data, run.prepared.dev
    last = trained.epochs[-1].metrics
    return RunResult(
        spec=spec,
        plan=run.plan,
        epochs=tuple(trained.epochs),
        score=last[data.task.metrics[0]],
        metrics=last,
        chance=data.kind.chance(data.task.metrics[0], dev.labels),
        train_score=train_score,
        predictions=Predictions(
            rows=StoredArray.of(dev.row_ids.astype(np.int32)),
            labels=StoredArray.of(dev.labels),
            outputs=StoredArray.of(trained.outputs),
        ),
        label_names=data.label_names,
        n_train=len(prepared.train),
        n_dev=len(dev),
        n_layers=run.stack.n_layers,
        cost=cost,
        warnings=(*data.warnings, *_cut_warnings(spec, prepared), *_unknown_warnings(prepared), *prepared.notes),
        circumstances=circumstances(spec.device),
        probes=trained.probes,
    )


def _unknown_warnings(prepared: Prepared) -> list[str]:
    share = unknown_share(prepared.tokenizer, prepared.train.encoded.tokens)
    return [f"{share:.0%} of the training tokens are unknown to the tokenizer"] if share > TOLD_UNKNOWN else []


def _cut_warnings(spec: RunSpec, prepared: Prepared) -> list[str]:
    splits = (("training", prepared.train.encoded), ("dev", prepared.dev.encoded))
    return [
        f"{encoded.n_cut} of {len(encoded)} {name} texts were cut at {spec.max_length} tokens"
        for name, encoded in splits
        if encoded.n_cut
    ]
