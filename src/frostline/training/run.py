"""One run: a spec goes in, a result (and the trained model) comes out.

The walk: prepare (rows, tokens, prefix states) → load the model and apply the plan's edits → train phase by phase in
the loop, or fit in closed form → score → measure, if asked → result. A run may stop at a pause and go on later.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from frostline import strategies
from frostline.analysis import row_variance
from frostline.model.added.redraw import redraw
from frostline.model.stack import FrozenMovedError, Stack
from frostline.records.arrays import StoredArray
from frostline.records.environment import changed_packages, current_environment, versions
from frostline.records.keys import derived_seed
from frostline.records.plans import Phase, Plan
from frostline.records.results import Cost, EpochRecord, PausedRun, Predictions, RunResult
from frostline.records.specs import RunSpec
from frostline.training.batches import n_epochs
from frostline.training.checkpoints import Checkpoint, from_bytes, to_bytes
from frostline.training.device.settings import device_facts, torch_settings
from frostline.training.forward import DivergedError, Forward
from frostline.training.inside.contrastive import contrasted
from frostline.training.inside.measuring import measured
from frostline.training.inside.without_steps import TRAIN_SAMPLE, as_saved, fitted
from frostline.training.loop import Descent, PausedTraining, Trained, Training, diverged, scores, train
from frostline.training.memory import MemoryMeter
from frostline.training.prefix import Prefixes
from frostline.training.prepare import Prepared, Preparer, load_stack, seed_for, seeded

OnEpoch = Callable[[EpochRecord], None]

versions()  # remembers them at import: packages may be replaced on disk while this process runs


@dataclass
class Runner:
    """Runs specs one after another and keeps data, tokens and prefix states between them."""

    max_cache_bytes: int = 8 * 2**30
    """size limit of the prefix cache"""

    def __post_init__(self) -> None:
        self.prefixes = Prefixes(self.max_cache_bytes)
        self.preparer = Preparer(self.prefixes)

    def run(self, spec: RunSpec, on_epoch: OnEpoch = lambda _: None) -> RunResult:
        """The result of a spec."""
        return self.train(spec, on_epoch)[0]

    def advance(
        self,
        spec: RunSpec,
        on_epoch: OnEpoch = lambda _: None,
        *,
        until: int | None = None,
        checkpoint: bytes | memoryview | None = None,
        nearby: Sequence[str] = (),
    ) -> RunResult | PausedRun:
        """Takes a run to its next pause or to its end. The result has the same bits as without pauses.

        Args:
            spec: the run.
            on_epoch: called after each epoch.
            until: pause after this many steps, counted over the whole run; None: go on to the end.
            checkpoint: what the run goes on from; None: it starts at its first step.
            nearby: strategies that will run too; their prefix states may be computed in the same pass.
        """
        with torch_settings(spec.threads):
            prepared = self.preparer.prepare(spec, nearby)
            return self._train(spec, prepared, on_epoch, from_bytes(checkpoint, spec.key, until), until)[0]

    def train(self, spec: RunSpec, on_epoch: OnEpoch = lambda _: None) -> tuple[RunResult, Stack]:
        """The result of a spec, and the model it trained."""
        with torch_settings(spec.threads):
            result, stack = self._train(spec, self.preparer.prepare(spec), on_epoch)
        assert isinstance(result, RunResult)
        return result, stack

    def _train(
        self,
        spec: RunSpec,
        prepared: Prepared,
        on_epoch: OnEpoch,
        start: Checkpoint | None = None,
        until: int | None = None,
    ) -> tuple[RunResult | PausedRun, Stack]:
        with MemoryMeter(spec.device) as meter, seeded(spec):
            began = time.perf_counter()
            run = _begun(spec, prepared, on_epoch)
            trained = run.outcome(start, until)
            if isinstance(trained, PausedTraining):
                return _paused(run.training, trained), run.stack
            train_score = run.train_score(trained)
            seconds, peak_bytes = time.perf_counter() - began, meter.peak_bytes
            seconds += start.all_seconds if start else 0.0
            result = _result(run, trained, train_score, _cost(run, seconds, peak_bytes))
            if not trained.is_diverged:
                result = result.replace(measured=measured(prepared, run.training, run.label_scale))
        return result, run.stack

    def begin(self, spec: RunSpec) -> tuple[Stack, Plan]:
        """The model of a run before its first step, re-initialised and with added modules, and its plan."""
        with seeded(spec):
            run = _begun(spec, self.preparer.prepare(spec), lambda _: None)
        return run.stack, run.plan

    @contextlib.contextmanager
    def descending(self, spec: RunSpec) -> Iterator[tuple[Training, Descent]]:
        """A run that is ready for its first step: prefix states computed, model loaded. Its model is not kept."""
        with torch_settings(spec.threads), seeded(spec):
            run = _begun(spec, self.preparer.prepare(spec), lambda _: None)
            phase = run.plan.phase_at((spec.epochs + 1) // 2, spec.epochs)  # if there are several phases, a middle one
            training = run.training_in(phase)
            run.stack.apply(phase.trained)
            run.stack.unmap()
            run.stack.train(frozen_dropout=spec.frozen_dropout)
            with _spared(training):
                yield training, Descent(training)


@dataclass(frozen=True)
class _Run:
    """A run whose model is ready for the first step: loaded, edited and extended as the plan says."""

    spec: RunSpec
    prepared: Prepared
    stack: Stack
    plan: Plan
    on_epoch: OnEpoch

    @property
    def training(self) -> Training:
        """What the last epoch trains."""
        return self.training_in(self.plan.phase_at(self.n_epochs, self.n_epochs))

    @property
    def n_epochs(self) -> int:
        """Of the whole run."""
        return n_epochs(self.spec, len(self.prepared.train))

    @property
    def label_scale(self) -> tuple[float, float] | None:
        """Mean and spread of the training labels, if the model learned standardised ones; no closed-form fit does."""
        return None if self.plan.fit == "closed_form" else self.training.label_scale

    def training_in(self, phase: Phase) -> Training:
        """What a phase trains, on which rows."""
        spec = self.spec
        # With dropout on, frozen layers are part of the training pass, as with plain `requires_grad=False`.
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

    def outcome(self, start: Checkpoint | None, until: int | None) -> Trained | PausedTraining:
        """Trains, fits or only scores, as the plan says."""
        match self.plan.fit:
            case "closed_form":
                return fitted(self.training, self.prepared, self.plan.phases[0].trained)
            case "contrastive":
                return contrasted(self.training, self.prepared, self.plan.phases[0].trained)
            case "none":
                return as_saved(self.training)
            case "gradient":
                return self.train(start, until)

    def train(self, start: Checkpoint | None, until: int | None) -> Trained | PausedTraining:
        """Trains phase after phase with one optimizer.

        A checkpoint belongs to the phase of its unfinished epoch. Earlier phases are entered, so that the optimizer
        has the same parameter groups as before the pause, but they do not train again.
        """
        descent: Descent | None = None
        outputs: NDArray[np.float32] | None = None
        numbers = range(1, self.n_epochs + 1)
        for phase, group in itertools.groupby(numbers, lambda epoch: self.plan.phase_at(epoch, self.n_epochs)):
            training, last_epoch = self.training_in(phase), max(group)
            try:
                with _verified(self.stack, phase), _spared(training):
                    if descent is None:
                        descent = Descent(training)
                    else:
                        descent.go_on_with(training)
                    if start is not None and last_epoch < start.epoch:
                        continue
                    found = train(training, descent, last_epoch, start=start, until=until)
            except DivergedError:
                assert descent is not None, "only training diverges"
                return diverged(training, descent.epochs, len(self.prepared.data.label_names))
            start = None
            if isinstance(found, PausedTraining):
                return found
            outputs = found
        assert descent is not None and outputs is not None, "a run has at least one epoch"  # noqa: PT018
        return Trained(descent.epochs, outputs)

    def train_score(self, trained: Trained) -> float | None:
        """The score on a fixed sample of the training rows; None in a run that chooses a learning rate."""
        if self.spec.role != "replicate":  # it would be a quarter of a race's one-epoch run
            return None
        training = self.training
        sample = training.train.sample("train sample", TRAIN_SAMPLE)
        known = trained.train_outputs
        of_known = np.searchsorted(training.train.positions, sample.positions)
        outputs = training.predict(sample) if known is None else known[of_known]
        return training.kind.score(training.metric_names[0], sample.labels, outputs)


def _begun(spec: RunSpec, prepared: Prepared, on_epoch: OnEpoch) -> _Run:
    """A run with its model loaded, weights re-initialised and modules added, as its plan says."""
    stack, strategy, seed = load_stack(spec, prepared), strategies.parse(spec.strategy), seed_for(spec, "head")
    plan = strategy.plan(stack)
    if plan.edits:
        redraw(stack.model, plan.edits, seed)
    if plan.added:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(seed, "added"))
            strategy.add_modules(stack)
    return _Run(spec, prepared, stack, plan, on_epoch)


@contextlib.contextmanager
def _verified(stack: Stack, phase: Phase) -> Iterator[None]:
    """Lets the parameters of a phase train, and checks afterwards that no other parameter moved."""
    stack.apply(phase.trained)
    stack.unmap()
    before = stack.digest(phase.trained)
    yield
    if stack.digest(phase.trained) != before:
        raise FrozenMovedError("a frozen parameter or buffer changed in training; the result is not stored")


def _spared(training: Training) -> contextlib.AbstractContextManager[None]:
    """Cuts the embedding matrix to the rows that can move, which saves the optimizer most of its work there."""
    spec = training.spec
    if spec.weight_decay or spec.frozen_dropout or training.forward.depth is not None:
        return contextlib.nullcontext()
    encoded = [split.encoded for split in (training.train, training.dev)]
    padding = torch.tensor([one.padding.token for one in encoded])
    tokens = [torch.from_numpy(one.tokens) for one in encoded]
    return training.forward.stack.vocabulary_cut_to(torch.cat([*tokens, padding]))


def _paused(training: Training, paused: PausedTraining) -> PausedRun:
    """The record of a pause: what the run scores on a sample of dev, and what it goes on from."""
    kind, names = training.kind, training.metric_names
    labels, outputs = training.dev_sample.labels, paused.outputs
    found = scores(kind, names, labels, outputs)
    return PausedRun(
        spec=training.spec,
        n_steps=paused.checkpoint.n_steps,
        metrics=found,
        score=found[names[0]],
        noise=math.sqrt(row_variance(kind, names[0], labels, [outputs])),
        loss=kind.mean_loss(labels, outputs),
        seconds=paused.checkpoint.all_seconds,
        checkpoint=to_bytes(paused.checkpoint, training.spec.key),
    )


def _cost(run: _Run, seconds: float, peak_bytes: int | None) -> Cost:
    return Cost(
        seconds=seconds,
        prefix_seconds=run.prepared.prefix_seconds,
        peak_bytes=peak_bytes,
        cache_bytes=run.prepared.cache_bytes,
        trained_parameters=run.stack.count(run.plan.trained(run.n_epochs)),
        total_parameters=run.stack.count(run.stack.all_parameters),
    )


def _result(run: _Run, trained: Trained, train_score: float | None, cost: Cost) -> RunResult:
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
        warnings=(*data.warnings, *prepared.warnings(spec), *prepared.notes, *changed_packages()),
        environment=current_environment(spec.device, **device_facts(spec.device), threads=str(spec.threads)),
        diverged=trained.is_diverged,
        label_scale=run.label_scale,
        probes=trained.probes,
    )
