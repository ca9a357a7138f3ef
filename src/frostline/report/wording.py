"""What a curve says, in words: the answer, its short form, the operating points, how it was run."""

from __future__ import annotations

from frostline.analysis import (
    Comparison,
    Curve,
    CurveCost,
    DepthShare,
    Finding,
    Interval,
    OperatingPoint,
    Point,
    RunCounts,
    View,
)
from frostline.records.specs import Scale
from frostline.report import text

SCALE_WORDS: dict[Scale, str] = {"ratio": "the full score", "ratio_above_chance": "the full score above chance"}
PROTOCOL_WORDS = {
    "paper": "the full model's best rate, chosen on dev, at every depth",
    "tuned": "a rate for each depth, chosen on rows held out of train",
}


def title(told: Curve | Comparison) -> str:
    """Which model on which task."""
    return f"{text.one_line(told.model, 60)} on {text.one_line(told.task, 60)}"


def title_of(told: Curve | Comparison) -> str:
    """Which model on which task; of a comparison, how much is compared."""
    if isinstance(told, Curve):
        return title(told)
    n_compared = len(told.strategies)
    return f"{title(told)}: {'1 strategy' if n_compared == 1 else f'{text.count(n_compared)} strategies'}"


def headline(curve: Curve) -> OperatingPoint | None:
    """The operating point to speak of first, if any was asked for."""
    return curve.operating_points[0] if curve.operating_points else None


def point_at(curve: Curve, n_frozen: int | None) -> Point | None:
    """The curve's point at a depth; None where there is none."""
    return next((point for point in curve.points if point.n_frozen == n_frozen), None)


def depth(n_frozen: int | None) -> str:
    """A depth's name in tables and charts: `full`, `0`, `3`."""
    return "full" if n_frozen is None else str(n_frozen)


def what_trains(trained_layers: int, n_layers: int) -> str:
    """What a depth trains: `the last 3 of 6 layers`."""
    if trained_layers == 0:
        return "the head alone"
    if trained_layers == n_layers:
        return f"all {text.counted(n_layers, 'layer')} above frozen embeddings"
    return f"the last {f'{trained_layers} ' if trained_layers > 1 else ''}of {text.counted(n_layers, 'layer')}"


def kept(point: Point, scale: Scale) -> float | None:
    """The share of the full model's score a point keeps, on a scale."""
    return point.ratio if scale == "ratio" else point.ratio_above_chance


def view_value(view: View, value: float | None) -> str:
    """A value of a view: `0.741`, `−0.041`, `94.8%`."""
    if view == "difference":
        return text.difference(value)
    return text.share(value) if view in ("ratio", "ratio_above_chance") else text.score(value)


def view_interval(view: View, interval: Interval | None) -> str:
    """The interval of a value of a view."""
    if view == "difference":
        return text.difference_interval(interval)
    return text.share_interval(interval) if view in ("ratio", "ratio_above_chance") else text.score_interval(interval)


def answer(curve: Curve) -> str:
    """One sentence: how many of the last layers need fine-tuning, what is kept, what is saved."""
    asked = headline(curve)
    if curve.full.mean is None:
        return "No run of the full model finished, so no depth can be compared with it."
    if asked is None or not curve.points:
        return f"The full model scores {_metric(curve)} {_full_score(curve)}; no depth was compared with it."
    if asked.trained_layers is None:
        return f"{text.keep_share(asked.keep)} of {SCALE_WORDS[asked.scale]} means nothing here: {_why_null(curve)}."
    point = point_at(curve, asked.n_frozen)
    if asked.n_frozen is None or point is None:
        return _none_keeps(curve, asked)
    return (
        f"Training {what_trains(point.trained_layers, curve.n_layers)} keeps {_kept_with_interval(point, asked.scale)}"
        f" of {SCALE_WORDS[asked.scale]} ({_against(curve, point)})"
        f" with {savings(point, curve.full)}."
    )


def savings(point: Point, full: Point) -> str:
    """What a point takes of what the full model takes: `16% of the parameters, 22% of the time and …`."""
    parts = [f"{text.part(point.trained_parameters, full.trained_parameters)} of the parameters"]
    if point.seconds is not None and full.seconds:
        parts.append(f"{text.part(point.seconds, full.seconds)} of the time")
    if point.peak_bytes is not None and full.peak_bytes:
        parts.append(f"{text.part(point.peak_bytes, full.peak_bytes)} of the memory")
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def decision(found: Finding) -> str:
    """One sentence: how sure the answer of a search is, and what it took."""
    answer, share = found.answer, text.share(found.runs_spent / found.runs_of_full_curve)
    sure = f"at {text.rough_share(answer.confidence)} confidence"
    cost = f"the work of {found.runs_spent:.1f} full runs, {share} of the whole curve's"
    if answer.decision == "decided":
        return f"Decided {sure}, with {cost}."
    return f"Open {sure}, so this is the best estimate: {answer.stopped_because}, with {cost}."


