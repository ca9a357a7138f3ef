"""How a result was run, as names and values."""

from __future__ import annotations

from frostline.analysis import Comparison, Curve, CurveCost, RunCounts
from frostline.report import numbers

PROTOCOL_WORDS = {
    "paper": "the best learning rate of the full model, chosen on dev, at every depth",
    "tuned": "a learning rate for each depth, chosen on rows held out of train",
}


def how_run(curve: Curve) -> list[tuple[str, str]]:
    """How the curve was run, as names and values."""
    seeds = ", ".join(str(seed) for seed in curve.full.seeds)
    how = PROTOCOL_WORDS[curve.protocol]
    return [
        ("protocol", f"{curve.protocol} ({how if curve.axis is None else how.replace('depth', 'value')})"),
        ("learning rate", f"{numbers.learning_rate(curve.learning_rate)} ({_rate_source(curve)})"),
        ("seeds", seeds or numbers.DASH),
        *runs_and_cost(curve.runs, curve.cost),
        *model_folder(curve),
    ]


def model_folder(record: Curve | Comparison) -> list[tuple[str, str]]:
    """The path of the model if it is a folder: titles and tables show only its name."""
    return [("model folder", numbers.one_line(record.model, 2000))] if numbers.is_folder(record.model) else []


def runs_and_cost(runs: RunCounts, cost: CurveCost) -> list[tuple[str, str]]:
    """The number of runs and the times, as names and values."""
    crashed = f", {runs.crashed} crashed" if runs.crashed else ""
    work = "" if cost.full_runs is None else f"; the work of {cost.full_runs:.1f} full runs"
    return [
        ("runs", f"{runs.done} done, {runs.reused} reused{crashed}"),
        *([] if cost.wall_seconds is None else [("time", f"{numbers.duration(cost.wall_seconds)} for this call")]),
        ("training", f"{numbers.duration(cost.train_seconds)} over all runs, evaluation included{work}"),
        (
            "frozen layers",
            f"{numbers.duration(cost.prefix_seconds)} over all runs, {numbers.size(cost.cache_bytes)} cached",
        ),
    ]


def _rate_source(curve: Curve) -> str:
    n_tried = len(curve.line_search)
    if not n_tried:
        return "given"
    if curve.protocol == "tuned":
        return f"of the full model, best of {n_tried} on rows held out of train"
    is_race = any(tried.share < 1 for tried in curve.line_search)
    return f"best of {n_tried} in {'a race' if is_race else 'the line search'}"
