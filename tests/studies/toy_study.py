"""A new study in under 60 lines: how much does the full model's score vary from seed to seed?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.execution.sweep import Wanted
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.serial import Record
from frostline.report.chapter import Chapter, TableChapter
from frostline.report.tables import Table
from frostline.storage.runs import Store
from frostline.studies.study import Results, Source, Study, Totals

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver


@dataclass(frozen=True, kw_only=True)
class Spread(Record):
    """The full model's score with each seed."""

    scores: tuple[float, ...]
    """one per seed"""


@final
class SpreadStudy(Study[StudyRequest, ResolvedRequest, Spread]):
    name = "spread"

    def resolve(self, request: StudyRequest, resolver: Resolver) -> ResolvedRequest:
        return resolver.resolve(self.name, request)

    def base(self, resolved: ResolvedRequest) -> ResolvedRequest:
        return resolved

    def settings(self, resolved: ResolvedRequest) -> dict[str, object]:
        return {"seeds": list(resolved.request.seeds)}

    def next_runs(self, resolved: ResolvedRequest, results: Results) -> Sequence[Wanted]:
        return [Wanted(resolved.base.replace(seed=seed)) for seed in resolved.request.seeds]

    def build(self, resolved: ResolvedRequest, results: Results, totals: Totals, store: Store) -> Spread:
        return Spread(scores=tuple(result.score for result in results.finished.values()))

    def chapter(self, record: Spread, source: Source) -> Chapter:
        rows = tuple((str(number), f"{score:.3f}") for number, score in enumerate(record.scores))
        table = Table(title="Scores by seed", headers=("run", "score"), rows=rows)
        answer = f"The score varies by {max(record.scores) - min(record.scores):.3f}."
        return TableChapter(title="Spread over seeds", answer=(answer,), tables=(table,), of=record, **source.shown)

    def stored(self, store: Store) -> list[ResolvedRequest]:
        return store.requests(self.name, ResolvedRequest)
