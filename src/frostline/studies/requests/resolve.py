"""Fills in every default of a request, once: the first call writes what it resolved, later calls read it.

Reads the model and the data, each only once per call, and trains nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar, final

import numpy as np
import torch

from frostline.errors import UsageError
from frostline.kinds import kind_of
from frostline.model.added.readers import POOLINGS
from frostline.model.load import Pretrained, describe, load_model, unknown_share
from frostline.model.stack import Stack
from frostline.records.keys import key_of
from frostline.records.plans import Plan
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.serial import Record, request_fields
from frostline.records.specs import Layout, RunSpec, TaskSpec
from frostline.storage.prefix_cache import default_folder, free_bytes
from frostline.storage.runs import FolderIdentity, Store
from frostline.strategies import Full, RankedHeads, Strategy, parse
from frostline.studies.planning.axis import axis_of
from frostline.studies.requests.axes import on_axis
from frostline.studies.requests.micro_batches import rows_at_once
from frostline.studies.requests.parse import depths_of
from frostline.studies.requests.task_reader import TaskReader
from frostline.tasks import TaskData
from frostline.training.batches import Encoded, encode, n_steps
from frostline.training.device.settings import pick_device
from frostline.training.prefix import estimated_bytes

MOST_UNKNOWN = 0.5
"""Largest share of unknown tokens that is trained on: above it there is nothing to learn from (TRAPS 31)."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})

RecordT = TypeVar("RecordT", bound=Record)


@final
@dataclass(frozen=True)
class Inputs:
    """The model and the data of a request, read and checked."""

    pretrained: Pretrained
    data: TaskData
    train: Encoded
    dev: Encoded

    @property
    def n_rows(self) -> int:
        """Training and dev rows."""
        return len(self.train) + len(self.dev)

    def prefix_bytes(self, request: StudyRequest) -> int:
        """Size of the prefix states at one depth."""
        width, dtype = self.pretrained.width, request.cache_dtype
        return sum(estimated_bytes(encoded, width, dtype) for encoded in (self.train, self.dev))


