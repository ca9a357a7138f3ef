"""Steps of ours, as a run does them; as a process, timed together with others of its kind."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.machine import Shape, multiplying, useful_operations
from bench.processes import Answer, Inbox, answering
from bench.workload import BATCH, MODEL
from frostline import strategies
from frostline.records.specs import RunSpec
from frostline.strategies import Freeze
from frostline.studies.planning.axis import spec_at
from frostline.studies.requests.parse import parse
from frostline.studies.requests.resolve import Resolver
from frostline.studies.requests.settings import CurveSettings
from frostline.training.batches import Batch
from frostline.training.device.products import quick_products
from frostline.training.loop import Descent, Training
from frostline.training.run import Runner

_WARM_UP = 3
_RATE = 3e-5


def specs_of(task: str, model: str = MODEL, **settings: Any) -> dict[str, RunSpec]:
    """The spec of each kind of run, by its name, on these rows; the rate is in the middle of those searched."""
    with tempfile.TemporaryDirectory() as out:
        given = {"lr": _RATE, "batch_size": BATCH, "out": out, **settings}
        parsed = parse(model, task, given, CurveSettings)
        resolver = Resolver(parsed.options.out, parsed.options.max_cache_bytes)
        resolved = resolver.fill_in(parsed.request, needs_depth=True)
    kinds = ["full", *(f"freeze:{depth}" for depth in range(resolved.n_layers + 1))]
    return {kind: spec_at(resolved, strategies.parse(kind), _RATE) for kind in kinds}


@dataclass
class Steps:
    """The steps of a run, one after another, epoch after epoch."""

    training: Training
    descent: Descent
    n_frozen: int | None
    rows: list[NDArray[np.int64]] = field(default_factory=list)
    """where the rows of each step so far stand in the split"""

    @functools.cached_property
    def _batches(self) -> Iterator[Batch]:
        return itertools.chain.from_iterable(self.descent.batches(epoch) for epoch in itertools.count(1))

    def step(self) -> None:
        """What training pays for one: making the batch, forward, backward, clipping, update."""
        batch = next(self._batches)
        self.descent.step(batch)
        self.rows.append(batch.positions)

    @property
    def lengths(self) -> list[list[int]]:
        """Tokens of each row, step by step."""
        lengths = self.training.train.encoded.lengths
        return [lengths[rows].tolist() for rows in self.rows]

    def operations(self) -> float:
        """Useful operations of a step, on average over those done."""
        shape = Shape.of(self.training.forward.stack.model.config)
        return statistics.fmean(useful_operations(shape, lengths, self.n_frozen) for lengths in self.lengths)

    def tokens(self) -> float:
        """Tokens of a step, on average over those done."""
        return statistics.fmean(sum(lengths) for lengths in self.lengths)


@contextlib.contextmanager
def started(runner: Runner, spec: RunSpec) -> Iterator[Steps]:
    """A run that is ready for its first step: prefix states there, model loaded."""
    strategy = strategies.parse(spec.strategy)
    with runner.descending(spec) as (training, descent):
        yield Steps(training, descent, strategy.n_frozen if isinstance(strategy, Freeze) else None)


def warm(steps: Steps) -> Steps:
    """The same after a few steps, which pay for what the library sets up; they are forgotten."""
    for _ in range(_WARM_UP):
        steps.step()
    steps.rows.clear()
    return steps


def timed_steps(steps: Steps, n_steps: int) -> list[float]:
    """How long each of so many steps took."""
    took = []
    for _ in range(n_steps):
        began = time.perf_counter()
        steps.step()
        took.append(time.perf_counter() - began)
    return took


def summed(took: list[float]) -> Answer:
    """A stretch of work in numbers."""
    return {"times": len(took), "seconds": sum(took), "median_seconds": statistics.median(took)}


def main() -> None:
    """Does what it is asked on stdin, once the others are ready too, until it ends."""
    settings = json.loads(sys.argv[1])
    inbox, runner = Inbox(), Runner()
    specs = specs_of(**settings)
    with answering() as answer:
        answer("there")
        while True:
            asked = inbox.next()
            enough = asked["n_times"], asked["seconds"]
            if "product" in asked:
                multiply = multiplying(asked["product"])
                with quick_products():  # as in a run
                    multiply()
                    answer(summed(inbox.timed(multiply, *enough, answer)))
                continue
            with started(runner, specs[asked["kind"]].replace(seed=asked["seed"])) as steps:
                took = inbox.timed(warm(steps).step, *enough, answer)
                answer(summed(took) | {"operations": steps.operations(), "tokens": steps.tokens()})


if __name__ == "__main__":
    main()
