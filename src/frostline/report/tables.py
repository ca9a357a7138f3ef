"""A table of written cells, the same for every format, and the row of numbers that CSV holds."""

from __future__ import annotations

from dataclasses import dataclass

from frostline.analysis import Comparison, Curve, Interval, Replicated
from frostline.records.serial import Record
from frostline.report import numbers

NAMES = ("task", "model")
"""columns that name the result of a row; a report of one result leaves them out"""


@dataclass(frozen=True, kw_only=True)
class Table(Record):
    """A table in which every cell is already text."""

    title: str
    """what it shows"""
    headers: tuple[str, ...]
    """one per column"""
    rows: tuple[tuple[str, ...], ...]
    """cells, row by row"""
    left: tuple[str, ...] = ()
    """headers of the columns that hold words, which are aligned left"""


def names_of(record: Curve | Comparison) -> tuple[str, str]:
    """The cells of the columns that name a result."""
    return numbers.one_line(record.task, 60), numbers.model_name(record.model, 60)


def without_names(table: Table) -> Table:
    """The table without its columns of task and model."""
    if table.headers[: len(NAMES)] != NAMES:
        return table
    rows = tuple(row[len(NAMES) :] for row in table.rows)
    return table.replace(headers=table.headers[len(NAMES) :], rows=rows)


def yes(is_so: bool) -> str:
    """The cell of a claim: `yes`, or empty."""
    return "yes" if is_so else ""


def unless_full(interval: str, *, is_full: bool) -> str:
    """The cell of an interval of a comparison with the full model. Of the full model with itself it says nothing."""
    return numbers.DASH if is_full else interval


def by_seed(scores: tuple[float, ...]) -> str:
    """The scores of all seeds in one cell."""
    return " ".join(numbers.score(score) for score in scores) or numbers.DASH


def number_row(record: Curve | Comparison, point: Replicated) -> dict[str, object]:
    """Every number of a point under its name, unrounded. Columns that only some results have are None here."""
    return {
        "task": record.task,
        "model": numbers.model_name(record.model),
        "metric": record.metric,
        "protocol": record.protocol,
        "chance": record.chance,
        "n_layers": record.n_layers,
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
