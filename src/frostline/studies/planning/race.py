"""Searches for a learning rate: the runs that they want next, and the rate that they choose. Runs nothing.

A line search tries every rate once. A race tries every rate with two seeds on a short schedule, then the best two on
the whole one, and goes on past the end of its line of rates while the best rate is there.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

from frostline import stats
from frostline.analysis import TriedRate, dev_scores, have_learned
from frostline.execution.sweep import Wanted
from frostline.kinds import kind_of
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.stats.rates import Standing, next_rate, ranked
from frostline.studies.study import Results

RUNGS = ((1 / 3, 2), (1.0, 1))
"""The rungs of a race: the share of the epochs that each rate trains, on a schedule of its own, and how many go on."""
RACE_SEEDS = (0, 1)
"""Each seed also holds other rows out of train, so that the rate is chosen on twice as many."""


class RateSearch(abc.ABC):
    """How the learning rate of one strategy is chosen."""

    @abc.abstractmethod
    def runs(self, results: Results) -> list[RunSpec]:
        """All runs that are wanted so far; in a race that stops runs, those that are still in it."""

    def wanted(self, results: Results) -> list[Wanted]:
        """All runs that are wanted so far, to their ends or until they pause."""
        return [Wanted(spec) for spec in self.runs(results)]

    @abc.abstractmethod
    def rate(self, results: Results) -> float | None:
        """The rate that was chosen; None while the search is on, or when every run crashed."""

    @abc.abstractmethod
    def tried(self, results: Results) -> list[TriedRate]:
        """Each rate that was tried, ascending, with its score."""

    def is_over(self, results: Results) -> bool:
        """Whether a rate is chosen, or none can be."""
        return all(results.has(wanted) for wanted in self.wanted(results))

    def ahead(self, results: Results) -> list[RunSpec]:
        """All runs as far as can be foreseen."""
        return self.runs(results)


@final
@dataclass(frozen=True)
class LineSearch(RateSearch):
    """One run for each rate."""

    specs: tuple[RunSpec, ...]

    def runs(self, results: Results) -> list[RunSpec]:  # noqa: ARG002
        """One for each rate."""
        return list(self.specs)

    def rate(self, results: Results) -> float | None:
        """The rate with the best score."""
        found = results.of(self.specs)
        return best_rate(found) if found and self.is_over(results) else None

    def tried(self, results: Results) -> list[TriedRate]:
        """Each rate; without a score if its run crashed."""
        found = results.finished
        return [
            TriedRate(learning_rate=spec.learning_rate, score=found[spec.key].score if spec.key in found else None)
            for spec in self.specs
        ]


@final
@dataclass(frozen=True)
class _Rung:
    """One stage of a race."""

    share: float
    """of the whole schedule"""
    specs: tuple[RunSpec, ...]
    standings: tuple[Standing, ...]
    """the best first; empty while runs are missing, or when all crashed"""


@final
@dataclass(frozen=True)
class Race(RateSearch):
    """The rates of one strategy, with two seeds each, scored on rows held out of train."""

    spec: RunSpec
    """a run of the strategy"""
    rates: tuple[float, ...]
    """where the line begins, ascending"""

    def runs(self, results: Results) -> list[RunSpec]:
        """The runs of all rungs so far; where two rungs ask for the same run, once."""
        return list(dict.fromkeys(spec for rung in self._rungs(results) for spec in rung.specs))

    def rate(self, results: Results) -> float | None:
        """The winner of the last rung."""
        rungs = list(self._rungs(results))
        is_over = len(rungs) == len(RUNGS) and bool(rungs[-1].standings)
        return rungs[-1].standings[0].rate if is_over else None

    def tried(self, results: Results) -> list[TriedRate]:
        """Each rate with its mean score in the last rung that it reached."""
        tried: dict[float, TriedRate] = {}
        for rung in self._rungs(results):
            scores = {one.rate: one.score for one in rung.standings}
            for rate in dict.fromkeys(spec.learning_rate for spec in rung.specs):
                tried[rate] = TriedRate(learning_rate=rate, score=scores.get(rate), share=rung.share)
        return [tried[rate] for rate in sorted(tried)]

    def ahead(self, results: Results) -> list[RunSpec]:
        """The runs so far; while the race is on, also a last rung without surprises."""
        last = [] if self.is_over(results) else _race_specs(self.spec, self.rates[: RUNGS[0][1]], RUNGS[-1][0])
        return list(dict.fromkeys([*self.runs(results), *last]))

    def _rungs(self, results: Results) -> Iterator[_Rung]:
        line = set(self.rates)
        left = list(self.rates)
        for share, n_left in RUNGS:
            while True:
                specs = _race_specs(self.spec, tuple(sorted(left)), share)
                standings = _standings(results.of(specs)) if results.has_all(specs) else []
                beyond = _beyond(standings[0], line, share) if standings else None
                if beyond is None:
                    break
                line.add(beyond)
                left.append(beyond)
            yield _Rung(share, specs, tuple(standings))
            if not standings:
                return
            left = [one.rate for one in standings[:n_left]]


def _beyond(best: Standing, line: set[float], share: float) -> float | None:
    """The rate that a rung tries next; None if its line ends."""
    # Only the first rung goes up until a rate learns: in the last one, each rate costs two whole runs.
    is_first = share == RUNGS[0][0]
    return next_rate(best.rate, line, has_learned=best.has_learned or not is_first)


@functools.lru_cache(maxsize=4096)
def _race_specs(spec: RunSpec, rates: tuple[float, ...], share: float) -> tuple[RunSpec, ...]:
    """The runs of a rung. A search asks for them hundreds of times, and making a spec's key takes longest."""
    epochs = max(1, round(share * spec.epochs))
    steps = None if spec.max_steps is None else math.ceil(share * spec.max_steps)
    run = spec.replace(role="tuning", epochs=epochs, max_steps=steps)
    return tuple(run.replace(learning_rate=rate).with_seed(seed) for rate in rates for seed in RACE_SEEDS)


