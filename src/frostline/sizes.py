"""Curves at several numbers of training rows: nested, stratified subsets, epochs or steps held equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from frostline.analysis import Chapter
from frostline.asked import CurveSpec
from frostline.errors import UsageError
from frostline.report.progress import Progress
from frostline.stack.load import describe
from frostline.sweep import SweepOptions, run_curve

Equal = Literal["epochs", "steps"]
"""What is the same at every size: passes over the rows, or steps (then small sets are passed over more often)."""


def run_sizes(
    request: CurveSpec, sizes: Sequence[int], equal: Equal, options: SweepOptions, progress: Progress
) -> list[Chapter]:
    """A whole curve at each size, the smallest first; a larger subset holds the smaller ones."""
    chapters = []
    for size, one in requests(request, sizes, equal):
        progress.note(f"{size} training rows, {one.epochs} epochs")
        chapters.append(run_curve(one, options, progress))
    return chapters


def requests(request: CurveSpec, sizes: Sequence[int], equal: Equal) -> list[tuple[int, CurveSpec]]:
    """The request for the curve at each size."""
    if request.task.max_train is not None:
        raise UsageError("max_train and train sizes are both given; the sizes say how many rows train")
    n_epochs = request.epochs or describe(request.model).epochs
    largest = max(sizes)
    passes = {size: n_epochs if equal == "epochs" else round(n_epochs * largest / size) for size in sizes}
    return [(s, request.replace(task=request.task.replace(max_train=s), epochs=passes[s])) for s in sorted(sizes)]
