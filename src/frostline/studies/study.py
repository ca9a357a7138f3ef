"""What a study is: a question that is answered by runs.

A study is a value. It decides, the driver acts. `next_runs` looks at the outcomes of the runs that the study asked for,
and at nothing else. So a study that was killed asks for the same runs again when it is started again, finds them in the
store, and goes on as if nothing had happened; and any number of workers, and any executor, give the same runs in the
same roles.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, final

from frostline.analysis import CurveCost, Provenance, RunCounts, RunLine
from frostline.execution.sweep import Wanted, stored_outcome
from frostline.records.requests import ResolvedRequest
from frostline.records.results import Crash, PausedRun, RunResult
from frostline.records.serial import Record
from frostline.records.specs import RunSpec
from frostline.report.chapter import Chapter
from frostline.storage.runs import Store
from frostline.studies.planning.axis import full_run_equivalents
from frostline.studies.requests.config_file import resolved_config

if TYPE_CHECKING:
    from pathlib import Path

    from frostline.studies.requests.resolve import Resolver

RequestT = TypeVar("RequestT")
"""what a user asks a study for"""
ResolvedT = TypeVar("ResolvedT")
"""the same with every default filled in"""
RecordT = TypeVar("RecordT", bound=Record)
"""what the results add up to"""


@final
@dataclass
class Results:
    """The outcomes of the runs that a study asked for, as far as they are known."""

    finished: dict[str, RunResult] = field(default_factory=dict)
    """by key"""
    paused: dict[tuple[str, int], PausedRun] = field(default_factory=dict)
    """by key and number of steps"""
    crashed: set[str] = field(default_factory=set)
    """keys"""

    def add(self, outcome: RunResult | PausedRun | Crash) -> None:
        """Counts an outcome as known."""
        match outcome:
            case RunResult():
                self.finished[outcome.key] = outcome
            case PausedRun():
                self.paused[outcome.key, outcome.n_steps] = outcome
            case Crash():
                self.crashed.add(outcome.key)

    def has(self, wanted: Wanted) -> bool:
        """Whether the outcome of a wanted run is known."""
        key = wanted.spec.key
        if key in self.crashed:
            return True
        # A run that diverged before its pause has finished.
        return key in self.finished or (wanted.until is not None and (key, wanted.until) in self.paused)

    def has_all(self, specs: Iterable[RunSpec]) -> bool:
        """Whether each of these runs has finished or crashed."""
        return all(self.has(Wanted(spec)) for spec in specs)

    def of(self, specs: Iterable[RunSpec]) -> list[RunResult]:
        """The results of these runs, in their order, without those that did not finish."""
        return [self.finished[spec.key] for spec in specs if spec.key in self.finished]

    @property
    def has_replicate(self) -> bool:
        """Whether a run finished that counts, not only runs that chose a learning rate."""
        return any(result.spec.role == "replicate" for result in self.finished.values())


@final
@dataclass(frozen=True, kw_only=True)
class Totals:
    """What a call did, as far as a record tells it."""

    done: frozenset[str]
    """keys of the runs that were done in this call; where results are only read, of all"""
    wall_seconds: float | None = None
    """of this call; None where results are only read"""

    def counts(self, results: Collection[RunResult], n_crashed: int) -> RunCounts:
        """How results came to be."""
        n_done = sum(result.key in self.done for result in results)
        return RunCounts(done=n_done, reused=len(results) - n_done, crashed=n_crashed)

    def cost(self, results: Iterable[RunResult]) -> CurveCost:
        """The summed cost of results."""
        finished = list(results)
        costs = [result.cost for result in finished]
        return CurveCost(
            wall_seconds=self.wall_seconds,
            prefix_seconds=sum(cost.prefix_seconds for cost in costs),
            train_seconds=sum(cost.seconds for cost in costs),
            cache_bytes=max((cost.cache_bytes for cost in costs), default=0),
            full_runs=_full_runs(finished),
        )


def _full_runs(results: Sequence[RunResult]) -> float | None:
    if not results:
        return None
    specs = [result.spec for result in results]
    return full_run_equivalents(specs, results[0].n_layers, epochs=max(spec.epochs for spec in specs))


@final
@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a chapter's numbers come from: what every chapter shows beside its record."""

    store: Store
    results: Sequence[RunResult]
    settings: str
    """the resolved request as a file that `--config` reads"""
    n_missing: int = 0

    def part(self, is_its: Callable[[RunResult], bool]) -> Source:
        """Where a part of the numbers comes from."""
        return replace(self, results=[result for result in self.results if is_its(result)])

    @property
    def shown(self) -> dict[str, Any]:
        """The fields that every chapter has."""
        return {
            "runs": tuple(RunLine.of(result) for result in self.results),
            "n_missing": self.n_missing,
            "provenance": Provenance.of(self.store.folder, self.settings, self.results),
        }


