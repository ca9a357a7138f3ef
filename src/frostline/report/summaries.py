"""Several curves in one table: the answers, the paper's three operating points, every view, cost, every run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from frostline.analysis import Chapter, Curve, Mark, Point, RunLine, TriedRate, View, series
from frostline.report import text, wording
from frostline.report.chapters import AnyChapter, Told, told
from frostline.report.tables import Table

_NAMES = ("task", "model")
ROLE_WORDS = {"replicate": "replicate", "line_search": "line search", "tuning": "tuning"}


def summary_table(curves: Sequence[Curve]) -> Table:
    """One row a curve: its first operating point, what it keeps and what it costs."""
    heads = ("metric", "full score", "keep", "frozen", "trained layers", "score", "kept", "95% interval")
    costs = ("parameters", "time", "memory")
    rows = [(*_names(curve), *_summary(curve)) for curve in curves]
    words = (*_NAMES, "metric")
    title = "The fewest trained layers that keep the share; parameters, time and memory as shares of the full model's"
    return Table(title=title, headers=(*_NAMES, *heads, *costs), rows=tuple(rows), left=frozenset(words))


def paper_table(curves: Sequence[Curve]) -> Table:
    """The paper's three rows a task: nothing frozen, the operating point, everything frozen but the output."""
    heads = ("what", "frozen", "trained layers", "trained parameters", "score", "95% interval", "share of full")
    rows = [(*_names(curve), *row) for curve in curves for row in _paper_rows(curve)]
    words = frozenset((*_NAMES, "what"))
    return Table(title="Operating points", headers=(*_NAMES, *heads), rows=tuple(rows), left=words)


def view_table(curves: Sequence[Curve], view: View) -> Table:
    """What a chart of a view shows: every value, interval and run."""
    rows = []
    for curve in curves:
        shown = series(curve, view)
        if shown is not None:
            rows += [(*_names(curve), *_view_row(view, mark)) for mark in (shown.full, *shown.marks)]
    heads = (*_NAMES, "frozen", "value", "95% interval", "by seed")
    return Table(title="The values of this chart", headers=heads, rows=tuple(rows), left=frozenset(_NAMES))


def rates_table(curves: Sequence[Curve]) -> Table:
    """Every rate that was tried, and the one that was taken."""
    rows = [
        (*_names(curve), *_rate_row(tried, is_taken=tried.learning_rate == curve.learning_rate))
        for curve in curves
        for tried in curve.line_search
    ]
    heads = (*_NAMES, "learning rate", "score", "of its steps", "taken")
    return Table(
        title="Rates that were tried on the full model", headers=heads, rows=tuple(rows), left=frozenset(_NAMES)
    )


def cost_table(curves: Sequence[Curve]) -> Table:
    """Score and cost of every depth."""
    rows = [(*_names(curve), *_cost_row(point)) for curve in curves for point in (curve.full, *curve.points)]
    heads = (*_NAMES, "frozen", "score", "seconds", "memory", "trained parameters")
    return Table(title="Score and cost of one run", headers=heads, rows=tuple(rows), left=frozenset(_NAMES))


def learning_table(chapters: Sequence[Chapter]) -> Table:
    """The mean dev score after each epoch."""
    n_epochs = max((len(points) for chapter in chapters for _, points in chapter.learning), default=0)
    rows = []
    for chapter in chapters:
        for n_frozen, points in chapter.learning:
            scores = [text.score(score) for _, score in points]
            rows.append((*_names(chapter.curve), wording.depth(n_frozen), *_filled(scores, n_epochs)))
    heads = (*_NAMES, "frozen", *(f"epoch {epoch}" for epoch in range(1, n_epochs + 1)))
    return Table(title="Mean dev score after each epoch", headers=heads, rows=tuple(rows), left=frozenset(_NAMES))


def runs_table(chapters: Sequence[AnyChapter]) -> Table:
    """Every finished run."""
    heads = ("role", "trains", "rate", "seed", "score", "training score", "last loss", "seconds", "memory", "failed")
    rows = [(*_names(told(chapter)), *_run_row(run)) for chapter in chapters for run in chapter.runs]
    words = frozenset((*_NAMES, "role", "trains"))
    return Table(title="Every finished run", headers=(*_NAMES, *heads), rows=tuple(rows), left=words)


