"""What is said of the places of an axis: of depths, and of the values of other axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from frostline.analysis import Curve, axis_name
from frostline.records.depth import FULL, AxisName, Depth
from frostline.report import numbers


@final
@dataclass(frozen=True)
class AxisWords:
    """How one axis is written."""

    column: str
    """heading of the column of its values"""
    title: str
    """of the axis of a chart"""
    noun: str
    """what was tried: `No depth tried keeps 90%`"""
    point: str
    """what an operating point is"""
    question: str = ""
    """that the curve answers; empty: that of depth"""
    has_savings: bool = True
    """whether its values differ in what training costs"""
    is_log: bool = False
    """whether its values are spread over powers of ten"""


AXES: dict[AxisName, AxisWords] = {
    "depth": AxisWords("frozen", "frozen layers", "depth", "fewest trained layers, of those tried, that keep a share"),
    "transfer": AxisWords(
        "layers kept",
        "pretrained layers kept",
        "number of pretrained layers",
        "fewest pretrained layers, of those tried, that keep a share",
        "how many of the lowest layers carry the pretrained knowledge?",
        has_savings=False,
    ),
    "reinit": AxisWords(
        "re-initialised",
        "re-initialised layers",
        "number of re-initialised layers",
        "most re-initialised layers, of those tried, that keep a share",
        "how many of the top layers can start from random weights?",
        has_savings=False,
    ),
    "heads": AxisWords(
        "heads",
        "trained attention heads",
        "number of attention heads",
        "fewest trained attention heads, of those tried, that keep a share",
        "how many attention heads need fine-tuning?",
    ),
    "subspace": AxisWords(
        "D",
        "dimensions of the subspace",
        "subspace",
        "smallest subspace, of those tried, that keeps a share",
        "in how many dimensions can the task be learned?",
        is_log=True,
    ),
}


def words_of(curve: Curve) -> AxisWords:
    """How the axis of a curve is written."""
    return AXES[axis_name(curve)]


def value(at: Depth) -> str:
    """A depth or value in tables and charts: `full`, `0`, `3`, `10,000`."""
    return str(at) if at is FULL else numbers.count(at)


def what_trains(trained_layers: int, n_layers: int) -> str:
    """What a depth trains: `the last 3 of 6 layers`."""
    if trained_layers == 0:
        return "the head alone"
    if trained_layers == n_layers:
        return f"all {numbers.counted(n_layers, 'layer')} above frozen embeddings"
    return f"the last {f'{trained_layers} ' if trained_layers > 1 else ''}of {numbers.counted(n_layers, 'layer')}"


def what_is_done(curve: Curve, at: Depth) -> str:
    """What is done at a place: `training the last 3 of 6 layers`, `training 12 of 72 attention heads`."""
    if at is FULL:
        return "training the full model"
    if curve.axis is None:
        return f"training {what_trains(curve.n_layers - at, curve.n_layers)}"
    return _DONE[curve.axis.name](at, curve.axis.total or 0)


def keeps(curve: Curve, at: Depth) -> str:
    """The verb that follows it: `keeps`; pretrained layers `carry`."""
    if axis_name(curve) != "transfer":
        return "keeps"
    return "carries" if at == 1 else "carry"


def _transferred(at: int, total: int) -> str:
    if at == 0:
        return "the pretrained embeddings alone"
    if at == total:
        return f"all {numbers.counted(total, 'pretrained layer')}"
    return f"the lowest {f'{at} ' if at > 1 else ''}of {numbers.counted(total, 'pretrained layer')}"


def _renewed(at: int, total: int) -> str:
    if at == 0:
        return "re-initialising no layer"
    if at == total:
        return f"re-initialising all {numbers.counted(total, 'layer')}"
    return f"re-initialising the top {f'{at} ' if at > 1 else ''}of {numbers.counted(total, 'layer')}"


_DONE: dict[AxisName, Callable[[int, int], str]] = {
    "transfer": _transferred,
    "reinit": _renewed,
    "heads": lambda at, total: f"training {numbers.count(at)} of {numbers.counted(total, 'attention head')}",
    "subspace": lambda at, _: f"training in a random subspace of D = {numbers.count(at)}",
}


def smallest_subspace(curve: Curve) -> str:
    """The intrinsic dimension, beside the operating depth where the folder has one."""
    found = curve.d90
    if found is None:
        return ""
    if found.value is None:
        said = " d90: no subspace that was tried has the verdict kept"
    else:
        said = f" d90: the smallest subspace with verdict kept is D = {value(found.value)}"
    if found.beside is None:
        return f"{said}."
    beside = found.beside
    trains = "no depth" if beside.n_frozen is FULL else f"training {what_trains(beside.trained_layers, curve.n_layers)}"
    return f"{said}; on the depth curve of this folder, {trains} keeps as much."
