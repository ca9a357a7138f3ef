"""What a curve says in words: the answer, its short form, the operating points.

The answer is the sentence that people act on, so it must not recommend a result that is worth nothing. If the full
model did not learn, or the recommended depth does no better than a constant answer, the sentence begins with that.
"""

from __future__ import annotations

from collections.abc import Sequence

from frostline import stats
from frostline.analysis import (
    Comparison,
    Curve,
    DepthShare,
    Finding,
    Interval,
    OperatingPoint,
    Point,
    Replicated,
    View,
    value_of,
)
from frostline.records.depth import FULL, Depth
from frostline.records.specs import Scale
from frostline.report import numbers
from frostline.report.wording.axis_words import keeps, smallest_subspace, value, what_is_done, words_of
from frostline.report.wording.failure_words import advice, failed_runs, how_many_failed, with_failed

SCALE_WORDS: dict[Scale, str] = {"ratio": "the full score", "ratio_above_chance": "the full score above chance"}
INTERVALS_NOTE = (
    "95% intervals: new seeds on this dev set; “with examples” and “against the full model”: new seeds and new dev "
    "examples. Verdict: kept or short if that is established, else open; better: it beats the full model. "
    "Seconds: time to train and evaluate one run, without computing the frozen layers. "
    "Failed: the run learned nothing; its score is no better than with shuffled labels."
)


def title(record: Curve | Comparison) -> str:
    """Which model on which task."""
    return f"{numbers.model_name(record.model, 60)} on {numbers.one_line(record.task, 60)}"


def curve_title(curve: Curve) -> str:
    """Which model on which task; on another axis than depth, also what varies."""
    return title(curve) if curve.axis is None else f"{title(curve)}, by {words_of(curve).title}"


def headline(curve: Curve) -> OperatingPoint | None:
    """The first operating point, with the answer of a search in its place; None if no share was asked for."""
    first = curve.operating_points[0] if curve.operating_points else None
    if first is None or curve.search is None or not curve.search.answer.plausible:
        return first
    said = curve.search.answer
    return first.replace(
        n_frozen=said.n_frozen,
        value=said.value,
        trained_layers=said.trained_layers,
        plausible=said.plausible,
        established=said.established,
    )


def point_at(curve: Curve, at: Depth) -> Point | None:
    """The point of the curve at a depth or value; None for the full model or one that was not tried."""
    return next((point for point in curve.points if value_of(point) == at), None)


def kept(point: Point, scale: Scale) -> float | None:
    """The share of the full score that a point keeps, on a scale."""
    return point.ratio if scale == "ratio" else point.ratio_above_chance


def view_value(view: View, value: float | None) -> str:
    """A value of a view: `0.741`, `−0.041`, `94.8%`."""
    if view == "difference":
        return numbers.difference(value)
    return numbers.share(value) if view in ("ratio", "ratio_above_chance") else numbers.score(value)


def view_interval(view: View, interval: Interval | None) -> str:
    """The interval of a value of a view."""
    if view == "difference":
        return numbers.difference_interval(interval)
    is_share = view in ("ratio", "ratio_above_chance")
    return numbers.share_interval(interval) if is_share else numbers.score_interval(interval)


