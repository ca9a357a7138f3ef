"""A sample of `bench.large_results`: this process's memory stays flat while large results pass through it."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.large_results import Case, measure

from frostline.execution import transport
from frostline.kinds import metrics


def test_large_results_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MOST_IN_MEMORY", 2**20)
    monkeypatch.setattr(metrics, "_NUMBERS_AT_ONCE", 2**20)
    case = Case(n_rows=4000, n_classes=5000, n_depths=1, n_seeds=2)
    one_run = 4 * case.n_rows * case.n_classes
    steps = list(measure(case, tmp_path))
    assert [what for what, *_ in steps] == ["receive and store", "read and verify", "analyse"]
    assert max(n_bytes for *_, n_bytes in steps[:2]) < one_run / 3
    assert steps[2][-1] < one_run, "parts of one array at a time"
