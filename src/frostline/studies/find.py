"""The answer with as few runs as the evidence needs: a race of the rates, then a search over depth.

What is asked of the store or run next follows from the scores alone, so a search that was killed goes on as it would
have, and what it ran is there for a later curve.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from frostline import stats
from frostline.analysis import Answer, Curve, Finding, Replicates, TriedRate, build_curve, dev_variance
from frostline.analysis.points import trained_above
from frostline.errors import UsageError
from frostline.execution.executor import cached_strategies
from frostline.execution.sweep import AllCrashedError, Sweep, SweepOptions, finished_searches, make_executor, plan_lines
from frostline.execution.trackers import Tracking
from frostline.kinds import metrics
from frostline.records.depth import FULL, Depth, depth_words, with_full
from frostline.records.requests import CurveSpec, ResolvedCurve
from frostline.records.results import Paused, RunResult
from frostline.records.specs import RunSpec
from frostline.report.curve_chapter import CurveChapter
from frostline.report.progress.display import Progress
from frostline.stats import search_rules
from frostline.stats.search_rules import Decision, Question, Run, Standing
from frostline.storage import atomic
from frostline.studies.protocols import best_rate, line_search_specs, of_curve, spec_at_depth, units
from frostline.studies.requests.config_file import find_config
from frostline.studies.requests.resolve import Opened, check, open_curve
from frostline.studies.stored import chapter_of, summed


@dataclass(frozen=True, kw_only=True)
class Goal:
    """When a search ends."""

    confidence: float = 0.95
    """how sure the answer must be"""
    budget: float | None = None
    """for all runs together, in full runs; by default half of what the whole curve takes"""


@dataclass(frozen=True)
class _Raced:
    """How a rate was chosen."""

    rate: float
    tried: list[TriedRate] = field(default_factory=list)
    spent: float = 0.0
    """in full runs"""
    seconds: float = 0.0
    """of training and scoring"""


def check_goal(request: CurveSpec, goal: Goal) -> None:
    """Raises a UsageError where a search cannot end as asked."""
    if len(request.keep) != 1:
        raise UsageError(f"find looks for one share; keep is {', '.join(f'{k:g}' for k in request.keep)}: give one")
    if request.protocol != "paper":
        raise UsageError(f"find reuses the full model's rate, as protocol paper does; protocol is {request.protocol}")
    if len(request.seeds) < search_rules.FIRST_SEEDS:
        raise UsageError(f"find compares {search_rules.FIRST_SEEDS} seeds at least; there is one: give more")
    if not 0.5 <= goal.confidence < 1:
        raise UsageError(f"confidence is {goal.confidence:g}; it must lie between 0.5 and 1, e.g. 0.95")
    if goal.budget is not None and not 0 < goal.budget < math.inf:
        raise UsageError(f"budget is {goal.budget:g}; it must be above 0 and finite, in full runs")


def run_find(request: CurveSpec, goal: Goal, options: SweepOptions, progress: Progress) -> tuple[Finding, CurveChapter]:
    """The fewest trained layers that keep a share, decided at a confidence or open, and what a report tells of it."""
    began = time.monotonic()
    check(request)
    check_goal(request, goal)
    tracking = Tracking(options.trackers, options.out, progress.note)
    with make_executor(request, options) as executor:
        limit = options.max_cache_bytes
        opened = open_curve(request, options.out, max_cache_bytes=limit, command="find")
        resolved = opened.resolved
        settled = find_config(
            resolved, options.out, confidence=goal.confidence, budget=goal.budget, max_cache_bytes=limit
        )
        atomic.write(options.out / "find.yaml", settled)
        for line in plan_lines(opened):
            progress.note(line)
        depths = cached_strategies([spec_at_depth(resolved, depth, 1.0) for depth in resolved.depths])
        sweep = Sweep(
            opened.store, executor, progress, resolved.n_layers, options.rerun, told=(tracking.log,), beside=depths
        )
        raced = chosen(sweep, opened)
        search = _Search(sweep, resolved, raced, _question(opened, goal, raced))
        decision = search.run()
    finding = _finding(search, goal, decision, time.monotonic() - began)
    return finding, chapter_of(opened.store, finding, search.finished(), settled)


def chosen(sweep: Sweep, opened: Opened) -> _Raced:
    """The rate given, or that of a race; a line search that is over is not raced again."""
    resolved = opened.resolved
    specs = line_search_specs(resolved)
    if not specs:
        return _Raced(resolved.asked.learning_rates[0])
    finished = finished_searches(opened)
    if finished and not _is_raced(sweep, specs, _n_steps(opened)):
        best = max(finished, key=len)
        tried = [TriedRate(learning_rate=r.spec.learning_rate, score=r.score) for r in best]
        return _Raced(best_rate(best), tried)
    return race(sweep, specs, _n_steps(opened))


def race(sweep: Sweep, specs: Sequence[RunSpec], n_steps: int) -> _Raced:
    """All rates start; those that fall behind are left where they are.

    Args:
        sweep: who does the runs.
        specs: one a rate.
        n_steps: of a whole run.
    """
    left = list(specs)
    tried, seconds = dict[str, TriedRate](), dict[str, float]()
    for share, n_left in search_rules.RUNGS:
        found = sweep.run_until(left, _rung(share, n_steps))
        if not found:
            raise AllCrashedError(f"every run of the race crashed; the first: {sweep.crashes[0].error}")
        for spec in left:
            score = found[spec.key].score if spec.key in found else None
            tried[spec.key] = TriedRate(learning_rate=spec.learning_rate, score=score, share=share)
        seconds |= {key: paused.seconds for key, paused in found.items()}
        by_rate = {paused.spec.learning_rate: paused for paused in found.values()}
        ranked = [by_rate[one.rate] for one in search_rules.ranked([_standing(paused) for paused in found.values()])]
        left = [paused.spec for paused in ranked[:n_left]]
        said = ", ".join(f"{p.spec.learning_rate:g} {p.score:.3f} (loss {p.loss:.3f})" for p in ranked)
        sweep.progress.note(f"race, after {share:.0%} of the steps: {said}")
    sweep.progress.note(f"the race chose the rate {left[0].learning_rate:g}")
    sweep.drop_checkpoints(specs)
    return _Raced(
        left[0].learning_rate,
        [tried[spec.key] for spec in specs],
        search_rules.race_cost(len(specs)),
        sum(seconds.values()),
    )


def _standing(paused: Paused) -> Standing:
    return Standing(rate=paused.spec.learning_rate, score=paused.score, noise=paused.noise, loss=paused.loss)


def _rung(share: float, n_steps: int) -> int:
    return max(1, math.ceil(share * n_steps))


def _is_raced(sweep: Sweep, specs: Sequence[RunSpec], n_steps: int) -> bool:
    """Whether a race was run to its end here: then its choice stands."""
    last = _rung(search_rules.RUNGS[-1][0], n_steps)
    return any(sweep.store.get_paused(spec.key, last) is not None for spec in specs)


def _n_steps(opened: Opened) -> int:
    base = opened.resolved.base
    return base.epochs * math.ceil(len(opened.train) / base.batch_size)


def _question(opened: Opened, goal: Goal, raced: _Raced) -> Question:
    resolved = opened.resolved
    budget = runs_of_curve(resolved) / 2 if goal.budget is None else goal.budget
    metric = resolved.base.task.metric
    assert metric is not None, "a resolved task has its metric"
    chance = metrics.chance(metric, opened.dev.labels)
    return Question(
        keep=resolved.asked.keep[0],
        base=0.0 if resolved.asked.scale == "ratio" else chance,
        chance=chance,
        confidence=goal.confidence,
        seeds=resolved.asked.seeds,
        depths=resolved.depths,
        costs=run_costs(resolved),
        budget=budget,
        spent=raced.spent,
    )


def run_costs(resolved: ResolvedCurve) -> dict[Depth, float]:
    """Of one run at each depth, in full runs by the cost model."""
    specs = {depth: spec_at_depth(resolved, depth, 1.0) for depth in with_full(resolved.depths)}
    of_full = units(specs[FULL], resolved.n_layers)
    return {depth: units(spec, resolved.n_layers) / of_full for depth, spec in specs.items()}


def runs_of_curve(resolved: ResolvedCurve) -> float:
    """What the whole curve takes, its line search included, in full runs by the cost model."""
    of_full = units(resolved.base.replace(strategy="full"), resolved.n_layers)
    return math.fsum(units(spec, resolved.n_layers) for spec in of_curve(resolved).specs()) / of_full


@dataclass
class _Search:
    """Asks for runs until it is decided, or nothing more may be spent."""

    sweep: Sweep
    resolved: ResolvedCurve
    raced: _Raced
    question: Question
    results: dict[Depth, dict[int, RunResult | None]] = field(default_factory=dict)
    """what came of each run that was asked for, by depth and seed; None: it crashed"""

    def run(self) -> Decision:
        """How it ends."""
        while isinstance(step := search_rules.next_step(self.question, self._scores(), self._noise()), list):
            specs = {run: self.spec(run) for run in step}
            self.sweep.announce(list(specs.values()))
            likely = [
                self.spec(run) for run in search_rules.likely_step(self.question, self._scores(), step, self._noise())
            ]
            found = self.sweep.run(list(specs.values()), functools.partial(_always, likely))
            for (depth, seed), spec in specs.items():
                self.results.setdefault(depth, {})[seed] = found.get(spec.key)
        return step

    def spec(self, run: Run) -> RunSpec:
        """Of a depth and a seed, at the rate that was chosen."""
        depth, seed = run
        return spec_at_depth(self.resolved, depth, self.raced.rate).replace(seed=seed)

    @property
    def spent(self) -> float:
        """So far, in full runs."""
        runs = [(depth, seed) for depth, by_seed in self.results.items() for seed in by_seed]
        return self.raced.spent + self.question.cost(runs)

    def finished(self) -> list[RunResult]:
        """Every run that was asked for and did not crash."""
        return [result for by_seed in self.results.values() for result in by_seed.values() if result is not None]

    def replicates(self) -> Iterator[tuple[Depth, Replicates]]:
        """The runs of each depth that was tried, the full model's first."""
        for depth in with_full(self.resolved.depths):
            by_seed = self.results.get(depth, {})
            seeds = [seed for seed in self.resolved.asked.seeds if seed in by_seed]
            if seeds:
                results = [result for seed in seeds if (result := by_seed[seed]) is not None]
                yield depth, Replicates(specs=[self.spec((depth, seed)) for seed in seeds], results=results)

    def _scores(self) -> Mapping[Depth, Mapping[int, float | None]]:
        return {
            depth: {seed: None if result is None else result.score for seed, result in by_seed.items()}
            for depth, by_seed in self.results.items()
        }

    def _noise(self) -> float:
        """The variance of a full run's score over other dev rows; 0 before there is one."""
        full = [result for result in self.results.get(FULL, {}).values() if result is not None]
        metric = self.resolved.base.task.metric
        return dev_variance(metric, full[:1]) if full and metric else 0.0


