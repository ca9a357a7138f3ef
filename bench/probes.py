"""Does a linear fit to a layer tell how deep one may freeze? Finished curves beside their probes.

    python -m bench.probes OUT [OUT …] [--json]

OUT: out folders of `frostline curve … --probe`. For each curve: its operating point, the layer where the probe is best,
the first layer where it has its share of the best, and how both rank the depths.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scipy import stats

from bench.tables import percent, show
from frostline.records.depth import FULL, Depth
from frostline.report.curve_chapter import CurveChapter
from frostline.studies.registry import chapters


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A curve and its probes."""

    task: str
    model: str
    keep: float
    n_frozen: Depth
    """the curve's operating point"""
    best_layer: int
    """where the probe scores highest"""
    first_layer: int
    """the lowest layer whose probe has the share `keep` of the best"""
    probe_at_point: float | None
    """probe at the operating point, as a share of the full model's score"""
    best_probe: float
    """the highest probe, as a share of the full model's score"""
    rank_correlation: float
    """Spearman's, of probe and curve over the curve's depths"""


def probed(chapter: CurveChapter) -> Probed:
    """What the probes of a curve say of it."""
    curve = chapter.curve
    point = curve.operating_points[0]
    by_depth = {probe.depth: probe.mean for probe in chapter.probes}
    best = max(by_depth, key=lambda depth: by_depth[depth])
    full = curve.full.mean or float("nan")
    means = {one.n_frozen: one.mean for one in curve.points if one.n_frozen is not FULL and one.mean is not None}
    both = stats.spearmanr(list(means.values()), [by_depth[depth] for depth in means])
    return Probed(
        task=curve.task,
        model=Path(curve.model).name,
        keep=point.keep,
        n_frozen=point.n_frozen,
        best_layer=best,
        first_layer=min(depth for depth, mean in by_depth.items() if mean >= point.keep * by_depth[best]),
        probe_at_point=None if point.n_frozen is FULL else by_depth[point.n_frozen] / full,
        best_probe=by_depth[best] / full,
        rank_correlation=float(both.statistic),
    )


def main() -> None:
    """Prints a row a curve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    told = [one for folder in given.folders for one in chapters(folder) if isinstance(one, CurveChapter) and one.probes]
    rows = [probed(chapter) for chapter in told]
    cells: dict[str, Callable[[Probed], str]] = {
        "task": lambda row: f"{row.task} ({row.model})",
        "operating point": lambda row: "full alone" if row.n_frozen is FULL else str(row.n_frozen),
        "probe best at": lambda row: str(row.best_layer),
        "probe at that share of its best from": lambda row: str(row.first_layer),
        "best probe / full": lambda row: percent(row.best_probe),
        "probe at the operating point / full": lambda row: percent(row.probe_at_point),
        "rank correlation": lambda row: f"{row.rank_correlation:+.2f}",
    }
    show(rows, cells, as_json=given.json)


if __name__ == "__main__":
    main()
