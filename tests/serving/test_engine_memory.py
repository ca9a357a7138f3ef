"""The engine gives freed memory back: the allocator would keep what a large batch needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from frostline.serving import engine as engines
from frostline.serving.engine import Engine, Text
from frostline.serving.tail import load_tail
from frostline.serving.trunk import load_trunk

from .tasks import make_task, make_trunk


def test_freed_memory_goes_back_every_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = make_trunk(tmp_path / "trunk")
    engine = Engine(load_trunk(str(base)))
    engine.add(load_tail(engine.trunk, make_task(tmp_path / "task", base, "freeze:2").bundle), "task")
    returned: list[int] = []
    n_calls = 0
    monkeypatch.setattr(engines, "_CALLS_PER_RETURN", 3)
    monkeypatch.setattr(engines, "return_freed_memory", lambda: returned.append(n_calls))
    rows = engine.encode([Text("good")], engine.tails)
    for n_calls in range(1, 8):  # noqa: B007 - the function above reads it
        engine.outputs(rows, engine.tails)
    assert returned == [3, 6]
