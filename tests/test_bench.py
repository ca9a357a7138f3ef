"""What the speed bench makes of its samples; the measuring itself is no test."""

from __future__ import annotations

import doctest
import itertools

import pytest
from bench import machine
from bench.compared import effective_seconds
from bench.machine import Shape, useful_operations
from bench.scores import compared
from bench.workload import REAL

SHAPE = Shape(n_layers=6, width=384, inner=1536, n_heads=12, n_classes=2)
LENGTHS = [5, 9, 30, 12]


def test_the_example_counted_by_hand() -> None:
    found = doctest.testmod(machine)
    assert (found.failed, found.attempted) == (0, 1)


def test_every_frozen_layer_saves_arithmetic() -> None:
    counts = [useful_operations(SHAPE, LENGTHS, depth) for depth in (None, *range(7))]
    assert all(more > fewer for more, fewer in itertools.pairwise(counts))
    # A layer over all tokens: 12 matrices of width², forward and two gradients, and attention.
    tokens, pairs = sum(LENGTHS), sum(length**2 for length in LENGTHS)
    a_layer = 2 * (3 * 12 * tokens * 384**2 + 6 * pairs * 384)
    assert counts[2] - counts[3] == counts[3] - counts[4] == a_layer
    # The embeddings train where the lowest layer hands on what reaches its queries, keys and values.
    assert counts[0] - counts[1] == 2 * 3 * tokens * 384**2


@pytest.mark.parametrize("n_frozen", [None, 0, 3, 6])
def test_arithmetic_is_of_rows_and_no_padding(n_frozen: int | None) -> None:
    alone = sum(useful_operations(SHAPE, [length], n_frozen) for length in LENGTHS)
    assert useful_operations(SHAPE, LENGTHS, n_frozen) == alone


def test_the_pace_of_all_is_the_sum_of_their_rates() -> None:
    assert effective_seconds([{"times": 10, "seconds": 1.0}, {"times": 30, "seconds": 1.0}]) == pytest.approx(1 / 40)


def test_a_score_that_is_worse_beyond_noise_is_not_as_good() -> None:
    trainer = [0.80, 0.81, 0.79, 0.80, 0.82]
    assert compared([score - 0.001 * (-1) ** seed for seed, score in enumerate(trainer)], trainer)["as_good"]
    assert compared([score + 0.05 for score in trainer], trainer)["as_good"]
    assert not compared([score - 0.05 - 0.001 * seed for seed, score in enumerate(trainer)], trainer)["as_good"]


def test_the_workload_is_that_of_the_claim() -> None:
    assert (REAL.whole.n_steps, REAL.whole.n_runs("full"), REAL.whole.n_runs("freeze:3")) == (750, 10, 5)
    assert (REAL.small.n_steps, REAL.small.n_runs("full"), REAL.small.n_runs("freeze:6")) == (100, 4, 2)
