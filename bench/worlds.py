"""The worlds of the simulations: curves whose truth is known, one factor at a time from a base world.

`bench/simulator.py` draws runs from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from frostline.records.depth import FULL, Depth

KEEP = 0.9
Curve = Callable[[float], float]
"""the share of the full score by the share of layers that is frozen"""

CURVES: dict[str, Curve] = {
    "monotone": lambda frozen: 1 - 0.35 * frozen**6,
    "flat": lambda frozen: 1 - 0.02 * frozen,
    "dipping": lambda frozen: 0.84 if 0.6 <= frozen < 0.72 else 1 - 0.35 * frozen**6,
    "better in the middle": lambda frozen: 1 + 0.03 * np.sin(np.pi * frozen) - 0.3 * max(0.0, frozen - 0.7) / 0.3,
    "plateau just over the bar": lambda frozen: KEEP + 0.0006 if frozen > 0.5 else 1.0,
    "plateau just under the bar": lambda frozen: KEEP - 0.0006 if frozen > 0.5 else 1.0,
    "far from the bar": lambda frozen: 1.0 if frozen < 0.8 else KEEP - 0.1,
}


@dataclass(frozen=True, kw_only=True)
class World:
    """What a curve is drawn from."""

    name: str
    n_layers: int = 12
    curve: str = "monotone"
    n_rows: int = 872
    metric: str = "accuracy"
    """accuracy, f1, mcc: rows are answered rightly or wrongly; pearson: answers and labels are numbers"""
    full: float = 0.92
    """score of the full model"""
    noise: float = 0.012
    """standard deviation from seed to seed, of the accuracy or of the correlation"""
    full_noise: float | None = None
    """the same of the full model; None: as at the depths"""
    noise_rises: bool = False
    """twice the noise at the deepest cut, half of it at the shallowest"""
    kind: str = "Gaussian"
    """of the noise: a name in `simulator.NOISES`"""
    row_noise: float = 1.0
    """how much the difficulty of rows varies"""
    failing: float = 0.0
    """share of the runs that learn nothing"""
    only_full_fails: bool = False
    unnoticed: float = 0.0
    """share of the failing runs that do not count as failed; the permutation test misses 5%"""
    positives: float = 0.5
    """share of the rows that belong to class 1"""
    rate_losses: tuple[float, ...] = (0.0,)
    """what a race may lose: each model gets one of these, drawn for each curve"""

    @property
    def depths(self) -> tuple[int, ...]:
        """Ascending: half of the layers to all of them."""
        return tuple(range(self.n_layers // 2, self.n_layers + 1))

    @property
    def truth(self) -> Mapping[Depth, float]:
        """The mean score of runs that do not fail, over all seeds and rows; the full model first."""
        share = CURVES[self.curve]
        return {FULL: self.full, **{depth: self.full * share(depth / self.n_layers) for depth in self.depths}}

    @property
    def chance(self) -> float:
        """The best score without reading a text."""
        return {"accuracy": 0.5, "f1": 2 * self.positives / (1 + self.positives)}.get(self.metric, 0.0)

    def noise_at(self, depth: Depth) -> float:
        """The standard deviation from seed to seed."""
        if depth is FULL:
            return self.noise if self.full_noise is None else self.full_noise
        first, last = self.depths[0], self.depths[-1]
        return self.noise * (0.5 + 1.5 * (depth - first) / (last - first)) if self.noise_rises else self.noise

    def fails_at(self, depth: Depth) -> float:
        """The share of the runs that learn nothing."""
        return self.failing if depth is FULL or not self.only_full_fails else 0.0


BASE = World(name="base")
"""its dev set is like SST-2's"""
_RTE = dataclasses.replace(BASE, n_rows=277, full=0.66)
_MRPC = dataclasses.replace(BASE, n_rows=408, full=0.89, metric="f1", positives=0.68)
_COLA = dataclasses.replace(BASE, n_rows=1043, full=0.57, metric="mcc", positives=0.69)
_STSB = dataclasses.replace(BASE, n_rows=1500, full=0.88, metric="pearson")
_NOISY_FULL = {"full_noise": 0.016, "noise": 0.0018}
_OVER, _UNDER = "plateau just over the bar", "plateau just under the bar"


def _one_factor() -> list[World]:
    """The base world, and worlds that differ from it in one factor."""
    change = dataclasses.replace
    return [
        BASE,
        *(change(BASE, name=f"{n} layers", n_layers=n) for n in (6, 24)),
        change(_RTE, name="dev set like RTE"),
        change(BASE, name="10,000 dev rows", n_rows=10_000),
        *(change(BASE, name=name, curve=name) for name in CURVES if name != "monotone"),
        change(BASE, name="noisy full model, quiet depths", **_NOISY_FULL),
        change(BASE, name="noise rises with depth", noise_rises=True),
        *(change(BASE, name=f"{kind} noise", kind=kind) for kind in ("skewed", "bimodal")),
        change(BASE, name="row noise × 0.1", row_noise=0.1),
        *(change(BASE, name=f"{share:.0%} of runs fail", failing=share) for share in (0.05, 0.2)),
        *(change(BASE, name=f"{s:.0%} of full runs fail", failing=s, only_full_fails=True) for s in (0.05, 0.2)),
        change(_MRPC, name="MRPC, F1"),
        change(_COLA, name="CoLA, MCC"),
        change(_STSB, name="STS-B, Pearson"),
        change(BASE, name="a race that may lose 1 or 3 points", rate_losses=(0.0, 0.0, 0.01, 0.03)),
    ]


def _combined() -> list[World]:
    """Combinations of difficult factors."""
    change = dataclasses.replace
    found = [
        change(_RTE, name="RTE, 24 layers", n_layers=24),
        change(_COLA, name="CoLA, MCC, 6 layers", n_layers=6),
        change(_STSB, name="STS-B, Pearson, 6 layers", n_layers=6),
        change(BASE, name="20% of runs fail, 5% of them unnoticed", failing=0.2, unnoticed=0.05),
        change(_MRPC, name="plateau under, MRPC, F1", curve=_UNDER),
        change(_STSB, name="plateau under, STS-B, Pearson", curve=_UNDER),
    ]
    for where, curve in (("under", _UNDER), ("over", _OVER)):
        one = change(BASE, curve=curve)
        found += [
            change(one, name=f"plateau {where}, 24 layers", n_layers=24),
            change(one, name=f"plateau {where}, noisy full, 10,000 rows", n_rows=10_000, **_NOISY_FULL),
            change(one, name=f"plateau {where}, 20% fail", failing=0.2),
            change(one, name=f"plateau {where}, 20% of full fail", failing=0.2, only_full_fails=True),
            change(_RTE, name=f"plateau {where}, RTE", curve=curve),
        ]
    return found


WORLDS = [*_one_factor(), *_combined()]
