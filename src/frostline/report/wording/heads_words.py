"""Sentences about attention heads and what pruning them costs."""

from __future__ import annotations

from frostline.analysis.inside.heads import HeadsRecord, Order, PruningCurve
from frostline.report import numbers

ORDER_WORDS: dict[Order, str] = {
    "importance": "least important first",
    "random": "in random order",
    "top": "from the top layer down",
}
NOTE = (
    "Importance: mean over training rows of |dL/dgate|, the derivative of a row's loss with respect to a factor on the "
    "attention head's output (Michel 2019). A pruned attention head contributes nothing. Intervals are 95%, paired "
    "with the unpruned model on the same dev rows; for random order they cover new draws too. Verdicts of one order "
    "hold together with 95%."
)


def title(record: HeadsRecord) -> str:
    """Which model on which task."""
    return f"Attention heads of {numbers.model_name(record.model, 60)} on {numbers.one_line(record.task, 60)}"


def answer(record: HeadsRecord) -> list[str]:
    """How many attention heads can be pruned; then how sure that is."""
    curves = {curve.order: curve for curve in record.pruning}
    if "importance" not in curves:
        (head, _), *_ = record.ranked
        return [f"The most important of {record.n_heads} attention heads is {head} (layer {head.layer})."]
    if record.is_failed:
        what = "The fitted linear head" if record.tuned is None else "The model"
        return [
            f"{what} learned nothing ({numbers.one_line(record.metric, 40)} {numbers.score(record.score)}, chance "
            f"{numbers.score(record.chance)}), so pruning attention heads shows nothing. Fine-tune the model "
            "first, and measure that folder with --tuned."
        ]
    own = curves["importance"]
    kept, scored = numbers.keep_share(record.keep), f"{numbers.one_line(record.metric, 40)}"
    unpruned = f"{scored} {numbers.score(record.score)}"
    if not own.most_pruned:
        first = own.points[0]
        return [
            f"Pruning the {first.n_pruned} least important of {record.n_heads} attention heads already loses more than "
            f"{numbers.keep_share(1 - record.keep)} of the score: {numbers.score(first.score)} instead of "
            f"{unpruned}. Keep them all.",
            *_sure(record, own),
        ]
    at = next(point for point in own.points if point.n_pruned == own.most_pruned)
    others = [f"{_count(curves[order])} {ORDER_WORDS[order]}" for order in ("random", "top") if order in curves]
    beside = f" ({'; '.join(others)})" if others else ""
    return [
        f"The {own.most_pruned} least important of {record.n_heads} attention heads can be pruned with {kept} of the "
        f"score kept: {scored} {numbers.score(at.score)} instead of {numbers.score(record.score)}{beside}.",
        *_sure(record, own),
    ]


def _count(curve: PruningCurve) -> str:
    return "none" if not curve.most_pruned else str(curve.most_pruned)


def _sure(record: HeadsRecord, own: PruningCurve) -> list[str]:
    """What the dev rows establish."""
    if own.established == own.most_pruned and own.established:
        return ["The dev rows establish that."]
    n_sure = f"{own.established} of them" if own.established else "none"
    return [f"The dev rows ({numbers.count(record.n_dev)}) establish it for {n_sure}."]


def how_run(record: HeadsRecord) -> list[tuple[str, str]]:
    """What was measured, on which rows, in which time."""
    what = "the pretrained model with a linear head fitted to its last layer"
    if record.tuned is not None:
        what = f"the fine-tuned model {numbers.model_name(record.tuned)}"
    scored = f"scored on {numbers.counted(record.n_dev, 'dev row')}, a tenth of the attention heads at a time"
    return [
        ("model", what),
        ("importance", f"on {numbers.counted(record.n_rows, 'training row')}"),
        *([("pruning", scored)] if record.pruning else []),
        ("time", f"{numbers.duration(record.seconds)}, summed over processes"),
    ]
