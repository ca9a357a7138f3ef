"""What the frozen layers put out: computed once, to the bit the same from whichever depth, and of the right rows."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers.models.bert.modeling_bert import BertLayer

from frostline.errors import FrostlineError
from frostline.model.stack import Stack
from frostline.records.specs import CacheDtype
from frostline.storage.prefix_cache import Cache, Origin
from frostline.storage.shelf import HEADER_BYTES
from frostline.testing.models import Family, make_model, make_spec, make_task
from frostline.training.batches import Encoded, make_batch
from frostline.training.prefix import Prefixes, compute_states, estimated_bytes
from frostline.training.run import Runner
from tiny import BASIC, TEETH, Case, distance

N_LAYERS = 3
N_ROWS = 150  # more than two batches of the fixed layout
WIDTH = 8
NO_LIMIT = 2**40
BYTES: dict[CacheDtype, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
CASES = [*map(Case, BASIC), Case("gpt2", side="left"), Case("bert", is_pair=True)]


def _origin(split: str = "train", model: str = "a fingerprint", dtype: CacheDtype = "fp32") -> Origin:
    return Origin(model="m", model_fingerprint=model, task="t", split=split, layout="padded", device="cpu", dtype=dtype)


def _values(
    prefixes: Prefixes, stack: Stack, encoded: Encoded, depth: int, dtype: CacheDtype = "fp32"
) -> NDArray[np.float32]:
    return prefixes.states(encoded, _origin(dtype=dtype), depth, lambda: stack).values


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_states_extended_layer_by_layer_are_those_computed_in_one_go(case: Case, tmp_path: Path) -> None:
    stack, encoded = case.stack(n_layers=N_LAYERS), case.encoded(N_ROWS)
    kept = Prefixes(NO_LIMIT, Cache(tmp_path / "all"))
    extended = [_values(kept, stack, encoded, depth) for depth in range(N_LAYERS + 1)]
    for depth, values in enumerate(extended):
        in_one_go = compute_states(stack, encoded, depth).values
        assert np.array_equal(values, in_one_go)
        skipping = Prefixes(NO_LIMIT, Cache(tmp_path / str(depth)))
        _values(skipping, stack, encoded, 0)
        assert np.array_equal(_values(skipping, stack, encoded, depth), in_one_go)
    assert all(np.abs(extended[depth + 1] - extended[depth]).max() > TEETH for depth in range(N_LAYERS - 1))


@pytest.mark.parametrize("case", CASES, ids=str)
@torch.no_grad()
def test_states_are_the_plain_models_hidden_states(case: Case) -> None:
    stack, encoded = case.stack(n_layers=N_LAYERS), case.encoded(N_ROWS)
    kept = [compute_states(stack, encoded, depth) for depth in range(N_LAYERS + 1)]
    # What nothing but the head is above is kept for the token that the head reads alone.
    assert [states.is_one_token for states in kept] == [False, False, False, True]
    for row in range(0, N_ROWS, 7):
        batch = make_batch(encoded, np.array([row]))
        hidden = stack.model(**batch.padded_inputs(), output_hidden_states=True).hidden_states
        for depth in range(N_LAYERS):
            assert distance(kept[depth].of(batch, encoded), hidden[depth][0]) < 1e-5
            assert distance(kept[depth].of(batch, encoded), hidden[depth - 1][0]) > TEETH
        if case.family != "gpt2":  # which reports its last state above the final norm
            assert distance(kept[-1].of(batch, encoded)[0], hidden[-1][0, 0]) < 1e-5
            assert distance(kept[-1].of(batch, encoded)[0], hidden[-2][0, 0]) > TEETH


def test_a_batch_gets_the_states_of_its_own_rows_in_its_order() -> None:
    case = Case("roberta")
    stack, encoded = case.stack(n_layers=N_LAYERS), case.encoded(N_ROWS)
    kept = compute_states(stack, encoded, 2)
    rows = np.array([17, 3, 99])
    batch = make_batch(encoded, rows)
    one_by_one = torch.cat([kept.of(make_batch(encoded, np.array([row])), encoded) for row in rows])
    assert torch.equal(kept.of(batch, encoded), one_by_one)
    assert one_by_one.shape == (len(batch.tokens), WIDTH)
    backwards = kept.of(make_batch(encoded, rows[::-1].copy()), encoded)
    assert distance(backwards, one_by_one) > TEETH


def test_states_of_other_rows_are_refused() -> None:
    case = Case("bert")
    stack, encoded = case.stack(), case.encoded(20)
    kept = compute_states(stack, encoded, 1)
    moved = dataclasses.replace(kept, row_ids=kept.row_ids[[1, 0, *range(2, 20)]])
    untouched, touched = (make_batch(encoded, np.array(rows)) for rows in ([5, 6], [5, 1]))
    moved.of(untouched, encoded)
    with pytest.raises(FrostlineError, match="belong to different rows"):
        moved.of(touched, encoded)


def test_other_tokens_or_another_model_get_states_of_their_own(cache: Cache) -> None:
    case = Case("bert")
    stack, encoded = case.stack(), case.encoded(20)
    tokens = encoded.tokens.copy()
    tokens[1] = 5 if tokens[1] != 5 else 6
    kept, loads = Prefixes(NO_LIMIT, cache), list[int]()

    def load() -> Stack:
        loads.append(1)
        return stack

    asked = [(encoded, "a"), (encoded, "b"), (dataclasses.replace(encoded, tokens=tokens), "a")]
    for one, model in [*asked, *asked]:
        kept.states(one, _origin(model=model), 1, load)
    assert len(loads) == 3
    first, _, third = (kept.states(one, _origin(model=model), 1, load).values for one, model in asked)
    assert np.abs(first - third).max() > TEETH


def test_the_size_is_known_beforehand() -> None:
    case = Case("bert")
    encoded = case.encoded(N_ROWS)
    for dtype, n_bytes in BYTES.items():
        values = compute_states(case.stack(), encoded, 1, dtype=dtype).values
        assert values.nbytes == estimated_bytes(encoded, WIDTH, dtype) == n_bytes * WIDTH * int(encoded.lengths.sum())


class _Counter:
    """Hands out a stack and counts, for each layer, the rows that go through it."""

    def __init__(self, family: Family) -> None:
        self.stack = Case(family).stack(n_layers=N_LAYERS)
        _ = self.stack.structure  # probing is not counted
        self.rows = [0] * N_LAYERS
        self.n_loads = 0
        for number, layer in enumerate(self.stack._layers):
            layer.register_forward_hook(lambda _module, args, _output, number=number: self._count(number, args))

    def _count(self, number: int, args: tuple[Tensor, ...]) -> None:
        self.rows[number] += len(args[0])

    def load(self) -> Stack:
        self.n_loads += 1
        return self.stack


@pytest.mark.parametrize("family", BASIC)
def test_every_row_goes_through_every_layer_once_whatever_the_process(family: Family, cache: Cache) -> None:
    train, dev = Case(family).encoded(N_ROWS), Case(family).encoded(40, seed=1)
    counter = _Counter(family)
    for _ in range(2):
        process = Prefixes(NO_LIMIT, cache)
        for depth in (1, 2, 3, 3, 2, 1):
            for split, name in ((train, "train"), (dev, "dev"), (train, "train")):
                process.states(split, _origin(name), depth, counter.load)
    assert counter.rows == [N_ROWS + 40] * N_LAYERS
    assert counter.n_loads == 2 * N_LAYERS
    assert process.seconds == 0.0, "the second one computed nothing"


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("family", BASIC)
def test_depths_that_will_be_wanted_are_computed_in_one_pass(family: Family, dtype: CacheDtype, cache: Cache) -> None:
    train, counter, stack = Case(family).encoded(N_ROWS), _Counter(family), Case(family).stack(n_layers=N_LAYERS)
    for depth in (2, 3, 1):  # each in another process
        states = Prefixes(NO_LIMIT, cache).states(train, _origin(dtype=dtype), depth, counter.load, nearby=(1, 2, 3))
        assert np.array_equal(states.values, compute_states(stack, train, depth, dtype=dtype).values)
    assert counter.rows == [N_ROWS] * N_LAYERS
    assert counter.n_loads == 1
    assert _depths(cache) == {1, 2, 3}


def test_no_more_than_half_the_limit_is_taken_by_depths_that_are_not_asked_for_yet(cache: Cache) -> None:
    train, counter = Case("bert").encoded(N_ROWS), _Counter("bert")
    three_depths = 3 * (estimated_bytes(train, WIDTH) + HEADER_BYTES)
    Prefixes(2 * three_depths - 10_000, cache).states(train, _origin(), 1, counter.load, nearby=(1, 2))
    assert _depths(cache) == {1, 2}
    cache.remove(None)
    Prefixes(three_depths, cache).states(train, _origin(), 1, counter.load, nearby=(1, 2))
    assert _depths(cache) == {1}


def test_twin_from_the_top_down_the_lowest_layer_runs_again(cache: Cache) -> None:
    encoded, counter, kept = Case("bert").encoded(N_ROWS), _Counter("bert"), Prefixes(NO_LIMIT, cache)
    for depth in (3, 2, 1):
        kept.states(encoded, _origin(), depth, counter.load)
    assert counter.rows == [3 * N_ROWS, 2 * N_ROWS, N_ROWS]
    assert kept.seconds > 0


def _depths(cache: Cache) -> set[int]:
    return {depth for shelf in cache.shelves() for depth in shelf.entries()}


def test_when_space_is_short_deeper_states_replace_shallower_ones(cache: Cache) -> None:
    train, dev = Case("bert").encoded(N_ROWS), Case("bert").encoded(40, seed=1)
    one_depth = sum(estimated_bytes(split, WIDTH) + HEADER_BYTES for split in (train, dev))
    counter, kept = _Counter("bert"), Prefixes(one_depth, cache)
    for depth in (1, 2, 3):
        for split in (train, dev):
            kept.states(split, _origin(), depth, counter.load)
            assert cache.used_bytes() <= one_depth
    assert _depths(cache) == {2, 3}, "one token a row of depth 3 leaves room for some of 2"
    # Each depth was built from the one below before it went.
    assert counter.rows == [N_ROWS + 40] * N_LAYERS
    Prefixes(one_depth, cache).states(train, _origin(), 3, counter.load)
    assert counter.n_loads == 6
    Prefixes(one_depth, cache).states(train, _origin(), 1, counter.load)
    assert counter.n_loads == 7


def test_without_room_the_same_states_are_kept_in_memory_and_it_is_told(cache: Cache, tmp_path: Path) -> None:
    encoded, stack = Case("bert").encoded(N_ROWS), Case("bert").stack(n_layers=N_LAYERS)
    kept = Prefixes(100, cache)
    for dtype in BYTES:
        for depth in (1, 2):
            values = _values(kept, stack, encoded, depth, dtype)
            roomy = Prefixes(NO_LIMIT, Cache(tmp_path / "roomy"))
            assert np.array_equal(values, _values(roomy, stack, encoded, depth, dtype))
    assert _depths(cache) == set()
    assert all("was not used: it has no room for them" in note for note in kept.notes)


def test_half_precision_keeps_half_the_bytes_and_most_of_the_numbers(cache: Cache) -> None:
    encoded, stack = Case("bert").encoded(N_ROWS), Case("bert").stack(n_layers=N_LAYERS)
    batch = make_batch(encoded, np.arange(9))
    kept = Prefixes(NO_LIMIT, cache)
    whole = kept.states(encoded, _origin(), 1, lambda: stack).of(batch, encoded)
    for dtype, error in (("fp16", 2**-10), ("bf16", 2**-7)):
        half = kept.states(encoded, _origin(dtype=dtype), 1, lambda: stack)  # type: ignore[arg-type]
        assert half.values.itemsize == 2
        found = half.of(batch, encoded)
        assert found.dtype == torch.float32
        assert 0 < float(((found - whole) / whole).abs().max()) < error


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("limit", [NO_LIMIT, 0])
def test_the_same_bits_whatever_is_kept_already(dtype: CacheDtype, limit: int, tmp_path: Path) -> None:
    encoded, stack = Case("bert").encoded(N_ROWS), Case("bert").stack(n_layers=N_LAYERS)
    kept, alone = Prefixes(limit, Cache(tmp_path / "kept")), Prefixes(limit, Cache(tmp_path / "alone"))
    _values(kept, stack, encoded, 1, dtype)
    assert np.array_equal(_values(kept, stack, encoded, 2, dtype), _values(alone, stack, encoded, 2, dtype))
    rounded = compute_states(stack, encoded, 2, below=compute_states(stack, encoded, 1, dtype=dtype), dtype=dtype)
    assert np.array_equal(rounded.values, _values(alone, stack, encoded, 2, dtype)) == (dtype == "fp32")
    assert (tmp_path / "kept").exists() == bool(limit)
    assert not kept.notes


def test_dropout_is_off_whatever_mode_the_model_is_in() -> None:
    case = Case("bert")
    stack, encoded = case.stack(), case.encoded(20)
    right = compute_states(stack, encoded, 1).values
    stack.model.train()
    assert np.array_equal(compute_states(stack, encoded, 1).values, right)


_SPLITS = [Case("bert").encoded(n, seed=n) for n in (6, 9)]
_STACK = Case("bert").stack(n_layers=N_LAYERS)
_RIGHT = {
    (split, depth): compute_states(_STACK, _SPLITS[split], depth).values
    for split in (0, 1)
    for depth in range(N_LAYERS + 1)
}


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.lists(st.tuples(st.integers(0, 1), st.integers(0, N_LAYERS)), min_size=1, max_size=8),
    n_depths=st.integers(1, 4),
)
def test_the_limit_holds_and_moves_no_bit(asked: list[tuple[int, int]], n_depths: int, tmp_path: Path) -> None:
    limit = n_depths * sum(estimated_bytes(split, WIDTH) + HEADER_BYTES for split in _SPLITS)
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        kept = Prefixes(limit, Cache(Path(folder)))
        for split, depth in asked:
            assert np.array_equal(_values(kept, _STACK, _SPLITS[split], depth), _RIGHT[split, depth])
            assert kept.cache.used_bytes() <= limit


@pytest.fixture
def rows_through_layers() -> Iterator[list[int]]:
    """Rows of every call of a BERT layer, wherever it is called."""
    seen: list[int] = []

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if isinstance(module, BertLayer) and args[0].shape[1] != 2:  # probes have two tokens
            seen.append(len(args[0]))

    handle = register_module_forward_pre_hook(note)
    yield seen
    handle.remove()


@pytest.mark.parametrize("is_cached", [True, False])
def test_one_pass_over_the_rows_serves_every_seed_rate_and_epoch(
    is_cached: bool, tmp_path: Path, rows_through_layers: list[int]
) -> None:
    model, task = make_model(tmp_path / "model"), make_task(tmp_path / "task.csv", n_rows=30)
    spec = make_spec(model, task, strategy="freeze:2", is_cached=is_cached)
    rows_through_layers.clear()  # what describing the model took
    runner = Runner()
    results = [runner.run(spec.replace(seed=seed, learning_rate=rate)) for seed in (0, 1) for rate in (1e-3, 1e-2)]
    # Without states every epoch takes the training rows and the dev rows through both layers, and the training score
    # the training rows once more.
    n_train, n_dev = results[0].n_train, results[0].n_dev
    assert n_train + n_dev == 30
    each_run = spec.epochs * (n_train + n_dev) + n_train
    assert sum(rows_through_layers) == 2 * (30 if is_cached else 4 * each_run)
    assert [result.cost.prefix_seconds > 0 for result in results] == [is_cached, False, False, False]


@pytest.mark.parametrize("harm", ["flipped", "cut", "other rows"])
def test_damaged_states_are_noticed_computed_anew_and_move_no_number(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_CACHE", str(tmp_path / "cache"))
    model, task = make_model(tmp_path / "model"), make_task(tmp_path / "task.csv", n_rows=30)
    spec = make_spec(model, task, strategy="freeze:1", is_cached=True)
    right, again = Runner().run(spec), Runner().run(spec)
    assert right.cost.prefix_seconds > 0
    assert (again.cost.prefix_seconds, again.warnings) == (0.0, right.warnings)
    for path in (tmp_path / "cache").rglob("rows.npy" if harm == "other rows" else "states.npy"):
        content = bytearray(path.read_bytes())
        content[-9] ^= 4
        path.write_bytes(content[:-8] if harm == "cut" else content)
    mended = Runner().run(spec)
    assert mended.cost.prefix_seconds > 0
    new = [warning for warning in mended.warnings if warning not in right.warnings]
    assert len(new) == 2
    assert all("damaged prefix states were computed again" in warning for warning in new)
    for result in (again, mended):
        assert result.predictions == right.predictions
        assert [epoch.train_loss for epoch in result.epochs] == [epoch.train_loss for epoch in right.epochs]
