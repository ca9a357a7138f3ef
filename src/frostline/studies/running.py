"""Line search, full model, depths and seeds of a curve, done by a sweep. Temporary: the driver replaces this module."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from frostline.analysis import Chapter
from frostline.errors import EXIT_CRASHED_RUNS, FrostlineError, check_between
from frostline.execution.events import Listener
from frostline.execution.executor import Executor
from frostline.execution.local import LocalProcesses
from frostline.execution.progress import ProgressListener
from frostline.execution.sweep import Rerun, Sweep, Wanted
from frostline.execution.trackers import Trackers
from frostline.model.load import count_trained
from frostline.records.requests import CurveSpec
from frostline.records.results import PausedRun, RunResult
from frostline.records.specs import RunSpec
from frostline.report.progress.display import Progress
from frostline.report.progress.live import LivePage
from frostline.storage import atomic
from frostline.strategies import Full, Strategy
from frostline.studies.protocols import (
    Depth,
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


Guess = Callable[[Collection[RunResult]], Sequence[RunSpec]]
"""From the results so far, the runs that will probably be wanted next."""


@final
@dataclass(frozen=True)
class PageListener(Listener):
    """Renews the live page when a run is finished."""

    page: LivePage

    def finished(self, result: RunResult) -> None:  # noqa: ARG002
        """Renews the page."""
        self.page.renew()


def progress_listener(progress: Progress, n_layers: int) -> ProgressListener:
    """Shows events on a display; a unit is a layer-forward of one row."""
    return ProgressListener(progress, functools.partial(units, n_layers=n_layers))


def run_whole(sweep: Sweep, specs: Sequence[RunSpec], guess: Guess = lambda _: ()) -> dict[str, RunResult]:
    """The results of planned runs by key; those that crashed are absent."""
    found: dict[str, RunResult] = {}
    for outcome in sweep.do([Wanted(spec) for spec in specs], lambda: guess(found.values())):
        if isinstance(outcome, RunResult):
            found[outcome.key] = outcome
    return found


def run_until(sweep: Sweep, specs: Sequence[RunSpec], n_steps: int) -> dict[str, PausedRun]:
    """Runs paused after some steps, by key; those that crashed are absent."""
    outcomes = sweep.do([Wanted(spec, n_steps) for spec in specs])
    return {outcome.key: outcome for outcome in outcomes if isinstance(outcome, PausedRun)}


def run_curve(request: CurveSpec, options: SweepOptions, progress: Progress) -> Chapter:
    """Line search, full model, every depth, every seed; what is in the store is not done again."""
    began = time.monotonic()
    check(request)
    trackers = Trackers(options.trackers, options.out, progress.note)
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(make_executor(request, options))
        opened = open_curve(request, options.out, max_cache_bytes=options.max_cache_bytes)
        resolved = opened.resolved
        settled = curve_config(resolved, options.out, max_cache_bytes=options.max_cache_bytes)
        atomic.write(options.out / "curve.yaml", settled)
        for line in plan_lines(opened):
            progress.note(line)
        page = LivePage(options.out, lambda: curve_chapter(opened.store, resolved), progress.note)
        listeners = (progress_listener(progress, resolved.n_layers), trackers, PageListener(page))
        sweep = stack.enter_context(Sweep(opened.store, executor, listeners, options.rerun))
        runs, probes = of_curve(resolved), list[RunSpec]()
        if options.probe:
            check_pooled(opened, options.max_cache_bytes)
            probes = probe_specs(resolved.base, request.seeds, is_cached=resolved.is_cached)
        sweep.plan([*runs.specs(), *probes])
        searched, rates = choose_rates(sweep, runs, functools.partial(_at_leading_rate, runs))
        if None not in rates:
            raise AllCrashedError(f"every run of the line search crashed; the first: {sweep.crashes[0].error}")
        results = run_whole(sweep, flat(runs.replicates(rates)))
        counts = sweep.counts
        run_whole(sweep, probes)
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
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(make_executor(resolved.asked, options))
        listeners = (progress_listener(progress, resolved.n_layers),)
        sweep = stack.enter_context(Sweep(opened.store, executor, listeners, options.rerun))
        sweep.plan(flat(runs.searches()))
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


def make_executor(request: CurveSpec, options: SweepOptions) -> Executor:
    """The executor for the runs of a request."""
    n_workers = workers(request, options)
    return LocalProcesses(n_workers, threads=request.threads, max_cache_bytes=options.max_cache_bytes)


def workers(request: CurveSpec, options: SweepOptions) -> int:
    """How many runs are done at a time."""
    if options.n_workers is None:
        return default_workers(request.threads, pick_device(request.device))
    return check_between("workers", options.n_workers, 1, 1024)


def say(sweep: Sweep, text: str) -> None:
    """Sends a message to all listeners of a sweep."""
    for listener in sweep.listeners:
        listener.message(text)


def choose_rates(
    sweep: Sweep, runs: Programme[Name], guess: Guess = lambda _: ()
) -> tuple[dict[str, RunResult], dict[Name, float]]:
    """What the runs that choose rates gave, by key, and the rate chosen for each; one whose runs crashed has none."""
    groups = runs.searches()
    results = run_whole(sweep, flat(groups), guess) if groups else {}
    rates = runs.rates(results)
    if runs.settled.asked.protocol == "paper" and groups and rates:
        say(sweep, f"the line search chose the rate {next(iter(rates.values())):g}")
    elif groups:
        said = ", ".join(f"{runs.wanted[name].name} {rate:g}" for name, rate in rates.items() if rate)
        say(sweep, f"the line search chose the rates: {said}")
    return results, rates


def _at_leading_rate(runs: Programme[Depth], searched: Collection[RunResult]) -> list[RunSpec]:
    """The full model's runs if the rate that leads so far wins, as it mostly does once little is left to search.

    Not those of a depth: a run that is stopped while it computes prefix states would have to compute them again.
    """
    if not searched or runs.settled.asked.protocol != "paper":
        return []
    return runs.replicates({None: best_rate(searched)})[None]


def plan_lines(opened: Opened) -> list[str]:
    """What will be trained, before anything is."""
    resolved, data = opened.resolved, opened.data
    spec, counts = resolved.base, count_trained(resolved.base.model, data.label_names, resolved.depths)
    lines = [
        f"{spec.model}: {resolved.n_layers} layers, {counts[None]:,} parameters with the head",
        f"{spec.task.name}: {len(data.train):,} training rows, {len(data.dev):,} dev rows, score: {spec.task.metric}",
    ]
    for depth, trained in counts.items():
        lines.append(f"{name_of(depth)}: trains {trained:,} ({trained / counts[None]:.1%})")
    cached = (
        f"kept, about {opened.prefix_bytes / 1e6:.0f} MB a depth" if resolved.is_cached else "computed in every step"
    )
    return [*lines, f"what the frozen layers put out is {cached}", *(f"take care: {n}" for n in data.notices)]
