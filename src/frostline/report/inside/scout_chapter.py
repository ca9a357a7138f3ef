"""The chapter of depths predicted before training: scores by layer, the depth each names, how right it has been."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, final

from frostline.analysis.inside.scout import BASELINES, RULES, Accuracy, ScoutReport, ScoutScore
from frostline.report import numbers
from frostline.report.chapter import Chapter
from frostline.report.inside.by_layer import LayerPoint, layers_chart
from frostline.report.sections import Section, Shown, drawn
from frostline.report.tables import Table

if TYPE_CHECKING:
    from frostline.report.charts.curve import Drawing

NOT_MEASURED = "not yet measured"
_TITLES = {rule.name: rule.title for rule in RULES}
_SHORT = {
    "variability": "variability",
    "logme": "LogME",
    "h_score": "H-score",
    "probe": "probe",
    "gradient_norm": "gradient",
    "signal_to_noise": "signal",
    "fisher": "Fisher",
}
_NOTE = (
    "Named: the depth that the score's rule gives. Fitted: the same, moved by what was measured on other tasks. Error: "
    "mean absolute error of the fitted depth on measured pairs of model and task, as a share of the layers, with the "
    "judged task left out of the fit. Gain: by how much that is less than the error of the median depth of the other "
    "tasks, with a 95% interval over tasks; a useful score is above 0. Rank correlation: of named and measured depths. "
    "Cost: in runs of full fine-tuning."
)


@final
@dataclass(frozen=True, kw_only=True)
class ScoutChapter(Chapter):
    """Depths that scores name before any training."""

    scout: ScoutReport
    """the scores"""

    rank: ClassVar[int] = 6
    noun: ClassVar[str] = "prediction"
    question: ClassVar[str] = "how many layers will need fine-tuning?"

    @property
    def title(self) -> str:
        """Which model on which task."""
        return f"Before training: {numbers.model_name(self.model, 60)} on {numbers.one_line(self.task, 60)}"

    @property
    def answer(self) -> Sequence[str]:
        """The depth to try first, and how right its score has been."""
        scout = self.scout
        best = next(one for one in scout.scores if one.name == scout.best)
        first = (
            f"Try {scout.start} of {scout.n_layers} layers frozen first ({_TITLES[best.name]}); "
            f"computing it cost {_cost(best.cost)} full runs."
        )
        return [first, _how_right(best.accuracy, scout.baselines)]

    @property
    def tables(self) -> Sequence[Table]:
        """What each score names; its values by layer."""
        return [_picks(self.scout), _values(self.scout)]

    @property
    def record(self) -> ScoutReport:
        """The scores."""
        return self.scout

    @property
    def model(self) -> str:
        """The model, as the request named it."""
        return self.scout.model

    @property
    def task(self) -> str:
        """The task."""
        return self.scout.task

    @property
    def warnings(self) -> Sequence[str]:
        """What the reader should know."""
        return self.scout.warnings

    @property
    def how_run(self) -> Sequence[tuple[str, str]]:
        """Rows and the rule of each score."""
        rules = [(rule.title, rule.words) for rule in RULES]
        return [("training rows scored", numbers.count(self.scout.n_rows)), *rules]

    @property
    def note(self) -> str:
        """What the columns mean."""
        return _NOTE

    def with_model(self, name: str) -> Self:
        """The same chapter under another name of its model."""
        return self.replace(scout=self.scout.replace(model=name))

    @classmethod
    def sections(cls, chapters: Sequence[Self]) -> Iterator[Section | None]:
        """The depths, then a chart of the scores, for each model and task."""
        for number, chapter in enumerate(chapters, start=1):
            suffix = "" if number == 1 else f"-{number}"
            chart = _chart(chapter.scout)
            views = [] if chart is None else [_view(chart, chapter.scout)]
            yield Section(id=f"scout{suffix}", title=chapter.title, tables=[_picks(chapter.scout)], views=views)

    @classmethod
    def pictures(cls, chapters: Sequence[Self]) -> list[Drawing]:
        """The scores by layer."""
        found = (_chart(chapter.scout) for chapter in chapters)
        return [chart for chart in found if chart is not None]


def _how_right(accuracy: Accuracy | None, baselines: Sequence[Accuracy]) -> str:
    if accuracy is None or not baselines:
        return "How right these scores are is not yet measured; decide by `frostline find`."
    typical = next(one for one in baselines if one.name == "typical")
    return (
        f"On {accuracy.n_pairs} measured pairs of model and task it was off by "
        f"{numbers.rough_share(accuracy.mean_error)} of the layers on average, the least of {len(RULES)} scores; "
        f"{BASELINES[typical.name]}, which needs no score, by {numbers.rough_share(typical.mean_error)}. "
        "Decide by `frostline find`."
    )


def _picks(scout: ScoutReport) -> Table:
    """What each score names; before anything is measured there is nothing to fit, and no error to show."""
    if not scout.baselines:
        plain = tuple((_TITLES[one.name], str(one.named), _cost(one.cost)) for one in scout.scores)
        title = f"Layers to freeze; how right each score is: {NOT_MEASURED}"
        return Table(title=title, headers=("score", "named", "cost"), rows=plain, left=("score",))
    heads = ("score", "named", "fitted", "cost", "error", "gain", "interval of it", "rank correlation")
    scores = tuple(_pick(one) for one in scout.scores)
    baselines = tuple((BASELINES[one.name], *[numbers.DASH] * 3, *_right(one)) for one in scout.baselines)
    return Table(title="Layers to freeze", headers=heads, rows=(*scores, *baselines), left=("score",))


def _pick(one: ScoutScore) -> tuple[str, ...]:
    fitted = numbers.DASH if one.n_frozen is None else str(one.n_frozen)
    return (_TITLES[one.name], str(one.named), fitted, _cost(one.cost), *_right(one.accuracy))


def _cost(full_runs: float) -> str:
    return f"{full_runs:.2f}"


def _right(one: Accuracy | None) -> tuple[str, ...]:
    if one is None:
        return (numbers.DASH,) * 4
    correlation = numbers.DASH if one.rank_correlation is None else numbers.score(one.rank_correlation)
    gain = numbers.difference(one.gain), numbers.difference_interval(one.gain_ci)
    return numbers.rough_share(one.mean_error), *gain, correlation


def _values(scout: ScoutReport) -> Table:
    depths = range(scout.n_layers + 1)
    values = {one.name: _by_depth(one, scout.n_layers) for one in scout.scores}
    rows = tuple((str(depth), *(_written(values[rule.name].get(depth)) for rule in RULES)) for depth in depths)
    heads = ("layer", *(_SHORT[rule.name] for rule in RULES))
    return Table(title="Scores by layer; 0: the embeddings", headers=heads, rows=rows)


def _written(value: float | None) -> str:
    return numbers.DASH if value is None else f"{value:.3g}"


def _by_depth(one: ScoutScore, n_layers: int) -> dict[int, float]:
    """Values by layer; 0 is the embeddings, which gradient scores do not have."""
    first = n_layers + 1 - len(one.values)
    return {first + place: value for place, value in enumerate(one.values)}


def _chart(scout: ScoutReport) -> Drawing | None:
    panels = {
        _TITLES[one.name]: {"score": [LayerPoint(at, value) for at, value in _by_depth(one, scout.n_layers).items()]}
        for one in scout.scores
    }
    return layers_chart(panels, by="score", across="layer (0: embeddings)")


def _view(chart: Drawing, scout: ScoutReport) -> Shown:
    return Shown(
        name="scout-by-layer",
        title="by layer",
        panels=drawn(chart, "scores by layer; the table below holds their values"),
        caption="Each score by layer, from training rows alone.",
        tables=[_values(scout)],
    )
