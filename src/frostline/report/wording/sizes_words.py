"""What is said of curves at several numbers of training rows, or at several learning rates."""

from __future__ import annotations

from collections.abc import Sequence

from frostline.analysis import Curve, Interaction, value_of
from frostline.report import numbers
from frostline.report.wording.curve_words import SCALE_WORDS, has_learned, headline, is_constant, point_at
from frostline.report.wording.failure_words import with_failed


def answer_by_rows(curves: Sequence[tuple[int, Curve]]) -> str:
    """The fewest trained layers that keep the share at each number of training rows, in one sentence."""
    return fewest_layers([(f"with {n_train:,} rows", curve) for n_train, curve in curves])


def fewest_layers(curves: Sequence[tuple[str, Curve]]) -> str:
    """The fewest trained layers that keep the share on each curve, in one sentence; `at 1e-4`, `with 50 rows`."""
    first = curves[0][1]
    asked = headline(first)
    if asked is None:
        return f"{numbers.counted(len(curves), 'curve')}, {curves[0][0]} to {curves[-1][0]}."
    share = f"{numbers.keep_share(asked.keep)} of {SCALE_WORDS[asked.scale]}"
    found = ", ".join(f"{_fewest(curve)} {place}" for place, curve in curves)
    return f"Fewest trained layers of {first.n_layers} that keep {share}: {found}."


def _fewest(curve: Curve) -> str:
    """The operating point of one size: a number of layers, or why there is none."""
    asked = headline(curve)
    if curve.full.mean is None or not has_learned(curve.full):
        return "undefined (the full model did not learn)"
    if asked is None or asked.trained_layers is None:
        return "undefined"
    point = point_at(curve, value_of(asked))
    if point is None:
        return "the full model"
    failed = " (no better than a constant answer)" if is_constant(curve, point) else with_failed(point)
    return f"{asked.trained_layers}{failed}"


def change_with_rows(interactions: Sequence[Interaction]) -> list[str]:
    """Whether what a depth loses depends on the number of training rows, in one sentence; none if it is not known."""
    known = [(one, one.ci) for one in interactions if one.ci is not None]
    if not known:
        return []
    sure = [
        f"{one.n_frozen} frozen {numbers.difference(one.per_doubling)} {numbers.difference_interval(ci)}"
        for one, ci in known
        if ci[0] > 0 or ci[1] < 0
    ]
    if not sure:
        return [
            "It is not established for any depth that its difference from the full model depends on the number of rows."
        ]
    return [f"With twice as many rows, the difference from the full model changes: {', '.join(sure)}."]
