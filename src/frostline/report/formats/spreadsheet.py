"""Curves and comparisons → CSV: one row a depth or strategy, every number as it is kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from frostline.analysis import Comparison, Curve, Interval, Point, StrategyPoint
from frostline.report.chapters import Told

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def spreadsheet(curves: Sequence[Curve], comparisons: Sequence[Comparison] = ()) -> str:
    """The curves, then the comparisons, as CSV with one head; a value that is not there is an empty cell."""
    stream = io.StringIO(newline="")
    rows = [_depth_row(curve, point) for curve in curves for point in (curve.full, *curve.points)]
    rows += [_strategy_row(comparison, point) for comparison in comparisons for point in comparison.strategies]
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _depth_row(curve: Curve, point: Point) -> dict[str, object]:
    strategy = "full" if point.n_frozen is None else f"freeze:{point.n_frozen}"
    n_frozen = "full" if point.n_frozen is None else point.n_frozen
    return _row(curve, point) | {"strategy": strategy, "n_frozen": n_frozen}


def _strategy_row(comparison: Comparison, point: StrategyPoint) -> dict[str, object]:
    own = {"stored_bytes": point.stored_bytes, "is_pareto": point.is_pareto}
    n_frozen = "full" if point.name == "full" else point.n_frozen
    return _row(comparison, point) | {"strategy": _words(point.name), "n_frozen": n_frozen} | own


def _row(of: Told, point: Point) -> dict[str, object]:
    """All columns; what depths and strategies differ in is filled in by them."""
    return {
        "task": _words(of.task),
        "model": _words(of.model),
        "metric": _words(of.metric),
        "protocol": of.protocol,
        "chance": of.chance,
        "n_layers": of.n_layers,
        "strategy": None,
        "n_frozen": None,
        "trained_layers": point.trained_layers,
        "trained_parameters": point.trained_parameters,
        "stored_bytes": None,
        "learning_rate": point.learning_rate,
        "mean": point.mean,
        "std": point.std,
        **_ends("ci", point.ci),
        **_ends("ci_dev", point.ci_dev),
        "difference": point.difference,
        **_ends("difference_ci", point.difference_ci),
        "ratio": point.ratio,
        **_ends("ratio_ci", point.ratio_ci),
        "ratio_above_chance": point.ratio_above_chance,
        "is_pareto": None,
        "n_seeds": len(point.seeds),
        "n_failed": point.n_failed,
        "mean_without_failed": point.mean_without_failed,
        "seconds": point.seconds,
        "peak_bytes": point.peak_bytes,
        "scores": " ".join(repr(score) for score in point.scores),
        "train_scores": " ".join(repr(score) for score in point.train_scores),
    }


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    low, high = (None, None) if interval is None else interval
    return {f"{name}_low": low, f"{name}_high": high}


def _words(given: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{given}" if given.startswith(_FORMULA) else given
