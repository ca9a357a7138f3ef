"""A search for the operating point with as few runs as the evidence needs.

Which runs come next follows from the results alone (`stats/search_rules.py` has the rules). Each call replays the
search from its beginning, so a search that was killed goes on as it would have.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline import stats
from frostline.analysis import (
    Along,
    Answer,
    Curve,
    DepthVerdict,
    Established,
    Finding,
    OperatingPoint,
    Places,
    build_curve,
    value_of,
    words_at,
)
from frostline.analysis.axis.places import Named
from frostline.errors import DataError, UsageError
from frostline.execution.sweep import Wanted
from frostline.kinds import kind_of
from frostline.records.depth import FULL, AxisName, Depth, with_full
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.serial import read_record, request_fields
from frostline.records.specs import RunSpec
from frostline.report.chapter import Chapter
from frostline.report.curve_chapter import CurveChapter
from frostline.stats import search_rules
from frostline.stats.search_question import FULL_SEEDS, Decision
from frostline.storage.runs import Store
from frostline.strategies import Full, Strategy
from frostline.studies.planning.axis import axis_of, spec_at
from frostline.studies.planning.depth_search import DepthSearch, ResolvedSearch
from frostline.studies.planning.protocols import rate_messages
from frostline.studies.requests.config_file import depth_settings, resolved_config
from frostline.studies.requests.values import Budget
from frostline.studies.study import Results, Source, Study, Totals

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver


SEARCHED: tuple[AxisName, ...] = ("depth", "heads", "subspace")
"""axes on which there is something to save, and so something to search for"""


@final
@dataclass(frozen=True, kw_only=True)
class FindRequest:
    """What a search is asked."""

    request: StudyRequest
    budget: Budget | None = None
    n_workers: int | None = None
    """runs at the same time, with which a budget of wall time is converted; None: the default"""
    start: int | None = None
    """the depth to try first, which `scout` named; None: the deepest"""


@final
class FindStudy(Study[FindRequest, ResolvedSearch, Finding]):
    """Choose learning rates, then try depths from the deepest until the answer is sure."""

    name = "find"

    def check(self, request: FindRequest) -> None:
        """One share, four seeds, and a budget that makes sense."""
        asked, budget = request.request, request.budget
        faults = []
        if len(asked.keep) != 1:
            faults.append(f"find looks for one share; keep is {', '.join(f'{k:g}' for k in asked.keep)}: give one")
        if len(asked.seeds) < FULL_SEEDS:
            faults.append(
                f"find decides nothing with fewer than {FULL_SEEDS} seeds of the full model; there "
                f"{'is' if len(asked.seeds) == 1 else 'are'} {len(asked.seeds)}: use --seeds {FULL_SEEDS} "
                "or more"
            )
        if asked.axis not in SEARCHED:
            where = f"{', '.join(SEARCHED[:-1])} and {SEARCHED[-1]}"
            faults.append(f"find searches along {where}; axis is {asked.axis}: use `curve --axis {asked.axis}`")
        if budget is not None and not 0 < budget.amount < math.inf:
            faults.append(f"budget is {budget}; it must be above 0 and finite, in full-run equivalents, or e.g. 30min")
        if faults:
            raise UsageError.together(faults)

    def resolve(self, request: FindRequest, resolver: Resolver) -> ResolvedSearch:
        """The request with its budget in full-run equivalents: a budget of wall time is converted once."""
        filled = resolver.fill_in(request.request, needs_depth=True)
        budget = {} if request.budget is None else {"budget": str(request.budget)}
        start = {} if request.start is None else {"start": "scout"}
        asked = request_fields(request.request) | budget | start
        resolved = resolver.kept(self.name, asked, ResolvedRequest)
        if resolved is None:
            spendable = _in_full_runs(request, filled, resolver)
            resolved = resolver.keep(
                self.name, asked, resolver.placed(filled).replace(budget=spendable, start=request.start)
            )
        dev, task = resolver.inputs(resolved).dev, resolved.base.task
        chance = kind_of(task).chance(task.metric or "", dev.labels)
        search = ResolvedSearch(resolved=resolved, chance=chance, n_rows=len(dev))
        _check_budget(search)
        return search

    def describe(self, resolved: ResolvedSearch, resolver: Resolver) -> list[str]:
        """As for a curve."""
        return resolver.describe_depths(resolved.resolved)

    def settings(self, resolved: ResolvedSearch) -> dict[str, object]:
        """The depths, the share to keep, protocol, seeds, rates, confidence and budget."""
        request, budget = resolved.resolved.request, resolved.resolved.budget
        goal: dict[str, object] = {"keep": request.keep[0], "protocol": request.protocol}
        goal |= {} if resolved.resolved.start is None else {"start": "scout"}
        return depth_settings(resolved.resolved) | goal | ({} if budget is None else {"budget": budget})

    def base(self, resolved: ResolvedSearch) -> ResolvedRequest:
        """The request without the goal."""
        return resolved.resolved

    def next_runs(self, resolved: ResolvedSearch, results: Results) -> Sequence[Wanted]:
        """What the rules ask for, step by step, and the runs that choose the rates for it."""
        return [Wanted(spec) for spec in DepthSearch.replayed(resolved, results).runs]

    def likely_runs(self, resolved: ResolvedSearch, results: Results) -> Sequence[RunSpec]:
        """What the rules will ask for after this step, if it turns out as it looks."""
        return DepthSearch.replayed(resolved, results).likely_runs

    def runs_ahead(self, resolved: ResolvedSearch, results: Results) -> Sequence[RunSpec]:
        """The runs of the steps so far, with what can be foreseen of the searches for rates."""
        return DepthSearch.replayed(resolved, results).runs_ahead

    def most_ahead(self, resolved: ResolvedSearch, results: Results) -> float | None:
        """What is left of the budget; nothing once the search is over."""
        search = DepthSearch.replayed(resolved, results)
        return 0.0 if isinstance(search.step, Decision) else max(0.0, search.question.budget - search.done)

    def nearby(self, resolved: ResolvedSearch) -> Sequence[str]:
        """All depths: any of them may be tried, so their prefix states are computed in one pass."""
        specs = [spec_at(resolved.resolved, one.strategy) for one in axis_of(resolved.resolved).values]
        return sorted({spec.strategy for spec in specs if spec.is_cached})

    def messages(self, resolved: ResolvedSearch, results: Results) -> list[str]:
        """The learning rates that were chosen so far."""
        return rate_messages(DepthSearch.replayed(resolved, results).programme, results)

    def build(self, resolved: ResolvedSearch, results: Results, totals: Totals, store: Store) -> Finding:  # noqa: ARG002
        """The answer, and the curve as far as it was run."""
        search = DepthSearch.replayed(resolved, results)
        groups, searches = search.replicates(), search.programme.searches
        curve = build_curve(
            request=resolved.resolved.request,
            full=groups[FULL],
            depths={depth: group for depth, group in groups.items() if depth is not FULL},
            line_search=searches[FULL].tried(results) if FULL in searches else [],
            cost=totals.cost(results.finished.values()),
            runs=totals.counts(results.finished.values(), len(results.crashed)),
            along=Along(axis=resolved.resolved.axis),
        )
        curve = _with_verdicts_of(search, curve)
        warnings = tuple(dict.fromkeys([*_better(curve), *curve.warnings]))
        fields = {f.name: getattr(curve, f.name) for f in dataclasses.fields(curve)} | {"warnings": warnings}
        return Finding(
            **fields,
            answer=_answer(curve, search),
            runs_spent=search.spent,
            runs_of_full_curve=search.runs_of_curve,
        )

    def is_showable(self, resolved: ResolvedSearch, results: Results) -> bool:
        """A search needs a run of the full model."""
        return FULL in DepthSearch.replayed(resolved, results).replicates()

    def stored(self, store: Store) -> list[ResolvedSearch]:  # noqa: ARG002
        """None: those of release 0.1 have neither confidence nor budget. `chapters` reads find.json instead."""
        return []

    def chapter(self, record: Finding, source: Source) -> Chapter:
        """The answer and the curve so far."""
        return CurveChapter(curve=record, **source.shown)

    def chapters(self, store: Store) -> list[Chapter]:
        """The last search of the folder, from find.json."""
        path = store.folder / f"{self.name}.json"
        if not path.is_file():
            return []
        try:
            finding = read_record(Finding, path)
        except DataError as error:
            message = f"not the answer of a search: {error}; move it away, or run `find` again"
            raise DataError(message, path=path) from error
        return [_stored_chapter(store, finding)]


def _in_full_runs(request: FindRequest, resolved: ResolvedRequest, resolver: Resolver) -> float | None:
    """A given budget in full-run equivalents; wall time is converted from a few timed steps."""
    if request.budget is None or not request.budget.unit:
        return None if request.budget is None else request.budget.amount
    # Reports know searches, and have no torch.
    from frostline.execution.local import default_workers
    from frostline.studies.planning.estimate import full_run_seconds

    n_workers = request.n_workers or default_workers(request.request.threads, request.request.device)
    return round(request.budget.seconds * n_workers / full_run_seconds(resolver, resolved), 2)


def _check_budget(search: ResolvedSearch) -> None:
    """Raises where the budget does not pay for the first runs."""
    question = DepthSearch(search, Results()).question
    first = search_rules.first_runs(question)
    least = question.cost(first)
    if least > question.budget + stats.ROUNDING:
        raise UsageError(
            f"the budget is {question.budget:g} full-run equivalents; choosing the learning rates and the first "
            f"{len(first)} runs alone cost {least:.2f}: use --budget {math.ceil(100 * least) / 100:g} or more"
        )


def _with_verdicts_of(search: DepthSearch, curve: Curve) -> Curve:
    """The curve with the verdicts of the search, which pay for every look, on the scale that it was asked for.

    What a curve says of its own does not pay for looks, and knows nothing of depths that were not tried.
    """
    request, places = search.search.resolved.request, Places(curve.axis, curve.n_layers)
    said = search_rules.verdicts(search.question, search.outcomes)
    by_value = {places.value(place): one for place, one in said.items()}
    own = {
        "verdicts": tuple(DepthVerdict(**places.named(place), verdict=one) for place, one in said.items()),
        "established": _established(search, places),
        "plausible": _plausible(search, places),
    }
    nothing = {"verdicts": (), "established": None, "plausible": ()}

    def is_asked(point: OperatingPoint) -> bool:
        is_defined = point.trained_layers is not None
        return is_defined and (point.keep, point.scale) == (request.keep[0], request.scale)

    return curve.replace(
        gains=(),
        points=tuple(
            point.replace(verdict=by_value[value_of(point)], is_better=None, seeds_to_settle=None)
            for point in curve.points
        ),
        operating_points=tuple(
            one.replace(distribution=(), **(own if is_asked(one) else nothing)) for one in curve.operating_points
        ),
    )


def _established(search: DepthSearch, places: Places) -> Established:
    sure = stats.established_depth(search_rules.verdicts(search.question, search.outcomes))
    return Established(**places.named(sure), trained_layers=places.trained_layers(sure))


def _plausible(search: DepthSearch, places: Places) -> tuple[Depth, ...]:
    return tuple(map(places.value, search_rules.plausible(search.question, search.outcomes)))


def _answer(curve: Curve, search: DepthSearch) -> Answer:
    request = search.search.resolved.request
    point, step = curve.operating_point(request.keep[0], request.scale), search.step
    decision, places = step if isinstance(step, Decision) else None, Places(curve.axis, curve.n_layers)
    # The curve's own estimate is given by its value, the decision of the rules by its place.
    named = Named(n_frozen=point.n_frozen, value=point.value)
    if decision is not None:
        named = places.named(decision.n_frozen)
    trained = point.trained_layers if decision is None else places.trained_layers(decision.n_frozen)
    return Answer(
        keep=request.keep[0],
        scale=request.scale,
        **named,
        trained_layers=None if point.trained_layers is None else trained,
        confidence=request.confidence,
        decision="decided" if decision is not None and decision.is_decided else "open",
        stopped_because="the search is under way" if decision is None else _because(decision, search),
        plausible=_plausible(search, places),
        established=_established(search, places),
    )


def _because(decision: Decision, search: DepthSearch) -> str:
    """Why the search ended, with the depths that it did not try and the budget that would reach them all."""
    axis = axis_of(search.search.resolved)
    untried = [str(one.value) for one in axis.values if one.place not in search.outcomes]
    if decision.is_decided or not untried or "budget" not in decision.because:
        return decision.because
    question, outcomes = search.question, search.outcomes
    done = [(depth, seed) for depth, by_seed in outcomes.items() for seed in by_seed]
    all_runs = [(depth, seed) for depth in with_full(question.depths) for seed in question.seeds]
    # Races that are over may have cost more than was foreseen.
    whole = math.ceil(10 * question.cost(done, [run for run in all_runs if run not in done])) / 10
    noun = "depths" if axis.named is None else "values"
    return f"{decision.because}; {noun} not tried: {', '.join(untried)}; --budget {whole:g} pays for the whole curve"


def _better(curve: Curve) -> Iterator[str]:
    """Depths that score above the full model, as the paper found on SST-2."""
    for point in curve.points:
        if point.difference is not None and stats.is_above(point.difference, 0.0):
            interval = point.difference_ci_dev
            is_sure = interval is not None and stats.is_above(interval[0], 0.0)
            how = "its own 95% interval is above 0" if is_sure else "within noise"
            what = words_at(curve, value_of(point)) if curve.axis else f"{point.n_frozen} frozen layers"
            yield f"{what} score {point.difference:.2g} above the full model ({how})"


def _stored_chapter(store: Store, finding: Finding) -> CurveChapter:
    """The chapter of a finding, with its runs where a stored request leads to them."""
    answer = finding.answer
    for resolved in store.requests(FindStudy.name, ResolvedRequest):
        asked = resolved.request
        results = [r for spec in _specs_of(finding, resolved) if (r := store.get(spec.key)) is not None]
        if asked.keep == (answer.keep,) and asked.scale == answer.scale and resolved.axis == finding.axis and results:
            own = depth_settings(resolved) | {"keep": answer.keep, "confidence": answer.confidence}
            settings = resolved_config(FindStudy.name, resolved, own, store.folder)
            return CurveChapter(curve=finding, **Source(store=store, results=results, settings=settings).shown)
    return CurveChapter(curve=finding)


def _specs_of(finding: Finding, resolved: ResolvedRequest) -> list[RunSpec]:
    """The runs that a finding is made of."""
    strategies: dict[Depth, Strategy] = {FULL: Full()}
    strategies |= {one.value: one.strategy for one in axis_of(resolved).values}
    return [
        spec_at(resolved, strategies[value_of(point)], point.learning_rate).with_seed(seed)
        for point in (finding.full, *finding.points)
        if value_of(point) in strategies
        for seed in point.seeds
    ]
