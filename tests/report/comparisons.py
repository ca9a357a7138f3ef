"""Comparisons for the tests of reports: twelve strategies with made-up scores and costs, crowded as real ones are."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from frostline.analysis import (
    Comparison,
    CurveCost,
    ProbePoint,
    RunCounts,
    RunLine,
    StrategyPoint,
    TriedFor,
    is_on_front,
)
from frostline.records.depth import FULL
from frostline.report.comparison_chapter import ComparisonChapter
from frostline.report.curve_chapter import CurveChapter

from .chapters import make_chapter
from .curves import DEMO_SCORES, around, make_curve, point

Made = tuple[Sequence[float], int, float, int, float | None]
"""scores, trained parameters, seconds, peak bytes, rate"""

STRATEGIES: dict[str, Made] = {
    "full": ((0.832, 0.826, 0.838, 0.829, 0.835), 22_713_986, 52.4, 412_000_000, 5e-5),
    "freeze:3": ((0.818, 0.822, 0.811, 0.825, 0.819), 5_472_002, 20.2, 300_000_000, 1e-4),
    "freeze:6": ((0.701, 0.705, 0.698, 0.703, 0.700), 148_610, 0.58, 160_000_000, 1e-3),
    "layers:1-2+6": ((0.809, 0.801, 0.815, 0.806, 0.811), 5_472_002, 39.7, 371_000_000, 1e-4),
    "reinit:2": ((0.828, 0.819, 0.831, 0.822, 0.836), 22_713_986, 52.9, 413_000_000, 5e-5),
    "transfer:3": ((0.792, 0.781, 0.799, 0.788, 0.784), 22_713_986, 52.6, 412_500_000, 1e-4),
    "lora:8": ((0.831, 0.824, 0.836, 0.828, 0.833), 222_338, 41.3, 331_000_000, 2e-3),
    "adapter:16": ((0.829, 0.823, 0.834, 0.826, 0.831), 305_762, 42.1, 338_000_000, 2e-3),
    "bitfit": ((0.817, 0.812, 0.823, 0.815, 0.819), 175_490, 40.5, 329_000_000, 2e-3),
    "norms": ((0.812, 0.807, 0.818, 0.809, 0.814), 157_826, 40.2, 328_000_000, 2e-3),
    "features": ((0.756, 0.756, 0.751, 0.759, 0.756), 770, 0.31, 120_000_000, None),
    "gradual": ((0.827, 0.821, 0.833, 0.824, 0.829), 22_713_986, 31.5, 412_000_000, 5e-5),
}
RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3)
PROBES: dict[int, tuple[float, ...]] = {
    0: (0.612, 0.608, 0.615), 1: (0.641, 0.645, 0.638), 2: (0.672, 0.668, 0.675), 3: (0.702, 0.699, 0.707),
    4: (0.731, 0.735, 0.728), 5: (0.756, 0.751, 0.759), 6: (0.748, 0.752, 0.745),
}  # fmt: skip


def make_probes(scores: Mapping[int, Sequence[float]] = PROBES) -> tuple[ProbePoint, ...]:
    """A fit to each layer."""
    return tuple(
        ProbePoint(depth=depth, mean=statistics.fmean(values), ci=around(values), scores=tuple(values))
        for depth, values in scores.items()
    )


def make_comparison(
    strategies: Mapping[str, Made] | None = None, *, chance: float = 0.5, n_layers: int = 6
) -> Comparison:
    """A comparison of these strategies; by default of twelve."""
    given = STRATEGIES if strategies is None else strategies
    full = given["full"][0] if "full" in given else ()
    bare = {name: _point(made, full, chance, n_layers) for name, made in given.items()}
    points = tuple(each.replace(name=name, is_pareto=is_on_front(each, bare.values())) for name, each in bare.items())
    return Comparison(
        model="all-MiniLM-L6-v2",
        task="sst2",
        metric="accuracy",
        chance=chance,
        n_layers=n_layers,
        protocol="tuned",
        line_search=tuple(_tried(points)),
        strategies=points,
        probes=make_probes() if "features" in given else (),
        cost=CurveCost(wall_seconds=1920.0, prefix_seconds=12.4, train_seconds=3410.0, cache_bytes=91_000_000),
        runs=RunCounts(done=55, reused=5, crashed=0),
        warnings=("intervals are pointwise: with many strategies the best is partly lucky",),
    )


def _point(made: Made, full: Sequence[float], chance: float, n_layers: int) -> StrategyPoint:
    scores, parameters, seconds, peak_bytes, rate = made
    plain = point(FULL, scores, full, n_layers=n_layers, chance=chance).replace(
        learning_rate=rate,
        trained_parameters=parameters if scores else None,
        seconds=seconds if scores else None,
        peak_bytes=peak_bytes if scores else None,
    )
    of_depths = ("verdict", "is_better", "seeds_to_settle", "value")
    fields = {name: value for name, value in vars(plain).items() if name not in of_depths}
    fields |= {"n_frozen": None, "difference_ci_adjusted": plain.difference_ci, "p_pareto": 0.5}
    return StrategyPoint(**fields, name="", stored_bytes=4 * parameters if scores else None, is_pareto=False)


def _tried(points: Sequence[StrategyPoint]) -> list[TriedFor]:
    """The rate that was taken, and one on either side of it."""
    tried = []
    for each in points:
        if each.learning_rate is not None and each.mean is not None:
            at = RATES.index(each.learning_rate)
            rates = zip(RATES[at - 1 : at + 2], (-0.02, 0.0, -0.05), strict=True)
            tried += [TriedFor(name=each.name, learning_rate=rate, score=each.mean + off) for rate, off in rates]
    return tried


def make_comparison_chapter(comparison: Comparison | None = None, *, n_missing: int = 0) -> ComparisonChapter:
    """A chapter of a made-up comparison, with a run for each score; a fit has neither rate nor epochs."""
    compared = comparison or make_comparison()
    runs = tuple(
        RunLine(
            key=f"{each.name}-{seed}",
            strategy=each.name,
            n_frozen=FULL if each.n_frozen is None else each.n_frozen,
            role="replicate",
            learning_rate=each.learning_rate or 0.0,
            seed=seed,
            score=score,
            train_score=min(1.0, score + 0.1),
            epoch_scores=() if each.learning_rate is None else (score - 0.1, score),
            epoch_losses=() if each.learning_rate is None else (0.7, 0.4),
            seconds=each.seconds or 0.0,
            peak_bytes=each.peak_bytes,
            is_failed=score <= compared.chance,
        )
        for each in compared.strategies
        for seed, score in zip(each.seeds, each.scores, strict=True)
    )
    return ComparisonChapter(comparison=compared, runs=runs, n_missing=n_missing, provenance=make_chapter().provenance)


def sized(n_train: int, lost: float = 0.0) -> CurveChapter:
    """A chapter of so many training rows, whose scores are lower by so much."""
    scores = {depth: tuple(score - lost for score in given) for depth, given in DEMO_SCORES.items()}
    chapter = make_chapter(make_curve(scores))
    assert chapter.provenance is not None
    return chapter.replace(provenance=chapter.provenance.replace(n_train=n_train))


def compared(comparison: Comparison) -> list[ComparisonChapter]:
    """A chapter of a comparison about whose runs nothing is known."""
    return [ComparisonChapter(comparison=comparison)]