def answer(curve: Curve) -> str:
    """How many of the last layers need fine-tuning, what is kept, what is saved; on another axis, the same of it."""
    asked = headline(curve)
    if curve.full.mean is None:
        return f"No run of the full model finished, so no {words_of(curve).noun} can be compared with it."
    if not has_learned(curve.full):
        scored = f"{_metric(curve)} {_full_score(curve)}{how_many_failed(curve.full)}"
        return f"The full model did not learn: {scored}; {advice(curve.full, curve.chance)}."
    if asked is None or not curve.points:
        scored = f"{_metric(curve)} {_full_score(curve)}"
        return f"The full model scores {scored}; no {words_of(curve).noun} was compared with it."
    if asked.trained_layers is None:
        return f"{numbers.keep_share(asked.keep)} of {SCALE_WORDS[asked.scale]} is undefined: {_why_undefined(curve)}."
    point = point_at(curve, value_of(asked))
    if worthless := _worthless(curve, asked):
        return _no_better_than_constant(curve, worthless, asked)
    if value_of(asked) is FULL or point is None:
        return _none_keeps(curve, asked)
    at = value_of(point)
    failed = f"{failed_runs(point)} failed (they learned nothing): " if point.n_failed else ""
    is_established = asked.established is None or value_of(asked.established) == at
    estimate = "" if is_established else "best estimate: "
    saved = f" with {savings(point, curve.full)}" if words_of(curve).has_savings else ""
    return (
        f"{_sentence(estimate + failed + what_is_done(curve, at))} {keeps(curve, at)} "
        f"{_kept_with_interval(point, asked.scale)} of {SCALE_WORDS[asked.scale]} ({_against(curve, point)})"
        f"{saved}.{_constant_keeps(curve, asked)}{established(curve, asked)}{_without_failed(curve, asked)}"
        f"{smallest_subspace(curve)}"
    )


def _constant_keeps(curve: Curve, asked: OperatingPoint) -> str:
    """That a constant answer keeps the share too, so that any depth does; empty if it does not."""
    full = curve.full.mean
    if asked.scale != "ratio" or full is None or not stats.reaches(curve.chance, stats.bar_of(asked.keep, full)):
        return ""
    return (
        f" A constant answer keeps {numbers.share(curve.chance / full)} too, so this says little; "
        "use --scale ratio_above_chance."
    )


def _without_failed(curve: Curve, asked: OperatingPoint) -> str:
    """The operating point without failed runs, or with them if the answer leaves them out; empty if it is the same."""
    is_search = curve.search is not None
    all_points = curve.operating_points if is_search else curve.operating_points_without_failed
    found = [one for one in all_points if (one.keep, one.scale) == (asked.keep, asked.scale)]
    n_failed = sum(point.n_failed for point in (curve.full, *curve.points))
    if not n_failed or not found or found[0].trained_layers is None or value_of(found[0]) == value_of(asked):
        return ""
    at = value_of(found[0])
    trains = "the full model" if at is FULL else what_is_done(curve, at)
    runs = "1 run that failed" if n_failed == 1 else f"{n_failed} runs that failed"
    return f" {'With' if is_search else 'Without'} the {runs}, the estimate is {trains}."


def established(curve: Curve, asked: OperatingPoint) -> str:
    """For which depth the share is established, on both scales; empty for results without verdicts."""
    if asked.established is None:
        return ""
    others = [one for one in curve.operating_points if one.keep == asked.keep and one.scale != asked.scale]
    said = "; ".join(_established(curve, one) for one in (asked, *others) if one.established is not None)
    return f" At {numbers.rough_share(curve.confidence)} confidence, {said}."


def _established(curve: Curve, asked: OperatingPoint) -> str:
    share, found = f"{numbers.keep_share(asked.keep)} of {SCALE_WORDS[asked.scale]}", asked.established
    if found is None or value_of(found) is FULL:
        return f"{share} is not established for any {words_of(curve).noun}"
    at = value_of(found)
    return f"{share} is established for {what_is_done(curve, at)}{with_failed(point_at(curve, at))}"


def seeds_needed(curve: Curve) -> str:
    """How many seeds would settle the open depths; empty if none is open, or a search says itself what is."""
    found = [point for point in curve.points if point.verdict == "open" and len(point.seeds) > 1]
    if curve.search is not None or not found:
        return ""
    said = [
        f"{value(value_of(point))}: {'more dev rows' if (n := point.seeds_to_settle) is None else f'{n} seeds'}"
        for point in found
    ]
    return f" What would settle the open {words_of(curve).noun}s with 80% probability: {', '.join(said)}."


def has_learned(full: Replicated) -> bool:
    """Whether the full model, which has a score, is above chance, and fewer than half of its runs failed."""
    return full.ratio_above_chance is not None and (not full.scores or 2 * full.n_failed < len(full.scores))


def is_constant(record: Curve | Comparison, point: Replicated) -> bool:
    """Whether a point does no better than a constant answer: its mean is not above chance, or every run failed."""
    has_failed = bool(point.scores) and point.n_failed == len(point.scores)
    return has_failed or (point.mean is not None and not stats.is_above(point.mean, record.chance))


