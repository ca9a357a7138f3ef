"""A comparison of strategies: a rate for each, replicates of each, under one loop, task and statistics."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from frostline.analysis import ComparisonChapter
from frostline.errors import UsageError
from frostline.execution.sweep import AllCrashedError, Sweep, SweepOptions, choose_rates, make_executor
from frostline.execution.trackers import Tracking
from frostline.model.load import load_model
from frostline.model.stack import Stack
from frostline.records.plans import Plan
from frostline.records.requests import CurveSpec, ResolvedComparison
from frostline.report.progress.display import Progress
from frostline.report.progress.live import LivePage
from frostline.storage import atomic
from frostline.strategies import Full, Strategy, parse
from frostline.studies.protocols import Programme, flat, of_comparison
from frostline.studies.requests.config_file import compare_config
from frostline.studies.requests.resolve import Opened, check, check_pooled, open_comparison
from frostline.studies.stored import comparison_chapter, comparison_chapter_of, comparison_of


def run_compare(
    request: CurveSpec, strategies: Sequence[str], options: SweepOptions, progress: Progress
) -> ComparisonChapter:
    """A rate and replicates for each strategy; what is in the store is not done again."""
    began = time.monotonic()
    check(request)
    check_strategies(strategies)
    limit = options.max_cache_bytes
    tracking = Tracking(options.trackers, options.out, progress.note)
    with make_executor(request, options) as executor:
        opened, comparison, lines = opened_comparison(request, strategies, options)
        runs = of_comparison(comparison)
        for line in lines:
            progress.note(line)
        settled = compare_config(comparison, options.out, max_cache_bytes=limit)
        atomic.write(options.out / "compare.yaml", settled)
        page = LivePage(options.out, lambda: comparison_chapter(opened.store, comparison), progress.note)
        told = (tracking.log, lambda _: page.renew())
        sweep = Sweep(opened.store, executor, progress, opened.resolved.n_layers, options.rerun, told=told)
        sweep.announce(runs.specs())
        searched, rates = choose_rates(sweep, runs)
        results = sweep.run(flat(runs.replicates(rates)))
    if not results:
        raise AllCrashedError(f"every run of the comparison crashed; the first: {sweep.crashes[0].error}")
    found = searched | results
    made = comparison_of(comparison, found, runs=sweep.counts, wall_seconds=time.monotonic() - began)
    return comparison_chapter_of(opened.store, made, list(found.values()), settled)


def opened_comparison(
    request: CurveSpec, strategies: Sequence[str], options: SweepOptions
) -> tuple[Opened, ResolvedComparison, list[str]]:
    """A comparison settled, and what each strategy will train; refused before a request is written."""
    lines: list[str] = []

    def check_model(opened: Opened, comparison: ResolvedComparison) -> None:
        lines.extend(plan_lines(opened, comparison))
        if any(strategy.is_closed_form for strategy in of_comparison(comparison).wanted.values()):
            check_pooled(opened, options.max_cache_bytes)

    limit = options.max_cache_bytes
    opened, comparison = open_comparison(
        request, strategies, options.out, max_cache_bytes=limit, check_model=check_model
    )
    return opened, comparison, lines


def check_strategies(strategies: Sequence[str]) -> None:
    """Raises one UsageError with all that cannot be read, or stands there twice."""
    faults = [f"strategy {name!r} is there twice; give it once" for name in _twice(strategies)]
    for name in strategies:
        try:
            parse(name)
        except UsageError as error:
            faults.append(str(error))
    if faults or not strategies:
        raise UsageError.together(
            faults or ["no strategies; give at least one, e.g. --strategies full,freeze:3,lora:8"]
        )


def _twice(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def plan_lines(opened: Opened, comparison: ResolvedComparison) -> list[str]:
    """What each strategy will train, before anything does; a UsageError with all that this model cannot."""
    spec, data = opened.resolved.base, opened.data
    stack = Stack(load_model(spec.model, head_seed=0, label_names=data.label_names, pad_token_id=None))
    runs = of_comparison(comparison)
    plans = _plans(opened, runs, stack)
    rows = f"{len(data.train):,} training rows, {len(data.dev):,} dev rows"
    return [
        f"{spec.model}: {opened.resolved.n_layers} layers",
        f"{spec.task.name}: {rows}, score: {spec.task.metric}",
        *(f"{name}: {_summary(runs.wanted[name], plan, stack, spec.epochs)}" for name, plan in plans.items()),
        *(f"take care: {notice}" for notice in data.notices),
    ]


def check_plan(opened: Opened, strategy: Strategy) -> None:
    """Raises where a strategy is not for the model of a request."""
    spec, names = opened.resolved.base, opened.data.label_names
    _planned(opened, strategy, Stack(load_model(spec.model, head_seed=0, label_names=names, pad_token_id=None)))


def _plans(opened: Opened, runs: Programme[str], stack: Stack) -> dict[str, Plan]:
    plans: dict[str, Plan] = {}
    faults: list[str] = []
    by_meaning: dict[str, str] = {}
    for name, strategy in runs.wanted.items():
        if (other := by_meaning.setdefault(strategy.name, name)) != name:
            faults.append(f"strategies {other!r} and {name!r} are the same for this model; give one of them")
            continue
        try:
            plans[name] = _planned(opened, strategy, stack)
        except UsageError as error:
            faults.append(f"{name}: {error}")
    if faults:
        raise UsageError.together(faults)
    return plans


def _planned(opened: Opened, strategy: Strategy, stack: Stack) -> Plan:
    if strategy != Full():
        opened.pretrained.check_depth()
    return strategy.plan(stack)


def _summary(strategy: Strategy, plan: Plan, stack: Stack, n_epochs: int) -> str:
    """What a plan trains, in words. The counts include added modules, as in the table of results."""
    whole = stack
    if plan.added:
        whole = stack.without_weights()
        with torch.device("meta"):
            strategy.add_modules(whole)
    count, total = whole.count(plan.trained(n_epochs)), whole.count(whole.all_parameters)
    parts = [f"trains {count:,} ({count / total:.1%})"]
    if plan.added:
        parts.append(f"adds {len(plan.added)} {'module' if len(plan.added) == 1 else 'modules'}")
    if plan.edits:
        parts.append(f"re-initialises {stack.count(plan.edits):,}")
    return ", ".join(parts)
