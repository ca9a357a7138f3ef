"""Which attention heads matter: the importance of each, and the score when more and more of them are pruned.

Nothing trains. The first run fits a head to the pretrained model in closed form (or takes a fine-tuned model as it is)
and measures importance on training rows. From that follow the orders of pruning, and each order is one more run of the
same model, scored on dev. Heads are ranked on training rows and pruned models are scored on dev rows (TRAPS 38).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from frostline.analysis import has_failed
from frostline.analysis.inside.heads import ORDERS, HeadsRecord, Order, Pruned, by_importance, pruning_curve
from frostline.errors import UsageError
from frostline.execution.sweep import Wanted
from frostline.records.keys import derived_seed
from frostline.records.parameters import AttentionHead, pruning_steps, written_heads
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.results import RunResult
from frostline.records.serial import Record, request_fields
from frostline.records.specs import RunSpec
from frostline.report.inside.heads_chapter import HeadsChapter
from frostline.storage.runs import Store
from frostline.strategies import Saved
from frostline.studies.inside.fitted import fitted_spec
from frostline.studies.planning.axis import spec_at
from frostline.studies.study import Results, Source, Study, Totals

if TYPE_CHECKING:
    from frostline.studies.requests.resolve import Resolver

ROWS = 1000
"""training rows that importance is computed on, unless asked"""
N_DRAWS = 5
"""random orders of pruning"""


@final
@dataclass(frozen=True, kw_only=True)
class HeadsRequest:
    """What a study of attention heads is asked."""

    request: StudyRequest
    rows: int = ROWS
    """most training rows that importance is computed on"""
    prune: bool = True
    """also prune"""
    is_tuned: bool = False
    """the model is a fine-tuned folder, measured with its own head"""


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedHeads(Record):
    """A request for a study of attention heads with every default filled in."""

    resolved: ResolvedRequest
    """model, data and machine"""
    rows: int
    """most training rows that importance is computed on"""
    heads: tuple[int, ...]
    """attention heads of each layer, the lowest layer first"""
    prune: bool
    """also prune"""
    is_tuned: bool
    """the model is a fine-tuned folder, measured with its own head"""


@final
class HeadsStudy(Study[HeadsRequest, ResolvedHeads, HeadsRecord]):
    """Measure importance, then prune in every order."""

    name = "heads"
    trains = False

    def check(self, request: HeadsRequest) -> None:
        """There are rows."""
        if request.rows < 1:
            raise UsageError(f"rows is {request.rows}; it must be at least 1")

    def resolve(self, request: HeadsRequest, resolver: Resolver) -> ResolvedHeads:
        """The request with the attention heads of the model; a UsageError if they cannot be told apart."""
        from frostline.model.inside.heads import attention_heads

        filled = resolver.fill_in(request.request, needs_depth=True)
        layers = attention_heads(resolver.stack(filled))
        if request.is_tuned:
            _check_saved(filled, resolver)
        else:
            resolver.check_pooled(filled)
        found = ResolvedHeads(
            resolved=filled,
            rows=request.rows,
            heads=tuple(layer.n_heads for layer in layers),
            prune=request.prune,
            is_tuned=request.is_tuned,
        )
        own = {"rows": request.rows, "prune": request.prune, "is_tuned": request.is_tuned}
        return resolver.keep(self.name, {"asked": request_fields(request.request), **own}, found)

    def describe(self, resolved: ResolvedHeads, resolver: Resolver) -> list[str]:
        """Model, rows and attention heads."""
        n_heads = sum(resolved.heads)
        what = "nothing trains" if resolved.is_tuned else "nothing trains but a linear head"
        counted = f"{n_heads} attention heads in {len(resolved.heads)} layers; {what}"
        return [*resolver.describe(resolved.resolved, {}), counted]

    def base(self, resolved: ResolvedHeads) -> ResolvedRequest:
        """Model, data and machine."""
        return resolved.resolved

    def settings(self, resolved: ResolvedHeads) -> dict[str, object]:
        """Rows, and the share to keep."""
        request = resolved.resolved.request
        own: dict[str, object] = {"rows": resolved.rows, "keep": request.keep[0], "no-prune": not resolved.prune}
        return own | ({"tuned": request.model} if resolved.is_tuned else {})

    def next_runs(self, resolved: ResolvedHeads, results: Results) -> Sequence[Wanted]:
        """Importance and the orders of pruning that do not depend on it; then the order that does."""
        first = _first(resolved)
        specs = _pruning_specs(resolved, results.finished.get(first.key)) if resolved.prune else {}
        return [Wanted(spec) for spec in (first, *(spec for of_order in specs.values() for spec in of_order))]

    def build(self, resolved: ResolvedHeads, results: Results, totals: Totals, store: Store) -> HeadsRecord:  # noqa: ARG002
        """Importance and pruning, as far as the runs are done."""
        whole = results.finished[_first(resolved).key]
        keep, model = resolved.resolved.request.keep[0], resolved.resolved.request.model
        curves = []
        for order, specs in (_pruning_specs(resolved, whole) if resolved.prune else {}).items():
            if done := [_pruned(result, result.spec.measures[0]) for result in results.of(specs)]:
                curves.append(pruning_curve(order, whole, done, keep))
        return HeadsRecord(
            model=model,
            task=whole.spec.task.name,
            metric=whole.spec.task.metric or "",
            tuned=model if resolved.is_tuned else None,
            n_layers=len(resolved.heads),
            n_heads=sum(resolved.heads),
            n_rows=min(resolved.rows, whole.n_train),
            n_dev=whole.n_dev,
            importance=_importance(resolved, whole),
            score=whole.score,
            chance=whole.chance,
            is_failed=has_failed(whole),
            keep=keep,
            pruning=tuple(curves),
            seconds=sum(one.seconds for result in results.finished.values() for one in result.measured),
            n_crashed=len(results.crashed),
        )

    def chapter(self, record: HeadsRecord, source: Source) -> HeadsChapter:
        """Importance, pruning and the runs."""
        return HeadsChapter(heads=record, **source.shown)

    def stored(self, store: Store) -> list[ResolvedHeads]:
        """All studies of attention heads that were asked for in this folder."""
        return store.requests(self.name, ResolvedHeads)

    def is_showable(self, resolved: ResolvedHeads, results: Results) -> bool:
        """Once importance is known."""
        return _first(resolved).key in results.finished


def importance_spec(resolved: ResolvedRequest, rows: int = ROWS) -> RunSpec:
    """The run that measures importance on the pretrained model with a fitted head."""
    return fitted_spec(resolved, (_importance_name(rows),))


def _first(resolved: ResolvedHeads) -> RunSpec:
    """The run that measures importance."""
    return _spec(resolved, _importance_name(resolved.rows))


def _spec(resolved: ResolvedHeads, measure: str) -> RunSpec:
    """The run with one measure: of the fine-tuned model as it is, or of the pretrained one with a fitted head."""
    if resolved.is_tuned:
        return spec_at(resolved.resolved, Saved()).replace(measures=(measure,))
    return fitted_spec(resolved.resolved, (measure,))


def _check_saved(filled: ResolvedRequest, resolver: Resolver) -> None:
    """Raises unless a fine-tuned model has a head for the task, on the scale of its labels."""
    from frostline.model.inside.saved import load_as_saved
    from frostline.saving.manifest import read_manifest

    folder, inputs = Path(filled.base.model), resolver.inputs(filled)
    load_as_saved(str(folder), inputs.data.kind, inputs.data.label_names, inputs.pretrained.tokenizer.pad_token_id)
    manifest = read_manifest(folder)
    if manifest is not None and manifest.label_scale is not None:
        raise UsageError(
            f"{folder} learned standardised labels, so its loss is not that of the task; measure its base instead, or "
            "train it again with --protocol paper"
        )


def _importance_name(rows: int) -> str:
    return "importance" if rows == ROWS else f"importance:rows={rows}"


def _importance(resolved: ResolvedHeads, whole: RunResult) -> tuple[tuple[float, ...], ...]:
    """By layer and attention head."""
    found = whole.measurement(_importance_name(resolved.rows))
    assert found is not None, "a fit does not diverge"
    pairs = zip(found["importance"], resolved.heads, strict=True)
    return tuple(tuple(map(float, values[:n_heads])) for values, n_heads in pairs)


def _pruning_specs(resolved: ResolvedHeads, whole: RunResult | None) -> dict[Order, list[RunSpec]]:
    """The runs of each order; of importance only once it is known.

    With all attention heads pruned, the order is nothing: only one of the runs goes so far.
    """
    steps = [0, *pruning_steps(sum(resolved.heads))]
    orders: dict[Order, list[Sequence[AttentionHead]]] = {
        "random": [_drawn(resolved, draw)[: steps[-2]] for draw in range(N_DRAWS)],
        "top": [_top_down(resolved.heads)[: steps[-2]]],
    }
    if whole is not None:
        orders["importance"] = [[head for head, _ in by_importance(_importance(resolved, whole))][::-1]]
    known = [order for order in ORDERS if order in orders]
    return {order: [_pruning_spec(resolved, heads) for heads in orders[order] if heads] for order in known}


def _pruning_spec(resolved: ResolvedHeads, order: Sequence[AttentionHead]) -> RunSpec:
    return _spec(resolved, f"pruning:{written_heads(order)}")


def _pruned(result: RunResult, measure: str) -> Pruned:
    found = result.measurement(measure)
    assert found is not None, "a fit does not diverge"
    return Pruned(n_pruned=found["n_pruned"].tolist(), outputs=found["outputs"])


def all_heads(n_heads: Sequence[int]) -> list[AttentionHead]:
    """All attention heads of a model, from the numbers in its layers; the lowest layer first."""
    return [AttentionHead(layer, head) for layer, number in enumerate(n_heads, start=1) for head in range(number)]


def _top_down(n_heads: Sequence[int]) -> list[AttentionHead]:
    return sorted(all_heads(n_heads), key=lambda head: (-head.layer, head.number))


def _drawn(resolved: ResolvedHeads, draw: int) -> list[AttentionHead]:
    """A random order, from the master seed."""
    seed = derived_seed(resolved.resolved.request.master_seed, f"pruning order {draw}")
    heads = all_heads(resolved.heads)
    return [heads[place] for place in np.random.default_rng(seed).permutation(len(heads))]