def _worthless(curve: Curve, asked: OperatingPoint) -> Point | None:
    """The point that reaches the share but learned nothing, if the answer is that point, or no depth because of it."""
    point = point_at(curve, value_of(asked))
    if point is not None:
        return point if is_constant(curve, point) else None
    reached = [one for one in curve.points if (share := kept(one, asked.scale)) is not None and share >= asked.keep]
    failed = [one for one in reached if 2 * one.n_failed >= len(one.scores)]
    return failed[-1] if failed and len(failed) == len(reached) else None


def _no_better_than_constant(curve: Curve, point: Point, asked: OperatingPoint) -> str:
    """The answer if the operating point is worthless: it reaches the share only because chance does."""
    done, failed = _sentence(what_is_done(curve, value_of(point))), failed_runs(point)
    kept_share = f"{numbers.share(kept(point, asked.scale))} of {SCALE_WORDS[asked.scale]}"
    constant, partly = f"does no better than a constant answer ({failed} failed)", f"learned nothing in {failed}"
    return (
        f"{done} {constant if is_constant(curve, point) else partly}, although it keeps {kept_share}"
        f" ({_against(curve, point)}); use --scale ratio_above_chance, or {advice(point, curve.chance)}."
    )


def recommends_nothing(curve: Curve) -> bool:
    """Whether the answer recommends no model: the full model did not learn, or the depth of the answer did not."""
    if curve.full.mean is None or not has_learned(curve.full):
        return True
    asked = headline(curve)
    return asked is not None and _worthless(curve, asked) is not None


def _sentence(said: str) -> str:
    return said[:1].upper() + said[1:]


def savings(point: Replicated, full: Replicated) -> str:
    """The cost of a point as shares of the full model: `16% of the parameters, 22% of the time and …`."""
    parts = [f"{numbers.part(point.trained_parameters, full.trained_parameters)} of the parameters"]
    if point.seconds is not None and full.seconds:
        parts.append(f"{numbers.part(point.seconds, full.seconds)} of the time")
    if point.peak_bytes is not None and full.peak_bytes:
        parts.append(f"{numbers.part(point.peak_bytes, full.peak_bytes)} of the memory")
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def decision(found: Finding) -> str:
    """One sentence: how sure the answer of a search is, and its cost."""
    answer, share = found.answer, numbers.share(found.runs_spent / found.runs_of_full_curve)
    sure = f"at {numbers.rough_share(answer.confidence)} confidence"
    cost = f"the work of {found.runs_spent:.1f} full runs, {share} of the whole curve"
    if answer.decision == "decided":
        return f"Decided {sure}, with {cost}."
    what = "Depths" if found.axis is None else "Values"
    may_be = f" {what} that may be the answer: {depths(answer.plausible)}." if answer.plausible else ""
    estimate = "" if recommends_nothing(found) else ", so this is the best estimate"
    return f"Open {sure}{estimate}: {answer.stopped_because}.{may_be} It took {cost}."


def short_answer(curve: Curve) -> str:
    """The answer as the title of a chart, without intervals and costs."""
    asked = headline(curve)
    if curve.full.mean is not None and not has_learned(curve.full):
        return "The full model did not learn"
    if asked is None or curve.full.mean is None or not curve.points or asked.trained_layers is None:
        return f"{_sentence(words_of(curve).title)} and {_metric(curve)}"
    point = point_at(curve, value_of(asked))
    if value_of(asked) is FULL or point is None:
        share = f"{numbers.keep_share(asked.keep)} of {SCALE_WORDS[asked.scale]}"
        return f"No {words_of(curve).noun} tried keeps {share}"
    done = _sentence(what_is_done(curve, value_of(point)))
    if is_constant(curve, point):
        return f"{done} does no better than a constant answer"
    share = f"{numbers.share(kept(point, asked.scale))} of {SCALE_WORDS[asked.scale]}"
    return f"{done} {keeps(curve, value_of(point))} {share}{with_failed(point)}"


