"""Depths predicted before any training, from one forward pass over the training rows and a few gradients.

Two runs, neither of which trains the model: a linear fit to every layer, which gives the probe, and a fit to the top
layer, on which the other scores are measured. Both read the same cached states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.analysis.inside.scout import (
    BASELINES,
    RULES,
    ScoutReport,
    accuracy,
    best_of,
    measurements,
    other_tasks,
    scores_of,
)
from frostline.errors import UsageError
from frostline.execution.sweep import Wanted
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.results import RunResult
from frostline.records.serial import Record, request_fields
from frostline.records.specs import RunSpec
from frostline.report.inside.scout_chapter import ScoutChapter
from frostline.storage.runs import Store
from frostline.studies.inside.fitted import fitted_spec
from frostline.studies.planning.axis import layer_forwards
from frostline.studies.probes import probe_specs
from frostline.studies.study import Results, Source, Study, Totals

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver

ROWS = 1000
"""training rows whose states are scored, at most, unless asked"""
GRADIENT_ROWS = {"gradient_norm": 80, "signal_to_noise": 64, "fisher": 100}
"""rows that each score takes gradients of; `measures/scout.py` has the same numbers"""


@final
@dataclass(frozen=True, kw_only=True)
class ScoutRequest:
    """What is asked before training."""

    request: StudyRequest
    rows: int = ROWS
    """most training rows whose states are scored"""


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedScout(Record):
    """The request with every default filled in."""

    resolved: ResolvedRequest
    """model, data and machine"""
    rows: int
    """most training rows whose states are scored"""

    @property
    def measure(self) -> str:
        """The measure of the layers."""
        return "scout" if self.rows == ROWS else f"scout:rows={self.rows}"


@final
class ScoutStudy(Study[ScoutRequest, ResolvedScout, ScoutReport]):
    """Fit a probe to every layer, and measure the layers under a fitted head."""

    name = "scout"
    trains = False

    def check(self, request: ScoutRequest) -> None:
        """There are rows."""
        if request.rows < 2:
            raise UsageError(f"rows is {request.rows}; it must be at least 2")

    def resolve(self, request: ScoutRequest, resolver: Resolver) -> ResolvedScout:
        """The request; refused if the pooled states of all layers do not fit into the cache."""
        filled = resolver.fill_in(request.request, needs_depth=True)
        resolver.check_pooled(filled)
        asked = {"asked": request_fields(request.request), "rows": request.rows}
        return resolver.keep(self.name, asked, ResolvedScout(resolved=filled, rows=request.rows))

    def describe(self, resolved: ResolvedScout, resolver: Resolver) -> list[str]:
        """Model and rows."""
        return [*resolver.describe(resolved.resolved, {}), "nothing trains but linear heads"]

    def base(self, resolved: ResolvedScout) -> ResolvedRequest:
        """Model, data and machine."""
        return resolved.resolved

    def settings(self, resolved: ResolvedScout) -> dict[str, object]:
        """Rows, and the epochs of the full run that costs are compared with."""
        return {"rows": resolved.rows, "epochs": resolved.resolved.base.epochs}

    def next_runs(self, resolved: ResolvedScout, results: Results) -> Sequence[Wanted]:  # noqa: ARG002
        """The probe of every layer, and the measured fit to the top layer."""
        return [Wanted(spec) for spec in _specs(resolved)]

    def build(self, resolved: ResolvedScout, results: Results, totals: Totals, store: Store) -> ScoutReport:  # noqa: ARG002
        """The scores, and the depths that they name."""
        request = resolved.resolved
        pairs, task = measurements().pairs, request.base.task.name
        probed, measured = (results.finished[spec.key] for spec in _specs(resolved))
        values = _values(probed, measured, resolved.measure)
        scores = scores_of(values, _costs(request, measured.n_train), task, pairs)
        best = best_of(scores)
        finished = results.finished.values()
        return ScoutReport(
            model=request.base.model,
            task=task,
            metric=request.base.task.metric or "",
            n_layers=request.n_layers,
            n_rows=min(resolved.rows, measured.n_train),
            scores=scores,
            baselines=tuple(one for one in accuracy(other_tasks(pairs, task)) if one.name in BASELINES),
            best=best.name,
            start=best.named if best.n_frozen is None else best.n_frozen,
            seconds=sum(_seconds(result) for result in finished),
            cost=totals.cost(finished),
            runs=totals.counts(finished, len(results.crashed)),
            warnings=tuple(dict.fromkeys(warning for result in finished for warning in result.warnings)),
        )

    def is_showable(self, resolved: ResolvedScout, results: Results) -> bool:
        """Once both runs have finished."""
        return all(spec.key in results.finished for spec in _specs(resolved))

    def chapter(self, record: ScoutReport, source: Source) -> ScoutChapter:
        """The scores and the runs."""
        return ScoutChapter(scout=record, **source.shown)

    def stored(self, store: Store) -> list[ResolvedScout]:
        """All that was asked before training in this folder."""
        return store.requests(self.name, ResolvedScout)


def _specs(resolved: ResolvedScout) -> tuple[RunSpec, RunSpec]:
    """The probe of every layer, which a curve with `--probe` shares, and the measured fit to the top layer."""
    request = resolved.resolved
    (probe,) = probe_specs(request.base, request.request.seeds[:1], is_cached=request.is_cached)
    return probe, fitted_spec(request, (resolved.measure,))


def _values(probed: RunResult, measured: RunResult, measure: str) -> dict[str, list[float]]:
    """The values of each score by depth or layer."""
    found = measured.measurement(measure)
    assert found is not None, "a fit does not diverge"
    probes = [probe.held_out_score for probe in sorted(probed.probes, key=lambda one: one.depth)]
    return {rule.name: probes if rule.name == "probe" else found[rule.name].tolist() for rule in RULES}


def _costs(resolved: ResolvedRequest, n_train: int) -> Mapping[str, float]:
    """What each score takes, in full-run equivalents: one forward pass for all, and gradients of some rows."""
    n_layers = resolved.n_layers
    full = n_train * resolved.base.epochs * layer_forwards(n_layers)
    forward = n_train * n_layers / full
    gradients = {name: min(rows, n_train) * 3 * n_layers / full for name, rows in GRADIENT_ROWS.items()}
    return {rule.name: forward + gradients.get(rule.name, 0.0) for rule in RULES}


def _seconds(result: RunResult) -> float:
    """Of a run, with its states and its measures."""
    return result.cost.seconds + result.cost.prefix_seconds + sum(one.seconds for one in result.measured)
