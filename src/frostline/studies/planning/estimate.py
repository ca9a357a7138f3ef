"""What runs will take, or would take in a plain training loop, from a few timed steps.

Only a few kinds of run are timed: a depth between two timed ones lies on the line between them.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline import stats
from frostline.records.environment import n_cores
from frostline.records.requests import ResolvedRequest
from frostline.records.serial import Record, added_later, if_set
from frostline.records.specs import RunSpec
from frostline.report import numbers
from frostline.strategies import Freeze, SetFit, parse
from frostline.studies.planning.axis import axis_of
from frostline.studies.planning.protocols import depth_programme
from frostline.studies.planning.schedule import Load, simulate
from frostline.studies.study import Results
from frostline.training.batches import n_epochs, n_steps
from frostline.training.forward import predict
from frostline.training.inside.without_steps import TRAIN_SAMPLE
from frostline.training.run import Runner

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Inputs, Resolver

_TIMED_STEPS = 5
_TIMED_ROWS = 96
_NODE_SECONDS = 15.0
"""starting an actor on a node and importing libraries there"""
_FRAME_SECONDS = 2.5
"""starting Python, and writing the results and the page at the end; measured on two cores"""
_BYTES_PER_RUN_FILE = 6_000
_BYTES_PER_DEV_ROW = 40


@final
@dataclass(frozen=True)
class Pace:
    """The speed of a run."""

    step_seconds: float
    """one training step"""
    row_seconds: float
    """evaluating one row"""
    load_seconds: float = 0.0
    """loading the model"""


@final
@dataclass(frozen=True, kw_only=True)
class Estimate(Record):
    """What is ahead."""

    runs: int
    """all runs, line search included"""
    missing: int
    """runs that are not in the store"""
    minutes: float
    """time to do them, from a few timed steps"""
    cache_bytes: int
    """prefix states of all depths, if all are cached at once"""
    store_bytes: int
    """files of the missing runs"""
    is_at_most: bool = added_later(False)
    """a search stops as soon as it is sure: runs and time are the most that it may take"""
    nodes: int | None = if_set(None)
    """nodes of the cluster that would do them; None: this machine"""
    node_hours: float | None = if_set(None)
    """hours that these nodes are held, added up"""
    tells_apart: float | None = added_later(None)
    """a depth that is this far from the share is settled with 80% probability, if scores of around 0.85 vary by 0.012
    from seed to seed; None below two seeds"""

    @property
    def text(self) -> str:
        """All of it in a line."""
        most = "at most " if self.is_at_most else ""
        return (
            f"{most}{numbers.counted(self.runs, 'run')}, {self.missing} of them to do: "
            f"{most}about {numbers.rough_duration(60 * self.minutes)}{self._on_nodes}, "
            f"{numbers.size(self.cache_bytes)} of prefix states, {numbers.size(self.store_bytes)} of results"
            f"{self._power}"
        )

    @property
    def _on_nodes(self) -> str:
        if self.nodes is None or self.node_hours is None:
            return ""
        return f" on {numbers.counted(self.nodes, 'node')} ({self.node_hours:.2g} node-hours)"

    @property
    def _power(self) -> str:
        if self.tells_apart is None:
            return ""
        return f"; enough to settle depths that are {self.tells_apart:.3f} or more from the share (80% of the time)"


def estimate_runs(
    resolver: Resolver,
    resolved: ResolvedRequest,
    specs: Sequence[RunSpec],
    *,
    places: Sequence[int],
    is_cluster: bool,
    most: float | None,
    start_seconds: float,
) -> Estimate:
    """Runs, time and disk space that a study still takes.

    Args:
        resolver: has the model, the data and the store.
        resolved: what the runs have in common.
        specs: all runs of the study, as far as can be foreseen.
        places: runs at the same time, on each machine.
        is_cluster: they are the nodes of a cluster, not this machine.
        most: where the study may stop early, the most that it may still spend, in full-run equivalents.
        start_seconds: what this call took to import libraries and to read model and data; the study takes it again.
    """
    inputs = resolver.inputs(resolved)
    missing = [spec for spec in specs if resolver.store.get(spec.key) is None]
    cached = {spec.strategy for spec in missing if spec.is_cached}
    timed = [resolved.base] if most is not None and missing else missing
    runs, prefix = _run_times(inputs, timed)
    if most is not None:
        runs, prefix = [seconds * most / math.ceil(most) for seconds in runs] * math.ceil(most), prefix * most
    seconds = (math.fsum(runs) + prefix) / sum(places)
    if is_cluster:
        seconds = simulate(Load(rounds=[runs], prefix=prefix, start=_NODE_SECONDS), places).seconds
    minutes = (start_seconds + _FRAME_SECONDS + seconds) / 60 if missing else 0.0
    return Estimate(
        runs=len(specs),
        missing=len(missing),
        minutes=minutes,
        nodes=len(places) if is_cluster else None,
        node_hours=len(places) * minutes / 60 if is_cluster else None,
        cache_bytes=len(cached) * inputs.prefix_bytes(resolved.request),
        store_bytes=len(missing) * (_BYTES_PER_RUN_FILE + _BYTES_PER_DEV_ROW * len(inputs.dev)),
        is_at_most=most is not None,
        tells_apart=_tells_apart(resolved, len(inputs.dev)),
    )


def _tells_apart(resolved: ResolvedRequest, n_rows: int) -> float | None:
    request, n_seeds = resolved.request, len(resolved.request.seeds)
    if n_seeds < 2 or n_rows < 2 or not request.keep:
        return None
    error = (1 - request.confidence) / max(1, len(axis_of(resolved).values))
    return stats.told_apart(n_seeds, n_rows, keep=request.keep[0], error=error, score=0.85, deviation=0.012)


def full_run_seconds(resolver: Resolver, resolved: ResolvedRequest) -> float:
    """Time of one run of the full model, from a few timed steps."""
    return _seconds(resolver.inputs(resolved), [resolved.base])


def plain_loop_seconds(resolver: Resolver, resolved: ResolvedRequest) -> float:
    """Time of a curve's runs in a plain loop: frozen by `requires_grad`, padded batches, one by one on all cores."""
    changes = {"is_cached": False, "frozen_dropout": True, "layout": "padded", "threads": n_cores()}
    specs = depth_programme(resolved).runs_ahead(Results())
    return _seconds(resolver.inputs(resolved), [spec.replace(**changes) for spec in specs])


