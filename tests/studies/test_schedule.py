"""The simulated schedule of a cluster: closed forms, and what goes wrong."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frostline.studies.planning.schedule import Load, Misfortune, simulate

EVEN = Load(rounds=[[10.0] * 16])


@pytest.mark.parametrize(("places", "seconds"), [([1], 160), ([2, 2], 40), ([4] * 4, 10), ([8] * 8, 10)])
def test_equal_runs_fill_the_places(places: list[int], seconds: float) -> None:
    found = simulate(EVEN, places)
    assert found.seconds == seconds
    assert found.node_hours == pytest.approx(len(places) * seconds / 3600)


def test_prefix_once_per_node_files_one_node_after_another_and_rounds() -> None:
    assert simulate(Load(rounds=[[10.0] * 4], prefix=5.0), [2, 2]).seconds == 15, "the second run waits for the states"
    assert simulate(Load(rounds=[[10.0] * 4], prefix=5.0), [1]).seconds == 45, "and later runs do not"
    assert simulate(Load(rounds=[[10.0] * 2], transfer=3.0), [1, 1]).seconds == 16
    assert simulate(Load(rounds=[[10.0] * 2], transfer=3.0, start=1.0), [1]).seconds == 24
    assert simulate(Load(rounds=[[10.0], [10.0] * 4]), [4]).seconds == 20, "a round waits for the one before"


def test_a_slow_node_and_a_lost_one() -> None:
    slow = Misfortune(slowness=lambda number: 1.0 + number)
    assert simulate(Load(rounds=[[10.0] * 3]), [1, 1], slow).seconds == 20
    times = iter([math.inf, 5.0, math.inf])
    lost = Misfortune(next_failure=lambda _: next(times), seconds_away=100.0)
    found = simulate(Load(rounds=[[10.0] * 2]), [1, 1], lost)
    assert (found.seconds, found.n_lost) == (20, 1), "what the lost node did is done on the other one"


@settings(max_examples=50, deadline=None)
@given(
    runs=st.lists(st.floats(0.1, 100), min_size=1, max_size=30),
    places=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    prefix=st.floats(0, 50),
)
def test_never_faster_than_all_places_at_work_nor_slower_than_one(
    runs: list[float], places: list[int], prefix: float
) -> None:
    found = simulate(Load(rounds=[runs], prefix=prefix), places).seconds
    assert found >= max(math.fsum(runs) / sum(places), max(runs) + prefix) * (1 - 1e-9)
    assert found <= (math.fsum(runs) + prefix) * (1 + 1e-9)
