"""What a rate of its own is worth at a depth, where a store holds the runs of both protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from frostline import stats
from frostline.records.depth import FULL, Depth, depth_words
from frostline.records.requests import ResolvedCurve
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.storage.runs import Store
from frostline.studies.protocols import flat, of_curve


def prices(store: Store, resolved: ResolvedCurve, groups: Mapping[Depth, Sequence[RunSpec]]) -> Iterator[str]:
    """What a rate of its own is worth at each depth, where the store holds the runs of the other protocol too."""
    for other in store.requests("curve"):
        runs = of_curve(other)
        searched = {s.key: r for s in flat(runs.searches()) if (r := store.get(s.key)) is not None}
        if other.asked.protocol == resolved.asked.protocol or not searched:
            continue
        theirs = runs.replicates(runs.rates(searched))
        for depth in [depth for depth in groups if depth is not FULL and depth in theirs]:
            pairs = _pairs(store, groups[depth], theirs[depth])
            if pairs and groups[depth][0].learning_rate != theirs[depth][0].learning_rate:
                yield _price(depth, pairs, is_own_first=resolved.asked.protocol == "tuned")


def _pairs(store: Store, ours: Sequence[RunSpec], theirs: Sequence[RunSpec]) -> list[tuple[RunResult, RunResult]]:
    """Results with one seed that differ in nothing but the rate."""
    others = {spec.replace(learning_rate=0.0).key: spec for spec in theirs}
    found = [(store.get(s.key), store.get(o.key)) for s in ours if (o := others.get(s.replace(learning_rate=0.0).key))]
    return [(one, other) for one, other in found if one is not None and other is not None]


def _price(depth: Depth, pairs: Sequence[tuple[RunResult, RunResult]], *, is_own_first: bool) -> str:
    own, reused = zip(*(pair if is_own_first else pair[::-1] for pair in pairs), strict=True)
    gain = stats.mean([result.score for result in own]) - stats.mean([result.score for result in reused])
    rates = f"{own[0].spec.learning_rate:g} instead of the full model's {reused[0].spec.learning_rate:g}"
    return (
        f"{depth_words(depth)}: a rate of its own, {rates}, moves the score by {gain:+.4f} "
        f"({len(pairs)} seeds in common)"
    )