@final
@dataclass
class Resolver:
    """Resolves the requests of one call, for one output folder."""

    out: Path
    max_cache_bytes: int
    reader: TaskReader = field(default_factory=TaskReader)
    _store: Store | None = None
    _pretrained: dict[str, Pretrained] = field(default_factory=dict)
    _inputs: dict[object, Inputs] = field(default_factory=dict)
    _stacks: dict[object, Stack] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """The store of the output folder, open since the first request was resolved."""
        assert self._store is not None, "a request is resolved first"
        return self._store

    def resolve(self, command: str, request: StudyRequest, *, needs_depth: bool = True) -> ResolvedRequest:
        """The request as this call, or an earlier one with the same request, resolved it."""
        resolved, asked = self.fill_in(request, needs_depth=needs_depth), request_fields(request)
        return self.kept(command, asked, ResolvedRequest) or self.keep(command, asked, self.placed(resolved))

    def placed(self, filled: ResolvedRequest) -> ResolvedRequest:
        """The request with the values of its axis; as it is, if that is depth."""
        return filled if filled.request.axis == "depth" else on_axis(self, filled)

    def named(self, resolved: ResolvedRequest, strategy: Strategy) -> Strategy:
        """The strategy with its attention heads ranked, on training rows, and named; any other as it is."""
        if not isinstance(strategy, RankedHeads):
            return strategy
        from frostline.studies.planning.ranking import resolve_heads

        return resolve_heads(self, resolved, strategy)

    def kept(self, command: str, asked: object, kind: type[RecordT]) -> RecordT | None:
        """What an earlier call that asked for this resolved; None if this is the first."""
        path = self.store.request_path(command, key_of(asked))
        return self.store.read_request(path, kind) if path.exists() else None

    def keep(self, command: str, asked: object, resolved: RecordT) -> RecordT:
        """What the first call that asked for this resolved; this call's, if it is the first."""
        path = self.store.request_path(command, key_of(asked))
        self.store.put_request(path, resolved)
        return self.store.read_request(path, type(resolved))

    def fill_in(self, request: StudyRequest, *, needs_depth: bool) -> ResolvedRequest:
        """The request with every default filled in; nothing is written but the folder's identity."""
        task = self.reader.resolve(request.task)
        pretrained = self.pretrained(request.model)
        if needs_depth:
            pretrained.check_depth()
        depths = depths_of(request, pretrained.n_layers)
        max_length = min(request.max_length, pretrained.max_tokens)
        inputs = self._read(task, pretrained, max_length)
        self._open_store(request.model, pretrained, task, inputs.data)
        base = _base_spec(request, inputs, task, max_length)
        is_cached = request.cache and not request.frozen_dropout and self._has_room(inputs.prefix_bytes(request))
        return ResolvedRequest(
            request=request,
            base=base,
            n_layers=pretrained.n_layers,
            depths=depths,
            is_cached=is_cached,
            has_races=True,
            n_steps=n_steps(base, len(inputs.train)) if request.line_search == "race" else None,
        )

    def inputs(self, resolved: ResolvedRequest) -> Inputs:
        """The model and the data of a resolved request."""
        base = resolved.base
        return self._read(base.task, self.pretrained(base.model), base.max_length)

    def pretrained(self, model: str) -> Pretrained:
        """What is known of a model before any run."""
        if model not in self._pretrained:
            self._pretrained[model] = describe(model)
        return self._pretrained[model]

    def stack(self, resolved: ResolvedRequest) -> Stack:
        """The model with the head that the task wants, to plan on; nobody trains it."""
        base, data = resolved.base, self.inputs(resolved).data
        key = (base.model, data.task.kind, data.label_names)
        if key not in self._stacks:
            head = kind_of(base.task).head(data.label_names)
            model = load_model(base.model, head_seed=0, head=head, pad_token_id=None, revision=base.model_revision)
            self._stacks[key] = Stack(model)
        return self._stacks[key]

    def plan(self, resolved: ResolvedRequest, strategy: Strategy) -> Plan:
        """What a strategy decides for the model; a UsageError where the model or the task does not allow it."""
        strategy.check_task(resolved.base.task)
        if strategy != Full():
            self.inputs(resolved).pretrained.check_depth()
        return strategy.plan(self.stack(resolved))

    def describe_depths(self, resolved: ResolvedRequest) -> list[str]:
        """What each depth of a curve or a search trains, and how prefix states are kept."""
        axis = axis_of(resolved)
        plans = {strategy.name: self.plan(resolved, strategy) for strategy in axis.strategies.values()}
        labels = {} if axis.named is None else {one.strategy.name: one.label for one in axis.values}
        lines = self.describe(resolved, plans, labels)
        size = f"about {self.inputs(resolved).prefix_bytes(resolved.request) / 1e6:.0f} MB per depth"
        kept = f"cached, {size}" if resolved.is_cached else "computed in every step"
        return [*lines, f"frozen-layer outputs are {kept}"]

    def describe(
        self, resolved: ResolvedRequest, plans: Mapping[str, Plan], labels: Mapping[str, str] = NO_LABELS
    ) -> list[str]:
        """The model, the data and its warnings, and what each strategy trains; it is called by its label, or name."""
        base, data, stack = resolved.base, self.inputs(resolved).data, self.stack(resolved)
        kind = base.task.kind or ""
        strategies = {name: parse(name).resolved(resolved.n_layers, kind) for name in plans}
        total = stack.count(stack.all_parameters)
        rows = f"{len(data.train):,} training rows, {len(data.dev):,} dev rows"
        return [
            f"{base.model}: {resolved.n_layers} layers, {total:,} parameters with the head",
            f"{base.task.name}: {rows}, score: {base.task.metric}",
            *(f"warning: {warning}" for warning in data.warnings),
            *(
                f"{labels.get(name, name)}: {trained_words(strategies[name], plan, stack, base.epochs)}"
                for name, plan in plans.items()
            ),
        ]

    def check_pooled(self, resolved: ResolvedRequest) -> None:
        """Raises where the pooled states of all layers would be more than the cache may hold."""
        inputs = self.inputs(resolved)
        n_bytes = inputs.n_rows * (resolved.n_layers + 1) * len(POOLINGS) * inputs.pretrained.width * 4
        if n_bytes > self.max_cache_bytes > 0:
            raise UsageError(
                f"features of {inputs.n_rows:,} rows take {n_bytes / 2**30:.1f} GB, more than --cache-max-gb "
                f"{self.max_cache_bytes / 2**30:g}; use fewer rows (--max-train) or a larger --cache-max-gb"
            )

    def _read(self, task: TaskSpec, pretrained: Pretrained, max_length: int) -> Inputs:
        key = (task, pretrained.fingerprint, max_length)
        if key not in self._inputs:
            data = self.reader.load(task)
            train, dev = (
                encode(rows, pretrained.tokenizer, max_length=max_length, pair_joiner=pretrained.pair_joiner)
                for rows in (data.train, data.dev)
            )
            _check_known(train, pretrained)
            self._inputs[key] = Inputs(pretrained, data, train, dev)
        return self._inputs[key]

    def _open_store(self, model: str, pretrained: Pretrained, task: TaskSpec, data: TaskData) -> None:
        if self._store is None:
            identity = FolderIdentity(
                model=model,
                model_fingerprint=pretrained.fingerprint,
                task=task.name,
                data_fingerprint=data.fingerprint,
            )
            self._store = Store.open(self.out, identity)

    def _has_room(self, n_bytes: int) -> bool:
        """Whether the prefix states of one depth fit: under the limit, and on the disk."""
        return n_bytes <= self.max_cache_bytes and n_bytes <= free_bytes(default_folder())


