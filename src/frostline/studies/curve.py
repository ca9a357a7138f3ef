"""A curve: scores at every value of an axis, and the operating points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, final

from frostline import stats
from frostline.analysis import Along, Curve, Established, Replicates, SmallestSubspace, build_curve
from frostline.execution.sweep import Wanted
from frostline.records.depth import FULL, Depth
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec, Scale
from frostline.report.curve_chapter import CurveChapter
from frostline.storage.runs import Store
from frostline.studies.planning.protocols import (
    Name,
    depth_programme,
    line_search_specs,
    rate_messages,
)
from frostline.studies.planning.race import best_rate
from frostline.studies.planning.settling import Settling
from frostline.studies.probes import stored_probes
from frostline.studies.requests.config_file import depth_settings
from frostline.studies.study import Results, Source, Study, Totals, add_stored

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver

D90_SHARE = 0.9
"""the share that the intrinsic dimension is defined by (Aghajanyan 2020)"""


@final
class CurveStudy(Study[StudyRequest, ResolvedRequest, Curve]):
    """Choose a learning rate, then train the full model and every depth, or value of another axis, with every seed."""

    name = "curve"

    def resolve(self, request: StudyRequest, resolver: Resolver) -> ResolvedRequest:
        """The depths or values, the run that all others differ from, and whether prefix states are cached."""
        return resolver.resolve(self.name, request)

    def describe(self, resolved: ResolvedRequest, resolver: Resolver) -> list[str]:
        """Parameters that each depth trains, rows, cache size and data warnings."""
        return resolver.describe_depths(resolved)

    def settings(self, resolved: ResolvedRequest) -> dict[str, object]:
        """The depths, shares to keep, seeds, rates and protocol."""
        request = resolved.request
        settled = {"until-settled": True, "max-seeds": request.max_seeds} if request.until_settled else {}
        searched = {"line-search": request.line_search} if request.line_search != "whole" else {}
        asked = {"keep": list(request.keep), "protocol": request.protocol}
        return depth_settings(resolved) | asked | searched | settled

    def next_runs(self, resolved: ResolvedRequest, results: Results) -> Sequence[Wanted]:
        """The search for rates, then every depth and seed; more seeds where they can settle something, if asked."""
        wanted = depth_programme(resolved).next_runs(results)
        settling = _settling(resolved, results)
        return wanted if settling is None else [*wanted, *(Wanted(spec) for spec in settling.wanted)]

    def likely_runs(self, resolved: ResolvedRequest, results: Results) -> Sequence[RunSpec]:
        """The full model's runs, if the rate that leads so far wins, as it mostly does once little is left to search.

        Not those of a depth: one that is stopped while it computes prefix states would have to start again.
        """
        searched = results.of(line_search_specs(resolved))
        if not searched or resolved.request.protocol != "paper":
            return []
        return depth_programme(resolved).replicates({FULL: best_rate(searched)})[FULL]

    def runs_ahead(self, resolved: ResolvedRequest, results: Results) -> Sequence[RunSpec]:
        """The search for rates and every depth and seed, with the seeds that were added so far."""
        settling = _settling(resolved, results)
        return [*depth_programme(resolved).runs_ahead(results), *([] if settling is None else settling.wanted)]

    def build(self, resolved: ResolvedRequest, results: Results, totals: Totals, store: Store) -> Curve:
        """The curve of the runs that have ended."""
        runs, settling = depth_programme(resolved), _settling(resolved, results)
        ended = runs.ended(results) if settling is None else settling.ended()
        groups = replicates_of(ended, results)
        curve = build_curve(
            request=resolved.request,
            full=groups[FULL],
            depths={depth: group for depth, group in groups.items() if depth is not FULL},
            line_search=runs.searches[FULL].tried(results) if FULL in runs.searches else [],
            cost=totals.cost(results.finished.values()),
            runs=totals.counts(results.finished.values(), len(results.crashed)),
            along=Along(axis=resolved.axis, judge=None if settling is None else settling.judge),
        )
        if resolved.axis is not None:
            return curve.replace(d90=self._smallest_subspace(curve, resolved, store))
        return curve.replace(warnings=(*curve.warnings, *gains_of_own_rates(store, resolved, runs.ended(results))))

    def _smallest_subspace(self, curve: Curve, resolved: ResolvedRequest, store: Store) -> SmallestSubspace | None:
        """d90, with the operating depth of a curve in the folder; None on other axes, or without a share of 0.9."""
        asked = next((one for one in curve.operating_points if math.isclose(one.keep, D90_SHARE)), None)
        if curve.axis is None or curve.axis.name != "subspace" or asked is None:
            return None
        sure = None if asked.established is None else asked.established.value
        beside = self._operating_depth(resolved, asked.scale, store)
        return SmallestSubspace(value=sure, scale=asked.scale, beside=beside)

    def _operating_depth(self, resolved: ResolvedRequest, scale: Scale, store: Store) -> Established | None:
        """The operating depth of the first curve of depth in a folder whose runs differ in nothing else."""
        for other in self.stored(store):
            is_alike = other.axis is None and other.base.key == resolved.base.key
            if not is_alike or other.request.protocol != resolved.request.protocol:
                continue
            results = self.replay(other, store)
            if D90_SHARE in other.request.keep and self.is_showable(other, results):
                totals = Totals(done=frozenset())
                found = self.build(other, results, totals, store).operating_point(D90_SHARE, scale)
                if found.trained_layers is not None:
                    return Established(n_frozen=found.n_frozen, trained_layers=found.trained_layers)
        return None

    def chapter(self, record: Curve, source: Source) -> CurveChapter:
        """The curve, its runs, and linear fits to each layer where the store has them."""
        run = next(result.spec for result in source.results if result.spec.role == "replicate")
        probes = stored_probes(source.store, run, record.full.seeds) if record.axis is None else ()
        return CurveChapter(curve=record, probes=probes, **source.shown)

    def is_showable(self, resolved: ResolvedRequest, results: Results) -> bool:
        """A curve needs the full model."""
        return FULL in depth_programme(resolved).ended(results) and results.has_replicate

    def messages(self, resolved: ResolvedRequest, results: Results) -> list[str]:
        """The learning rates that were chosen."""
        return rate_messages(depth_programme(resolved), results)

    def base(self, resolved: ResolvedRequest) -> ResolvedRequest:
        """The request itself."""
        return resolved

    def stored(self, store: Store) -> list[ResolvedRequest]:
        """All curves that were asked for in this folder."""
        return store.requests(self.name, ResolvedRequest)


def _settling(resolved: ResolvedRequest, results: Results) -> Settling | None:
    """What settles open depths, if that was asked for; None before the first runs have ended."""
    return Settling.replayed(resolved, results) if resolved.request.until_settled else None


def replicates_of(groups: Mapping[Name, Sequence[RunSpec]], results: Results) -> dict[Name, Replicates]:
    """The runs asked for and those that finished, by the study's own names."""
    return {name: Replicates(specs=specs, results=results.of(specs)) for name, specs in groups.items()}


