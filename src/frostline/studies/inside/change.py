"""What fine-tuning changes: the full model and frozen ones are trained, then held against the pretrained model.

Each run trains as for a curve and is then measured, in the same worker. The learning rate is chosen as for a curve, and
runs that choose it are shared with one in the same folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline import stats
from frostline.analysis import Curve, Finding, axis_name
from frostline.analysis.inside.change import Change, MeasuredDepth, StrategyChange, strategy_change
from frostline.errors import UsageError
from frostline.execution.sweep import Wanted
from frostline.records.depth import FULL, Depth
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.serial import Record, read_record, request_fields
from frostline.records.specs import RunSpec, Scale
from frostline.report.inside.change_chapter import ChangeChapter
from frostline.storage.runs import Store
from frostline.studies.curve import CurveStudy
from frostline.studies.planning.protocols import depth_programme, rate_messages
from frostline.studies.requests.config_file import seed_settings
from frostline.studies.study import Results, Source, Study, Totals

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver

ROWS = 1000
"""dev rows that maps and states are compared on, at most, unless asked"""


@final
@dataclass(frozen=True, kw_only=True)
class ChangeRequest:
    """What a study of change is asked."""

    request: StudyRequest
    """depths are trained beside the full model; by default half of the layers frozen"""
    rows: int = ROWS
    """most dev rows"""


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedChange(Record):
    """A request for a study of change with every default filled in."""

    resolved: ResolvedRequest
    """model, data, depths and how to train"""
    rows: int
    """most dev rows"""

    @property
    def measure(self) -> str:
        """The measure that every run takes."""
        return "change" if self.rows == ROWS else f"change:rows={self.rows}"


@final
class ChangeStudy(Study[ChangeRequest, ResolvedChange, Change]):
    """Choose a learning rate, train the full model and each depth with every seed, and measure each."""

    name = "change"

    def check(self, request: ChangeRequest) -> None:
        """There are rows."""
        if request.rows < 1:
            raise UsageError(f"rows is {request.rows}; it must be at least 1")

    def resolve(self, request: ChangeRequest, resolver: Resolver) -> ResolvedChange:
        """The request; without depths, the full model is held against half of the layers frozen."""
        filled = resolver.fill_in(request.request, needs_depth=True)
        if request.request.frozen is None:
            filled = filled.replace(depths=(filled.n_layers // 2,))
        asked = {"asked": request_fields(request.request), "rows": request.rows}
        return resolver.keep(self.name, asked, ResolvedChange(resolved=filled, rows=request.rows))

    def describe(self, resolved: ResolvedChange, resolver: Resolver) -> list[str]:
        """As for a curve."""
        return resolver.describe_depths(resolved.resolved)

    def base(self, resolved: ResolvedChange) -> ResolvedRequest:
        """The request without the rows."""
        return resolved.resolved

    def settings(self, resolved: ResolvedChange) -> dict[str, object]:
        """Depths, rows, seeds, rates and protocol."""
        depths, protocol = list(resolved.resolved.depths), resolved.resolved.request.protocol
        return {"frozen": depths, "rows": resolved.rows, "protocol": protocol} | seed_settings(resolved.resolved)

    def next_runs(self, resolved: ResolvedChange, results: Results) -> Sequence[Wanted]:
        """The search for a rate, then every strategy and seed, measured."""
        wanted = depth_programme(resolved.resolved).next_runs(results)
        return [Wanted(_measured(resolved, one.spec)) for one in wanted]

    def runs_ahead(self, resolved: ResolvedChange, results: Results) -> Sequence[RunSpec]:
        """The search for a rate and every strategy and seed."""
        return [_measured(resolved, spec) for spec in depth_programme(resolved.resolved).runs_ahead(results)]

    def messages(self, resolved: ResolvedChange, results: Results) -> list[str]:
        """The learning rates that were chosen."""
        return rate_messages(depth_programme(resolved.resolved), results)

    def build(self, resolved: ResolvedChange, results: Results, totals: Totals, store: Store) -> Change:
        """The change of each strategy, over the runs that have ended."""
        base, changes = resolved.resolved.base, list(_changes(resolved, results))
        finished = results.finished.values()
        n_dev = next(result.n_dev for result in finished)
        return Change(
            model=base.model,
            tuned=None,
            task=base.task.name,
            metric=base.task.metric,
            n_layers=resolved.resolved.n_layers,
            n_rows=min(resolved.rows, n_dev),
            strategies=tuple(changes),
            operating_point=measured_depth(store),
            cost=totals.cost(finished),
            runs=totals.counts(finished, len(results.crashed)),
            warnings=tuple(_warnings(resolved, results, changes)),
        )

    def is_showable(self, resolved: ResolvedChange, results: Results) -> bool:
        """Once a run is measured."""
        return any(True for _ in _changes(resolved, results))

    def chapter(self, record: Change, source: Source) -> ChangeChapter:
        """The change and the runs."""
        return ChangeChapter(change=record, **source.shown)

    def stored(self, store: Store) -> list[ResolvedChange]:
        """All studies of change that were asked for in this folder."""
        return store.requests(self.name, ResolvedChange)


def measured_depth(store: Store) -> MeasuredDepth | None:
    """The operating point of a curve over depth in a folder, else of the last search; None without either."""
    curve = _stored_curve(store)
    if curve is not None:
        point = curve.operating_points[0]
        return _as_measured("curve", point.keep, point.scale, point.n_frozen)
    found = store.folder / "find.json"
    if found.is_file() and axis_name(finding := read_record(Finding, found)) == "depth":
        answer = finding.answer
        return _as_measured("find", answer.keep, answer.scale, answer.n_frozen)
    return None


def _stored_curve(store: Store) -> Curve | None:
    """The last curve over depth; if a curve along another axis was made since, the first that is stored."""
    last, study = store.folder / "curve.json", CurveStudy()
    if last.is_file() and axis_name(made := read_record(Curve, last)) == "depth":
        return made
    for resolved in study.stored(store):
        results = study.replay(resolved, store)
        if resolved.axis is None and study.is_showable(resolved, results):
            return study.build(resolved, results, Totals(done=frozenset()), store)
    return None


def _as_measured(command: str, keep: float, scale: Scale, n_frozen: Depth | None) -> MeasuredDepth:
    depth = None if n_frozen is FULL else n_frozen
    return MeasuredDepth(command=command, keep=keep, scale=scale, n_frozen=depth)


def _measured(resolved: ResolvedChange, spec: RunSpec) -> RunSpec:
    """The run, measured if it is a replicate; a run that chooses a rate is not."""
    return spec.replace(measures=(resolved.measure,)) if spec.role == "replicate" else spec


def _groups(resolved: ResolvedChange, results: Results) -> dict[Depth, list[RunSpec]]:
    programme = depth_programme(resolved.resolved)
    replicates = programme.replicates(programme.rates(results))
    return {depth: [_measured(resolved, spec) for spec in specs] for depth, specs in replicates.items()}


def _changes(resolved: ResolvedChange, results: Results) -> Iterator[StrategyChange]:
    """What each strategy changed, over its runs that ended and did not diverge."""
    for depth, specs in _groups(resolved, results).items():
        done = [(result, found) for result in results.of(specs) if (found := result.measurement(resolved.measure))]
        if done:
            yield strategy_change(
                specs[0].strategy,
                None if depth is FULL else depth,
                [found for _, found in done],
                seeds=[result.spec.seed for result, _ in done],
                score=stats.mean([result.score for result, _ in done]),
            )


def _warnings(resolved: ResolvedChange, results: Results, changes: Sequence[StrategyChange]) -> Iterator[str]:
    if any(one.attention_cosine is None for one in changes):
        yield f"{resolved.resolved.base.model} gives no attention maps; states and weights are compared without them"
    groups = _groups(resolved, results).values()
    n_diverged = sum(result.diverged for specs in groups for result in results.of(specs))
    if n_diverged:
        runs = "1 run diverged and is" if n_diverged == 1 else f"{n_diverged} runs diverged and are"
        yield f"{runs} left out"
