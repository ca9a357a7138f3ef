"""The chapter of what fine-tuning changed: heat maps of attention heads, lines by layer, tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, final

from frostline.analysis.inside.change import WHATS, Change, LayerChange, StrategyChange, What
from frostline.report import numbers
from frostline.report.chapter import Chapter
from frostline.report.charts.cells import Cells, cells_chart, cells_table
from frostline.report.inside.by_layer import LayerPoint, Lines, layers_chart
from frostline.report.sections import Section, Shown, drawn
from frostline.report.tables import Table

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

PANELS: dict[What, str] = {
    "attention": "attention maps: 1 − cosine",
    "states": "states: 1 − CKA",
    "weights": "weights: relative distance",
}
_NOTE = (
    "Attention: 1 − cosine of the attention maps before and after, over the tokens of each dev row, mean over rows and "
    "attention heads. Entropy: of attention, in nats. States: 1 − linear CKA over all tokens of the dev rows. Weights: "
    "norm of the difference, divided by the norm of the pretrained weights. Change begins at the lowest layer whose "
    "change is at least half of the largest."
)


@final
@dataclass(frozen=True, kw_only=True)
class ChangeChapter(Chapter):
    """What fine-tuning changed inside a model."""

    change: Change
    """by strategy and layer"""

    rank: ClassVar[int] = 5
    noun: ClassVar[str] = "change"
    question: ClassVar[str] = "what does fine-tuning change inside the model?"

    @property
    def title(self) -> str:
        """Which model on which task, or which two models."""
        model = numbers.model_name(self.model, 60)
        tuned = f" to {numbers.model_name(self.change.tuned, 60)}" if self.change.tuned else ""
        task = f" on {numbers.one_line(self.task, 60)}" if self.task else ""
        return f"What changed: {model}{tuned}{task}"

    @property
    def answer(self) -> Sequence[str]:
        """Where the first strategy changed the model most, and where change begins; then the operating point."""
        first = self.change.strategies[0]
        return [_most(first), *_beginning_words(self.change, first)]

    @property
    def tables(self) -> Sequence[Table]:
        """One table for each strategy, and where change begins."""
        return [*(_layer_table(one) for one in self.change.strategies), _beginnings(self.change)]

    @property
    def record(self) -> Change:
        """The change."""
        return self.change

    @property
    def model(self) -> str:
        """The pretrained model."""
        return self.change.model

    @property
    def task(self) -> str:
        """The task; empty if only weights were compared."""
        return self.change.task or ""

    @property
    def warnings(self) -> Sequence[str]:
        """What the reader should know."""
        return self.change.warnings

    @property
    def note(self) -> str:
        """What the columns mean."""
        return _NOTE

    def with_model(self, name: str) -> Self:
        """The same chapter under another name of its model."""
        return self.replace(change=self.change.replace(model=name))

    @classmethod
    def sections(cls, chapters: Sequence[Self]) -> Iterator[Section | None]:
        """Lines by layer, then the heat maps, for each model and task."""
        for number, chapter in enumerate(chapters, start=1):
            suffix = "" if number == 1 else f"-{number}"
            views = [*_line_views(chapter), *_heat_views(chapter.change)]
            yield Section(id=f"change{suffix}", title=chapter.title, views=views, below=[_beginnings(chapter.change)])

    @classmethod
    def pictures(cls, chapters: Sequence[Self]) -> list[Drawing]:
        """The lines by layer."""
        found = (_lines(chapter.change) for chapter in chapters)
        return [chart for chart in found if chart is not None]


def _most(one: StrategyChange) -> str:
    """Where a strategy changed the model most."""
    by: What = "attention" if one.layers[0].attention is not None else "weights"
    changed = [layer for layer in one.layers if getattr(layer, by)]
    if not changed:
        return f"{_name(one)} changed nothing in the layers."
    most = max(changed, key=lambda layer: float(getattr(layer, by)))
    value = getattr(most, by)
    what = f"1 − cosine {numbers.change(value)}" if by == "attention" else f"relative distance {numbers.change(value)}"
    return f"{_name(one)} changes {by} most in layer {most.layer} of {len(one.layers)} ({what})."


def _beginning_words(change: Change, one: StrategyChange) -> Iterator[str]:
    found = [begin for begin in one.begins if begin.layer is not None]
    if not found:
        return
    where = ", ".join(f"{begin.by} at layer {begin.layer}" for begin in found)
    yield f"Change begins: {where}."
    point = change.operating_point
    if point is not None:
        measured = 0 if point.n_frozen is None else point.n_frozen
        predicted = ", ".join(f"{begin.by} {begin.n_frozen}" for begin in found)
        yield (
            f"Freezing what lies below would freeze ({predicted}) layers; the {point.command} in this folder measured "
            f"{measured} of {change.n_layers} at {numbers.keep_share(point.keep)}."
        )


def _name(one: StrategyChange) -> str:
    return "Full fine-tuning" if one.strategy == "full" else numbers.one_line(one.strategy, 40)


def _layer_table(one: StrategyChange) -> Table:
    heads = ("layer", "attention", "entropy before", "after", "states", "weights", "of attention", "of ffn", "of norms")
    seeds = f", {numbers.counted(len(one.seeds), 'seed')}" if one.seeds else ""
    rows = tuple(_row(layer) for layer in one.layers)
    return Table(title=f"{_name(one)}{seeds}: change by layer", headers=heads, rows=rows)


def _row(layer: LayerChange) -> tuple[str, ...]:
    return (
        str(layer.layer),
        numbers.change(layer.attention),
        numbers.score(layer.entropy_before),
        numbers.score(layer.entropy_after),
        numbers.change(layer.states),
        numbers.change(layer.weights),
        numbers.change(layer.weights_attention),
        numbers.change(layer.weights_ffn),
        numbers.change(layer.weights_norms),
    )


def _beginnings(change: Change) -> Table:
    """Where change begins, beside the measured operating depth."""
    point = change.operating_point
    measured = () if point is None else (_number(point.n_frozen or 0),)
    rows = tuple(
        (_name(one), begin.by, _number(begin.layer), _number(begin.n_frozen), *measured)
        for one in change.strategies
        for begin in one.begins
    )
    heads = ("strategy", "by", "begins at layer", "layers below", *(["operating depth"] if measured else []))
    return Table(title="Where change begins", headers=heads, rows=rows, left=("strategy", "by"))


def _number(value: int | None) -> str:
    return numbers.DASH if value is None else str(value)


def _lines(change: Change) -> Drawing | None:
    panels = {PANELS[what]: lines for what in WHATS if (lines := _panel(change, what))}
    return layers_chart(panels, by="strategy")


def _panel(change: Change, what: What) -> Lines:
    found = {
        _name(one): [
            LayerPoint(layer.layer, float(getattr(layer, what)), getattr(layer, f"{what}_ci"))
            for layer in one.layers
            if getattr(layer, what) is not None
        ]
        for one in change.strategies
    }
    return {name: points for name, points in found.items() if points}


def _line_views(chapter: ChangeChapter) -> Iterator[Shown]:
    chart = _lines(chapter.change)
    if chart is not None:
        yield Shown(
            name="change-by-layer",
            title="by layer",
            panels=drawn(chart, "change by layer; the tables below hold its values"),
            caption="Change by layer: means over seeds with 95% intervals; 0: nothing changed.",
            tables=[_layer_table(one) for one in chapter.change.strategies],
        )


def _heat_views(change: Change) -> Iterator[Shown]:
    """The attention maps of each strategy, then the entropies."""
    for one in change.strategies:
        name = numbers.one_line(one.strategy, 20)
        if one.attention_cosine is not None:
            changed = [[1 - cosine for cosine in layer] for layer in one.attention_cosine]
            title = f"1 − cosine of attention maps, {name}"
            yield _heat(f"maps-{name}", f"maps, {name}", Cells(title, changed, numbers.change))
        if one.entropy_after is not None:
            title = f"Entropy of attention after {name}, in nats"
            yield _heat(f"entropy-{name}", f"entropy, {name}", Cells(title, one.entropy_after, numbers.score))
    first = change.strategies[0]
    if first.entropy_before is not None:
        title = "Entropy of attention before, in nats"
        yield _heat("entropy-before", "entropy before", Cells(title, first.entropy_before, numbers.score))


def _heat(name: str, title: str, cells: Cells) -> Shown:
    return Shown(
        name=name.replace(":", "-"),
        title=title,
        panels=drawn(cells_chart(cells), f"{cells.title}; the table below holds its values"),
        caption=f"{cells.title}; the stronger the colour, the higher.",
        tables=[cells_table(cells)],
    )
