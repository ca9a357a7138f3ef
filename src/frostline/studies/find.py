"""A search for the operating point with as few runs as the evidence needs: a race of rates, then a search over depth.

Which runs come next follows from the results alone (`stats/search_rules.py` has the rules). Each call replays the
search from its beginning, so a search that was killed goes on as it would have.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline import stats
from frostline.analysis import Answer, Curve, Finding, build_curve
from frostline.errors import DataError, UsageError
from frostline.execution.sweep import Wanted
from frostline.kinds import kind_of
from frostline.records.depth import FULL
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.specs import RunSpec
from frostline.report.chapter import Chapter
from frostline.report.curve_chapter import CurveChapter
from frostline.stats import search_rules
from frostline.stats.search_rules import Decision
from frostline.storage.runs import Store
from frostline.studies.planning.axis import depth_axis, spec_at
from frostline.studies.planning.depth_search import (
    DepthSearch,
    ResolvedSearch,
    budget_of,
    chosen_rate,
    finished_line_search,
    runs_of_curve,
)
from frostline.studies.planning.protocols import tried_rates
from frostline.studies.planning.race import Race
from frostline.studies.requests.config_file import depth_settings, resolved_config
from frostline.studies.study import Results, Source, Study, Totals

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver


@final
@dataclass(frozen=True, kw_only=True)
class FindRequest:
    """What a search is asked."""

    request: StudyRequest
    budget: float | None = None
    """most to spend, in full-run equivalents"""


@final
class FindStudy(Study[FindRequest, ResolvedSearch, Finding]):
    """Choose a learning rate by a race, then try depths from the deepest until the answer is sure."""

    name = "find"

    def check(self, request: FindRequest) -> None:
        """One share, two seeds, and a budget that makes sense."""
        asked, budget = request.request, request.budget
        faults = []
        if len(asked.keep) != 1:
            faults.append(f"find looks for one share; keep is {', '.join(f'{k:g}' for k in asked.keep)}: give one")
        if asked.protocol != "paper":
            faults.append(f"find uses the full model's rate, as protocol paper does; protocol is {asked.protocol}")
        if len(asked.seeds) < search_rules.FIRST_SEEDS:
            faults.append(f"find compares at least {search_rules.FIRST_SEEDS} seeds; there is one: give more")
        if budget is not None and not 0 < budget < math.inf:
            faults.append(f"budget is {budget:g}; it must be above 0 and finite, in full-run equivalents")
        if faults:
            raise UsageError.together(faults)

    def resolve(self, request: FindRequest, resolver: Resolver) -> ResolvedSearch:
        """The request, its budget, and the line search that is already done in the folder, if there is one."""
        resolved = resolver.resolve(self.name, request.request)
        inputs = resolver.inputs(resolved)
        n_steps = resolved.base.epochs * math.ceil(len(inputs.train) / resolved.base.batch_size)
        task, race = resolved.base.task, Race.of(resolved, n_steps)
        search = ResolvedSearch(
            resolved=resolved,
            budget=0.0,
            given_budget=request.budget,
            chance=kind_of(task).chance(task.metric or "", inputs.dev.labels),
            race=race,
            line_search=finished_line_search(resolver.store, race, resolved),
        )
        return dataclasses.replace(search, budget=budget_of(search, request.budget))

    def describe(self, resolved: ResolvedSearch, resolver: Resolver) -> list[str]:
        """As for a curve."""
        return resolver.describe_depths(resolved.resolved)

    def settings(self, resolved: ResolvedSearch) -> dict[str, object]:
        """The depths, the share to keep, seeds, rates, confidence and budget."""
        goal = {"keep": resolved.resolved.request.keep[0]}
        budget = {} if resolved.given_budget is None else {"budget": resolved.given_budget}
        return depth_settings(resolved.resolved) | goal | budget

    def base(self, resolved: ResolvedSearch) -> ResolvedRequest:
        """The request without the goal."""
        return resolved.resolved

    def next_runs(self, resolved: ResolvedSearch, results: Results) -> Sequence[Wanted]:
        """The race, or the line search that is already done; then what the rules ask for, step by step."""
        rate, wanted = chosen_rate(resolved, results)
        if rate is None:
            return wanted
        search = DepthSearch(resolved, rate)
        search.replay(results)
        return [*wanted, *(Wanted(spec) for spec in search.specs)]

    def likely_runs(self, resolved: ResolvedSearch, results: Results) -> Sequence[RunSpec]:
        """What the rules will ask for after this step, if it turns out as it looks."""
        rate, _ = chosen_rate(resolved, results)
        if rate is None:
            return []
        search = DepthSearch(resolved, rate)
        step = search.replay(results)
        if isinstance(step, Decision):
            return []
        likely = search_rules.likely_step(search.question, search.scores, step, search.noise)
        return [search.spec(run) for run in likely]

    def runs_ahead(self, resolved: ResolvedSearch, results: Results) -> Sequence[RunSpec]:
        """The runs that are asked for; before the rate is known, also the first ones after it."""
        specs = [wanted.spec for wanted in self.next_runs(resolved, results)]
        if chosen_rate(resolved, results)[0] is None:
            search = DepthSearch(resolved, resolved.resolved.request.learning_rates[0])
            search.replay(Results())
            specs += search.specs
        return list(dict.fromkeys(specs))

    def most_ahead(self, resolved: ResolvedSearch, results: Results) -> float | None:
        """What is left of the budget; nothing once the search is over."""
        rate, _ = chosen_rate(resolved, results)
        if rate is None:
            return resolved.budget
        search = DepthSearch(resolved, rate)
        is_over = isinstance(search.replay(results), Decision)
        return 0.0 if is_over else max(0.0, resolved.budget - search.done)

    def nearby(self, resolved: ResolvedSearch) -> Sequence[str]:
        """All depths: any of them may be tried, so their prefix states are computed in one pass."""
        axis = depth_axis(resolved.resolved)
        specs = [spec_at(resolved.resolved, place.strategy) for place in axis.values]
        return sorted({spec.strategy for spec in specs if spec.is_cached})

    def messages(self, resolved: ResolvedSearch, results: Results) -> list[str]:
        """What each stage of the race showed."""
        return [] if resolved.line_search else list(resolved.race.messages(results))

    def build(self, resolved: ResolvedSearch, results: Results, totals: Totals, store: Store) -> Finding:  # noqa: ARG002
        """The answer, and the curve as far as it was run."""
        rate, _ = chosen_rate(resolved, results)
        assert rate is not None, "a search is built when its rate is known"
        search = DepthSearch(resolved, rate)
        step = search.replay(results)
        groups, race = search.replicates(results), resolved.race
        found = [result for group in groups.values() for result in group.results]
        cost = totals.cost(found)
        curve = build_curve(
            request=resolved.resolved.request,
            full=groups[FULL],
            depths={depth: group for depth, group in groups.items() if depth is not FULL},
            line_search=tried_rates(resolved.line_search, results) if resolved.line_search else race.tried(results),
            cost=cost.replace(train_seconds=cost.train_seconds + race.seconds(results)),
            runs=totals.counts(found, len(results.crashed)),
        )
        curve = _without_verdicts(curve)
        warnings = tuple(dict.fromkeys([*_better(curve), *curve.warnings]))
        fields = {f.name: getattr(curve, f.name) for f in dataclasses.fields(curve)} | {"warnings": warnings}
        return Finding(
            **fields,
            answer=_answer(curve, resolved, step if isinstance(step, Decision) else None),
            runs_spent=search.spent,
            runs_of_full_curve=runs_of_curve(resolved.resolved),
        )

    def is_showable(self, resolved: ResolvedSearch, results: Results) -> bool:
        """A search needs a learning rate and a run of the full model."""
        rate, _ = chosen_rate(resolved, results)
        if rate is None:
            return False
        search = DepthSearch(resolved, rate)
        search.replay(results)
        return FULL in search.replicates(results)

    def stored(self, store: Store) -> list[ResolvedSearch]:  # noqa: ARG002
        """None: stored requests have neither confidence nor budget. `chapters` reads find.json instead."""
        return []

    def chapter(self, record: Finding, source: Source) -> Chapter:
        """The answer and the curve so far."""
        return CurveChapter(curve=record, **source.shown)

    def chapters(self, store: Store) -> list[Chapter]:
        """The last search of the folder, from find.json: its confidence and budget are not among stored requests."""
        path = store.folder / f"{self.name}.json"
        if not path.is_file():
            return []
        try:
            finding = Finding.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, DataError) as error:
            message = f"not the answer of a search: {error}; move it away, or run `find` again"
            raise DataError(message, path=path) from error
        return [_stored_chapter(store, finding)]


def _without_verdicts(curve: Curve) -> Curve:
    """A search says itself what it decided. The verdicts of a curve do not pay for looking after every seed."""
    return curve.replace(
        points=tuple(point.replace(verdict=None, is_better=None) for point in curve.points),
        operating_points=tuple(one.replace(verdicts=(), established=None) for one in curve.operating_points),
    )


def _answer(curve: Curve, resolved: ResolvedSearch, decision: Decision | None) -> Answer:
    request = resolved.resolved.request
    point = curve.operating_point(request.keep[0], request.scale)
    n_frozen = point.n_frozen if decision is None else decision.n_frozen
    n_kept = 0 if n_frozen is FULL else n_frozen
    return Answer(
        keep=request.keep[0],
        scale=request.scale,
        n_frozen=n_frozen,
        trained_layers=None if point.trained_layers is None else curve.n_layers - n_kept,
        confidence=request.confidence,
        decision="decided" if decision is not None and decision.is_decided else "open",
        stopped_because="the search is under way" if decision is None else decision.because,
    )


def _better(curve: Curve) -> Iterator[str]:
    """Depths that score above the full model, as the paper found on SST-2."""
    for point in curve.points:
        if point.difference is not None and stats.is_above(point.difference, 0.0):
            is_sure = point.difference_ci is not None and stats.is_above(point.difference_ci[0], 0.0)
            how = "its interval is above 0" if is_sure else "within noise"
            yield f"{point.n_frozen} frozen layers score {point.difference:.2g} above the full model ({how})"


def _stored_chapter(store: Store, finding: Finding) -> CurveChapter:
    """The chapter of a finding, with its runs where a stored request leads to them."""
    answer = finding.answer
    for resolved in store.requests(FindStudy.name, ResolvedRequest):
        asked = resolved.request
        results = [r for spec in _specs_of(finding, resolved) if (r := store.get(spec.key)) is not None]
        if asked.keep == (answer.keep,) and asked.scale == answer.scale and results:
            own = depth_settings(resolved) | {"keep": answer.keep, "confidence": answer.confidence}
            settings = resolved_config(FindStudy.name, resolved, own, store.folder)
            return CurveChapter(curve=finding, **Source(store=store, results=results, settings=settings).shown)
    return CurveChapter(curve=finding)


def _specs_of(finding: Finding, resolved: ResolvedRequest) -> list[RunSpec]:
    """The runs that a finding is made of."""
    strategies = depth_axis(resolved).strategies
    return [
        spec_at(resolved, strategies[point.n_frozen], finding.learning_rate).replace(seed=seed)
        for point in (finding.full, *finding.points)
        if point.n_frozen in strategies
        for seed in point.seeds
    ]
