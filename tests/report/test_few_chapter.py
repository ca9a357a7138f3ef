"""What a few-example comparison says and shows: the best at each size, tables, a chart, and when it says less."""

from __future__ import annotations

import json

from frostline.analysis import Comparison
from frostline.analysis.inside.few import FewExamples, build_few
from frostline.report.chapter import arranged
from frostline.report.charts.few import few_chart
from frostline.report.charts.marks import panels_of
from frostline.report.comparison_chapter import ComparisonChapter
from frostline.report.inside.few_chapter import FewChapter

from .comparisons import STRATEGIES, Made, make_comparison


def _comparison(per_class: int, gain: float) -> Comparison:
    """SetFit above the full model by a gain, and a fit to features below it."""
    scores = STRATEGIES["full"][0]
    _, parameters, seconds, memory, _ = STRATEGIES["freeze:3"]
    made: dict[str, Made] = {
        "full": STRATEGIES["full"],
        "setfit": (tuple(score + gain for score in scores), parameters, seconds, memory, None),
        "features": STRATEGIES["features"],
    }
    compared = make_comparison(made).replace(per_class=per_class)
    ends = {"full": None, "setfit": (gain - 0.01, gain + 0.01), "features": (-0.1, -0.05)}
    points = [point.replace(difference_ci_adjusted=ends[point.name]) for point in compared.strategies]
    return compared.replace(strategies=tuple(points))


def _few() -> FewExamples:
    return build_few([_comparison(16, 0.005), _comparison(8, 0.05)])


def test_the_answer_names_the_best_at_each_size_and_how_sure_that_is() -> None:
    (said,) = FewChapter(few=_few()).answer
    assert said.startswith("With 8 rows per class setfit scores highest, accuracy 0.88")
    assert "against 0.832 for full (+0.050 [+0.040, +0.060], established). With 16 rows per class" in said
    assert said.endswith("within noise).")


def test_sizes_are_in_order_and_tables_have_a_column_for_each() -> None:
    chapter = FewChapter(few=_few())
    scores, differences = chapter.tables
    assert scores.headers == ("strategy", "8 per class", "16 per class")
    assert [row[0] for row in scores.rows] == ["full", "setfit", "features"]
    assert differences.rows[0][1:] == ("–", "–")
    assert differences.rows[1][1] == "+0.050 [+0.040, +0.060]"
    assert chapter.title.endswith("8 and 16 training rows per class")


def test_without_full_there_are_no_differences() -> None:
    few = _few()
    sizes = [
        one.comparison.replace(strategies=tuple(point for point in one.comparison.strategies if point.name != "full"))
        for one in few.sizes
    ]
    chapter = FewChapter(few=build_few(sizes))
    assert len(chapter.tables) == 1
    assert "against" not in chapter.answer[0]


def test_the_chart_has_a_dot_and_a_bar_for_each_strategy_and_size() -> None:
    chart = few_chart(_few())
    assert chart is not None
    ((_, spec),) = panels_of(chart)
    rows = spec["data"]["values"]
    assert [sum(row["kind"] == kind for row in rows) for kind in ("mean", "interval", "chance")] == [6, 6, 1]
    at_eight = {row["x"] for row in rows if row["kind"] == "mean" and "8 per class" in row["said"]}
    assert len(at_eight) == 3, "they stand a little apart"
    assert all(abs(x / 8 - 1) < 0.05 for x in at_eight)


def test_a_report_puts_comparisons_together_that_differ_in_their_rows() -> None:
    chapters = [ComparisonChapter(comparison=one.comparison) for one in _few().sizes]
    assert [type(one) for one in arranged(chapters)] == [FewChapter, ComparisonChapter, ComparisonChapter]
    assert [type(one) for one in arranged(chapters[:1])] == [ComparisonChapter], "one size is no grid"
    assert [type(one) for one in arranged([*chapters, chapters[0]])] == [ComparisonChapter] * 3, "nor is one size twice"
    plain = [ComparisonChapter(comparison=one.comparison.replace(per_class=None)) for one in _few().sizes]
    assert FewChapter not in {type(one) for one in arranged(plain)}


def test_the_record_is_read_back() -> None:
    few = _few()
    assert FewExamples.from_json(json.loads(json.dumps(few.to_json()))) == few
    assert "per_class" not in make_comparison().to_json(), "other comparisons are written as before"