def _seconds(inputs: Inputs, specs: Sequence[RunSpec]) -> float:
    """Time of runs, one after another."""
    runs, prefix = _run_times(inputs, specs)
    return math.fsum(runs) + prefix


def _run_times(inputs: Inputs, specs: Sequence[RunSpec]) -> tuple[list[float], float]:
    """Seconds of each run, and of computing prefix states once."""
    paces = _paces(specs)
    runs = [_run_seconds(spec, paces[spec.strategy], inputs) for spec in specs]
    # One pass of all rows through the frozen layers fills the cache for every depth.
    passes = inputs.n_rows if any(spec.is_cached for spec in specs) else 0
    return runs, passes * max((pace.row_seconds for pace in paces.values()), default=0.0)


def _paces(specs: Sequence[RunSpec]) -> dict[str, Pace]:
    """How fast each strategy trains and evaluates: of depths, only the ends are timed."""
    runner = Runner(max_cache_bytes=0)  # the timed rows are few: their states are not worth a place on the disk
    by_strategy = {spec.strategy: spec for spec in specs}
    depths = sorted(d for name in by_strategy if (d := _depth(name)) is not None)
    between = {f"freeze:{depth}" for depth in depths[1:-1]}
    paces = {name: _pace(runner, spec) for name, spec in by_strategy.items() if name not in between}
    for depth in depths[1:-1]:
        low, high = paces[f"freeze:{depths[0]}"], paces[f"freeze:{depths[-1]}"]
        share = (depth - depths[0]) / (depths[-1] - depths[0])
        paces[f"freeze:{depth}"] = Pace(
            step_seconds=low.step_seconds + share * (high.step_seconds - low.step_seconds),
            row_seconds=low.row_seconds + share * (high.row_seconds - low.row_seconds),
            load_seconds=max(low.load_seconds, high.load_seconds),
        )
    return paces


def _depth(name: str) -> int | None:
    strategy = parse(name)
    return strategy.n_frozen if isinstance(strategy, Freeze) else None


def _pace(runner: Runner, spec: RunSpec) -> Pace:
    """How fast a run goes on a few rows."""
    task = spec.task
    few = task.replace(max_train=_at_most(task.max_train), max_dev=_at_most(task.max_dev))
    return timed(runner, spec.replace(task=few))


def timed(runner: Runner, spec: RunSpec) -> Pace:
    """The speed of a spec on this machine, measured on a few steps; nothing is stored."""
    if parse(spec.strategy).is_closed_form:  # no steps: time a whole fit, per row
        result = runner.run(spec)
        return Pace(0.0, result.cost.seconds / (result.n_train + result.n_dev))
    if isinstance(parse(spec.strategy), SetFit):  # its steps are the library's: time a whole run on few pairs, per pair
        few = SetFit(1)
        result = runner.run(spec.replace(strategy=few.name))
        return Pace(result.cost.seconds / few.n_pairs(result.n_train, len(result.label_names)), 0.0)
    with runner.descending(spec):  # once without timing: the library sets itself up
        began = time.perf_counter()
    with runner.descending(spec) as (training, descent):
        loading = time.perf_counter() - began
        batches = itertools.islice(itertools.cycle(descent.batches(epoch=1)), _TIMED_STEPS + 1)
        seconds = [_spent(functools.partial(descent.step, batch)) for batch in batches]
        evaluating = _spent(lambda: predict(training.forward, training.dev))
    # The first step includes one-time setup in the library. The mean, not the median: on a busy machine most steps are
    # fast, and a few wait for the processor.
    return Pace(statistics.fmean(seconds[1:]), evaluating / len(training.dev), loading)


def _spent(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _at_most(given: int | None) -> int:
    return _TIMED_ROWS if given is None else min(given, _TIMED_ROWS)


def _run_seconds(spec: RunSpec, pace: Pace, inputs: Inputs) -> float:
    n_train, n_dev = spec.task.max_train or len(inputs.train), len(inputs.dev)
    strategy = parse(spec.strategy)
    if strategy.is_closed_form:  # one fit to all rows
        return (n_train + n_dev) * pace.row_seconds
    if isinstance(strategy, SetFit):
        return strategy.n_pairs(n_train, len(inputs.data.label_names)) * pace.step_seconds
    n_sampled = min(n_train, TRAIN_SAMPLE) if spec.role == "replicate" else 0
    n_evaluated = n_epochs(spec, n_train) * n_dev + n_sampled
    return pace.load_seconds + n_steps(spec, n_train) * pace.step_seconds + n_evaluated * pace.row_seconds
