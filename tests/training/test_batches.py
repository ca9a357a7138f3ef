"""Texts become tokens as the tokenizer has it, batches are padded as it pads, and every row comes once."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from frostline.tasks import Rows
from frostline.testing.models import WORDS, Family, make_rows, make_stack, make_tokenizer, pad_token_of
from frostline.training.batches import (
    EVALUATION_TOKENS,
    Batch,
    Encoded,
    Padding,
    encode,
    evaluation_batches,
    make_batch,
    token_positions,
    training_batches,
)
from frostline.training.forward import Forward
from frostline.training.prefix import Split
from tiny import BASIC, CASES, Case, distance

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
LAYOUTS: tuple[Literal["packed", "padded"], ...] = ("packed", "padded")


def _tokenizer(family: Family, side: str = "right") -> PreTrainedTokenizerFast:
    tokenizer = make_tokenizer(family)
    pad_token_of(tokenizer)
    tokenizer.padding_side = side
    return tokenizer


def _rows(texts: list[str], pairs: list[str] | None = None) -> Rows:
    return Rows(ids=np.arange(len(texts)) + 100, texts=texts, pairs=pairs, labels=np.arange(len(texts)) % 2)


def _row(encoded: Encoded, row: int) -> list[int]:
    return list(encoded.tokens[encoded.offsets[row] : encoded.offsets[row + 1]])


def _with_lengths(lengths: list[int]) -> Encoded:
    """Rows of these lengths whose tokens count on through the split, so that each can be told from every other."""
    return Encoded(
        row_ids=np.arange(len(lengths)) + 7,
        labels=np.arange(len(lengths)),
        tokens=np.arange(sum(lengths)) + 1,
        token_types=np.arange(sum(lengths)) % 2,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        padding=Padding(token=0, token_type=0),
        n_cut=0,
    )


some_lengths = st.lists(st.integers(1, 9), min_size=1, max_size=40)


@pytest.mark.parametrize("family", BASIC)
@pytest.mark.parametrize("is_pair", [False, True])
@pytest.mark.parametrize("max_length", [6, 32])
def test_tokens_are_the_tokenizers_own(family: Family, is_pair: bool, max_length: int) -> None:
    tokenizer, rows = _tokenizer(family), make_rows(n_rows=20, is_pair=is_pair)
    encoded = encode(rows, tokenizer, max_length=max_length, pair_joiner=None)
    for row, text in enumerate(rows.texts):
        pair = None if rows.pairs is None else rows.pairs[row]
        own = tokenizer(text, pair, truncation=True, max_length=max_length)
        assert _row(encoded, row) == own["input_ids"]
        if family == "bert":
            assert encoded.token_types is not None
            types = encoded.token_types[encoded.offsets[row] : encoded.offsets[row + 1]]
            assert list(types) == own["token_type_ids"]
            assert (1 in types) == is_pair
    assert (encoded.token_types is None) == (family != "bert")
    assert np.array_equal(encoded.row_ids, rows.ids)
    assert np.array_equal(encoded.labels, rows.labels)


@pytest.mark.parametrize("family", BASIC)
@pytest.mark.parametrize("is_pair", [False, True])
def test_cut_texts_are_counted(family: Family, is_pair: bool) -> None:
    tokenizer, rows = _tokenizer(family), make_rows(n_rows=40, is_pair=is_pair)
    pairs = [None] * 40 if rows.pairs is None else rows.pairs
    whole = [len(tokenizer(text, pair)["input_ids"]) for text, pair in zip(rows.texts, pairs, strict=True)]
    for max_length in (6, 8, max(whole) - 1, max(whole)):
        encoded = encode(rows, tokenizer, max_length=max_length, pair_joiner=None)
        assert encoded.n_cut == sum(length > max_length for length in whole)
        assert list(encoded.lengths) == [min(length, max_length) for length in whole]
    assert encoded.n_cut == 0


def test_a_joiner_stands_between_the_texts_of_a_pair() -> None:
    tokenizer, rows = _tokenizer("gpt2"), _rows(["good film", "bad"], ["is so", "plot was dull"])
    joined = encode(rows, tokenizer, max_length=32, pair_joiner=" not ")
    words = ["good film not is so", "bad not plot was dull"]
    assert [_row(joined, row) for row in range(2)] == [tokenizer(text)["input_ids"] for text in words]
    # Without one, a tokenizer that has no separator runs the texts into each other.
    run_together = encode(rows, tokenizer, max_length=32, pair_joiner=None)
    assert _row(run_together, 0) == tokenizer("good film is so")["input_ids"]
    # A joiner means nothing where there is one text.
    single = _rows(["good film"])
    assert _row(encode(single, tokenizer, max_length=32, pair_joiner=" not "), 0) == tokenizer("good film")["input_ids"]


@pytest.mark.parametrize("family", BASIC)
def test_an_empty_text_still_has_a_token(family: Family) -> None:
    tokenizer = _tokenizer(family)
    rows = _rows(["good film", "", "", "bad plot is"])
    encoded = encode(rows, tokenizer, max_length=32, pair_joiner=None)
    assert encoded.lengths.min() >= 1
    stack = make_stack(family)
    stack.allow_packing()
    stack.eval()
    batch, split = make_batch(encoded, np.arange(4)), Split(encoded)
    with torch.no_grad():
        found, padded = (Forward(stack, layout=layout).logits(batch, split) for layout in LAYOUTS)
    assert distance(found, padded) < 1e-5
    # Two empty texts get one answer, and not that of a neighbour.
    assert distance(found[1], found[2]) < 1e-5
    assert distance(found[0], found[1]) > 1e-2


def test_the_key_tells_rows_tokens_and_types_apart() -> None:
    encoded = _with_lengths([2, 3])
    same = _with_lengths([2, 3])
    assert encoded.key == same.key
    others = [
        _with_lengths([3, 2]),
        _with_lengths([2, 4]),
        Encoded(**{**vars(_with_lengths([2, 3])), "row_ids": np.array([7, 9])}),
        Encoded(**{**vars(_with_lengths([2, 3])), "tokens": np.array([1, 2, 3, 4, 6])}),
        Encoded(**{**vars(_with_lengths([2, 3])), "token_types": np.array([0, 1, 0, 1, 1])}),
        Encoded(**{**vars(_with_lengths([2, 3])), "token_types": None}),
    ]
    assert len({encoded.key, *(other.key for other in others)}) == 7


def test_the_key_does_not_depend_on_how_numbers_are_stored() -> None:
    small = _with_lengths([2, 3])
    large = {name: getattr(small, name).astype(np.int64) for name in ("tokens", "token_types")}
    compact = {"tokens": large["tokens"].astype(np.int32), "token_types": large["token_types"].astype(np.int8)}
    keys = {Encoded(**{**vars(small), **arrays}).key for arrays in (large, compact)}
    assert keys == {small.key}, "cached states are found again"


@pytest.mark.parametrize("family", BASIC)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("is_pair", [False, True])
def test_padded_inputs_are_the_tokenizers_own_on_the_right(family: Family, side: str, is_pair: bool) -> None:
    tokenizer, rows = _tokenizer(family, side), make_rows(n_rows=12, is_pair=is_pair)
    encoded = encode(rows, tokenizer, max_length=32, pair_joiner=None)
    positions = np.array([5, 0, 11, 3])
    pairs = None if rows.pairs is None else [rows.pairs[row] for row in positions]
    own = _tokenizer(family)([rows.texts[row] for row in positions], pairs, padding=True, return_tensors="pt")
    found = make_batch(encoded, positions).padded_inputs()
    assert found.keys() == own.keys()
    for name, values in found.items():
        assert values.dtype == torch.int64
        assert torch.equal(values, own[name])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_packed_inputs_are_the_rows_one_after_another(case: Case) -> None:
    encoded = case.encoded()
    positions = np.array([3, 0, 5])
    packed = make_batch(encoded, positions).packed_inputs(first_position=2)
    rows = [_row(encoded, row) for row in positions]
    assert packed["input_ids"].tolist() == [list(itertools.chain(*rows))]
    assert packed["position_ids"].tolist() == [[2 + place for row in rows for place in range(len(row))]]
    assert ("token_type_ids" in packed) == (case.family == "bert")
    assert all(values.shape == packed["input_ids"].shape for values in packed.values())
    assert "attention_mask" not in packed


@settings(deadline=None)
@given(lengths=some_lengths, data=st.data())
def test_padding_loses_nothing(lengths: list[int], data: st.DataObject) -> None:
    encoded = _with_lengths(lengths)
    rows = data.draw(st.permutations(range(len(lengths))))
    batch = make_batch(encoded, np.array(rows))
    padded = batch.padded(batch.tokens, fill=-1)
    assert padded.shape == batch.mask.shape == (len(rows), max(lengths))
    assert torch.equal(padded[batch.mask], batch.tokens)
    assert bool((padded[~batch.mask] == -1).all())
    assert batch.mask.sum(1).tolist() == [lengths[row] for row in rows]
    # Every row is one unbroken stretch from the left edge on.
    assert bool((batch.mask.long().diff(dim=1) <= 0).all())
    states = torch.stack([batch.tokens.float(), -batch.tokens.float()], dim=1)
    assert torch.equal(batch.padded(states)[batch.mask], states)
    assert float(batch.padded(states)[~batch.mask].abs().sum()) == 0.0


@settings(deadline=None)
@given(lengths=some_lengths)
def test_ends_and_places_point_at_each_rows_own_tokens(lengths: list[int]) -> None:
    encoded = _with_lengths(lengths)
    batch = make_batch(encoded, np.arange(len(lengths)))
    first, last = batch.ends
    assert batch.tokens[first].tolist() == [_row(encoded, row)[0] for row in range(len(lengths))]
    assert batch.tokens[last].tolist() == [_row(encoded, row)[-1] for row in range(len(lengths))]
    assert batch.places.tolist() == [place for length in lengths for place in range(length)]
    assert batch.labels.tolist() == list(range(len(lengths)))


@given(lengths=some_lengths, data=st.data())
def test_token_positions_are_the_rows_stretches(lengths: list[int], data: st.DataObject) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=8))
    found = token_positions(offsets, np.array(rows, dtype=np.int64))
    assert found.tolist() == [place for row in rows for place in range(offsets[row], offsets[row + 1])]


def _order(batches: list[Batch]) -> list[int]:
    return [int(position) for batch in batches for position in batch.positions]


@given(
    n_rows=st.integers(1, 60), batch_size=st.integers(1, 20), seed=st.integers(0, 2**31 - 1), epoch=st.integers(1, 9)
)
def test_every_row_trains_once_an_epoch(n_rows: int, batch_size: int, seed: int, epoch: int) -> None:
    batches = list(training_batches(_with_lengths([1] * n_rows), batch_size, seed=seed, epoch=epoch))
    assert sorted(_order(batches)) == list(range(n_rows))
    sizes = [len(batch.positions) for batch in batches]
    assert sizes == [batch_size] * (n_rows // batch_size) + [n_rows % batch_size] * (n_rows % batch_size > 0)


def test_the_order_comes_from_the_seed_and_the_epoch_and_nothing_else() -> None:
    encoded = _with_lengths([1] * 50)
    orders = {
        (seed, epoch, size): _order(list(training_batches(encoded, size, seed=seed, epoch=epoch)))
        for seed in (0, 1, 2)
        for epoch in (1, 2, 3)
        for size in (7, 16)
    }
    torch.manual_seed(1)
    np.random.default_rng(1).random()
    again = _order(list(training_batches(encoded, 16, seed=0, epoch=1)))
    assert again == orders[0, 1, 16] == orders[0, 1, 7]
    assert len({tuple(order) for order in orders.values()}) == 9
    # No sorting by length: whatever the rows' lengths are, the same batches; only within one do short rows go first.
    sorted_within = list(training_batches(_with_lengths(list(range(1, 51))), 16, seed=0, epoch=1))
    assert [batch.positions.tolist() for batch in sorted_within] == [
        sorted(again[start : start + 16]) for start in range(0, 50, 16)
    ]


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 1200), min_size=1, max_size=150), data=st.data())
def test_the_evaluation_layout_is_sorted_and_stable(lengths: list[int], data: st.DataObject) -> None:
    encoded = _with_lengths(lengths)
    batches = list(evaluation_batches(encoded))
    order = _order(batches)
    assert order == sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
    for batch, after in zip(batches, [*batches[1:], None], strict=True):
        n_rows, longest = batch.mask.shape
        assert n_rows * longest <= EVALUATION_TOKENS or n_rows == 1
        assert after is None or (n_rows + 1) * lengths[int(after.positions[0])] > EVALUATION_TOKENS, "one more fits"
    chosen = data.draw(st.lists(st.sampled_from(range(len(lengths))), unique=True, min_size=1))
    some = _order(list(evaluation_batches(encoded, np.array(chosen))))
    assert some == [row for row in order if row in set(chosen)]


def test_words_of_the_toy_task_are_known() -> None:
    tokenizer = _tokenizer("bert")
    assert tokenizer.unk_token_id not in tokenizer(" ".join(WORDS))["input_ids"]
