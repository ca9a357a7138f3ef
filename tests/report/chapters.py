"""Chapters for the tests of reports: a made-up curve with the runs that would draw it."""

from __future__ import annotations

from frostline.analysis import Answer, Curve, Finding, Point, Provenance, RunLine
from frostline.records.depth import FULL, Depth
from frostline.report.curve_chapter import CurveChapter

from .curves import make_curve


def make_runs(curve: Curve) -> tuple[RunLine, ...]:
    """A run for each rate that was tried, and for each score of a point."""
    searched = [
        _run(curve, FULL, number, tried.score or 0.0, role="line_search", rate=tried.learning_rate)
        for number, tried in enumerate(curve.line_search)
    ]
    points = (curve.full, *curve.points)
    return (*searched, *(run for point in points for run in _replicates(curve, point)))


def _replicates(curve: Curve, point: Point) -> list[RunLine]:
    return [_run(curve, point.n_frozen, s, score) for s, score in zip(point.seeds, point.scores, strict=True)]


def _run(
    curve: Curve, n_frozen: Depth, seed: int, score: float, *, role: str = "replicate", rate: float = 5e-5
) -> RunLine:
    return RunLine(
        key=f"{role}-{n_frozen}-{seed}",
        strategy="full" if n_frozen is FULL else f"freeze:{n_frozen}",
        n_frozen=n_frozen,
        role=role,  # type: ignore[arg-type]
        learning_rate=rate,
        seed=seed,
        score=score,
        train_score=min(1.0, score + 0.1),
        epoch_scores=(score - 0.1, score - 0.02, score),
        epoch_losses=(0.7, 0.5, 0.4 - 0.001 * seed),
        seconds=12.5 + seed,
        peak_bytes=400_000_000 + seed,
        is_failed=score <= curve.chance,
    )


def make_chapter(
    curve: Curve | None = None,
    *,
    task: str | None = None,
    model: str | None = None,
    warnings: tuple[str, ...] = ("intervals are pointwise",),
    command: str = "frostline curve all-MiniLM-L6-v2 rotten-tomatoes",
    n_missing: int = 0,
) -> CurveChapter:
    """A chapter of a made-up curve; by default the demo's."""
    curve = (curve or make_curve()).replace(warnings=warnings)
    curve = curve.replace(task=task or curve.task, model=model or curve.model)
    return CurveChapter(
        curve=curve,
        runs=make_runs(curve),
        n_missing=n_missing,
        provenance=Provenance(
            folder="runs/demo",
            command=command,
            settings="# settled\nmodel: all-MiniLM-L6-v2\nseeds: [0, 1, 2]\n",
            model_fingerprint="0123456789abcdef",
            data_fingerprint="fedcba9876543210",
            n_train=768,
            n_dev=320,
            versions={"python": "3.11.9", "torch": "2.13.0"},
            hardware={"processor": "Xeon", "cores": "2", "device": "cpu"},
            at="2026-11-16T10:00:00+00:00",
        ),
    )


def alone(*curves: Curve) -> list[CurveChapter]:
    """Chapters of curves about whose runs nothing is known."""
    return [CurveChapter(curve=curve) for curve in curves]


def make_finding(because: str = "decided at 95% confidence") -> Finding:
    """A made-up search that found no depth."""
    answer = Answer(
        keep=0.9,
        scale="ratio",
        n_frozen=FULL,
        trained_layers=6,
        confidence=0.95,
        decision="open",
        stopped_because=because,
    )
    curve = make_curve({FULL: (0.9, 0.9), 5: (0.6, 0.6), 6: (0.55, 0.55)})
    return Finding(**vars(curve), answer=answer, runs_spent=2.4, runs_of_full_curve=9.0)
