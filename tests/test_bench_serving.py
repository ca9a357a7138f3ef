"""What the bench of serving makes of its samples; the measuring itself is no test."""

from __future__ import annotations

from typing import Any

import pytest
from bench.serving import LINES, REAL, tables
from bench.serving_tasks import Setting


@pytest.mark.parametrize(
    ("n_layers", "n_frozen", "bounds"), [(6, 3, (1, 1.6, 1.88)), (6, 4, (1, 2, 2.67)), (12, 9, (1, 2.29, 3.37))]
)
def test_the_bounds_of_the_claim(n_layers: int, n_frozen: int, bounds: tuple[float, ...]) -> None:
    setting = Setting("m", n_layers, n_frozen)
    assert [setting.bound(n_tasks) for n_tasks in REAL.tasks] == pytest.approx(bounds, abs=0.005)
    assert REAL.n_requests == 10_000


@pytest.mark.parametrize("is_reached", [True, False])
def test_tables_say_what_was_not_reached(is_reached: bool) -> None:
    ways = {"shared": [300.0], "unshared": [100.0], "pipelines": [40.0]}
    speed: dict[str, Any] = {
        "n_tasks": 4,
        "bound": 2.0,
        "texts_per_second": ways,
        "ratios": {"unshared": 3.0, "pipelines": 7.5},
        "is_reached": is_reached,
        "latency_ms": {way: {"p50": 10.0, "p99": 20.0} for way in ways},
    }
    memory: dict[str, Any] = {
        "n_tasks": 4, "weight_bytes": 2e8, "loaded_bytes": 2.5e8, "allowed_bytes": 3.3e8, "final_bytes": 2.6e8,
        "growth": 0.01, "is_reached": True,
    }  # fmt: skip
    found = {"setting": "trunk", "by_tasks": [speed], "memory": [memory], "largest_difference": 1e-7}
    shown = tables({"settings": [found]})
    assert ("NO" in shown) is not is_reached
    assert f"3.00 (1.50 of the bound; {LINES['unshared']})" in shown
    assert "7.50 (3.75 of the bound; 1.6)" in shown
    assert "1.0e-07" in shown
