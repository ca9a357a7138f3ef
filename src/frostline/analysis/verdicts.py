"""The verdicts on all depths of a curve, sure at once.

They are about runs that did not fail, because people start a failed run again. A depth where half of the runs or more
failed is judged over all of them. If half of the full model's runs failed, nothing is sure.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from frostline import stats
from frostline.analysis.points import Frame, Replicates
from frostline.records.depth import FULL, Depth


@dataclass(frozen=True)
class Judge:
    """Gives the verdicts of one curve."""

    scored: Mapping[Depth, stats.Scored]
    """the runs that verdicts are about: the full model and each depth that has enough of them"""
    depths: tuple[int, ...]
    n_rows: int
    confidence: float
    mostly_failed: frozenset[int] = frozenset()
    """depths where half of the runs or more learned nothing: none of them is called kept, whatever its mean"""
    n_looks: int = 1
    """how often verdicts may be given while seeds are added: the error is divided by it"""

    @classmethod
    def of(cls, depths: Mapping[int, Replicates], frame: Frame, confidence: float) -> Judge:
        """The judge of these depths."""
        full, groups = frame.full_runs, dict[Depth, Replicates]()
        if full is not None and not full.has_mostly_failed:
            groups = {FULL: full}
            groups.update(depths.items())
        scored = {depth: found for depth, group in groups.items() if (found := _scored(group)) is not None}
        failed = frozenset(depth for depth, group in depths.items() if group.has_mostly_failed)
        return cls(scored, tuple(sorted(depths)), frame.n_rows, confidence, failed)

    @functools.cached_property
    def pairs(self) -> dict[int, stats.CrossedPair | None]:
        """Each depth with the full model; None: too few runs."""
        return {depth: self._pair(depth) for depth in self.depths}

    def _pair(self, depth: int) -> stats.CrossedPair | None:
        if depth not in self.scored or FULL not in self.scored:
            return None
        return stats.not_paired(self.scored[depth], self.scored[FULL], self.n_rows)

    def verdicts(self, keep: float, base: float) -> dict[int, stats.Verdict]:
        """Whether each depth keeps a share of what the full model has above a base."""
        said = {
            depth: stats.verdict(pair, keep=keep, base=base, error=self._error) for depth, pair in self.pairs.items()
        }
        return said | {depth: "open" for depth in self.mostly_failed if said[depth] == "kept"}

    def is_better(self, depth: int) -> bool:
        """Whether a depth is surely better than the full model."""
        return stats.is_better(self.pairs[depth], error=self._error)

    def seeds_to_settle(self, depth: int, keep: float, base: float) -> int | None:
        """How many seeds would settle an open depth; None if it is not open, or no number of seeds would."""
        pair = self.pairs[depth]
        if pair is None or stats.verdict(pair, keep=keep, base=base, error=self._error) != "open":
            return None
        n_seeds = min(len(self.scored[depth].scores), len(self.scored[FULL].scores))
        return stats.seeds_to_settle(pair, n_seeds, keep=keep, base=base, error=self._error)

    @property
    def knows_something(self) -> bool:
        """Whether any depth has enough runs for a verdict."""
        return any(pair is not None for pair in self.pairs.values())

    @property
    def _error(self) -> float:
        """Of one verdict, so that all of them together are wrong with at most 1 − confidence (Bonferroni)."""
        return (1 - self.confidence) / max(1, len(self.pairs)) / self.n_looks


def _scored(group: Replicates) -> stats.Scored | None:
    """The runs that a verdict is about; None below two."""
    left_out = frozenset[int]() if group.has_mostly_failed else group.failed
    seeds = [seed for seed in group.resampled if seed not in left_out]
    return group.scored(seeds) if len(seeds) > 1 else None
