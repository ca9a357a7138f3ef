"""What a run needs before its model trains: rows, tokens and prefix states. A worker keeps them between runs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline import strategies, tasks
from frostline.errors import DataError
from frostline.model.identity import Identity
from frostline.model.inside.saved import load_as_saved
from frostline.model.inside.setfit import import_setfit
from frostline.model.load import identify, load_model, load_tokenizer, unknown_share
from frostline.model.stack import Stack
from frostline.records.keys import derived_seed
from frostline.records.specs import RunSpec, TaskSpec
from frostline.storage.prefix_cache import Origin
from frostline.tasks import Rows, TaskData
from frostline.training.batches import Encoded, encode
from frostline.training.device.settings import device_facts
from frostline.training.pooled import Pooled, pooled_states
from frostline.training.prefix import Prefixes, Split, States

MANY_UNKNOWN = 0.1
"""Share of unknown tokens above which the user is warned."""


@dataclass(frozen=True)
class Needs:
    """Which outputs of frozen layers a strategy reads."""

    depths: frozenset[int] = frozenset()
    """states after these layers, as the layers above and the head read them"""
    whole: tuple[int, ...] = ()
    """states after these layers, for all tokens, as the strategy's own head reads them"""
    is_pooled: bool = False
    """pooled states after every layer"""


@dataclass(frozen=True)
class Prepared:
    """The rows of a run and the states computed from them."""

    data: TaskData
    tokenizer: PreTrainedTokenizerBase
    identity: Identity
    """what every load of the model is compared with"""
    train: Split
    dev: Split
    states: Mapping[tuple[str, int], States] = field(default_factory=dict)
    """by the split they were computed for, and depth"""
    pooled: Mapping[str, Pooled] = field(default_factory=dict)
    """by the split they were computed for"""
    prefix_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """problems with the prefix cache that were repaired"""

    def at(self, depth: int | None) -> tuple[Split, Split]:
        """Train and dev with their cached states after `depth` layers, if there are any."""
        train, dev = (
            split if depth is None else dataclasses.replace(split, states=self.states.get((split.source, depth)))
            for split in (self.train, self.dev)
        )
        return train, dev

    @property
    def cache_bytes(self) -> int:
        """Size of all states."""
        # By split: rows held out of train read the same arrays as train, which count once.
        read = {(split.source, kept.depth): kept for split in (self.train, self.dev) for kept in split.read}
        arrays = [kept.values for kept in (*self.states.values(), *read.values())]
        return sum(array.nbytes for array in (*arrays, *self.pooled.values()))

    def warnings(self, spec: RunSpec) -> list[str]:
        """What the user should know about tokens and batches: texts that were cut, unknown tokens, padding."""
        splits = (("training", self.train.encoded), ("dev", self.dev.encoded))
        found = [
            f"{encoded.n_cut} of {len(encoded)} {name} texts were cut at {spec.max_length} tokens"
            for name, encoded in splits
            if encoded.n_cut
        ]
        share = unknown_share(self.tokenizer, self.train.encoded.tokens)
        if share > MANY_UNKNOWN:
            found.append(f"{share:.0%} of the training tokens are unknown to the tokenizer")
        if spec.micro_batch_because is not None:
            found.append(f"batches are computed {spec.micro_batch_size} rows at a time: {spec.micro_batch_because}")
        if spec.padded_because is not None:
            found.append(
                f"batches of {spec.model} are padded, which takes longer: without padding, {spec.padded_because}"
            )
        return found


def seed_for(spec: RunSpec, purpose: str) -> int:
    """The seed for one purpose: the `head`, the `order` of the rows, `dropout`."""
    master = f"{spec.master_seed} " if spec.master_seed else ""
    seed = spec.seed if purpose != "held out" or spec.fit_seed is None else spec.fit_seed
    return derived_seed(seed, f"{master}{spec.role} {purpose}")