def short_answer(curve: Curve) -> str:
    """The answer for the head of a chart, without intervals and costs."""
    asked = headline(curve)
    if asked is None or curve.full.mean is None or not curve.points or asked.trained_layers is None:
        return f"Frozen layers and {_metric(curve)}"
    point = point_at(curve, asked.n_frozen)
    if asked.n_frozen is None or point is None:
        return f"No depth tried keeps {text.keep_share(asked.keep)} of {SCALE_WORDS[asked.scale]}"
    trained = what_trains(point.trained_layers, curve.n_layers)
    return f"Training {trained} keeps {text.share(kept(point, asked.scale))} of {SCALE_WORDS[asked.scale]}"


def distribution(shares: tuple[DepthShare, ...]) -> str:
    """Where an operating point falls when the seeds are resampled: `3: 62%, 4: 38%`."""
    said = [f"{depth(entry.n_frozen)}: {text.rough_share(entry.share)}" for entry in shares if entry.share > 0]
    return ", ".join(said) or text.DASH


def depths(plausible: tuple[int | None, ...]) -> str:
    """Depths in short: `full, 3–5`."""
    numbers = [number for number in plausible if number is not None]
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    said = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    return ", ".join([*(["full"] if None in plausible else []), *said]) or text.DASH


def remarks(told: Curve | Comparison) -> list[str]:
    """The warnings, one line each."""
    return [text.one_line(warning, 1000) for warning in told.warnings]


def how_run(curve: Curve) -> list[tuple[str, str]]:
    """How the curve came to be, as names and what they are."""
    seeds = ", ".join(str(seed) for seed in curve.full.seeds)
    return [
        ("protocol", f"{curve.protocol} ({PROTOCOL_WORDS[curve.protocol]})"),
        ("learning rate", f"{text.learning_rate(curve.learning_rate)} ({_rate_source(curve)})"),
        ("seeds", seeds or text.DASH),
        *runs_and_cost(curve.runs, curve.cost),
    ]


def runs_and_cost(runs: RunCounts, cost: CurveCost) -> list[tuple[str, str]]:
    """How many runs it took, and how long, as names and what they are."""
    crashed = f", {runs.crashed} crashed" if runs.crashed else ""
    return [
        ("runs", f"{runs.done} done, {runs.reused} reused{crashed}"),
        *([] if cost.wall_seconds is None else [("time", f"{text.duration(cost.wall_seconds)} for this call")]),
        ("training", f"{text.duration(cost.train_seconds)} over all runs, evaluation included"),
        ("frozen layers", f"{text.duration(cost.prefix_seconds)} over all runs, {text.size(cost.cache_bytes)} kept"),
    ]


INTERVALS_NOTE = (
    "95% intervals: new seeds on this dev set; “with examples”: new seeds and new dev examples. "
    "Seconds: training and evaluating one run, frozen layers apart."
)


def _rate_source(curve: Curve) -> str:
    n_tried = len(curve.line_search)
    if not n_tried:
        return "given"
    if curve.protocol == "tuned":
        return f"the full model's, best of {n_tried} on rows held out of train"
    is_race = any(tried.share < 1 for tried in curve.line_search)
    return f"best of {n_tried} in {'a race' if is_race else 'the line search'}"


def _metric(curve: Curve) -> str:
    return text.one_line(curve.metric, 40)


def _full_score(curve: Curve) -> str:
    return f"{text.score(curve.full.mean)} (chance {text.score(curve.chance)})"


def _against(curve: Curve, point: Point) -> str:
    scores = f"{_metric(curve)} {text.score(point.mean)} against {text.score(curve.full.mean)}"
    return f"{scores}, chance {text.score(curve.chance)}"


def _kept_with_interval(point: Point, scale: Scale) -> str:
    said = text.share(kept(point, scale))
    if scale == "ratio" and point.ratio_ci is not None:
        return f"{said} {text.share_interval(point.ratio_ci)}"
    return said if scale != "ratio" else f"{said} ({text.counted(len(point.seeds), 'seed')}, no interval)"


def _why_null(curve: Curve) -> str:
    asked = headline(curve)
    floor = "0" if asked is None or asked.scale == "ratio" else f"chance ({text.score(curve.chance)})"
    return f"the full model's {_metric(curve)}, {text.score(curve.full.mean)}, is not above {floor}"


def _none_keeps(curve: Curve, asked: OperatingPoint) -> str:
    said = f"No depth tried keeps {text.keep_share(asked.keep)} of {SCALE_WORDS[asked.scale]}"
    candidates = [(share, point) for point in curve.points if (share := kept(point, asked.scale)) is not None]
    if not candidates:
        return f"{said}, {_metric(curve)} {_full_score(curve)}."
    _, best = max(candidates, key=lambda candidate: candidate[0])
    return (
        f"{said}; the closest, training {what_trains(best.trained_layers, curve.n_layers)},"
        f" keeps {_kept_with_interval(best, asked.scale)} ({_against(curve, best)})."
    )
