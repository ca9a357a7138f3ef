"""Linear fits to the output of every layer: how much of the task the pretrained model already knows, and where."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.analysis import ProbePoint, probe_points
from frostline.execution.sweep import Wanted
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.results import RunResult
from frostline.records.serial import Record
from frostline.records.specs import RunSpec
from frostline.report.chapter import Chapter, TableChapter
from frostline.report.comparison_tables import probe_table
from frostline.storage.runs import Store
from frostline.strategies import Features
from frostline.studies.requests.config_file import seed_settings
from frostline.studies.study import Results, Source, Study, Totals

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver


@final
@dataclass(frozen=True, kw_only=True)
class Probes(Record):
    """The score of a linear fit to the output of every layer."""

    model: str
    """the pretrained model"""
    task: str
    """the task"""
    metric: str
    """what a score is"""
    points: tuple[ProbePoint, ...]
    """one per layer, the embeddings first"""


@final
class ProbesStudy(Study[StudyRequest, ResolvedRequest, Probes]):
    """Fit `features` with every seed. It runs beside a curve, whose chapter shows it."""

    name = "probes"

    def resolve(self, request: StudyRequest, resolver: Resolver) -> ResolvedRequest:
        """The curve's own resolved request."""
        resolved = resolver.resolve("curve", request)
        resolver.check_pooled(resolved)
        return resolved

    def settings(self, resolved: ResolvedRequest) -> dict[str, object]:
        """Seeds."""
        return seed_settings(resolved)

    def base(self, resolved: ResolvedRequest) -> ResolvedRequest:
        """The request itself."""
        return resolved

    def next_runs(self, resolved: ResolvedRequest, results: Results) -> Sequence[Wanted]:  # noqa: ARG002
        """One fit for each seed, which draws the held-out rows."""
        specs = probe_specs(resolved.base, resolved.request.seeds, is_cached=resolved.is_cached)
        fit_seed = 0 if resolved.has_races else None
        return [Wanted(spec.replace(fit_seed=fit_seed)) for spec in specs]

    def build(self, resolved: ResolvedRequest, results: Results, totals: Totals, store: Store) -> Probes:  # noqa: ARG002
        """The score at every layer."""
        base = resolved.base
        points = probe_points(results.finished.values())
        return Probes(model=base.model, task=base.task.name, metric=base.task.metric or "", points=points)

    def chapter(self, record: Probes, source: Source) -> Chapter:
        """One table."""
        title = f"Linear fits to {record.model} on {record.task}"
        return TableChapter(title=title, answer=(), tables=(probe_table(record.points),), of=record, **source.shown)

    def stored(self, store: Store) -> list[ResolvedRequest]:  # noqa: ARG002
        """None: a curve's chapter shows its probes."""
        return []


def probe_specs(spec: RunSpec, seeds: Sequence[int], *, is_cached: bool) -> list[RunSpec]:
    """Fits to the output of all layers, one for each seed, on the same rows as a run."""
    assert spec.task.kind is not None, "the task of a run is resolved"
    strategy = Features().resolved(0, spec.task.kind)
    changes = {"strategy": strategy.name, "learning_rate": 0.0, "role": "replicate", "cache_dtype": "fp32"}
    return [spec.with_seed(seed).replace(is_cached=is_cached, fit_seed=0, **changes) for seed in seeds]


def stored_probes(store: Store, spec: RunSpec, seeds: Sequence[int]) -> tuple[ProbePoint, ...]:
    """What a store has of the fits beside a run, whether their states were cached or not."""
    found: list[list[RunResult]] = []
    for is_cached, fit_seed in itertools.product((True, False), (0, None)):  # release 0.1 had no fit_seed
        specs = [one.replace(fit_seed=fit_seed) for one in probe_specs(spec, seeds, is_cached=is_cached)]
        found.append([result for one in specs if (result := store.get(one.key)) is not None])
    most = max(len(results) for results in found)
    return probe_points(next(results for results in found if len(results) == most))
