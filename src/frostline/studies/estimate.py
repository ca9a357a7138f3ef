"""What a curve will take, or would take in a plain training loop, from a few timed steps of each kind of run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from frostline.records.environment import n_cores
from frostline.records.serial import Record
from frostline.records.specs import RunSpec
from frostline.report import numbers
from frostline.strategies import parse
from frostline.studies.protocols import Name, Programme, flat, of_curve
from frostline.studies.requests.resolve import Opened
from frostline.training.run import Pace, Runner

_TIMED_STEPS = 5
_TIMED_ROWS = 96
_BYTES_PER_RUN_FILE = 6_000
_BYTES_PER_DEV_ROW = 40


@dataclass(frozen=True, kw_only=True)
class Estimate(Record):
    """What is ahead."""

    runs: int
    """all runs, line search included"""
    missing: int
    """those that are not in the store"""
    minutes: float
    """time to do them, from a few timed steps"""
    cache_bytes: int
    """prefix states of all depths, if they are all kept at once"""
    store_bytes: int
    """files of the missing runs"""

    @property
    def text(self) -> str:
        """All of it in a line."""
        return (
            f"{self.runs} runs, {self.missing} of them to do: about {numbers.rough_duration(60 * self.minutes)}, "
            f"{numbers.size(self.cache_bytes)} of prefix states, {numbers.size(self.store_bytes)} of results"
        )


def estimate(opened: Opened, runs: Programme[Name], n_workers: int) -> Estimate:
    """Runs, minutes and bytes that a curve or a comparison still takes."""
    resolved = opened.resolved
    specs = runs.specs(_rates(opened, runs))
    missing = [spec for spec in specs if opened.store.get(spec.key) is None]
    cached = {spec.strategy for spec in missing if spec.is_cached}
    return Estimate(
        runs=len(specs),
        missing=len(missing),
        minutes=_seconds(opened, missing) / n_workers / 60,
        cache_bytes=len(cached) * opened.prefix_bytes if resolved.is_cached else 0,
        store_bytes=len(missing) * (_BYTES_PER_RUN_FILE + _BYTES_PER_DEV_ROW * len(opened.dev)),
    )


def _rates(opened: Opened, runs: Programme[Name]) -> dict[Name, float] | None:
    """The rates that the line search chose; None where it is not over."""
    specs = flat(runs.searches())
    searched = {spec.key: result for spec in specs if (result := opened.store.get(spec.key)) is not None}
    return runs.rates(searched) if len(searched) == len(specs) else None


def plain_loop_seconds(opened: Opened) -> float:
    """Time of the same runs in a plain loop: frozen by `requires_grad`, padded batches, one by one on all cores."""
    changes = {"is_cached": False, "frozen_dropout": True, "layout": "padded", "threads": n_cores()}
    return _seconds(opened, [spec.replace(**changes) for spec in of_curve(opened.resolved).specs()])


def _seconds(opened: Opened, specs: Sequence[RunSpec]) -> float:
    runner = Runner(max_cache_bytes=0)  # a few rows for a moment: not worth a place on the disk
    paces: dict[str, Pace] = {}
    total = 0.0
    for spec in specs:
        if spec.strategy not in paces:
            few = spec.task.replace(max_train=_at_most(spec.task.max_train), max_dev=_at_most(spec.task.max_dev))
            paces[spec.strategy] = runner.pace(spec.replace(task=few), _TIMED_STEPS)
        total += _run_seconds(spec, paces[spec.strategy], len(opened.train), len(opened.dev))
    return total


def _at_most(given: int | None) -> int:
    return _TIMED_ROWS if given is None else min(given, _TIMED_ROWS)


def _run_seconds(spec: RunSpec, pace: Pace, n_train: int, n_dev: int) -> float:
    if parse(spec.strategy).rates == "none":  # one fit to all rows
        return (n_train + n_dev) * pace.row_seconds
    n_steps = spec.epochs * math.ceil(n_train / spec.batch_size)
    n_evaluated = spec.epochs * n_dev + min(n_train, 1000)
    return n_steps * pace.step_seconds + n_evaluated * pace.row_seconds
