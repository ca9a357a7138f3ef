"""Stores → chapters of a report: every request of an out folder, as far as its runs are there. Needs no model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from frostline.analysis import (
    Comparison,
    Curve,
    CurveCost,
    Finding,
    ProbePoint,
    Provenance,
    Replicates,
    RunCounts,
    RunLine,
    TriedFor,
    TriedRate,
    build_comparison,
    build_curve,
    probe_points,
)
from frostline.errors import DataError, UsageError
from frostline.records.depth import FULL, Depth, with_full
from frostline.records.keys import key_of
from frostline.records.requests import ResolvedComparison, ResolvedCurve
from frostline.records.results import Cost, RunResult
from frostline.records.specs import RunSpec
from frostline.report.chapter import Chapter
from frostline.report.comparison_chapter import ComparisonChapter
from frostline.report.curve_chapter import CurveChapter
from frostline.storage.runs import Store
from frostline.strategies import Features, Freeze
from frostline.studies.prices import prices
from frostline.studies.protocols import Name, Programme, flat, name_of, of_comparison, of_curve
from frostline.studies.requests.config_file import compare_config, curve_config, find_config


def chapters(folder: Path) -> list[Chapter]:
    """What a report tells of an out folder: each curve that was asked for, the last search, each comparison."""
    if not (folder / "identity.json").is_file():
        raise UsageError(f"{folder} is no out folder: it has no identity.json; give one that `curve` or `find` made")
    store = Store(folder)
    told: list[Chapter] = []
    told += _different([made for request in store.requests("curve") if (made := curve_chapter(store, request))])
    told += _last_search(store)
    told += [found for request in store.comparisons() if (found := comparison_chapter(store, request)) is not None]
    if not told:
        raise UsageError(
            f"{folder} holds no finished curve yet; `frostline curve`, `find` or `compare` with --out {folder} goes on"
        )
    return told


def _different(told: Sequence[CurveChapter]) -> list[CurveChapter]:
    """The chapters without those that say the same again: one request may be written in two ways."""
    by_content = {key_of(chapter.curve.replace(model="").to_json()): chapter for chapter in reversed(told)}
    return [chapter for chapter in told if any(chapter is kept for kept in by_content.values())]


def curve_chapter(store: Store, resolved: ResolvedCurve) -> CurveChapter | None:
    """A curve as far as its runs are in the store; None before the full model's first is."""
    ended = _ended(store, of_curve(resolved))
    if not ended.has_replicates or FULL not in ended.groups:
        return None
    curve = curve_of(store, resolved, ended.found, runs=ended.counts, groups=ended.groups)
    settings = curve_config(resolved, store.folder)
    return chapter_of(store, curve, list(ended.found.values()), settings, ended.n_missing)


def comparison_chapter(store: Store, comparison: ResolvedComparison) -> ComparisonChapter | None:
    """A comparison as far as its runs are in the store; None before the first replicate is."""
    ended = _ended(store, of_comparison(comparison))
    if not ended.has_replicates:
        return None
    made = comparison_of(comparison, ended.found, runs=ended.counts, groups=ended.groups)
    settings = compare_config(comparison, store.folder)
    return comparison_chapter_of(store, made, list(ended.found.values()), settings, ended.n_missing)


@dataclass(frozen=True)
class _Ended(Generic[Name]):
    """The runs of a request that are over."""

    found: dict[str, RunResult]
    """what finished, by key"""
    groups: dict[Name, list[RunSpec]]
    """the replicates that finished or crashed"""
    counts: RunCounts
    n_missing: int
    has_replicates: bool


def _ended(store: Store, runs: Programme[Name]) -> _Ended[Name]:
    searched = _found(store, flat(runs.searches()))
    wanted = runs.replicates(runs.rates(searched))
    found = searched | _found(store, flat(wanted))
    crashed = {spec.key for spec in flat(wanted) if spec.key not in found and store.has_crashed(spec.key)}
    ended = found.keys() | crashed
    there = {name: [spec for spec in specs if spec.key in ended] for name, specs in wanted.items()}
    return _Ended(
        found=found,
        groups={name: specs for name, specs in there.items() if specs},
        counts=RunCounts(done=len(found), reused=0, crashed=len(crashed)),
        n_missing=len(runs.specs()) - len(found),
        has_replicates=len(found) > len(searched),
    )


def curve_of(
    store: Store,
    resolved: ResolvedCurve,
    found: Mapping[str, RunResult],
    *,
    runs: RunCounts,
    wall_seconds: float | None = None,
    groups: Mapping[Depth, list[RunSpec]] | None = None,
) -> Curve:
    """The curve that results draw, given by key: those that chose rates, and the replicates.

    `groups` holds the replicates that have ended, by default all; one of them that has no result crashed.
    """
    runs_asked = of_curve(resolved)
    groups = runs_asked.replicates(runs_asked.rates(found)) if groups is None else groups
    by_depth = _replicates(groups, found)
    return build_curve(
        request=resolved.asked,
        full=by_depth[FULL],
        depths={depth: group for depth, group in by_depth.items() if depth is not FULL},
        line_search=tried_rates(resolved, found),
        cost=summed([result.cost for result in found.values()], wall_seconds),
        runs=runs,
        extra_warnings=list(prices(store, resolved, groups)),
    )


