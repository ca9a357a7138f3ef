"""The engine gives freed memory back, and its threads share one heap: the allocator would keep far more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedModel

from frostline.model.load import load_model
from frostline.serving import engine as engines
from frostline.serving import trunk as trunks
from frostline.serving.engine import Engine, Text
from frostline.serving.tail import load_tail
from frostline.serving.trunk import load_trunk

from .tasks import make_task, make_trunk

# Four threads allocate at the same time, in one process with a heap for all threads and in one as usual. The heap of
# the process has a name among its mappings, others have none.
HEAPS = """
import ctypes, os, pathlib, threading
from frostline.training.memory import use_one_heap

def count():
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    places, together = [], threading.Barrier(4)

    def allocate():
        together.wait()
        places.append(libc.malloc(50_000))
        together.wait()

    threads = [threading.Thread(target=allocate) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    mapped = [line.split() for line in pathlib.Path("/proc/self/maps").read_text().splitlines()]
    heap = [[int(end, 16) for end in words[0].split("-")] for words in mapped if words[-1] == "[heap]"]
    return sum(any(first <= place < last for first, last in heap) for place in places)

if os.fork():
    os.wait()
    use_one_heap()
print(count(), flush=True)
"""


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


def test_threads_allocate_from_one_heap() -> None:
    done = subprocess.run([sys.executable, "-c", HEAPS], capture_output=True, text=True, check=True)
    as_usual, shared = map(int, done.stdout.split())
    assert shared == 4
    assert as_usual < 4, "otherwise the test has no teeth"


def test_a_trunk_is_loaded_into_one_heap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def load(*given: Any, **more: Any) -> PreTrainedModel:
        order.append("load")
        return load_model(*given, **more)

    monkeypatch.setattr(trunks, "use_one_heap", lambda: order.append("one heap"))
    monkeypatch.setattr(trunks, "load_model", load)
    load_trunk(str(make_trunk(tmp_path / "trunk")))
    assert order == ["one heap", "load"], "the library loads weights in threads"
