"""Curves at several numbers of training rows: nested, stratified subsets, epochs or steps held equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from frostline import tasks
from frostline.analysis import Equal
from frostline.errors import UsageError
from frostline.execution.sweep import SweepOptions, run_curve
from frostline.model.load import describe
from frostline.records.requests import CurveSpec
from frostline.report import numbers
from frostline.report.curve_chapter import CurveChapter
from frostline.report.progress.display import Progress


def run_sizes(
    request: CurveSpec, sizes: Sequence[int], equal: Equal, options: SweepOptions, progress: Progress
) -> list[CurveChapter]:
    """A whole curve at each size, the smallest first; a larger subset holds the smaller ones."""
    chapters = []
    for size, one in requests(request, sizes, equal):
        progress.note(f"{size} training rows, {numbers.counted(one.epochs or 0, 'epoch')}")
        chapters.append(run_curve(one, options, progress))
    return chapters


def requests(request: CurveSpec, sizes: Sequence[int], equal: Equal) -> list[tuple[int, CurveSpec]]:
    """The request for the curve at each size."""
    if request.task.max_train is not None:
        raise UsageError("max_train and train sizes are both given; the sizes say how many rows train")
    n_rows = len(tasks.load(tasks.resolve(request.task)).train)
    if max(sizes) > n_rows:
        raise UsageError(f"train size {max(sizes)}: there are {n_rows} training rows; give at most so many")
    n_epochs = request.epochs or describe(request.model).epochs
    steps = {size: math.ceil(size / request.batch_size) for size in sizes}  # of one pass
    largest = max(steps.values())
    passes = {s: n_epochs if equal == "epochs" else max(1, round(n_epochs * largest / steps[s])) for s in sizes}
    return [(s, request.replace(task=request.task.replace(max_train=s), epochs=passes[s])) for s in sorted(sizes)]