def gains_of_own_rates(
    store: Store, resolved: ResolvedRequest, groups: Mapping[Depth, Sequence[RunSpec]]
) -> Iterator[str]:
    """What a learning rate of its own changes at each depth, where the store has the runs of both protocols."""
    for other in store.requests(CurveStudy.name, ResolvedRequest):
        if other.request.protocol == resolved.request.protocol or other.axis is not None:
            continue
        theirs = _stored_replicates(store, other)
        for depth in [depth for depth in groups if depth is not FULL and depth in theirs]:
            pairs = _pairs(store, groups[depth], theirs[depth])
            if pairs and groups[depth][0].learning_rate != theirs[depth][0].learning_rate:
                yield _gain(depth, pairs, is_own_first=resolved.request.protocol == "tuned")


def _stored_replicates(store: Store, resolved: ResolvedRequest) -> dict[Depth, list[RunSpec]]:
    """The replicates of another curve at the rates that its search chose; none where the store has no search of it."""
    runs = depth_programme(resolved)
    results = Results()
    while new := [wanted for wanted in runs.searching(results) if not results.has(wanted)]:
        for wanted in new:
            add_stored(results, wanted, store)
        if not any(results.has(wanted) for wanted in new):
            break
    return runs.replicates(runs.rates(results)) if results.finished else {}


def _pairs(store: Store, ours: Sequence[RunSpec], theirs: Sequence[RunSpec]) -> list[tuple[RunResult, RunResult]]:
    """Results with one seed that differ in nothing but the rate."""
    others = {spec.replace(learning_rate=0.0).key: spec for spec in theirs}
    found = [(store.get(s.key), store.get(o.key)) for s in ours if (o := others.get(s.replace(learning_rate=0.0).key))]
    return [(one, other) for one, other in found if one is not None and other is not None]


def _gain(depth: Depth, pairs: Sequence[tuple[RunResult, RunResult]], *, is_own_first: bool) -> str:
    own, reused = zip(*(pair if is_own_first else pair[::-1] for pair in pairs), strict=True)
    gain = stats.mean([result.score for result in own]) - stats.mean([result.score for result in reused])
    rates = f"{own[0].spec.learning_rate:g} instead of the full model's {reused[0].spec.learning_rate:g}"
    seeds = "1 seed" if len(pairs) == 1 else f"{len(pairs)} seeds"
    return f"{depth} frozen layers: a learning rate of their own, {rates}, moves the score by {gain:+.4f} ({seeds})"
