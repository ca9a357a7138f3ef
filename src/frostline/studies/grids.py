"""Grids: a curve at each of several numbers of training rows, or at each of several learning rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.analysis import Equal, RatedCurve, Rates, SizedCurve, Sizes, interactions
from frostline.errors import UsageError
from frostline.execution.sweep import Wanted
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.report.grid_chapters import RatesChapter, SizesChapter
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
        _check_depth(request.request, "train sizes")

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
            own = part_of(self._curve, curve, results)
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


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedRates:
    """The request of the curve at each rate, with every default filled in."""

    curves: tuple[ResolvedRequest, ...]
    """by rate, ascending"""


@final
class RatesStudy(Study[StudyRequest, ResolvedRates, Rates]):
    """A whole curve at each rate. Nothing is chosen, and all curves share the workers."""

    name = "rates"
    _curve = CurveStudy()

    def check(self, request: StudyRequest) -> None:
        """Two rates at least."""
        if len(request.learning_rates) < 2:
            raise UsageError("rates at depths need two learning rates or more; give them with --lrs")
        _check_depth(request, "rates at depths")

    def resolve(self, request: StudyRequest, resolver: Resolver) -> ResolvedRates:
        """A curve's request for each rate, kept as such: a later `curve --lr` finds its runs."""
        requests = [request.replace(learning_rates=(rate,)) for rate in sorted(request.learning_rates)]
        return ResolvedRates(curves=tuple(self._curve.resolve(one, resolver) for one in requests))

    def describe(self, resolved: ResolvedRates, resolver: Resolver) -> list[str]:
        """As for one curve."""
        return self._curve.describe(resolved.curves[0], resolver)

    def settings(self, resolved: ResolvedRates) -> dict[str, object]:
        """A curve's settings, and the rates."""
        rates = [one.request.learning_rates[0] for one in resolved.curves]
        own = {name: value for name, value in self._curve.settings(resolved.curves[0]).items() if name != "lr"}
        return own | {"lrs": rates, "rates-at-depths": True}

    def base(self, resolved: ResolvedRates) -> ResolvedRequest:
        """The request of the lowest rate."""
        return resolved.curves[0]

    def next_runs(self, resolved: ResolvedRates, results: Results) -> Sequence[Wanted]:
        """What each curve wants next."""
        return [wanted for curve in resolved.curves for wanted in self._curve.next_runs(curve, results)]

    def runs_ahead(self, resolved: ResolvedRates, results: Results) -> Sequence[RunSpec]:
        """All runs of all curves."""
        return [spec for curve in resolved.curves for spec in self._curve.runs_ahead(curve, results)]

    def build(self, resolved: ResolvedRates, results: Results, totals: Totals, store: Store) -> Rates:
        """A curve at each rate that has a finished run of the full model."""
        rated = []
        for curve in resolved.curves:
            own = part_of(self._curve, curve, results)
            if self._curve.is_showable(curve, own):
                made = self._curve.build(curve, own, totals, store)
                rated.append(RatedCurve(learning_rate=curve.request.learning_rates[0], curve=made))
        first = resolved.curves[0]
        return Rates(
            model=first.request.model,
            task=first.base.task.name,
            metric=first.base.task.metric or "",
            rates=tuple(rated),
        )

    def chapter(self, record: Rates, source: Source) -> RatesChapter:
        """Rates against depth."""
        curves = [self._curve.chapter(one.curve, source.part(_rate_is(one.learning_rate))) for one in record.rates]
        return RatesChapter(rates=record, curves=tuple(curves), **source.shown)

    def stored(self, store: Store) -> list[ResolvedRates]:  # noqa: ARG002
        """None: the curve of each rate is stored as a curve."""
        return []


def _check_depth(request: StudyRequest, what: str) -> None:
    """Raises where the curves are not curves of depth."""
    if request.axis != "depth":
        raise UsageError(f"{what} are a grid against depth; axis is {request.axis}: make one curve at a time")


def _rate_is(rate: float) -> Callable[[RunResult], bool]:
    return lambda result: result.spec.learning_rate == rate


def _rows_are(size: int) -> Callable[[RunResult], bool]:
    return lambda result: result.spec.task.max_train == size


def part_of(study: CurveStudy, resolved: ResolvedRequest, results: Results) -> Results:
    """The results of one curve."""
    keys = {wanted.spec.key for wanted in study.next_runs(resolved, results)}
    return Results(
        finished={key: result for key, result in results.finished.items() if key in keys},
        paused={place: paused for place, paused in results.paused.items() if place[0] in keys},
        crashed=results.crashed & keys,
    )


def _epochs_at(request: StudyRequest, size: int) -> int | None:
    """The epochs that the steps take at a size, if steps were asked for."""
    if request.max_steps is None:
        return request.epochs
    return math.ceil(request.max_steps / math.ceil(size / request.batch_size))


def _epochs(number: int) -> str:
    return "1 epoch" if number == 1 else f"{number} epochs"
