"""The verdicts on all depths of a curve, sure at once.

They are about runs that did not fail, because people start a failed run again. A depth where half of the runs or more
failed is judged over all of them. If half of the full model's runs failed, nothing is sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frostline import stats
from frostline.analysis.points import Frame, Replicates


@dataclass(frozen=True)
class Judge:
    """Gives the verdicts of one curve."""

    pairs: Mapping[int, stats.CrossedPair | None]
    """each depth with the full model; None: too few runs"""
    confidence: float

    @classmethod
    def of(cls, depths: Mapping[int, Replicates], frame: Frame, confidence: float) -> Judge:
        """The judge of these depths."""
        full = None if frame.full_runs is None else _scored(frame.full_runs)
        is_unsure = frame.full_runs is None or frame.full_runs.has_mostly_failed
        pairs: dict[int, stats.CrossedPair | None] = {}
        for depth, group in sorted(depths.items()):
            own = None if is_unsure else _scored(group)
            pairs[depth] = None if own is None or full is None else stats.not_paired(own, full, frame.n_rows)
        return cls(pairs, confidence)

    def verdicts(self, keep: float, base: float) -> dict[int, stats.Verdict]:
        """Whether each depth keeps a share of what the full model has above a base."""
        return {
            depth: stats.verdict(pair, keep=keep, base=base, error=self._error) for depth, pair in self.pairs.items()
        }

    def is_better(self, depth: int) -> bool:
        """Whether a depth is surely better than the full model."""
        return stats.is_better(self.pairs[depth], error=self._error)

    @property
    def knows_something(self) -> bool:
        """Whether any depth has enough runs for a verdict."""
        return any(pair is not None for pair in self.pairs.values())

    @property
    def _error(self) -> float:
        """Of one verdict, so that all of them together are wrong with at most 1 − confidence (Bonferroni)."""
        return (1 - self.confidence) / max(1, len(self.pairs))


def _scored(group: Replicates) -> stats.Scored | None:
    """The runs that a verdict is about; None below two."""
    left_out = frozenset[int]() if group.has_mostly_failed else group.failed
    seeds = [seed for seed in group.resampled if seed not in left_out]
    return group.scored(seeds) if len(seeds) > 1 else None
