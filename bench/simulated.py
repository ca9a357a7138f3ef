"""What the simulations share: noise as runs have it, and tables of what was found."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.storage.runs import Store

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
"""so many deviations of a score, of mean 0 and standard deviation 1"""
MIN_REPLICATES = 15


def _bounded(rng: np.random.Generator, number: int) -> Floats:
    """Most runs near a bound that none can pass."""
    drawn = rng.beta(6.0, 0.8, number)
    mean, variance = 6.0 / 6.8, 6.0 * 0.8 / (6.8**2 * 7.8)
    return (drawn - mean) / math.sqrt(variance)


def _bimodal(rng: np.random.Generator, number: int) -> Floats:
    """Most runs near one score, and one in five near a lower one."""
    drawn = np.where(rng.random(number) < 0.2, -3.0, 0.0) + rng.normal(0, 0.5, number)
    return (drawn + 0.6) / math.sqrt(0.25 + 9 * 0.2 * 0.8)


NOISES: dict[str, Draw] = {
    "Gaussian": lambda rng, number: rng.normal(size=number),
    "skewed": lambda rng, number: 1.0 - rng.exponential(size=number),
    "bounded": _bounded,
    "bimodal": _bimodal,
}


def noises(folders: Sequence[Path]) -> dict[str, Draw]:
    """All kinds of noise; the residuals of real runs among them where out folders of finished curves are given."""
    return {**NOISES, "residuals of real runs": residuals(folders)} if folders else NOISES


def residuals(folders: Sequence[Path]) -> Draw:
    """Noise as real runs have it: scores less the mean of their replicates, each depth's scaled to variance 1.

    Only of depths with many seeds: of a few, what is left after their own mean and deviation says little of tails.
    """
    groups = [np.array(scores) for folder in folders for scores in _replicates(folder)]
    pooled = [(scores - scores.mean()) / scores.std() for scores in groups if scores.std() > 0]
    if not pooled:
        said = f"no depth with {MIN_REPLICATES} seeds in {', '.join(map(str, folders))}"
        raise SystemExit(f"{said}: run `frostline curve … --seeds 20` and give its out folder")
    values = np.concatenate(pooled)
    return lambda rng, number: rng.choice(values, number)


def _replicates(folder: Path) -> Iterator[list[float]]:
    """The scores of each depth that has many seeds."""
    groups: dict[str, list[float]] = {}
    for result in Store(folder).results():
        if result.spec.role == "replicate":
            groups.setdefault(result.spec.replace(seed=0).key, []).append(result.score)
    yield from (scores for scores in groups.values() if len(scores) >= MIN_REPLICATES)


def show(rows: Sequence[Any], cells: Mapping[str, Callable[[Any], str]], *, as_json: bool) -> None:
    """Prints rows, which are dataclasses: a Markdown table with a cell for each head, or JSON."""
    if as_json:
        json.dump([dataclasses.asdict(row) for row in rows], sys.stdout, indent=2)
        return
    for line in (list(cells), ["---"] * len(cells), *([cell(row) for cell in cells.values()] for row in rows)):
        print(f"| {' | '.join(line)} |")


def percent(share: float | None) -> str:
    """A share in a cell."""
    return "–" if share is None else f"{share:.1%}"
