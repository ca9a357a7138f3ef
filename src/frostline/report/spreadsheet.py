"""Curves → CSV: one row for the full model and each depth, every number as it is kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from frostline.analysis import Curve, Interval, Point

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def spreadsheet(curves: Sequence[Curve]) -> str:
    """The curves as CSV, with a head; a value that is not there is an empty cell."""
    stream = io.StringIO(newline="")
    rows = [_row(curve, point) for curve in curves for point in (curve.full, *curve.points)]
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _row(curve: Curve, point: Point) -> dict[str, object]:
    return {
        "task": _words(curve.task),
        "model": _words(curve.model),
        "metric": _words(curve.metric),
        "protocol": curve.protocol,
        "chance": curve.chance,
        "n_layers": curve.n_layers,
        "n_frozen": "full" if point.n_frozen is None else point.n_frozen,
        "trained_layers": point.trained_layers,
        "trained_parameters": point.trained_parameters,
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