class Study(abc.ABC, Generic[RequestT, ResolvedT, RecordT]):
    """A question answered by runs. A new one is one file, one row in `STUDIES`, and the suite in testing/studies.py."""

    name: ClassVar[str]
    """of the command and its files: `curve` writes curve.json, curve.yaml and specs/curve-….json"""
    trains: ClassVar[bool] = True
    """whether its command has settings of training"""

    def check(self, request: RequestT) -> None:
        """Raises one UsageError with everything that is wrong with a request, before anything is read."""

    @abc.abstractmethod
    def resolve(self, request: RequestT, resolver: Resolver) -> ResolvedT:
        """The request with every default filled in; `resolver` reads model and data and keeps what it resolved."""

    def describe(self, resolved: ResolvedT, resolver: Resolver) -> list[str]:  # noqa: ARG002
        """What will be trained, in a few lines, before anything is; a UsageError where the model does not allow it."""
        return []

    @abc.abstractmethod
    def base(self, resolved: ResolvedT) -> ResolvedRequest:
        """What all studies have in common of a resolved request."""

    @abc.abstractmethod
    def settings(self, resolved: ResolvedT) -> dict[str, object]:
        """The study's own settings by the flags' names, for `<name>.yaml`."""

    @abc.abstractmethod
    def next_runs(self, resolved: ResolvedT, results: Results) -> Sequence[Wanted]:
        """All runs that the study wants, given the results so far. It is over when the outcome of each is known."""

    def likely_runs(self, resolved: ResolvedT, results: Results) -> Sequence[RunSpec]:  # noqa: ARG002
        """Runs that `next_runs` will probably ask for next: idle workers begin with them."""
        return ()

    def runs_ahead(self, resolved: ResolvedT, results: Results) -> Sequence[RunSpec]:
        """All runs of the study as far as can be foreseen, for progress and estimates."""
        return [wanted.spec for wanted in self.next_runs(resolved, results)]

    def most_ahead(self, resolved: ResolvedT, results: Results) -> float | None:  # noqa: ARG002
        """The most that a study which may stop early still spends, in full-run equivalents; None: it does all runs."""
        return None

    def nearby(self, resolved: ResolvedT) -> Sequence[str]:  # noqa: ARG002
        """Strategies that may be asked for later: their prefix states are computed in the same pass."""
        return ()

    def messages(self, resolved: ResolvedT, results: Results) -> Sequence[str]:  # noqa: ARG002
        """What has been decided so far, in lines for the progress display."""
        return ()

    @abc.abstractmethod
    def build(self, resolved: ResolvedT, results: Results, totals: Totals, store: Store) -> RecordT:
        """What the results add up to. Runs that the study wanted and that have no outcome yet are left out."""

    @abc.abstractmethod
    def chapter(self, record: RecordT, source: Source) -> Chapter:
        """What a report shows of the record."""

    @abc.abstractmethod
    def stored(self, store: Store) -> list[ResolvedT]:
        """The resolved requests of this study in an output folder."""

    def chapters(self, store: Store) -> list[Chapter]:
        """What a report shows of an output folder: each request of this study, as far as its runs are there."""
        made = (self.stored_chapter(resolved, store) for resolved in self.stored(store))
        return [chapter for chapter in made if chapter is not None]

    def stored_chapter(self, resolved: ResolvedT, store: Store) -> Chapter | None:
        """What the runs in a store add up to; None before there is anything to show."""
        results = self.replay(resolved, store)
        return self.chapter_so_far(resolved, results, store, Totals(done=frozenset(results.finished)))

    def replay(self, resolved: ResolvedT, store: Store) -> Results:
        """The outcomes of the study's runs, as far as they are in a store."""
        results = Results()
        while new := [wanted for wanted in self.next_runs(resolved, results) if not results.has(wanted)]:
            for wanted in new:
                add_stored(results, wanted, store)
            if not all(results.has(wanted) for wanted in new):
                break
        return results

    def config(self, resolved: ResolvedT, out: Path, max_cache_bytes: int | None = None) -> str:
        """The resolved request as a YAML file that `--config` reads."""
        own, base = self.settings(resolved), self.base(resolved)
        return resolved_config(self.name, base, own, out, max_cache_bytes, trains=self.trains)

    def chapter_so_far(self, resolved: ResolvedT, results: Results, store: Store, totals: Totals) -> Chapter | None:
        """What the results so far add up to; None before there is anything to show."""
        if not self.is_showable(resolved, results):
            return None
        return self.chapter_of(self.build(resolved, results, totals, store), resolved, results, store)

    def chapter_of(self, record: RecordT, resolved: ResolvedT, results: Results, store: Store) -> Chapter:
        """What a report shows of a record and the results that it was built from."""
        n_missing = sum(spec.key not in results.finished for spec in self.runs_ahead(resolved, results))
        settings = self.config(resolved, store.folder)
        found = list(results.finished.values())
        return self.chapter(record, Source(store=store, results=found, settings=settings, n_missing=n_missing))

    def is_showable(self, resolved: ResolvedT, results: Results) -> bool:  # noqa: ARG002
        """Whether a record can be built from these results."""
        return results.has_replicate


def add_stored(results: Results, wanted: Wanted, store: Store) -> None:
    """Adds what a store knows of a wanted run: a crash only where the run never finished."""
    found = stored_outcome(store, wanted)
    if found is not None:
        results.add(found)
    elif store.has_crashed(wanted.key):
        results.crashed.add(wanted.key)
