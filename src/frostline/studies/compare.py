"""A comparison of strategies: a learning rate for each, replicates of each, under one loop, task and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.analysis import Comparison, TriedFor, build_comparison
from frostline.errors import UsageError
from frostline.execution.sweep import Wanted
from frostline.records.plans import Plan
from frostline.records.requests import ResolvedComparison, ResolvedRequest, StudyRequest
from frostline.records.serial import request_fields
from frostline.records.specs import RunSpec
from frostline.report.comparison_chapter import ComparisonChapter
from frostline.storage.runs import Store
from frostline.strategies import Freeze, RankedHeads, Strategy, parse
from frostline.studies.curve import replicates_of
from frostline.studies.planning.protocols import Programme, rate_messages
from frostline.studies.requests.config_file import seed_settings
from frostline.studies.study import Results, Source, Study, Totals

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver


@final
@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """What a comparison is asked."""

    request: StudyRequest
    strategies: tuple[str, ...]
    """as the user wrote them"""


@final
class CompareStudy(Study[CompareRequest, ResolvedComparison, Comparison]):
    """Choose a learning rate for each strategy, then train each with every seed."""

    name = "compare"

    def check(self, request: CompareRequest) -> None:
        """Every strategy can be read and is there once."""
        names = request.strategies
        faults = [
            f"strategy {name!r} is there twice; give it once" for name in sorted({*names}) if names.count(name) > 1
        ]
        for name in names:
            try:
                parse(name)
            except UsageError as error:
                faults.append(str(error))
        if faults:
            raise UsageError.together(faults)

    def resolve(self, request: CompareRequest, resolver: Resolver) -> ResolvedComparison:
        """The request, once every strategy was planned: what the model does not allow is refused before it is kept."""
        filled = resolver.fill_in(request.request, needs_depth=False)
        named = tuple(resolver.named(filled, parse(name)).name for name in request.strategies)
        is_ranked = any(isinstance(parse(name), RankedHeads) for name in request.strategies)
        comparison = ResolvedComparison(
            strategies=request.strategies, resolved=filled, named=named if is_ranked else ()
        )
        self._plans(comparison, resolver)
        asked = {"asked": request_fields(request.request), "strategies": list(request.strategies)}
        return resolver.keep(self.name, asked, comparison)

    def describe(self, resolved: ResolvedComparison, resolver: Resolver) -> list[str]:
        """What each strategy trains, rows and data warnings."""
        plans, labels = self._plans(resolved, resolver), dict[str, str]()
        if resolved.named:
            labels = dict(zip(resolved.named, resolved.strategies, strict=True))
            plans = {name: plans[written] for name, written in labels.items()}
        return resolver.describe(resolved.resolved, plans, labels)

    def settings(self, resolved: ResolvedComparison) -> dict[str, object]:
        """Strategies, protocol, seeds and rates."""
        request = resolved.resolved.request
        what = {"protocol": request.protocol, "strategies": list(resolved.strategies)}
        return seed_settings(resolved.resolved) | what

    def base(self, resolved: ResolvedComparison) -> ResolvedRequest:
        """The request without the strategies."""
        return resolved.resolved

    def next_runs(self, resolved: ResolvedComparison, results: Results) -> Sequence[Wanted]:
        """The searches for rates, then every strategy and seed."""
        return _programme(resolved).next_runs(results)

    def runs_ahead(self, resolved: ResolvedComparison, results: Results) -> Sequence[RunSpec]:
        """The searches for rates and every strategy and seed."""
        return _programme(resolved).runs_ahead(results)

    def messages(self, resolved: ResolvedComparison, results: Results) -> list[str]:
        """The learning rates that were chosen."""
        return rate_messages(_programme(resolved), results)

    def build(self, resolved: ResolvedComparison, results: Results, totals: Totals, store: Store) -> Comparison:  # noqa: ARG002
        """The comparison of the runs that have ended."""
        runs, n_layers = _programme(resolved), resolved.resolved.n_layers
        wanted = runs.strategies
        return build_comparison(
            request=resolved.resolved.request,
            groups=replicates_of(_groups(runs, results), results),
            n_trained={name: strategy.n_trained_layers(n_layers) for name, strategy in wanted.items()},
            n_frozen={name: one.n_frozen if isinstance(one, Freeze) else None for name, one in wanted.items()},
            line_search=_tried(runs, results),
            cost=totals.cost(results.finished.values()),
            runs=totals.counts(results.finished.values(), len(results.crashed)),
        )

    def chapter(self, record: Comparison, source: Source) -> ComparisonChapter:
        """The comparison and its runs."""
        return ComparisonChapter(comparison=record, **source.shown)

    def stored(self, store: Store) -> list[ResolvedComparison]:
        """All comparisons that were asked for in this folder."""
        return store.requests(self.name, ResolvedComparison)

    def _plans(self, resolved: ResolvedComparison, resolver: Resolver) -> dict[str, Plan]:
        """What each strategy decides for the model; one UsageError with everything that the model does not allow."""
        plans: dict[str, Plan] = {}
        faults: list[str] = []
        names: dict[str, str] = {}
        strategies = _programme(resolved).strategies
        for name, strategy in strategies.items():
            if (other := names.setdefault(strategy.name, name)) != name:
                faults.append(f"strategies {other!r} and {name!r} are the same for this model; give one of them")
                continue
            try:
                plans[name] = resolver.plan(resolved.resolved, strategy)
            except UsageError as error:
                faults.append(f"{name}: {error}")
        if faults:
            raise UsageError.together(faults)
        if any(strategy.is_closed_form for strategy in strategies.values()):
            resolver.check_pooled(resolved.resolved)
        return plans


def _programme(comparison: ResolvedComparison) -> Programme[str]:
    """Each strategy by its name as the user wrote it; one UsageError with every strategy that does not fit."""
    resolved = comparison.resolved
    kind = resolved.base.task.kind
    assert kind is not None, "the task of a resolved request is resolved"
    wanted: dict[str, Strategy] = {}
    faults: list[str] = []
    names = comparison.named or comparison.strategies
    for name, written in zip(comparison.strategies, names, strict=True):
        try:
            wanted[name] = parse(written).resolved(resolved.n_layers, kind)
        except UsageError as error:
            faults.append(str(error))
    if faults:
        raise UsageError.together(faults)
    return Programme(resolved, wanted)


def _groups(runs: Programme[str], results: Results) -> dict[str, list[RunSpec]]:
    """The replicates that have ended; and those of strategies whose search crashed altogether, at rate 0."""
    ended, rates = runs.ended(results), runs.rates(results)
    lost = {name: 0.0 for name, one in runs.searches.items() if name not in rates and one.is_over(results)}
    return {name: ended.get(name) or specs for name, specs in (ended | runs.replicates(lost)).items()}


def _tried(runs: Programme[str], results: Results) -> list[TriedFor]:
    """Every rate that was tried, by the strategy's name as the user wrote it; under `paper` one search is for all."""
    searches = dict(list(runs.searches.items())[:1]) if _is_shared(runs) else runs.searches
    return [
        TriedFor(name="full" if _is_shared(runs) else name, learning_rate=one.learning_rate, score=one.score)
        for name, search in searches.items()
        for one in search.tried(results)
    ]


def _is_shared(runs: Programme[str]) -> bool:
    return runs.resolved.request.protocol == "paper"
