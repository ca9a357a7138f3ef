"""Records → the terminal: the answer first, then the tables, a chart, what to be careful about.

Colour is only an accent: everything reads the same in monochrome, and rich honours NO_COLOR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from frostline.analysis import Chapter, Comparison, Curve, Finding
from frostline.records.parameters import Census, DepthCount
from frostline.report import comparison_tables, comparison_wording, tables, text, wording
from frostline.report.chapters import AnyChapter, Told, told
from frostline.report.charts.text import LINE, MEAN, SEED, chart_lines
from frostline.storage.prefix_cache import Entry

ACCENT = "cyan"
_WIDEST_CHART = 100
_PART = frozenset({"part"})
# Two-line heads keep the tables within 80 columns.
_NARROW_HEADS = {
    "trained layers": "trained\nlayers",
    "trained parameters": "trained\nparameters",
    "95% interval": "95%\ninterval",
    "95% set": "95%\nset",
    "with examples": "with\nexamples",
    "minus full": "minus\nfull",
    "interval of it": "95%\ninterval",
    "share of full": "share\nof full",
    "interval of share": "95%\ninterval",
    "above chance": "above\nchance",
}


def print_curve(console: Console, curve: Curve) -> None:
    """Print what a curve says: the answer, scores, a chart, operating points, how it was run, remarks."""
    _print_answer(console, curve)
    _print_table(console, tables.score_table(curve))
    _print_chart(console, curve)
    _print_table(console, tables.against_table(curve))
    if curve.operating_points:
        _print_table(console, tables.operating_table(curve))
    _print_run(console, wording.how_run(curve), wording.INTERVALS_NOTE)
    _print_remarks(console, curve)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print what a comparison says: the answer, scores and costs, layer by layer, how it was run, remarks."""
    _print_answer(console, comparison)
    _print_table(console, comparison_tables.score_table(comparison))
    _print_table(console, comparison_tables.against_table(comparison))
    if comparison.probes:
        _print_table(console, comparison_tables.probe_table(comparison.probes))
    _print_run(console, comparison_wording.how_run(comparison), comparison_wording.NOTE)
    _print_remarks(console, comparison)


def print_chapters(console: Console, chapters: Sequence[AnyChapter]) -> None:
    """Print what a report tells: all of one request; of several, the answers, curves first."""
    if len(chapters) == 1:
        _print_whole(console, told(chapters[0]))
    for chapter in sorted(chapters, key=lambda one: not isinstance(one, Chapter)) if len(chapters) > 1 else ():
        _print_answer(console, told(chapter))
    n_missing = sum(chapter.n_missing for chapter in chapters)
    if n_missing:
        _say(console, Text(f"{text.counted(n_missing, 'run')} yet to be done: the numbers will move."))


def print_layers(console: Console, census: Census) -> None:
    """Print where a model's parameters are and how many each depth trains."""
    _say(console, Text(text.one_line(census.model, 60), style="bold"))
    console.print()
    parts = {
        "embeddings": census.embeddings,
        "one layer": census.layer,
        f"all {text.counted(census.n_layers, 'layer')}": census.layers,
        "pooler": census.pooler,
        "total": census.total,
        "task head": census.head,
    }
    rows = tuple((name, text.count(number)) for name, number in parts.items())
    _print_table(console, tables.Table(title="Parameters", headers=("part", "parameters"), rows=rows, left=_PART))
    title = "What each depth trains, the task head included"
    heads = ("frozen", "trained layers", "trained parameters", "share")
    full = (wording.depth(None), str(census.n_layers), text.count(census.full), text.share(1.0))
    depths = (_depth_row(depth, census.n_layers) for depth in census.depths)
    _print_table(console, tables.Table(title=title, headers=heads, rows=(full, *depths)))