def load_stack(spec: RunSpec, prepared: Prepared) -> Stack:
    """The pretrained model with the run's new head; a DataError if it is not the one that the run was planned for.

    A strategy that keeps the head gets the model as it was saved.
    """
    if strategies.parse(spec.strategy).keeps_head:
        data = prepared.data
        model = load_as_saved(spec.model, data.kind, data.label_names, prepared.tokenizer.pad_token_id)
    else:
        model = _with_new_head(spec, prepared)
    stack = Stack(model.to(spec.device))
    if spec.layout in ("packed", "varlen"):
        stack.allow_packing()
    elif spec.layout == "mixed":
        stack.quicken()
    return stack


def _with_new_head(spec: RunSpec, prepared: Prepared) -> PreTrainedModel:
    return load_model(
        spec.model,
        revision=spec.model_revision,
        identity=prepared.identity,
        head_seed=seed_for(spec, "head"),
        head=prepared.data.head,
        pad_token_id=prepared.tokenizer.pad_token_id,
    )


@dataclass
class Preparer:
    """Prepares runs one after another; keeps data, tokens and prefix states between them."""

    prefixes: Prefixes
    _data: dict[TaskSpec, TaskData] = field(default_factory=dict)
    _encoded: dict[tuple[object, ...], Encoded] = field(default_factory=dict)
    _needs: dict[tuple[str, str, int], Needs] = field(default_factory=dict)
    _pooled: dict[tuple[object, ...], Pooled] = field(default_factory=dict)

    def prepare(self, spec: RunSpec, nearby: Sequence[str] = ()) -> Prepared:
        """Loads what is missing: rows, tokens, and prefix states if the spec is cached.

        Args:
            spec: the run.
            nearby: strategies that will run too; their prefix states are computed in the same pass if there is room.
        """
        identity = identify(spec.model, spec.model_revision, spec.model_fingerprint)
        tokenizer = load_tokenizer(spec.model, spec.model_revision)
        identity.check_tokenizer(tokenizer)
        task = spec.task if spec.subset_seed is None else spec.task.replace(max_train=None)
        if task not in self._data:
            self._data[task] = tasks.load(task)
        data = self._data[task]
        if data.fingerprint != spec.data_fingerprint:
            raise DataError("the data files changed since this run was planned; start again in a new --out folder")
        if isinstance(strategies.parse(spec.strategy), strategies.SetFit):
            import_setfit()  # here, so that the run's time does not include it
        train = self._train_split(spec, data, tokenizer)
        dev = Split(self._tokens(spec, data.dev, "dev", tokenizer), source="dev")
        prepared = self._with_states(spec, Prepared(data, tokenizer, identity, train, dev), nearby)
        return _held_out(spec, prepared) if spec.role == "tuning" else prepared

    def _train_split(self, spec: RunSpec, data: TaskData, tokenizer: PreTrainedTokenizerBase) -> Split:
        """The training rows: all of them, or the subset that the seed draws, within the largest one."""
        if spec.subset_seed is None:
            return Split(self._tokens(spec, data.train, "train", tokenizer), source="train")
        seed = derived_seed(spec.master_seed, f"subset {spec.subset_seed}")
        order = (tasks.balanced_order if spec.is_balanced else tasks.subset_order)(data.train.labels, data.kind, seed)
        n_rows = spec.task.max_train or len(order)
        largest = np.sort(order[: spec.subset_of or n_rows])
        which = "balanced, " if spec.is_balanced else ""
        name = f"train, {which}{len(largest)} of seed {spec.subset_seed}, {spec.master_seed}"
        encoded = self._tokens(spec, data.train.take(largest), name, tokenizer)
        return Split(encoded, rows=np.searchsorted(largest, np.sort(order[:n_rows])), source="train")

    def _tokens(self, spec: RunSpec, rows: Rows, name: str, tokenizer: PreTrainedTokenizerBase) -> Encoded:
        task = spec.task if spec.subset_seed is None else spec.task.replace(max_train=None)
        key = (spec.model_fingerprint, task, name, spec.max_length, spec.pair_joiner)
        if key not in self._encoded:
            self._encoded[key] = encode(rows, tokenizer, max_length=spec.max_length, pair_joiner=spec.pair_joiner)
        return self._encoded[key]

    def _with_states(self, spec: RunSpec, prepared: Prepared, nearby: Sequence[str]) -> Prepared:
        if not spec.is_cached and not strategies.parse(spec.strategy).is_closed_form:
            return prepared
        before = self.prefixes.seconds

        @functools.cache
        def load() -> Stack:
            return load_stack(spec, prepared)

        needs = self._needed(spec, spec.strategy, load)
        others = [self._needed(spec, strategy, load) for strategy in nearby]
        prepared = dataclasses.replace(
            prepared,
            train=self._with_read_states(spec, prepared.train, needs, load),
            dev=self._with_read_states(spec, prepared.dev, needs, load),
            states=self._states(spec, prepared, needs, others, load),
            pooled=self._pooled_states(spec, prepared, load) if needs.is_pooled else {},
        )
        notes, seconds = tuple(self.prefixes.notes), self.prefixes.seconds - before
        self.prefixes.notes.clear()
        return dataclasses.replace(prepared, prefix_seconds=seconds, notes=notes)

    def _with_read_states(self, spec: RunSpec, split: Split, needs: Needs, load: Callable[[], Stack]) -> Split:
        """A split with the states that the strategy's own head reads."""
        whole = dataclasses.replace(_origin(spec, split.source), is_whole=True)
        # The deepest first: the states below it are computed in the same pass.
        read = [self.prefixes.states(split.encoded, whole, depth, load, needs.whole) for depth in reversed(needs.whole)]
        return dataclasses.replace(split, read=tuple(reversed(read)))

    def _states(
        self, spec: RunSpec, prepared: Prepared, needs: Needs, others: list[Needs], load: Callable[[], Stack]
    ) -> dict[tuple[str, int], States]:
        """The states that the layers above read, for both splits at each depth."""
        nearby = needs.depths.union(*(other.depths for other in others))
        return {
            (split.source, depth): self.prefixes.states(split.encoded, _origin(spec, split.source), depth, load, nearby)
            for split in (prepared.train, prepared.dev)
            for depth in sorted(needs.depths, reverse=True)
        }

    def _pooled_states(self, spec: RunSpec, prepared: Prepared, load: Callable[[], Stack]) -> dict[str, Pooled]:
        importlib.import_module("sklearn.linear_model")  # here, so that the fit's time does not include it
        found = {}
        for split in (prepared.train, prepared.dev):
            origin, encoded = _origin(spec, split.source), split.encoded
            if (key := (origin.key(encoded.key), spec.is_cached)) not in self._pooled:
                self._pooled[key] = pooled_states(self.prefixes, encoded, origin, load, is_kept=spec.is_cached)
            found[split.source] = self._pooled[key]
        return found

    def _needed(self, spec: RunSpec, strategy: str, load: Callable[[], Stack]) -> Needs:
        """The states a strategy reads; remembered after its first plan."""
        if (known := (spec.model_fingerprint, strategy, spec.epochs)) not in self._needs:
            self._needs[known] = _needs_of(strategies.parse(strategy), load(), spec.epochs)
        return self._needs[known]


def _needs_of(strategy: strategies.Strategy, stack: Stack, n_epochs: int) -> Needs:
    plan = strategy.plan(stack)
    if plan.fit == "closed_form":
        return Needs(is_pooled=True)
    if whole := strategy.reader_depths(stack.n_layers):
        return Needs(whole=whole)
    depths = {plan.phase_at(epoch, n_epochs).cached_layers for epoch in range(1, n_epochs + 1)}
    return Needs(depths=frozenset(depth for depth in depths if depth is not None))


def _held_out(spec: RunSpec, prepared: Prepared) -> Prepared:
    """Some of the training rows take the place of dev and do not train."""
    train = prepared.train
    seed = seed_for(spec, "rows") if spec.seed or spec.master_seed else 0  # release 0.1 had one seed, and these rows
    kept, held = (train.positions[rows] for rows in tasks.hold_out(train.labels, prepared.data.kind, seed))
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
        threads=spec.threads,
        **device_facts(spec.device),
    )


@contextlib.contextmanager
def seeded(spec: RunSpec) -> Iterator[None]:
    """Seeds torch's global generator, which dropout draws from, and restores it afterwards."""
    devices = list(range(torch.cuda.device_count())) if spec.device == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed_for(spec, "dropout"))
        yield
