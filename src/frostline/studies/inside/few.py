"""Few examples: a comparison of strategies at each of several numbers of training rows per class.

Each seed draws its own rows, so the seeds are the subsets. All strategies train on the same rows, for the same number
of steps at every size: an epoch over 16 rows is a single step, and three of those teach a model nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from frostline.analysis.inside.few import FewExamples, build_few
from frostline.errors import UsageError
from frostline.execution.sweep import Wanted
from frostline.records.requests import ResolvedComparison, ResolvedRequest, StudyRequest
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.report.inside.few_chapter import FewChapter
from frostline.storage.runs import Store
from frostline.studies.compare import CompareRequest, CompareStudy
from frostline.studies.study import Results, Source, Study, Totals
from frostline.tasks import TaskData

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver

LEAST_STEPS = 200
"""Steps at every size, unless more are given or the epochs of the largest size take more (Mosbach 2020 trains small
tasks for many epochs)."""


@final
@dataclass(frozen=True, kw_only=True)
class FewRequest:
    """What a few-example comparison is asked."""

    request: StudyRequest
    strategies: tuple[str, ...]
    """as the user wrote them"""
    per_class: tuple[int, ...]
    """numbers of training rows of each class, ascending"""
    n_steps: int | None = None
    """training steps at every size; None: `LEAST_STEPS`, or the epochs of the largest size if they take more"""


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedFew:
    """The comparison at each size, with every default filled in."""

    sizes: tuple[tuple[int, ResolvedComparison], ...]
    """(rows per class, request of the comparison), ascending"""

    @property
    def largest(self) -> ResolvedComparison:
        """The comparison on the most rows."""
        return self.sizes[-1][1]


@final
class FewStudy(Study[FewRequest, ResolvedFew, FewExamples]):
    """A comparison at each size. All sizes share the workers."""

    name = "few"
    _compare = CompareStudy()

    def check(self, request: FewRequest) -> None:
        """The sizes say how many rows train, so nothing else may; and what a comparison checks."""
        if request.request.task.max_train is not None:
            raise UsageError("max_train and per_class are both given; per_class says how many rows train")
        if request.n_steps is not None and request.n_steps < 1:
            raise UsageError(f"steps is {request.n_steps}; it must be at least 1")
        self._compare.check(CompareRequest(request=request.request, strategies=request.strategies))

    def resolve(self, request: FewRequest, resolver: Resolver) -> ResolvedFew:
        """A comparison's request for each size, kept as such: `report` and a later `compare` find it."""
        whole = resolver.fill_in(request.request, needs_depth=False)
        n_classes = _check_rows(resolver.inputs(whole).data, max(request.per_class))
        epochs, n_rows = whole.base.epochs, n_classes * max(request.per_class)
        n_steps = request.n_steps or max(LEAST_STEPS, epochs * math.ceil(n_rows / request.request.batch_size))
        shared = request.request.replace(is_balanced=True, subset_of=n_rows, max_steps=n_steps, epochs=epochs)
        sizes = [
            (per_class, self._compare.resolve(_at_size(request, shared, n_classes * per_class), resolver))
            for per_class in request.per_class
        ]
        return ResolvedFew(sizes=tuple(sizes))

    def describe(self, resolved: ResolvedFew, resolver: Resolver) -> list[str]:
        """As for the largest comparison, and how long each size trains."""
        n_steps = resolved.largest.resolved.base.max_steps
        return [*self._compare.describe(resolved.largest, resolver), f"{n_steps} steps at every size"]

    def settings(self, resolved: ResolvedFew) -> dict[str, object]:
        """A comparison's settings, the sizes and the steps."""
        sizes = [per_class for per_class, _ in resolved.sizes]
        steps = resolved.largest.resolved.base.max_steps
        return self._compare.settings(resolved.largest) | {"per-class": sizes, "steps": steps}

    def base(self, resolved: ResolvedFew) -> ResolvedRequest:
        """The largest comparison's request, on all rows."""
        largest = resolved.largest.resolved
        return largest.replace(base=largest.base.replace(task=largest.base.task.replace(max_train=None)))

    def next_runs(self, resolved: ResolvedFew, results: Results) -> Sequence[Wanted]:
        """What each comparison wants next."""
        return [wanted for _, one in resolved.sizes for wanted in self._compare.next_runs(one, results)]

    def runs_ahead(self, resolved: ResolvedFew, results: Results) -> Sequence[RunSpec]:
        """All runs of all comparisons."""
        return [spec for _, one in resolved.sizes for spec in self._compare.runs_ahead(one, results)]

    def messages(self, resolved: ResolvedFew, results: Results) -> list[str]:
        """The learning rates that were chosen at each size."""
        return [
            f"{per_class} rows per class: {message}"
            for per_class, one in resolved.sizes
            for message in self._compare.messages(one, results)
        ]

    def build(self, resolved: ResolvedFew, results: Results, totals: Totals, store: Store) -> FewExamples:
        """A comparison at each size that has a finished replicate."""
        parts = [(one, self._part(one, results)) for _, one in resolved.sizes]
        return build_few(self._compare.build(one, own, totals, store) for one, own in parts if own.has_replicate)

    def chapter(self, record: FewExamples, source: Source) -> FewChapter:
        """Scores against rows per class, and the comparison at each size."""
        parts = [self._compare.chapter(one.comparison, source.part(_trained_on(one.per_class))) for one in record.sizes]
        return FewChapter(few=record, comparisons=tuple(parts), **source.shown)

    def stored(self, store: Store) -> list[ResolvedFew]:  # noqa: ARG002
        """None: the comparison of each size is stored as a comparison, and reports put them together."""
        return []

    def _part(self, resolved: ResolvedComparison, results: Results) -> Results:
        """The results of one comparison."""
        keys = {wanted.spec.key for wanted in self._compare.next_runs(resolved, results)}
        return Results(
            finished={key: result for key, result in results.finished.items() if key in keys},
            crashed=results.crashed & keys,
        )


def _at_size(request: FewRequest, shared: StudyRequest, n_rows: int) -> CompareRequest:
    """The comparison on this number of rows; between two scores on dev it passes over them as often as steps need."""
    assert shared.max_steps is not None and shared.epochs is not None, "both are filled in"  # noqa: PT018
    passes = math.ceil(shared.max_steps / (shared.epochs * math.ceil(n_rows / shared.batch_size)))
    own = shared.replace(task=shared.task.replace(max_train=n_rows), passes=passes)
    return CompareRequest(request=own, strategies=request.strategies)


def _check_rows(data: TaskData, most: int) -> int:
    """The number of classes; raises where there are none, or where one has too few training rows."""
    if not data.kind.has_classes:
        raise UsageError(f"per_class is for tasks with classes; {data.task.name} has none: use curve --train-sizes")
    counts = np.bincount(data.train.labels, minlength=len(data.label_names))
    fewest = int(counts.argmin())
    if most > counts[fewest]:
        raise UsageError(
            f"per_class is {most}: class {data.label_names[fewest]!r} has {counts[fewest]} training rows; use at most "
            f"{counts[fewest]}"
        )
    return len(data.label_names)


def _trained_on(per_class: int) -> Callable[[RunResult], bool]:
    return lambda result: result.spec.task.max_train == per_class * len(result.label_names)