def print_tasks(console: Console, tasks: Iterable[tuple[str, str, Sequence[str], Sequence[str]]]) -> None:
    """Print the known tasks: name, kind, metrics (the score first), columns."""
    heads = ("task", "kind", "metrics", "columns")
    rows = tuple((name, kind, ", ".join(metrics), ", ".join(columns)) for name, kind, metrics, columns in tasks)
    title = "Tasks; the first metric is the score"
    _print_table(console, tables.Table(title=title, headers=heads, rows=rows, left=frozenset(heads)))


def print_cache(console: Console, folder: str, entries: Sequence[Entry]) -> None:
    """Print what the cache of prefix states holds, and its size."""
    heads = ("model", "task", "split", "frozen", "kept as", "size")
    rows = tuple((e.model, e.task, e.split, str(e.depth), e.dtype, text.size(e.n_bytes)) for e in entries)
    left = frozenset(("model", "task", "split", "kept as"))
    if rows:
        _print_table(console, tables.Table(title="Prefix states", headers=heads, rows=rows, left=left))
    total = text.size(sum(entry.n_bytes for entry in entries))
    _say(console, Text(f"{folder}: {text.counted(len(entries), 'array')}, {total}"))


def _print_whole(console: Console, of: Told) -> None:
    if isinstance(of, Curve):
        print_curve(console, of)
    else:
        print_comparison(console, of)


def _print_answer(console: Console, of: Told) -> None:
    said = wording.answer(of) if isinstance(of, Curve) else comparison_wording.answer(of)
    _say(console, Text(wording.title_of(of), style="bold"))
    _say(console, Text(said, style=ACCENT))
    if isinstance(of, Finding):
        _say(console, Text(wording.decision(of)))
    console.print()


def _depth_row(depth: DepthCount, n_layers: int) -> tuple[str, ...]:
    trained = str(n_layers - depth.n_frozen)
    return wording.depth(depth.n_frozen), trained, text.count(depth.trained_parameters), text.share(depth.share)


def _print_table(console: Console, table: tables.Table) -> None:
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for header in table.headers:
        is_words = header in table.left
        shown.add_column(
            Text(_NARROW_HEADS.get(header, header)),
            justify="left" if is_words else "right",
            overflow="fold",  # where there is no room a number goes on in the next line; no digit is lost
        )
    for row in table.rows:
        shown.add_row(*(Text(text.one_line(cell, 2000)) for cell in row))
    console.print(Text(table.title, style="bold"))
    console.print(shown)
    console.print()


def _print_chart(console: Console, curve: Curve) -> None:
    lines = chart_lines(curve, min(console.width, _WIDEST_CHART))
    if lines:
        has_open = any(point.ci is None and point.scores for point in (curve.full, *curve.points))
        seeds = f", seeds {SEED} where too few for one" if has_open else ""
        said = f"Frozen layers and {text.one_line(curve.metric, 20)}: mean {MEAN}, 95% interval{seeds}"
        _say(console, Text(said, style="bold"))
    for line in lines:
        drawn = Text(line, no_wrap=True)
        drawn.highlight_regex(f"[{MEAN}{SEED}]", ACCENT)
        drawn.highlight_regex(f"[{LINE}─├┤]", "dim")
        console.print(drawn, soft_wrap=True)
    if lines:
        console.print()


def _print_run(console: Console, how_run: Sequence[tuple[str, str]], note: str) -> None:
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    for name, said in how_run:
        grid.add_row(Text(name, style="dim"), Text(said))
    console.print(grid)
    _say(console, Text(note, style="dim"))


def _print_remarks(console: Console, of: Told) -> None:
    remarks = wording.remarks(of)
    if not remarks:
        return
    console.print()
    _say(console, Text("Take care", style="bold"))
    for remark in remarks:
        console.print(Padding(Text(f"• {remark}"), (0, 0, 0, 2)))


def _say(console: Console, said: Text) -> None:
    """Print prose without rich's guesses at markup, emoji codes and numbers."""
    console.print(said, highlight=False)
