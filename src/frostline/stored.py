"""Stores → chapters of a report: every request of an out folder, as far as its runs are there. Needs no model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from frostline.analysis import (
    Chapter,
    Curve,
    CurveCost,
    Finding,
    Provenance,
    Replicates,
    RunCounts,
    RunLine,
    TriedRate,
    build_curve,
)
from frostline.config import curve_config, find_config
from frostline.errors import DataError, UsageError
from frostline.prices import prices
from frostline.protocols import Depth, all_specs, chosen_rates, flat, name_of, replicates, search_specs
from frostline.records import Cost, ResolvedCurve, RunResult, RunSpec
from frostline.store import Store


def chapters(folder: Path) -> list[Chapter]:
    """What a report tells of an out folder: each curve that was asked for, and the last search."""
    if not (folder / "identity.json").is_file():
        raise UsageError(f"{folder} is no out folder: it has no identity.json; give one that `curve` or `find` made")
    store = Store(folder)
    told = [chapter for request in store.requests("curve") if (chapter := curve_chapter(store, request)) is not None]
    told += _last_search(store)
    if not told:
        raise UsageError(
            f"{folder} holds no finished curve yet; `frostline curve` or `find` with --out {folder} goes on"
        )
    return told


def curve_chapter(store: Store, resolved: ResolvedCurve) -> Chapter | None:
    """A curve as far as its runs are in the store; None before the full model's first is."""
    searched = _found(store, flat(search_specs(resolved)))
    rates = chosen_rates(resolved, searched)
    wanted = replicates(resolved, rates)
    found = searched | _found(store, flat(wanted))
    crashed = {spec.key for spec in flat(wanted) if spec.key not in found and store.has_crashed(spec.key)}
    ended = found.keys() | crashed
    if len(found) == len(searched) or not any(spec.key in ended for spec in wanted.get(None, ())):
        return None
    counts = RunCounts(done=len(found), reused=0, crashed=len(crashed))
    there = {depth: [spec for spec in specs if spec.key in ended] for depth, specs in wanted.items()}
    curve = curve_of(
        store, resolved, found, runs=counts, groups={depth: specs for depth, specs in there.items() if specs}
    )
    n_missing = len(all_specs(resolved)) - len(found)
    return chapter_of(store, curve, list(found.values()), curve_config(resolved, store.folder), n_missing)


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
    groups = replicates(resolved, chosen_rates(resolved, found)) if groups is None else groups
    by_depth = {
        depth: Replicates(specs=specs, results=[found[spec.key] for spec in specs if spec.key in found])
        for depth, specs in groups.items()
    }
    return build_curve(
        request=resolved.asked,
        full=by_depth[None],
        depths={depth: group for depth, group in by_depth.items() if depth is not None},
        line_search=tried_rates(resolved, found),
        cost=summed([result.cost for result in found.values()], wall_seconds),
        runs=runs,
        extra_warnings=list(prices(store, resolved, groups)),
    )


def tried_rates(resolved: ResolvedCurve, found: Mapping[str, RunResult]) -> list[TriedRate]:
    """What was tried for the full model."""
    return [
        TriedRate(learning_rate=spec.learning_rate, score=found[spec.key].score if spec.key in found else None)
        for spec in search_specs(resolved).get(None, [])
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


def _last_search(store: Store) -> list[Chapter]:
    """The search whose answer is in the folder, if there is one."""
    path = store.folder / "find.json"
    if not path.is_file():
        return []
    try:
        finding = Finding.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, DataError) as error:
        raise DataError(f"not the answer of a search: {error}; move it away, or run `find` again", path=path) from error
    for resolved in store.requests("find"):
        rates = dict.fromkeys((None, *resolved.depths), finding.learning_rate)
        found = list(_found(store, _of_finding(finding, flat(replicates(resolved, rates)))).values())
        if resolved.asked.keep == (finding.answer.keep,) and resolved.asked.scale == finding.answer.scale and found:
            answer = finding.answer
            settings = find_config(resolved, store.folder, confidence=answer.confidence)
            return [chapter_of(store, finding, found, settings)]
    return [Chapter(curve=finding)]


def _of_finding(finding: Finding, specs: Sequence[RunSpec]) -> list[RunSpec]:
    """The runs that a search asked for."""
    points = (finding.full, *finding.points)
    asked = {(name_of(point.n_frozen), seed) for point in points for seed in point.seeds}
    return [spec for spec in specs if (spec.strategy, spec.seed) in asked]


def chapter_of(store: Store, curve: Curve, results: Sequence[RunResult], settings: str, n_missing: int = 0) -> Chapter:
    """A curve with the runs that it comes from and how to do it again."""
    return Chapter(
        curve=curve,
        runs=tuple(RunLine.of(result) for result in results),
        n_missing=n_missing,
        provenance=Provenance.of(store.folder, settings, results),
    )