def _always(specs: list[RunSpec], _: Collection[RunResult]) -> list[RunSpec]:
    """A guess that does not move while a step goes on: it is dropped or kept as a whole when the step is over."""
    return specs


def _finding(search: _Search, goal: Goal, decision: Decision, wall_seconds: float) -> Finding:
    groups = dict(search.replicates())
    results = search.finished()
    if not results:
        raise AllCrashedError(f"every run of the search crashed; the first: {search.sweep.crashes[0].error}")
    cost = summed([result.cost for result in results], wall_seconds)
    curve = build_curve(
        request=search.resolved.asked,
        full=groups[FULL],
        depths={depth: group for depth, group in groups.items() if depth is not FULL},
        line_search=search.raced.tried,
        cost=cost.replace(train_seconds=cost.train_seconds + search.raced.seconds),
        runs=search.sweep.counts,
    )
    warnings = tuple(dict.fromkeys([*_better(curve), *curve.warnings]))
    fields = {f.name: getattr(curve, f.name) for f in dataclasses.fields(curve)} | {"warnings": warnings}
    return Finding(
        **fields,
        answer=_answer(curve, search.resolved.asked, goal, decision),
        runs_spent=search.spent,
        runs_of_full_curve=runs_of_curve(search.resolved),
    )


def _answer(curve: Curve, asked: CurveSpec, goal: Goal, decision: Decision) -> Answer:
    means_nothing = curve.operating_point(asked.keep[0], asked.scale).trained_layers is None
    return Answer(
        keep=asked.keep[0],
        scale=asked.scale,
        n_frozen=decision.n_frozen,
        trained_layers=None if means_nothing else trained_above(decision.n_frozen, curve.n_layers),
        confidence=goal.confidence,
        decision="decided" if decision.is_decided else "open",
        stopped_because=decision.because,
    )


def _better(curve: Curve) -> Iterator[str]:
    """Depths that score above the full model, as the paper found on SST-2."""
    for point in curve.points:
        if point.difference is not None and stats.is_above(point.difference, 0.0):
            sure = point.difference_ci is not None and stats.is_above(point.difference_ci[0], 0.0)
            how = "its interval is above 0" if sure else "within noise"
            yield f"{depth_words(point.n_frozen)}: the score is {point.difference:.2g} above the full model ({how})"
