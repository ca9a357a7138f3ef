"""Finished runs made up from a score, for tests of what is computed from runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from frostline.analysis import Along, Curve, CurveCost, Replicates, RunCounts, TriedRate, build_curve
from frostline.records.arrays import StoredArray
from frostline.records.depth import FULL, AxisName, Depth
from frostline.records.plans import Plan
from frostline.records.requests import ResolvedAxis, StudyRequest
from frostline.records.results import Cost, Environment, EpochRecord, Predictions, RunResult
from frostline.records.specs import RunSpec, Scale, TaskSpec

N_LAYERS = 4
TASK = TaskSpec(name="toy", source=None, data=None, dev=None, kind="classification", metric="accuracy")
COST = CurveCost(wall_seconds=1.0, prefix_seconds=0.25, train_seconds=0.5, cache_bytes=64)
COUNTS = RunCounts(done=1, reused=0, crashed=0)


def make_spec(n_frozen: Depth, seed: int, *, learning_rate: float = 2e-5) -> RunSpec:
    """The spec of one replicate; `n_frozen` may be FULL."""
    return RunSpec(
        model="toy-model",
        model_fingerprint="m",
        task=TASK,
        data_fingerprint="d",
        strategy="full" if n_frozen is FULL else f"freeze:{n_frozen}",
        learning_rate=learning_rate,
        epochs=1,
        seed=seed,
        is_cached=n_frozen is not FULL,
    )


def make_predictions(score: float, *, n_dev: int = 200, seed: int = 0, chance: float = 0.5) -> Predictions:
    """Answers whose accuracy is as near to the score as rows allow, the mistakes drawn; a constant has `chance`."""
    labels = (np.arange(n_dev) * max(chance, 0.5) % 1 < max(chance, 0.5) - 1e-9).astype(int)
    n_wrong = n_dev - round(min(max(score, 0.0), 1.0) * n_dev)
    wrong = np.random.default_rng(seed).choice(n_dev, size=n_wrong, replace=False)
    answers = labels.copy()
    answers[wrong] = 1 - answers[wrong]
    outputs = np.eye(2, dtype=np.float32)[answers]
    rows = np.arange(n_dev)
    return Predictions(rows=StoredArray.of(rows), labels=StoredArray.of(labels), outputs=StoredArray.of(outputs))


def make_result(
    n_frozen: Depth,
    seed: int,
    score: float,
    *,
    chance: float = 0.5,
    warnings: tuple[str, ...] = (),
    n_dev: int = 200,
    spec: RunSpec | None = None,
) -> RunResult:
    """A finished run of a model of four layers with that score."""
    cut = None if n_frozen is FULL else n_frozen
    metrics = {"accuracy": score, "f1": score / 2}
    epoch = EpochRecord(epoch=1, train_loss=0.5 + seed, metrics=metrics, learning_rate=0.0, n_steps=3, seconds=1.0)
    trained = 100 - 10 * (0 if n_frozen is FULL else n_frozen + 1)
    return RunResult(
        spec=spec or make_spec(n_frozen, seed),
        plan=Plan.one_phase(n_frozen=cut, cached_layers=cut, trained=("head.weight",)),
        epochs=(epoch,),
        score=score,
        metrics=metrics,
        chance=chance,
        train_score=min(score + 0.1, 1.0),
        predictions=make_predictions(score, n_dev=n_dev, seed=seed, chance=chance),
        label_names=("bad", "good"),
        n_train=80,
        n_dev=n_dev,
        n_layers=N_LAYERS,
        cost=Cost(
            seconds=1.0 + seed,
            prefix_seconds=0.5,
            peak_bytes=1000 + seed,
            cache_bytes=64,
            trained_parameters=trained,
            total_parameters=100,
        ),
        warnings=warnings,
        environment=Environment(versions={}, hardware={}, command=(), at="2025-01-01T00:00:00Z"),
    )


def make_replicates(n_frozen: Depth, scores: Sequence[float | None], *, chance: float = 0.5) -> Replicates:
    """Replicates of seeds 0, 1, …, one a score; None is a run that crashed."""
    results = [
        make_result(n_frozen, seed, score, chance=chance) for seed, score in enumerate(scores) if score is not None
    ]
    return Replicates(specs=[make_spec(n_frozen, seed) for seed in range(len(scores))], results=results)


def make_curve(
    full: Sequence[float | None],
    depths: Mapping[int, Sequence[float | None]],
    *,
    keep: Iterable[float] = (0.9,),
    scale: Scale = "ratio",
    chance: float = 0.5,
    line_search: Sequence[TriedRate] = (),
) -> Curve:
    """The curve of made-up scores by depth; None is a run that crashed."""
    return build_curve(
        request=StudyRequest(model="toy-model", task=TASK, keep=tuple(keep), scale=scale),
        full=make_replicates(FULL, full, chance=chance),
        depths={depth: make_replicates(depth, scores, chance=chance) for depth, scores in depths.items()},
        line_search=line_search,
        cost=COST,
        runs=COUNTS,
    )


def make_axis(name: AxisName, values: Sequence[int], total: int | None = None) -> ResolvedAxis:
    """An axis whose strategies are called by its values."""
    strategies = tuple(f"{name}:{value}" for value in values)
    layers = (N_LAYERS,) * len(values)
    return ResolvedAxis(name=name, values=tuple(values), strategies=strategies, trained_layers=layers, total=total)


def make_axis_curve(
    axis: ResolvedAxis, full: Sequence[float], places: Sequence[Sequence[float]], *, keep: Iterable[float] = (0.9,)
) -> Curve:
    """The curve of made-up scores along another axis than depth, in the order of its places."""
    groups = {}
    for place, scores in enumerate(places):
        specs = [make_spec(FULL, seed).replace(strategy=axis.strategies[place]) for seed in range(len(scores))]
        results = [make_result(FULL, spec.seed, score, spec=spec) for spec, score in zip(specs, scores, strict=True)]
        groups[place] = Replicates(specs=specs, results=results)
    return build_curve(
        request=StudyRequest(model="toy-model", task=TASK, keep=tuple(keep), axis=axis.name),
        full=make_replicates(FULL, full),
        depths=groups,
        line_search=(),
        cost=COST,
        runs=COUNTS,
        along=Along(axis=axis),
    )
