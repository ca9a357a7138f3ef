"""Train sizes: a curve at each of several numbers of training rows. A larger sample holds the smaller ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.analysis import Equal, SizedCurve, Sizes, interactions
from frostline.errors import UsageError
from frostline.execution.sweep import Wanted
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.report.sizes_chapter import SizesChapter
from frostline.storage.runs import Store
from frostline.studies.curve import CurveStudy
from frostline.studies.study import Results, Source, Study, Totals

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver


@final
@dataclass(frozen=True, kw_only=True)
class SizesRequest:
    """What train sizes are asked."""

    request: StudyRequest
    train_sizes: tuple[int, ...]
    """numbers of training rows, ascending"""
    equal: Equal = "steps"


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedSizes:
    """The request of each size with every default filled in."""

    curves: tuple[tuple[int, ResolvedRequest], ...]
    """(training rows, request of the curve), ascending"""
    equal: Equal


@final
class SizesStudy(Study[SizesRequest, ResolvedSizes, Sizes]):
    """A whole curve at each size. All sizes share the workers."""

    name = "grid"
    _curve = CurveStudy()

    def check(self, request: SizesRequest) -> None:
        """The sizes say how many rows train, so nothing else may."""
        if request.request.task.max_train is not None:
            raise UsageError("max_train and train sizes are both given; the sizes say how many rows train")

    def resolve(self, request: SizesRequest, resolver: Resolver) -> ResolvedSizes:
        """A curve's request for each size, kept as such: `report` and a later `curve` find it."""
        asked, sizes = request.request, request.train_sizes
        whole = resolver.fill_in(asked, needs_depth=True)
        n_rows = len(resolver.inputs(whole).data.train)
        if max(sizes) > n_rows:
            raise UsageError(f"train size {max(sizes)}: there are {n_rows} training rows; use at most {n_rows}")
        n_steps = whole.base.epochs * math.ceil(max(sizes) / asked.batch_size)  # of the largest
        shared = asked.replace(
            subset_of=max(sizes),
            max_steps=n_steps if request.equal == "steps" else None,
            epochs=whole.base.epochs,
        )
        requests = [
            shared.replace(task=asked.task.replace(max_train=size), epochs=_epochs_at(shared, size)) for size in sizes
        ]
        curves = [self._curve.resolve(one, resolver) for one in requests]
        return ResolvedSizes(curves=tuple(zip(sizes, curves, strict=True)), equal=request.equal)

    def describe(self, resolved: ResolvedSizes, resolver: Resolver) -> list[str]:
        """As for the largest curve, and how long each size trains."""
        base = resolved.curves[-1][1].base
        steps = f"{base.max_steps} steps at every size" if base.max_steps else f"{_epochs(base.epochs)} at every size"
        return [*self._curve.describe(resolved.curves[-1][1], resolver), steps]

    def settings(self, resolved: ResolvedSizes) -> dict[str, object]:
        """A curve's settings, and the sizes; epochs are those of the largest."""
        sizes = {"train-sizes": [size for size, _ in resolved.curves], "equal": resolved.equal}
        return self._curve.settings(resolved.curves[-1][1]) | sizes

    def base(self, resolved: ResolvedSizes) -> ResolvedRequest:
        """The largest curve's request, on all rows."""
        largest = resolved.curves[-1][1]
        task = largest.base.task.replace(max_train=None)
        return largest.replace(base=largest.base.replace(task=task))

    def next_runs(self, resolved: ResolvedSizes, results: Results) -> Sequence[Wanted]:
        """What each curve wants next."""
        return [wanted for _, curve in resolved.curves for wanted in self._curve.next_runs(curve, results)]

    def runs_ahead(self, resolved: ResolvedSizes, results: Results) -> Sequence[RunSpec]:
        """All runs of all curves."""
        return [spec for _, curve in resolved.curves for spec in self._curve.runs_ahead(curve, results)]

    def messages(self, resolved: ResolvedSizes, results: Results) -> list[str]:
        """The learning rates that were chosen at each size."""
        return [
            f"{size:,} training rows: {message}"
            for size, curve in resolved.curves
            for message in self._curve.messages(curve, results)
        ]

    def build(self, resolved: ResolvedSizes, results: Results, totals: Totals, store: Store) -> Sizes:
        """A curve at each size that has a finished run of the full model."""
        sized = []
        for size, curve in resolved.curves:
            own = _part(self._curve, curve, results)
            if self._curve.is_showable(curve, own):
                sized.append(SizedCurve(train_size=size, curve=self._curve.build(curve, own, totals, store)))
        first = resolved.curves[0][1]
        return Sizes(
            model=first.request.model,
            task=first.base.task.name,
            metric=first.base.task.metric or "",
            equal=resolved.equal,
            train_sizes=tuple(sized),
            interactions=interactions(sized),
        )

    def chapter(self, record: Sizes, source: Source) -> SizesChapter:
        """Rows against depth, and the curve of each size."""
        curves = [self._curve.chapter(one.curve, source.part(_rows_are(one.train_size))) for one in record.train_sizes]
        return SizesChapter(sizes=record, curves=tuple(curves), **source.shown)

    def stored(self, store: Store) -> list[ResolvedSizes]:  # noqa: ARG002
        """None: the curve of each size is stored as a curve, and reports put them together."""
        return []


def _rows_are(size: int) -> Callable[[RunResult], bool]:
    return lambda result: result.spec.task.max_train == size


def _part(study: CurveStudy, resolved: ResolvedRequest, results: Results) -> Results:
    """The results of one curve."""
    keys = {wanted.spec.key for wanted in study.next_runs(resolved, results)}
    return Results(
        finished={key: result for key, result in results.finished.items() if key in keys},
        crashed=results.crashed & keys,
    )


def _epochs_at(request: StudyRequest, size: int) -> int | None:
    """The epochs that the steps take at a size, if steps were asked for."""
    if request.max_steps is None:
        return request.epochs
    return math.ceil(request.max_steps / math.ceil(size / request.batch_size))


def _epochs(number: int) -> str:
    return "1 epoch" if number == 1 else f"{number} epochs"
