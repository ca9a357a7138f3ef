"""Chapters and tables → the terminal: the answer first, then the tables, a chart, the warnings.

Colour is only an accent: everything reads the same in monochrome, and rich honours NO_COLOR.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import final

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from frostline.errors import printable
from frostline.records.depth import FULL
from frostline.records.parameters import Census, DepthCount, Sharing, WeightChange
from frostline.report import numbers
from frostline.report.chapter import Chapter, arranged
from frostline.report.charts.text import LINE, MEAN, SEED
from frostline.report.tables import Table
from frostline.report.wording import axis_words, weight_words
from frostline.storage.shelf import Entry

ACCENT = "cyan"
_WIDEST_CHART = 100
_PART = ("part",)
# Headers on two lines keep the tables within 80 columns.
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


@final
class Screen(Console):
    """A console that shows escapes for characters of foreign text that would steer the terminal.

    Everything that is printed passes `render`. Colours are not in its text: they are added later.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What rich prints, made safe."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def print_chapters(console: Console, chapters: Sequence[Chapter]) -> None:
    """Print a report: everything about a single result; for several, the answers, and tables that summarize them."""
    shown = arranged(chapters)
    if len(shown) == 1:
        _print_whole(console, shown[0])
    else:
        for chapter in shown:
            _print_answer(console, chapter)
            for table in chapter.tables if chapter.is_overview else ():
                _print_table(console, table)
    n_missing = sum(chapter.n_missing for chapter in shown)
    if n_missing:
        _say(console, Text(f"{numbers.counted(n_missing, 'run')} not done yet: the numbers will change."))


def format_result(chapters: Sequence[Chapter]) -> str:
    """Results as short text for `print`: title, answer and one small table each."""
    console = Screen(file=io.StringIO(), width=100, color_system=None, force_terminal=False)
    shown = arranged(chapters)
    for chapter in shown:
        _print_answer(console, chapter)
        if len(shown) == 1 or chapter.is_overview:
            _print_table(console, chapter.tables[0])
    written = console.file
    assert isinstance(written, io.StringIO)
    return "\n".join(line.rstrip() for line in written.getvalue().rstrip().splitlines())


def _print_whole(console: Console, chapter: Chapter) -> None:
    """Print everything about a result: answer, tables with a chart after the first, how it was run, warnings."""
    _print_answer(console, chapter)
    for number, table in enumerate(chapter.tables):
        _print_table(console, table)
        if number == 0:
            _print_chart(console, chapter)
    _print_run(console, chapter)
    _print_warnings(console, chapter)


def print_layers(console: Console, census: Census) -> None:
    """Print where the parameters of a model are and how many each depth trains."""
    _say(console, Text(numbers.one_line(census.model, 60), style="bold"))
    console.print()
    parts = {
        "embeddings": census.embeddings,
        "one layer": census.layer,
        f"all {numbers.counted(census.n_layers, 'layer')}": census.layers,
        "pooler": census.pooler,
        "total": census.total,
        "task head": census.head,
    }
    rows = tuple((name, numbers.count(number)) for name, number in parts.items())
    _print_table(console, Table(title="Parameters", headers=("part", "parameters"), rows=rows, left=_PART))
    title = "What each depth trains, the task head included"
    heads = ("frozen", "trained layers", "trained parameters", "share")
    full = (axis_words.value(FULL), str(census.n_layers), numbers.count(census.full), numbers.share(1.0))
    depths = (_depth_row(depth, census.n_layers) for depth in census.depths)
    _print_table(console, Table(title=title, headers=heads, rows=(full, *depths)))


def print_tasks(console: Console, tasks: Iterable[tuple[str, str, Sequence[str], Sequence[str]]]) -> None:
    """Print the known tasks: name, kind, metrics (the score first), columns."""
    heads = ("task", "kind", "metrics", "columns")
    rows = tuple((name, kind, ", ".join(metrics), ", ".join(columns)) for name, kind, metrics, columns in tasks)
    title = "Tasks; the first metric is the score"
    _print_table(console, Table(title=title, headers=heads, rows=rows, left=heads))


def print_cache(console: Console, folder: str, entries: Sequence[Entry]) -> None:
    """Print the entries of the prefix cache and their size."""
    heads = ("model", "task", "split", "frozen", "stored as", "size")
    rows = tuple((e.model, e.task, e.split, str(e.depth), e.dtype, numbers.size(e.n_bytes)) for e in entries)
    left = ("model", "task", "split", "stored as")
    if rows:
        _print_table(console, Table(title="Prefix states", headers=heads, rows=rows, left=left))
    total = numbers.size(sum(entry.n_bytes for entry in entries))
    _say(console, Text(f"{folder}: {numbers.counted(len(entries), 'array')}, {total}"))


