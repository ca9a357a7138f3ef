"""What a report tells of one request: its curve, its runs, and how to do it again, as records."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from frostline import stats
from frostline.analysis.comparisons import Comparison, ProbePoint
from frostline.analysis.records import Curve
from frostline.records.results import RunResult
from frostline.records.serial import Record
from frostline.records.specs import Role


@dataclass(frozen=True, kw_only=True)
class RunLine(Record):
    """One finished run, in short."""

    key: str
    """what it is found by"""
    strategy: str
    """what trained"""
    n_frozen: int | None
    """layers frozen from the bottom; None: nothing is frozen"""
    role: Role
    """a replicate, or a run that chose a rate"""
    learning_rate: float
    """its rate"""
    seed: int
    """its seed"""
    score: float
    """on dev, after the last epoch"""
    train_score: float
    """on a sample of the training rows"""
    epoch_scores: tuple[float, ...]
    """on dev, after each epoch"""
    epoch_losses: tuple[float, ...]
    """mean training loss of each epoch"""
    seconds: float
    """training and evaluating, the prefix apart"""
    peak_bytes: int | None
    """peak private memory"""
    is_failed: bool
    """ended at or below chance"""

    @classmethod
    def of(cls, result: RunResult) -> RunLine:
        """The line of a finished run."""
        metric = result.spec.task.metric or ""
        return cls(
            key=result.key,
            strategy=result.spec.strategy,
            n_frozen=result.plan.n_frozen,
            role=result.spec.role,
            learning_rate=result.spec.learning_rate,
            seed=result.spec.seed,
            score=result.score,
            train_score=result.train_score,
            epoch_scores=tuple(epoch.metrics[metric] for epoch in result.epochs),
            epoch_losses=tuple(epoch.train_loss for epoch in result.epochs),
            seconds=result.cost.seconds,
            peak_bytes=result.cost.peak_bytes,
            is_failed=not stats.is_above(result.score, result.chance),
        )


@dataclass(frozen=True, kw_only=True)
class Provenance(Record):
    """Where the numbers come from, and how to get them again."""

    folder: str
    """the out folder"""
    command: str
    """the command line of the last run"""
    settings: str
    """the request with everything settled, as `--config` takes it"""
    model_fingerprint: str
    """key of the pretrained weights, configuration and tokenizer"""
    data_fingerprint: str
    """key of the source files"""
    n_train: int
    """training rows"""
    n_dev: int
    """dev rows"""
    versions: dict[str, str]
    """of Python and the libraries that compute"""
    hardware: dict[str, str]
    """processor, cores, memory, device"""
    at: str
    """when the last run ended, UTC"""

    @classmethod
    def of(cls, folder: Path, settings: str, results: Sequence[RunResult]) -> Provenance:
        """That of finished runs, as the last of them tells it."""
        # One that chose a rate may have trained on fewer rows.
        whole = [result for result in results if result.spec.role == "replicate"] or results
        last = max(whole, key=lambda result: result.environment.at)
        where = last.environment
        return cls(
            folder=str(folder),
            command=shlex.join([Path(where.command[0]).name, *where.command[1:]]) if where.command else "",
            settings=settings,
            model_fingerprint=last.spec.model_fingerprint,
            data_fingerprint=last.spec.data_fingerprint,
            n_train=last.n_train,
            n_dev=last.n_dev,
            versions=dict(where.versions),
            hardware=dict(where.hardware),
            at=where.at,
        )


@dataclass(frozen=True, kw_only=True)
class Chapter(Record):
    """One request in a report."""

    curve: Curve
    """what its runs say; of a search, a `Finding`"""
    runs: tuple[RunLine, ...] = ()
    """those that are finished; empty where only the curve is at hand"""
    n_missing: int = 0
    """runs that are yet to be done"""
    provenance: Provenance | None = None
    """where the numbers come from; None where only the curve is at hand"""
    probes: tuple[ProbePoint, ...] = ()
    """linear fits to what each layer puts out, where the store has them"""

    @property
    def learning(self) -> list[tuple[int | None, list[tuple[int, float]]]]:
        """(epoch, mean dev score) of each depth's replicates, the full model's first."""
        depths = sorted({run.n_frozen for run in self._replicates}, key=lambda depth: -1 if depth is None else depth)
        return [(depth, self._learning_at(depth)) for depth in depths]

    @property
    def _replicates(self) -> list[RunLine]:
        return [run for run in self.runs if run.role == "replicate"]

    def _learning_at(self, depth: int | None) -> list[tuple[int, float]]:
        scores = [run.epoch_scores for run in self._replicates if run.n_frozen == depth]
        return [(epoch, stats.mean(values)) for epoch, values in enumerate(zip(*scores, strict=True), start=1)]


def told_apart(chapters: Sequence[Chapter]) -> list[Chapter]:
    """The chapters, those of one task and model with their training rows, or else a number, behind the model's name."""
    names = [(chapter.curve.task, chapter.curve.model) for chapter in chapters]
    apart = []
    for at, (chapter, name) in enumerate(zip(chapters, names, strict=True)):
        alike = [other for other, its in zip(chapters, names, strict=True) if its == name]
        rows = [None if other.provenance is None else other.provenance.n_train for other in alike]
        if len(alike) > 1:
            number = names[:at].count(name)
            is_by_rows = None not in rows and len(set(rows)) == len(rows)
            suffix = f"{rows[number]:,} rows" if is_by_rows else str(number + 1)
            chapter = chapter.replace(curve=chapter.curve.replace(model=f"{name[1]} ({suffix})"))
        apart.append(chapter)
    return apart


@dataclass(frozen=True, kw_only=True)
class ComparisonChapter(Record):
    """One request for a comparison in a report."""

    comparison: Comparison
    """what its runs say"""
    runs: tuple[RunLine, ...] = ()
    """those that are finished; empty where only the comparison is at hand"""
    n_missing: int = 0
    """runs that are yet to be done"""
    provenance: Provenance | None = None
    """where the numbers come from; None where only the comparison is at hand"""