def comparison_of(
    comparison: ResolvedComparison,
    found: Mapping[str, RunResult],
    *,
    runs: RunCounts,
    wall_seconds: float | None = None,
    groups: Mapping[str, list[RunSpec]] | None = None,
) -> Comparison:
    """The comparison of results, given by key: those that chose rates, and the replicates.

    `groups` holds the replicates that have ended, by default all; one of them that has no result crashed.
    """
    asked, n_layers = of_comparison(comparison), comparison.settled.n_layers
    rates = asked.rates(found)
    if groups is None:
        # Where every run that was to choose a rate crashed there is none: 0 stands for it.
        groups = asked.replicates({name: rates.get(name, 0.0) for name in asked.wanted})
    return build_comparison(
        request=comparison.settled.asked,
        groups=_replicates(groups, found),
        n_trained={name: strategy.n_trained(n_layers) for name, strategy in asked.wanted.items()},
        n_frozen={name: one.n_frozen if isinstance(one, Freeze) else None for name, one in asked.wanted.items()},
        line_search=[
            TriedFor(
                name=name or "full",
                learning_rate=spec.learning_rate,
                score=found[spec.key].score if spec.key in found else None,
            )
            for name, specs in asked.searches().items()
            for spec in specs
        ],
        cost=summed([result.cost for result in found.values()], wall_seconds),
        runs=runs,
    )


def _replicates(groups: Mapping[Name, list[RunSpec]], found: Mapping[str, RunResult]) -> dict[Name, Replicates]:
    return {
        name: Replicates(specs=specs, results=[found[spec.key] for spec in specs if spec.key in found])
        for name, specs in groups.items()
    }


def tried_rates(resolved: ResolvedCurve, found: Mapping[str, RunResult]) -> list[TriedRate]:
    """What was tried for the full model."""
    searches = of_curve(resolved).searches()
    # One search for all depths (protocol paper) has the key None.
    return [
        TriedRate(learning_rate=spec.learning_rate, score=found[spec.key].score if spec.key in found else None)
        for spec in searches.get(None) or searches.get(FULL, [])
    ]


def summed(costs: Sequence[Cost], wall_seconds: float | None) -> CurveCost:
    """What runs took together."""
    return CurveCost(
        wall_seconds=wall_seconds,
        prefix_seconds=sum(cost.prefix_seconds for cost in costs),
        train_seconds=sum(cost.seconds for cost in costs),
        cache_bytes=max((cost.cache_bytes for cost in costs), default=0),
    )


def _found(store: Store, specs: Sequence[RunSpec]) -> dict[str, RunResult]:
    return {spec.key: result for spec in specs if (result := store.get(spec.key)) is not None}


def _last_search(store: Store) -> list[CurveChapter]:
    """The search whose answer is in the folder, if there is one."""
    path = store.folder / "find.json"
    if not path.is_file():
        return []
    try:
        finding = Finding.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, DataError) as error:
        raise DataError(f"not the answer of a search: {error}; move it away, or run `find` again", path=path) from error
    for resolved in store.requests("find"):
        rates = dict.fromkeys(with_full(resolved.depths), finding.learning_rate)
        found = list(_found(store, _of_finding(finding, flat(of_curve(resolved).replicates(rates)))).values())
        if resolved.asked.keep == (finding.answer.keep,) and resolved.asked.scale == finding.answer.scale and found:
            answer = finding.answer
            settings = find_config(resolved, store.folder, confidence=answer.confidence)
            return [chapter_of(store, finding, found, settings)]
    return [CurveChapter(curve=finding)]


def _of_finding(finding: Finding, specs: Sequence[RunSpec]) -> list[RunSpec]:
    """The runs that a search asked for."""
    points = (finding.full, *finding.points)
    asked = {(name_of(point.n_frozen), seed) for point in points for seed in point.seeds}
    return [spec for spec in specs if (spec.strategy, spec.seed) in asked]


def chapter_of(
    store: Store, curve: Curve, results: Sequence[RunResult], settings: str, n_missing: int = 0
) -> CurveChapter:
    """A curve with the runs that it comes from and how to do it again, and what the store has of probes."""
    return CurveChapter(
        curve=curve,
        runs=tuple(RunLine.of(result) for result in results),
        n_missing=n_missing,
        provenance=Provenance.of(store.folder, settings, results),
        probes=_probes(store, results[0].spec, curve.full.seeds),
    )


def _probes(store: Store, spec: RunSpec, seeds: Sequence[int]) -> tuple[ProbePoint, ...]:
    """What the store has of them, cached or not."""
    found = [_found(store, probe_specs(spec, seeds, is_cached=is_cached)) for is_cached in (True, False)]
    return probe_points(max(found, key=len).values())


def probe_specs(spec: RunSpec, seeds: Sequence[int], *, is_cached: bool) -> list[RunSpec]:
    """Fits to the features of all layers, one a seed, on the same rows as a run."""
    assert spec.task.kind is not None, "the task of a run is resolved"
    strategy = Features().settled(0, spec.task.kind)
    changes = {"strategy": strategy.name, "learning_rate": 0.0, "role": "replicate", "cache_dtype": "fp32"}
    return [spec.replace(seed=seed, is_cached=is_cached, **changes) for seed in seeds]


def comparison_chapter_of(
    store: Store, comparison: Comparison, results: Sequence[RunResult], settings: str, n_missing: int = 0
) -> ComparisonChapter:
    """A comparison with the runs that it comes from and how to do it again."""
    return ComparisonChapter(
        comparison=comparison,
        runs=tuple(RunLine.of(result) for result in results),
        n_missing=n_missing,
        provenance=Provenance.of(store.folder, settings, results),
    )