def best_rate(searched: Sequence[RunResult]) -> float:
    """The rate with the best score; of equal ones, the lowest.

    Rates that were tried on a few held-out rows are often equal within noise: of those, the one with the lowest loss.
    """
    if all(result.spec.role == "tuning" for result in searched):
        return _standings(searched)[0].rate
    return max(searched, key=lambda result: (result.score, -result.spec.learning_rate)).spec.learning_rate


def _standings(results: Sequence[RunResult]) -> list[Standing]:
    """How each rate did, the best first."""
    rates = dict.fromkeys(result.spec.learning_rate for result in results)
    by_rate = ([one for one in results if one.spec.learning_rate == rate] for rate in rates)
    return ranked([_standing(_Tried.of(runs)) for runs in by_rate])


@dataclass(frozen=True)
class _Tried:
    """The runs of one rate. Those with the same answers are equal, so that each standing is computed once."""

    answers: tuple[object, ...]
    results: Sequence[RunResult] = field(compare=False)

    @classmethod
    def of(cls, results: Sequence[RunResult]) -> _Tried:
        given = ((one.predictions.labels, one.predictions.outputs, one.diverged, one.score) for one in results)
        return cls((results[0].spec.task, results[0].spec.learning_rate, *given), results)


@functools.lru_cache(maxsize=1024)
def _standing(tried: _Tried) -> Standing:
    results = tried.results
    resampled = sum(dev_scores([result])[0] for result in results) / len(results)
    return Standing(
        rate=results[0].spec.learning_rate,
        score=stats.mean([result.score for result in results]),
        noise=float(resampled.std(ddof=1)),
        loss=stats.mean([_held_out_loss(result) for result in results]),
        has_learned=have_learned(results),
    )


def _held_out_loss(result: RunResult) -> float:
    if result.diverged:
        return math.inf
    labels, outputs = result.predictions.labels.array(), result.predictions.outputs.array()
    return kind_of(result.spec.task).mean_loss(labels, outputs)