def without_names(table: Table) -> Table:
    """The table without its columns of task and model."""
    if table.headers[: len(_NAMES)] != _NAMES:
        return table
    rows = tuple(row[len(_NAMES) :] for row in table.rows)
    return dataclasses.replace(table, headers=table.headers[len(_NAMES) :], rows=rows)


def _names(of: Told) -> tuple[str, str]:
    return text.one_line(of.task, 60), text.one_line(of.model, 60)


def _summary(curve: Curve) -> Iterable[str]:
    asked = wording.headline(curve)
    point = None if asked is None else wording.point_at(curve, asked.n_frozen)
    scale = "ratio" if asked is None else asked.scale
    is_known = asked is not None and asked.trained_layers is not None
    return (
        text.one_line(curve.metric, 40),
        text.score(curve.full.mean),
        text.DASH if asked is None else text.keep_share(asked.keep),
        wording.depth(asked.n_frozen) if asked is not None and is_known else text.DASH,
        str(asked.trained_layers) if asked is not None and is_known else text.DASH,
        text.DASH if point is None else text.score(point.mean),
        text.DASH if point is None else text.share(wording.kept(point, scale)),
        text.DASH if point is None or scale != "ratio" else text.share_interval(point.ratio_ci),
        *_parts(curve, point),
    )


def _parts(curve: Curve, point: Point | None) -> tuple[str, str, str]:
    if point is None:
        return text.DASH, text.DASH, text.DASH
    return (
        text.part(point.trained_parameters, curve.full.trained_parameters),
        text.part(point.seconds, curve.full.seconds),
        text.part(point.peak_bytes, curve.full.peak_bytes),
    )


def _paper_rows(curve: Curve) -> list[tuple[str, ...]]:
    rows = [("nothing frozen", *_paper_cells(curve.full))]
    asked = wording.headline(curve)
    if asked is not None:
        point = wording.point_at(curve, asked.n_frozen)
        above = "" if asked.scale == "ratio" else " above chance"
        what = f"fewest layers for {text.keep_share(asked.keep)}{above}"
        rows.append((what, *(_paper_cells(point) if point is not None else [text.DASH] * 6)))
    head = wording.point_at(curve, curve.n_layers)
    if head is not None:
        rows.append(("all frozen but the output", *_paper_cells(head)))
    return rows


def _paper_cells(point: Point) -> tuple[str, ...]:
    return (
        wording.depth(point.n_frozen),
        str(point.trained_layers),
        text.count(point.trained_parameters),
        text.score(point.mean),
        text.score_interval(point.ci),
        text.share(point.ratio),
    )


def _view_row(view: View, mark: Mark) -> tuple[str, ...]:
    by_seed = " ".join(wording.view_value(view, one) for _, one in mark.by_seed) or text.DASH
    value, interval = wording.view_value(view, mark.value), wording.view_interval(view, mark.interval)
    return wording.depth(mark.n_frozen), value, interval, by_seed


def _rate_row(tried: TriedRate, *, is_taken: bool) -> tuple[str, ...]:
    rate, score = text.learning_rate(tried.learning_rate), text.score(tried.score)
    return rate, score, text.rough_share(tried.share), "yes" if is_taken else ""


def _cost_row(point: Point) -> tuple[str, ...]:
    return (
        wording.depth(point.n_frozen),
        text.score(point.mean),
        text.seconds(point.seconds),
        text.size(point.peak_bytes),
        text.count(point.trained_parameters),
    )


def _run_row(run: RunLine) -> tuple[str, ...]:
    return (
        ROLE_WORDS[run.role],
        text.one_line(run.strategy, 40),
        text.learning_rate(run.learning_rate or None),  # a fit in one go has none
        str(run.seed),
        text.score(run.score),
        text.score(run.train_score),
        text.loss(run.epoch_losses[-1] if run.epoch_losses else None),
        text.seconds(run.seconds),
        text.size(run.peak_bytes),
        "yes" if run.is_failed else "",
    )


def _filled(cells: Sequence[str], number: int) -> list[str]:
    return [*cells, *[text.DASH] * (number - len(cells))]