def print_weight_change(console: Console, change: WeightChange, *, n_tensors: int) -> None:
    """Print what fine-tuning moved, part by part; and the first `n_tensors` tensors that differ."""
    _say(console, Text(weight_words.change(change), style=ACCENT))
    console.print()
    _print_table(console, _moved_parts(change))
    if change.tensors:
        _print_table(console, _moved_tensors(change, n_tensors))


def _moved_parts(change: WeightChange) -> Table:
    heads = ("part", "tensors", "changed", "relative change", "largest change", "size")
    rows = tuple(
        (p.part, str(p.n_tensors), str(p.n_changed), numbers.change(p.relative_change),
         numbers.change(p.largest_change), numbers.size(p.n_bytes))
        for p in change.parts
    )  # fmt: skip
    return Table(title="What moved, from the bottom up", headers=heads, rows=rows, left=_PART)


def _moved_tensors(change: WeightChange, n_tensors: int) -> Table:
    heads = ("tensor", "what", "relative change", "largest change")
    shown = change.tensors[:n_tensors]
    rows = tuple((t.name, t.what, numbers.change(t.relative_change), numbers.change(t.largest_change)) for t in shown)
    n_more = len(change.tensors) - len(shown)
    title = "Tensors that differ" + (f", the first {len(shown)}; {n_more} more with --json" if n_more else "")
    return Table(title=title, headers=heads, rows=rows, left=("tensor", "what"))


def print_sharing(console: Console, sharing: Sharing) -> None:
    """Print how deep models agree and what sharing that part would save."""
    _say(console, Text(weight_words.sharing(sharing), style=ACCENT))
    console.print()
    heads = ("model", "and", "layers they share")
    rows = tuple(
        (numbers.model_name(p.first), numbers.model_name(p.second), weight_words.depth(p.shared_layers))
        for p in sharing.pairs
    )
    _print_table(console, Table(title="How deep each two agree", headers=heads, rows=rows, left=heads))
    for change in sharing.changes:
        print_weight_change(console, change, n_tensors=5)


def _print_answer(console: Console, chapter: Chapter) -> None:
    first, *others = chapter.answer
    _say(console, Text(chapter.title, style="bold"))
    _say(console, Text(first, style=ACCENT))
    for said in others:
        _say(console, Text(said))
    console.print()


def _depth_row(depth: DepthCount, n_layers: int) -> tuple[str, ...]:
    trained = str(n_layers - depth.n_frozen)
    return (
        axis_words.value(depth.n_frozen),
        trained,
        numbers.count(depth.trained_parameters),
        numbers.share(depth.share),
    )


def _print_table(console: Console, table: Table) -> None:
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for header in table.headers:
        is_words = header in table.left
        shown.add_column(
            Text(_NARROW_HEADS.get(header, header)),
            justify="left" if is_words else "right",
            overflow="fold",  # without room a number continues on the next line; no digit is lost
        )
    for row in table.rows:
        shown.add_row(*(Text(numbers.one_line(cell, 2000)) for cell in row))
    console.print(Text(table.title, style="bold"))
    console.print(shown)
    console.print()


def _print_chart(console: Console, chapter: Chapter) -> None:
    heading, *lines = chapter.text_chart(min(console.width, _WIDEST_CHART)) or [""]
    if not heading:
        return
    _say(console, Text(heading, style="bold"))
    for line in lines:
        drawn = Text(line, no_wrap=True)
        drawn.highlight_regex(f"[{MEAN}{SEED}]", ACCENT)
        drawn.highlight_regex(f"[{LINE}─├┤]", "dim")
        console.print(drawn, soft_wrap=True)
    console.print()


def _print_run(console: Console, chapter: Chapter) -> None:
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    for name, value in chapter.how_run:
        grid.add_row(Text(name, style="dim"), Text(value))
    if chapter.how_run:
        console.print(grid)
    if chapter.note:
        _say(console, Text(chapter.note, style="dim"))


def _print_warnings(console: Console, chapter: Chapter) -> None:
    if not chapter.warnings:
        return
    console.print()
    _say(console, Text("Warnings", style="bold"))
    for warning in chapter.warnings:
        console.print(Padding(Text(f"• {warning}"), (0, 0, 0, 2)))


def _say(console: Console, said: Text) -> None:
    """Print prose without rich's guesses at markup, emoji codes and numbers."""
    console.print(said, highlight=False)
