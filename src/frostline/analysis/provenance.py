"""Finished runs in short, where the numbers come from, and how to reproduce them, as records."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from frostline.analysis.resampling import has_failed
from frostline.records.depth import FULL, Depth
from frostline.records.environment import without_secrets
from frostline.records.results import RunResult
from frostline.records.serial import Record
from frostline.records.specs import Role


@dataclass(frozen=True, kw_only=True)
class RunLine(Record):
    """One finished run, in short."""

    key: str
    """key of the run"""
    strategy: str
    """name of the strategy"""
    n_frozen: Depth
    """layers frozen from the bottom; FULL: nothing is frozen, or the strategy is not a depth"""
    role: Role
    """a replicate, or a run that chose a rate"""
    learning_rate: float
    """learning rate"""
    seed: int
    """seed"""
    score: float
    """score on dev after the last epoch"""
    train_score: float | None
    """score on a sample of the training rows; None if the run chose a learning rate"""
    epoch_scores: tuple[float, ...]
    """score on dev after each epoch"""
    epoch_losses: tuple[float | None, ...]
    """mean training loss of each epoch; None if training diverged in it"""
    seconds: float
    """time to train and evaluate, without the prefix"""
    peak_bytes: int | None
    """peak private memory"""
    is_failed: bool
    """the run learned nothing: its score is not above what its predictions score under permuted labels"""

    @classmethod
    def of(cls, result: RunResult) -> RunLine:
        """A finished run in short."""
        metric = result.spec.task.metric or ""
        return cls(
            key=result.key,
            strategy=result.spec.strategy,
            n_frozen=FULL if result.plan.n_frozen is None else result.plan.n_frozen,
            role=result.spec.role,
            learning_rate=result.spec.learning_rate,
            seed=result.spec.seed,
            score=result.score,
            train_score=result.train_score,
            epoch_scores=tuple(epoch.metrics[metric] for epoch in result.epochs),
            epoch_losses=tuple(epoch.train_loss for epoch in result.epochs),
            seconds=result.cost.seconds,
            peak_bytes=result.cost.peak_bytes,
            is_failed=has_failed(result),
        )


@dataclass(frozen=True, kw_only=True)
class Provenance(Record):
    """Where the numbers come from, and how to reproduce them."""

    folder: str
    """the output folder"""
    command: str
    """the frostline command of the last run, without secrets; empty if Python code called frostline"""
    settings: str
    """the resolved request, as `--config` takes it"""
    model_fingerprint: str
    """key of the pretrained weights, configuration and tokenizer"""
    data_fingerprint: str
    """key of the source files"""
    n_train: int
    """training rows"""
    n_dev: int
    """dev rows"""
    versions: dict[str, str]
    """versions of Python and of the libraries that compute"""
    hardware: dict[str, str]
    """processor, cores, memory, device"""
    at: str
    """when the last run ended, UTC"""

    @classmethod
    def of(cls, folder: Path, settings: str, results: Sequence[RunResult]) -> Provenance:
        """The provenance of finished runs, taken from the last one."""
        # A run that chose a rate may have trained on fewer rows.
        whole = [result for result in results if result.spec.role == "replicate"] or results
        last = max(whole, key=lambda result: result.environment.at)
        where = last.environment
        return cls(
            folder=str(folder),
            command=_shown(where.command),
            settings=settings,
            model_fingerprint=last.spec.model_fingerprint,
            data_fingerprint=last.spec.data_fingerprint,
            n_train=last.n_train,
            n_dev=last.n_dev,
            versions=dict(where.versions),
            hardware=dict(where.hardware),
            at=where.at,
        )


def _shown(command: Sequence[str]) -> str:
    """A stored command as a report shows it. Release 0.1 stored the command line of any program: that is not shown."""
    program = Path(command[0]) if command else Path()
    is_ours = program.name == "frostline" or program.parts[-2:] == ("frostline", "__main__.py")
    return shlex.join(["frostline", *without_secrets(command)[1:]]) if is_ours else ""