def paper_caption(curves: Sequence[Curve]) -> str:
    """The caption of the table of operating points."""
    shares = dict.fromkeys(numbers.keep_share(point.keep) for curve in curves for point in curve.operating_points[:1])
    share = " or ".join(shares) or "the share"
    if any(curve.axis is not None for curve in curves):
        what = f"The full model, and the {words_of(curves[0]).point.partition(',')[0]} that keep {share} of its score"
        return f"{what}. Means with 95% intervals over seeds (Student's t)."
    return (
        f"Nothing frozen, the fewest trained layers that keep {share} of the full model's "
        "score, and everything frozen but the output. Means with 95% intervals over seeds (Student's t)."
    )


def distribution(shares: tuple[DepthShare, ...]) -> str:
    """How probable each depth is: `3: 62%, 4: 38%`."""
    said = [f"{value(value_of(entry))}: {numbers.rough_share(entry.share)}" for entry in shares if entry.share > 0]
    return ", ".join(said) or numbers.DASH


def depths(plausible: tuple[Depth, ...]) -> str:
    """Depths or values in short: `full, 3–5`."""
    runs: list[list[int]] = []
    for number in (one for one in plausible if one is not FULL):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    said = [value(run[0]) if len(run) == 1 else f"{value(run[0])}–{value(run[-1])}" for run in runs]
    return ", ".join([*(["full"] if FULL in plausible else []), *said]) or numbers.DASH


def warnings(record: Curve | Comparison) -> list[str]:
    """The warnings, one line each."""
    return [numbers.one_line(warning, 1000) for warning in record.warnings]


def _metric(curve: Curve) -> str:
    return numbers.one_line(curve.metric, 40)


def _full_score(curve: Curve) -> str:
    return f"{numbers.score(curve.full.mean)} (chance {numbers.score(curve.chance)})"


def _against(curve: Curve, point: Point) -> str:
    scores = f"{_metric(curve)} {numbers.score(point.mean)} against {numbers.score(curve.full.mean)}"
    failed = f"; {failed_runs(curve.full)} of the full model failed" if curve.full.n_failed else ""
    return f"{scores}, chance {numbers.score(curve.chance)}{failed}"


def _kept_with_interval(point: Point, scale: Scale) -> str:
    said, interval = numbers.share(kept(point, scale)), share_interval(point, scale)
    if interval is None:
        return f"{said} ({numbers.counted(len(point.seeds), 'seed')}, no interval)"
    return f"{said} {numbers.share_interval(interval)}"


def share_interval(point: Point, scale: Scale) -> Interval | None:
    """The interval of what a point keeps, over new seeds and new dev examples."""
    if point.difference_ci_dev is None:  # a result of an earlier release, or too few seeds for any interval
        return point.ratio_ci if scale == "ratio" else None
    return point.ratio_ci_dev if scale == "ratio" else point.ratio_above_chance_ci_dev


def _why_undefined(curve: Curve) -> str:
    asked = headline(curve)
    floor = "0" if asked is None or asked.scale == "ratio" else f"chance ({numbers.score(curve.chance)})"
    scored = f"{_metric(curve)} {numbers.score(curve.full.mean)}"
    return f"the full model scores {scored}, not above {floor}; {advice(curve.full, curve.chance)}"


def _none_keeps(curve: Curve, asked: OperatingPoint) -> str:
    bar = f"{numbers.keep_share(asked.keep)} of {SCALE_WORDS[asked.scale]}"
    said = f"No {words_of(curve).noun} tried keeps {bar}"
    candidates = [(share, point) for point in curve.points if (share := kept(point, asked.scale)) is not None]
    if not candidates:
        return f"{said}, {_metric(curve)} {_full_score(curve)}."
    _, best = max(candidates, key=lambda candidate: candidate[0])
    sure = established(curve, asked) if asked.established and value_of(asked.established) is not FULL else ""
    return (
        f"{said}; the closest, {what_is_done(curve, value_of(best))}{with_failed(best)},"
        f" keeps {_kept_with_interval(best, asked.scale)} ({_against(curve, best)})."
        f"{sure}{_without_failed(curve, asked)}"
    )
