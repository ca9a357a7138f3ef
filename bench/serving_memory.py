"""Private memory of an engine with 1, 4 and 16 tasks, above the level after imports, over many requests."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from bench.processes import answering
from bench.serving import MEMORY_EXTRA, MEMORY_FACTOR, MEMORY_GROWTH
from bench.serving_tasks import Setting
from frostline.records.environment import n_cores
from frostline.serving.bundle import open_bundle
from frostline.serving.engine import Engine
from frostline.serving.rows import Text
from frostline.serving.tail import load_tail
from frostline.serving.trunk import load_trunk
from frostline.training.memory import private_bytes, release_memory

_WARM_UP = 0.1
"""Share of the requests after which memory counts: allocators fill their pools first."""
_AT_ONCE = 100
"""Requests that wait in the pool together."""


def main() -> None:
    """Answers with the memory for each number of tasks; one engine gets more and more of them."""
    question = json.loads(sys.argv[1])
    with answering() as answer:
        torch.set_num_threads(1)
        setting = Setting(question["model"], question["n_layers"], question["n_frozen"])
        texts = [Text(text) for text in question["texts"]]
        folders = sorted((Path(question["folder"]) / "bundles").iterdir())
        release_memory()
        base = _bytes()
        engine = Engine(load_trunk(setting.model))
        found = []
        for n_tasks in question["n_tasks"]:
            for folder in folders[len(engine.tails) : n_tasks]:
                engine.add(load_tail(engine.trunk, open_bundle(folder)), folder.name)
            found.append({"n_tasks": n_tasks, **_memory(engine, texts, base, question["n_requests"])})
        answer({"memory": found})


def _memory(engine: Engine, texts: list[Text], base: int, n_requests: int) -> dict[str, Any]:
    """Memory after loading, and before and after requests."""
    loaded = _bytes() - base
    weights = engine.trunk.n_bytes + sum(tail.n_bytes for tail in engine.tails.values())
    n_first = max(1, int(n_requests * _WARM_UP))
    with ThreadPoolExecutor(n_cores(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        _ask(pool, engine, texts, range(n_first))
        before = _bytes() - base
        _ask(pool, engine, texts, range(n_first, n_requests))
        after = _bytes() - base
    growth, allowed = after / before - 1, MEMORY_FACTOR * weights + MEMORY_EXTRA
    is_reached = max(loaded, before, after) <= allowed and growth <= MEMORY_GROWTH
    return {
        "weight_bytes": weights, "loaded_bytes": loaded, "warm_bytes": before, "final_bytes": after,
        "allowed_bytes": allowed, "growth": growth, "n_requests": n_requests, "is_reached": is_reached,
    }  # fmt: skip


def _ask(pool: ThreadPoolExecutor, engine: Engine, texts: list[Text], numbers: range) -> None:
    """Does requests with these numbers. A few at a time: a request that waits in the pool takes more than 1 kB."""
    for start in range(0, len(numbers), _AT_ONCE):
        list(pool.map(lambda number: _request(engine, texts, number), numbers[start : start + _AT_ONCE]))


def _request(engine: Engine, texts: list[Text], number: int) -> None:
    """One text for one task; every hundredth request is a batch for all tasks."""
    tails = engine.tails
    if number % 100:
        name = list(tails)[number % len(tails)]
        tails = {name: tails[name]}
        given = [texts[number % len(texts)]]
    else:
        given = [texts[(number + place) % len(texts)] for place in range(32)]
    engine.outputs(engine.encode(given, tails), tails)


def _bytes() -> int:
    """What the process holds now, freed memory that it keeps for later included."""
    found = private_bytes()
    if found is None:
        raise SystemExit("the system does not report private memory")
    return found


if __name__ == "__main__":
    main()