def trained_words(strategy: Strategy, plan: Plan, stack: Stack, n_epochs: int) -> str:
    """What a plan trains, counting the modules that it adds; the model itself is not touched."""
    if plan.added:
        stack = Stack(copy.deepcopy(stack.model))
        with torch.random.fork_rng(devices=[]):
            strategy.add_modules(stack)
    count, total = stack.count(plan.trained(n_epochs)), stack.count(stack.all_parameters)
    words = [f"trains {count:,} ({count / total:.1%})"]
    if plan.added:
        words.append(f"adds {len(plan.added)} {'module' if len(plan.added) == 1 else 'modules'}")
    if plan.edits:
        words.append(f"re-initialises {stack.count(plan.edits):,}")
    return ", ".join(words)


def _base_spec(request: StudyRequest, inputs: Inputs, task: TaskSpec, max_length: int) -> RunSpec:
    """The full model's run, with the first rate and the first seed."""
    pretrained, device = inputs.pretrained, pick_device(request.device)
    layout = _layout(request, pretrained, device)
    n_together, because = rows_at_once(request, pretrained, inputs.train.lengths, device, layout)
    return RunSpec(
        model=request.model,
        model_revision=pretrained.revision,
        model_fingerprint=pretrained.fingerprint,
        task=task,
        data_fingerprint=inputs.data.fingerprint,
        strategy="full",
        learning_rate=request.learning_rates[0],
        epochs=request.epochs or pretrained.epochs,
        batch_size=request.batch_size,
        micro_batch_size=n_together,
        micro_batch_because=because,
        max_length=max_length,
        seed=request.seeds[0],
        weight_decay=request.weight_decay,
        warmup_share=request.warmup_share,
        clip_norm=request.clip_norm,
        is_cached=False,
        frozen_dropout=request.frozen_dropout,
        layout=layout,
        padded_because=pretrained.layout.reason if device == "cpu" else None,
        pair_joiner=pretrained.pair_joiner if task.text_pair else None,
        threads=request.threads,
        device=device,
        master_seed=request.master_seed,
        max_steps=request.max_steps,
        subset_seed=None if request.subset_of is None else request.seeds[0],
        subset_of=request.subset_of,
        is_balanced=request.is_balanced,
        passes=request.passes,
        standardised=request.protocol == "tuned" and kind_of(task).class_names is None,
        precision=_precision(request, device),
    )


def _precision(request: StudyRequest, device: str) -> Literal["fp32", "bf16"]:
    """As asked; `auto` is fp32 under the paper's protocol, and elsewhere bf16 where CUDA has it."""
    if request.precision == "bf16" and device != "cuda":
        raise UsageError(f"--precision bf16 is for CUDA; the device is {device}: use fp32")
    if request.precision != "auto":
        return request.precision
    has_bf16 = device == "cuda" and request.protocol != "paper" and torch.cuda.is_bf16_supported()
    return "bf16" if has_bf16 else "fp32"


def _layout(request: StudyRequest, pretrained: Pretrained, device: str) -> Layout:
    """Packed on a CPU, where padding costs time; padded on a GPU, which has room for it, unless the user asks."""
    found = pretrained.layout.layout
    if request.varlen and (device != "cuda" or found != "packed"):
        what = f"the device is {device}" if device != "cuda" else f"rows of {pretrained.name} cannot be packed"
        raise UsageError(f"--varlen is for CUDA and models whose rows can be packed; {what}: leave it out")
    return found if device == "cpu" else "varlen" if request.varlen else "padded"


def _check_known(train: Encoded, pretrained: Pretrained) -> None:
    """Raises where the tokenizer does not know the data, so that there is nothing to learn from."""
    share = unknown_share(pretrained.tokenizer, train.tokens)
    if share > MOST_UNKNOWN:
        raise UsageError(
            f"{share:.0%} of the training tokens are unknown to the tokenizer of {pretrained.name}; at most "
            f"{MOST_UNKNOWN:.0%} may be: check its tokenizer files, or use a model for this language"
        )
    rows = np.split(train.tokens, train.offsets[1:-1])
    if len({row.tobytes() for row in rows}) == 1:
        raise UsageError(
            f"all {len(rows)} training texts are the same tokens to the tokenizer of {pretrained.name}, so nothing can "
            "be learned from them; check its tokenizer files and the text column, or use a larger --max-length"
        )
