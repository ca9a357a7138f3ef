"""Specs → order → executor → store: the line search, then every depth and seed of a curve.

Runs that are in the store are read, the others done; nothing here assumes that runs share memory or a disk.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from frostline.analysis import RunCounts
from frostline.errors import EXIT_CRASHED_RUNS, FrostlineError, UsageError, check_between
from frostline.execution.executor import Executor, Outcome, cached_strategies
from frostline.execution.local import LocalProcesses
from frostline.execution.trackers import Tracking
from frostline.model.load import count_trained
from frostline.records.depth import FULL, Depth
from frostline.records.requests import CurveSpec
from frostline.records.results import Crash, EpochRecord, Leg, Paused, RunResult
from frostline.records.specs import RunSpec
from frostline.report.curve_chapter import CurveChapter
from frostline.report.progress.display import Progress
from frostline.report.progress.live import LivePage
from frostline.storage import atomic
from frostline.storage.runs import Store
from frostline.strategies import Full, Strategy
from frostline.studies.protocols import (
    Name,
    Programme,
    best_rate,
    flat,
    line_search_specs,
    name_of,
    of_curve,
    units,
)
from frostline.studies.requests.config_file import curve_config
from frostline.studies.requests.resolve import Opened, check, check_pooled, default_workers, open_curve, pick_device
from frostline.studies.stored import chapter_of, curve_chapter, curve_of, probe_specs

Rerun = Literal["only-missing", "always", "never"]


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """How runs are done; none of it changes a number."""

    out: Path
    n_workers: int | None = None
    """processes; None: one a core, by the threads of a run"""
    rerun: Rerun = "only-missing"
    max_cache_bytes: int = 8 * 2**30
    probe: bool = False
    """fit a linear model to what each layer puts out, too"""
    trackers: tuple[str, ...] = ()
    """names of those that are told of each run"""


class AllCrashedError(FrostlineError):
    """No run that the rest depends on finished."""

    exit_code = EXIT_CRASHED_RUNS


def label(spec: RunSpec) -> str:
    """What a run is called while it runs."""
    if spec.role == "line_search":
        return f"line search {spec.learning_rate:g}"
    if spec.role == "tuning":
        return f"{spec.strategy} at rate {spec.learning_rate:g}"
    return f"{spec.strategy} seed {spec.seed}"


@dataclass(frozen=True)
class Teller:
    """Tells a progress display how runs get on."""

    progress: Progress

    def started(self, spec: RunSpec) -> None:
        """A run has begun."""
        self.progress.run_started(label(spec))

    def epoch(self, spec: RunSpec, record: EpochRecord) -> None:
        """An epoch of a run has ended."""
        score = record.metrics[spec.task.metric or ""]
        self.progress.epoch(label(spec), record.epoch, spec.epochs, record.train_loss, score)


Guess = Callable[[Collection[RunResult]], Sequence[RunSpec]]
"""From what is there so far, the runs that will probably be asked for next."""


@dataclass
class Sweep:
    """Does runs that are missing and keeps count."""

    store: Store
    executor: Executor
    progress: Progress
    n_layers: int
    rerun: Rerun = "only-missing"
    told: Sequence[Callable[[RunResult], None]] = ()
    """called with each run that is done and kept"""
    beside: Sequence[str] = ()
    """strategies whose prefix is kept when one that is deeper is computed, because they may be asked for"""
    n_done: int = 0
    n_reused: int = 0
    crashes: list[Crash] = field(default_factory=list)
    _early: dict[str, RunSpec] = field(default_factory=dict)
    """begun before they were asked for"""
    _held: dict[str, Outcome] = field(default_factory=dict)
    """what came of those that have ended"""
    _paused: set[str] = field(default_factory=set)
    """paused in this call"""

    @property
    def counts(self) -> RunCounts:
        """How the runs so far came to be."""
        return RunCounts(done=self.n_done, reused=self.n_reused, crashed=len(self.crashes))

    def announce(self, specs: Sequence[RunSpec]) -> None:
        """Counts runs as to be done, before `run` is called with them or with others of the same cost."""
        self.progress.start(sum(units(spec, self.n_layers) for spec in specs), [label(spec) for spec in specs])

    def run(self, specs: Sequence[RunSpec], guess: Guess = lambda _: ()) -> dict[str, RunResult]:
        """The results of announced specs by key; those that crashed are absent and noted in `crashes`.

        Args:
            specs: the runs asked for.
            guess: what to begin in places that would be idle until the last of them ends. It is kept if the next call
                asks for it, and otherwise dropped, so that what is stored does not depend on who was faster.
        """
        found = {spec.key: result for spec in specs if (result := self._stored(spec)) is not None}
        missing = self._missing(specs, found)
        self.n_reused += len(found)
        spared = sum(units(result.spec, self.n_layers) for result in found.values())
        self.progress.found(spared, {label(result.spec): result.score for result in found.values()})
        for outcome in self._outcomes(missing, lambda: guess(found.values())):
            if isinstance(outcome, RunResult):
                found[outcome.key] = self._keep(outcome)
            elif isinstance(outcome, Crash):
                self._note_crash(outcome)
        return found

    def run_until(self, specs: Sequence[RunSpec], n_steps: int) -> dict[str, Paused]:
        """What runs have come to after so many steps, by key; they are paused there and go on if they are asked for."""
        found = {spec.key: paused for spec in specs if (paused := self._stored_pause(spec, n_steps)) is not None}
        missing = self._missing(specs, found)
        for outcome in self._outcomes(missing, list, until=n_steps):
            if isinstance(outcome, Crash):
                self._note_crash(outcome)
                continue
            assert isinstance(outcome, Paused), "a run pauses where it is told to"
            self.store.put_paused(outcome)
            self._paused.add(outcome.key)
            self.progress.run_stopped(label(outcome.spec))
            found[outcome.key] = outcome
        return found

    def drop_checkpoints(self, specs: Sequence[RunSpec]) -> None:
        """Takes away what paused runs would go on from; what they had come to stays known."""
        for spec in specs:
            self.store.checkpoint_path(spec.key).unlink(missing_ok=True)

    def _stored_pause(self, spec: RunSpec, n_steps: int) -> Paused | None:
        """What a run is known to have come to; where all is to be done again, in this call alone."""
        if self.rerun == "always" and spec.key not in self._paused:
            self.drop_checkpoints([spec])
            return None
        return self.store.get_paused(spec.key, n_steps)

    def _missing(self, specs: Sequence[RunSpec], found: Mapping[str, object]) -> list[RunSpec]:
        """The runs that are to be done; a UsageError where that is forbidden."""
        for path, reason in self.store.damaged.items():
            self.progress.note(f"not used: {reason}; {path.name} is run again")
        self.store.damaged.clear()
        missing = [spec for spec in specs if spec.key not in found]
        if missing and self.rerun == "never":
            raise UsageError(f"{len(missing)} runs are missing and --rerun never forbids doing them")
        return missing

    def _stored(self, spec: RunSpec) -> RunResult | None:
        """What the store has, unless all is to be done again."""
        return None if self.rerun == "always" else self.store.get(spec.key)

    def _outcomes(
        self, specs: Sequence[RunSpec], guess: Callable[[], Sequence[RunSpec]], until: int | None = None
    ) -> Iterator[Outcome]:
        """One outcome a spec, as they end."""
        left = {spec.key for spec in specs}
        self._let_go_of(spec for key, spec in self._early.items() if key not in left)
        waiting = deque(spec for spec in specs if spec.key not in self._early)
        self._early.clear()
        for key in left & self._held.keys():
            left.remove(key)
            yield self._held.pop(key)
        while left:
            while waiting and self.executor.n_free:
                self._start(waiting.popleft(), specs, until)
            if self.executor.n_free:
                self._start_early(guess())
            outcome = self.executor.outcome()
            if outcome.key in self._early:
                self._held[outcome.key] = outcome
            else:
                left.remove(outcome.key)
                yield outcome

    def _start_early(self, guessed: Sequence[RunSpec]) -> None:
        new = (spec for spec in guessed if spec.key not in self._early and self._stored(spec) is None)
        for spec in itertools.islice(new, self.executor.n_free):
            self._early[spec.key] = spec
            self._start(spec, guessed)

    def _start(self, spec: RunSpec, beside: Sequence[RunSpec], until: int | None = None) -> None:
        checkpoint = self.store.checkpoint_path(spec.key)
        is_part = until is not None or checkpoint.is_file()
        leg = Leg(checkpoint=str(checkpoint), until=until) if is_part else None
        strategies = sorted({*cached_strategies(beside), *self.beside})
        self.executor.start(spec, Teller(self.progress), strategies, leg)

    def _let_go_of(self, specs: Iterable[RunSpec]) -> None:
        for spec in specs:
            if self._held.pop(spec.key, None) is None:
                self.executor.stop(spec)
            self.progress.run_stopped(label(spec))

    def _keep(self, result: RunResult) -> RunResult:
        result = result.replace(circumstances=result.circumstances.replace(command=tuple(sys.argv)))
        self.store.put(result, replace=self.rerun == "always")
        self.store.checkpoint_path(result.key).unlink(missing_ok=True)
        self.n_done += 1
        cost = units(result.spec, self.n_layers)
        self.progress.run_finished(label(result.spec), cost, result.cost.seconds, result.score)
        for tell in self.told:
            tell(result)
        return result

    def _note_crash(self, crash: Crash) -> None:
        path = self.store.put_crash(crash.replace(circumstances=crash.circumstances.replace(command=tuple(sys.argv))))
        self.crashes.append(crash)
        self.progress.run_crashed(label(crash.spec), f"{crash.error} (see {path})", units(crash.spec, self.n_layers))


def run_curve(request: CurveSpec, options: SweepOptions, progress: Progress) -> CurveChapter:
    """Line search, full model, every depth, every seed; what is in the store is not done again."""
    began = time.monotonic()
    check(request)
    tracking = Tracking(options.trackers, options.out, progress.note)
    with make_executor(request, options) as executor:
        opened = open_curve(request, options.out, max_cache_bytes=options.max_cache_bytes)
        resolved = opened.resolved
        settled = curve_config(resolved, options.out, max_cache_bytes=options.max_cache_bytes)
        atomic.write(options.out / "curve.yaml", settled)
        for line in plan_lines(opened):
            progress.note(line)
        page = LivePage(options.out, lambda: curve_chapter(opened.store, resolved), progress.note)
        told = (tracking.log, lambda _: page.renew())
        sweep = Sweep(opened.store, executor, progress, resolved.n_layers, options.rerun, told=told)
        runs, probes = of_curve(resolved), list[RunSpec]()
        if options.probe:
            check_pooled(opened, options.max_cache_bytes)
            probes = probe_specs(resolved.base, request.seeds, is_cached=resolved.is_cached)
        sweep.announce([*runs.specs(), *probes])
        searched, rates = choose_rates(sweep, runs, functools.partial(_at_leading_rate, runs))
        if FULL not in rates:
            raise AllCrashedError(f"every run of the line search crashed; the first: {sweep.crashes[0].error}")
        results = sweep.run(flat(runs.replicates(rates)))
        counts = sweep.counts
        sweep.run(probes)
    if not results:
        raise AllCrashedError(f"every run of the curve crashed; the first: {sweep.crashes[0].error}")
    wall_seconds, found = time.monotonic() - began, searched | results
    curve = curve_of(opened.store, resolved, found, runs=counts, wall_seconds=wall_seconds)
    return chapter_of(opened.store, curve, list(found.values()), settled)


def chosen_rate(opened: Opened, options: SweepOptions, progress: Progress, strategy: Strategy | None = None) -> float:
    """The rate given, else the one a finished line search in this store chose, else that of a line search done now.

    Under `tuned` it is the strategy's own; by default the full model's.
    """
    resolved = opened.resolved
    rates = resolved.asked.learning_rates
    if len(rates) == 1:
        return rates[0]
    finished = finished_searches(opened) if resolved.asked.protocol == "paper" else []
    if finished:
        return best_rate(max(finished, key=len))
    runs: Programme[None] = Programme(resolved, {None: strategy or Full()})
    with make_executor(resolved.asked, options) as executor:
        sweep = Sweep(opened.store, executor, progress, resolved.n_layers, options.rerun)
        sweep.announce(flat(runs.searches()))
        chosen = choose_rates(sweep, runs)[1]
        if None not in chosen:
            raise AllCrashedError(f"every run of the line search crashed; the first: {sweep.crashes[0].error}")
        return chosen[None]


def finished_searches(opened: Opened) -> list[list[RunResult]]:
    """The results of each line search of this store that is over and differs from ours in nothing but its rates."""
    ours = line_search_specs(opened.resolved)[0]
    finished = []
    for request in opened.store.requests():
        specs = line_search_specs(request)
        if specs and specs[0].replace(learning_rate=ours.learning_rate).key == ours.key:
            results = [result for spec in specs if (result := opened.store.get(spec.key)) is not None]
            finished += [results] if len(results) == len(specs) else []
    return finished


def make_executor(request: CurveSpec, options: SweepOptions) -> LocalProcesses:
    """Who does the runs of a request."""
    n_workers = workers(request, options)
    return LocalProcesses(n_workers, threads=request.threads, max_cache_bytes=options.max_cache_bytes)


def workers(request: CurveSpec, options: SweepOptions) -> int:
    """How many runs are done at a time."""
    if options.n_workers is None:
        return default_workers(request.threads, pick_device(request.device))
    return check_between("workers", options.n_workers, 1, 1024)


def choose_rates(
    sweep: Sweep, runs: Programme[Name], guess: Guess = lambda _: ()
) -> tuple[dict[str, RunResult], dict[Name, float]]:
    """What the runs that choose rates gave, by key, and the rate chosen for each; one whose runs crashed has none."""
    groups = runs.searches()
    results = sweep.run(flat(groups), guess) if groups else {}
    rates = runs.rates(results)
    if runs.settled.asked.protocol == "paper" and groups and rates:
        sweep.progress.note(f"the line search chose the rate {next(iter(rates.values())):g}")
    elif groups:
        said = ", ".join(f"{runs.wanted[name].name} {rate:g}" for name, rate in rates.items() if rate)
        sweep.progress.note(f"the line search chose the rates: {said}")
    return results, rates


def _at_leading_rate(runs: Programme[Depth], searched: Collection[RunResult]) -> list[RunSpec]:
    """The full model's runs if the rate that leads so far wins, as it mostly does once little is left to search.

    Not those of a depth: one that is stopped while it computes what the frozen layers put out would have to begin anew.
    """
    if not searched or runs.settled.asked.protocol != "paper":
        return []
    return runs.replicates({FULL: best_rate(searched)})[FULL]


def plan_lines(opened: Opened) -> list[str]:
    """What will be trained, before anything is."""
    resolved, data = opened.resolved, opened.data
    spec, counts = resolved.base, count_trained(resolved.base.model, data.label_names, resolved.depths)
    lines = [
        f"{spec.model}: {resolved.n_layers} layers, {counts[None]:,} parameters with the head",
        f"{spec.task.name}: {len(data.train):,} training rows, {len(data.dev):,} dev rows, score: {spec.task.metric}",
    ]
    for depth, trained in counts.items():
        lines.append(f"{name_of(FULL if depth is None else depth)}: trains {trained:,} ({trained / counts[None]:.1%})")
    cached = (
        f"kept, about {opened.prefix_bytes / 1e6:.0f} MB a depth" if resolved.is_cached else "computed in every step"
    )
    return [*lines, f"what the frozen layers put out is {cached}", *(f"take care: {n}" for n in data.notices)]
