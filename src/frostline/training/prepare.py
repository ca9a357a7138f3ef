"""What a run needs before its model trains: rows, tokens, and what frozen layers put out. Kept between runs."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from frostline import strategies, tasks
from frostline.errors import DataError
from frostline.model.load import fingerprint_of, load_model, load_tokenizer
from frostline.model.stack import Stack
from frostline.records.keys import derived_seed
from frostline.records.specs import RunSpec, TaskSpec
from frostline.tasks import Rows, TaskData
from frostline.training.batches import Encoded, encode
from frostline.training.pooled import Pooled, pooled_states
from frostline.training.prefix import Origin, Prefixes, Split, States


@dataclass(frozen=True)
class Needs:
    """Which outputs of frozen layers a strategy reads."""

    depths: frozenset[int] = frozenset()
    """after these, as the layers above and the head read them"""
    whole: tuple[int, ...] = ()
    """after these, of all tokens, as a head of its own reads them"""
    is_pooled: bool = False
    """after all, pooled"""


@dataclass(frozen=True)
class Prepared:
    """The rows of a run, and what was computed of them."""

    data: TaskData
    tokenizer: PreTrainedTokenizerBase
    train: Split
    dev: Split
    states: Mapping[tuple[int, int], States] = field(default_factory=dict)
    """by identity of the tokens, and depth"""
    pooled: Mapping[int, Pooled] = field(default_factory=dict)
    """by identity of the tokens"""
    prefix_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """what went wrong with the prefix states and was mended"""

    def at(self, depth: int | None) -> tuple[Split, Split]:
        """Train and dev with the states after so many layers, where they are kept."""
        train, dev = (
            split if depth is None else dataclasses.replace(split, states=self.states.get((id(split.encoded), depth)))
            for split in (self.train, self.dev)
        )
        return train, dev

    @property
    def cache_bytes(self) -> int:
        """Size of all states."""
        arrays = [states.values for states in self.states.values()]
        arrays += [states.values for split in (self.train, self.dev) for states in split.read]
        arrays += self.pooled.values()
        return sum({id(array): array.nbytes for array in arrays}.values())


def seed_for(spec: RunSpec, purpose: str) -> int:
    """The seed of one thing a run draws: its `head`, the `order` of its rows, its `dropout`."""
    return derived_seed(spec.seed, f"{spec.role} {purpose}")


def load_stack(spec: RunSpec, prepared: Prepared) -> Stack:
    """The pretrained model with the run's new head."""
    model = load_model(
        spec.model,
        head_seed=seed_for(spec, "head"),
        head=prepared.data.head,
        pad_token_id=prepared.tokenizer.pad_token_id,
    )
    stack = Stack(model.to(spec.device))
    if spec.layout != "padded":
        stack.allow_packing()
    return stack


@dataclass
class Preparer:
    """Prepares runs one after another; keeps data, tokens and prefix states between them."""

    prefixes: Prefixes
    beside: tuple[str, ...] = ()
    """strategies that will be run too: what they start from is computed in one pass, where there is room"""
    _data: dict[TaskSpec, TaskData] = field(default_factory=dict)
    _encoded: dict[tuple[object, ...], Encoded] = field(default_factory=dict)
    _checked: set[tuple[str, str]] = field(default_factory=set)
    _needs: dict[tuple[str, str, int], Needs] = field(default_factory=dict)
    _pooled: dict[tuple[object, ...], Pooled] = field(default_factory=dict)

    def prepare(self, spec: RunSpec) -> Prepared:
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
        prepared = self._with_states(spec, Prepared(data, tokenizer, train, dev))
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

    def _with_states(self, spec: RunSpec, prepared: Prepared) -> Prepared:
        if not spec.is_cached and strategies.parse(spec.strategy).rates != "none":
            return prepared
        before = self.prefixes.seconds

        @functools.cache
        def load() -> Stack:
            return load_stack(spec, prepared)

        needs = self._needed(spec, spec.strategy, load)
        others = [self._needed(spec, strategy, load) for strategy in self.beside]
        prepared = dataclasses.replace(
            prepared,
            train=self._kept(spec, prepared.train, "train", needs, load),
            dev=self._kept(spec, prepared.dev, "dev", needs, load),
            states=self._states(spec, prepared, needs, others, load),
            pooled=self._pooled_states(spec, prepared, load) if needs.is_pooled else {},
        )
        notes, seconds = tuple(self.prefixes.notes), self.prefixes.seconds - before
        self.prefixes.notes.clear()
        return dataclasses.replace(prepared, prefix_seconds=seconds, notes=notes)

    def _kept(self, spec: RunSpec, split: Split, name: str, needs: Needs, load: Callable[[], Stack]) -> Split:
        """A split with what a head of its own reads."""
        whole = dataclasses.replace(_origin(spec, name), is_whole=True)
        # The deepest first: what is below is computed in the same pass.
        read = [self.prefixes.states(split.encoded, whole, depth, load, needs.whole) for depth in reversed(needs.whole)]
        return dataclasses.replace(split, read=tuple(reversed(read)))

    def _states(
        self, spec: RunSpec, prepared: Prepared, needs: Needs, others: list[Needs], load: Callable[[], Stack]
    ) -> dict[tuple[int, int], States]:
        """What the layers above read, of both splits at each depth."""
        beside = needs.depths.union(*(other.depths for other in others))
        return {
            (id(split.encoded), depth): self.prefixes.states(split.encoded, _origin(spec, name), depth, load, beside)
            for name, split in (("train", prepared.train), ("dev", prepared.dev))
            for depth in sorted(needs.depths, reverse=True)
        }

    def _pooled_states(self, spec: RunSpec, prepared: Prepared, load: Callable[[], Stack]) -> dict[int, Pooled]:
        importlib.import_module("sklearn.linear_model")  # here, so that it counts as no cost of the fit
        found = {}
        for name, split in (("train", prepared.train), ("dev", prepared.dev)):
            origin, encoded = _origin(spec, name), split.encoded
            if (key := (origin.key(encoded), spec.is_cached)) not in self._pooled:
                self._pooled[key] = pooled_states(self.prefixes, encoded, origin, load, is_kept=spec.is_cached)
            found[id(encoded)] = self._pooled[key]
        return found

    def _needed(self, spec: RunSpec, strategy: str, load: Callable[[], Stack]) -> Needs:
        """What a strategy reads, known after its first plan."""
        if (known := (spec.model_fingerprint, strategy, spec.epochs)) not in self._needs:
            self._needs[known] = _needs_of(strategies.parse(strategy), load(), spec.epochs)
        return self._needs[known]


def _needs_of(strategy: strategies.Strategy, stack: Stack, n_epochs: int) -> Needs:
    plan = strategy.plan(stack)
    if plan.fit == "closed_form":
        return Needs(is_pooled=True)
    if whole := strategy.reads(stack.n_layers):
        return Needs(whole=whole)
    depths = {plan.phase_at(epoch, n_epochs).cached_layers for epoch in range(1, n_epochs + 1)}
    return Needs(depths=frozenset(depth for depth in depths if depth is not None))


def _held_out(prepared: Prepared) -> Prepared:
    """Some of the training rows take the place of dev, and do not train."""
    train = prepared.train
    kept, held = tasks.hold_out(train.encoded.labels, prepared.data.kind)
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
