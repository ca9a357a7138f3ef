"""The page, files and terminal of comparisons, probes and training rows: every number is that of its record."""

from __future__ import annotations

import csv
import io
import json
import re
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import pytest
from rich.cells import cell_len
from rich.console import Console

from families import matrix
from frostline.analysis import Comparison, Sizes
from frostline.report import numbers
from frostline.report.chapter import Chapter, arranged
from frostline.report.charts.comparison import cost_chart, rates_chart
from frostline.report.charts.curve import svg
from frostline.report.charts.heatmap import SHADES, heat_table
from frostline.report.formats.html import page
from frostline.report.formats.latex import latex
from frostline.report.formats.markdown import markdown
from frostline.report.formats.registry import FORMATS, write_reports, write_result
from frostline.report.formats.spreadsheet import spreadsheet
from frostline.report.grid_chapters import grid_of
from frostline.report.terminal import print_chapters
from frostline.report.wording import comparison_words

from .chapters import alone, make_chapter
from .comparisons import STRATEGIES, compared, make_comparison, make_comparison_chapter, make_probes, sized
from .curves import make_curve
from .test_markdown import rendered_table
from .test_page import Page, between, signed
from .test_terminal import read, table

ODD = {
    "no full": make_comparison({name: STRATEGIES[name] for name in ("lora:8", "features")}),
    "one crashed": make_comparison(STRATEGIES | {"lora:8": ((), *STRATEGIES["lora:8"][1:])}),
    "full crashed": make_comparison(STRATEGIES | {"full": ((), *STRATEGIES["full"][1:])}),
    "all crashed": make_comparison({"full": ((), *STRATEGIES["full"][1:])}),
    "alone": make_comparison({"full": STRATEGIES["full"]}),
    "two seeds": make_comparison({"full": ((0.8, 0.8), 9, 1.0, 9, 5e-5), "norms": ((0.8, 0.7), 9, 1.0, 9, 5e-5)}),
    "no memory": make_comparison().replace(
        strategies=tuple(point.replace(peak_bytes=None) for point in make_comparison().strategies)
    ),
}


@pytest.fixture(scope="module")
def source() -> str:
    return page([make_comparison_chapter()])


@pytest.fixture(scope="module")
def shown(source: str) -> Page:
    return Page(source)


def test_the_answer_and_the_title_stand_first(shown: Page) -> None:
    assert "all-MiniLM-L6-v2 on sst2: 12 strategies" in shown.text
    assert comparison_words.answer(make_comparison()) in shown.text
    assert "which way of fine-tuning" in shown.text


def test_every_number_of_a_strategy_is_that_of_its_record(shown: Page) -> None:
    (rows,) = shown.named("Strategies, score and cost (accuracy)")
    for point, cells in zip(make_comparison().strategies, rows[1:], strict=True):
        row = dict(zip(rows[0], cells, strict=True))
        assert (row["strategy"], row["score"]) == (point.name, signed(point.mean or 0.0, ".3f"))
        assert row["trained parameters"] == f"{point.trained_parameters:,}"
        assert row["of the largest"] == numbers.part(point.trained_parameters, 22_713_986)
        assert row["bytes per task"] == numbers.size(4 * (point.trained_parameters or 0))
        assert float(row["seconds"]) == pytest.approx(point.seconds, abs=0.05)
        assert row["memory"] == numbers.size(point.peak_bytes)
        assert row["rate"] == ("–" if point.learning_rate is None else numbers.learning_rate(point.learning_rate))
        assert row["95% interval"] == between(point.ci, ".3f")
        assert row["minus full"] == signed(point.difference or 0.0, "+.3f")
        interval = None if point.name == "full" else point.difference_ci_adjusted
        assert row["interval of it"] == between(interval, "+.3f")
        assert row["share of full"] == f"{100 * (point.ratio or 0.0):.1f}%"
        assert row["front"] == ("yes" if point.is_pareto else "")
        assert row["probability"] == "50%"


def test_behind_every_cost_is_its_table(shown: Page) -> None:
    tables = shown.named("The values of this chart")
    assert len(tables) == len(comparison_words.COSTS)
    for kind, rows in zip(comparison_words.COSTS, tables, strict=True):
        on_front = {row[0] for row in rows[1:] if row[rows[0].index("front")] == "yes"}
        assert on_front == {point.name for point in comparison_words.front(make_comparison(), kind)}


def test_a_fit_has_no_rate_and_no_loss(shown: Page) -> None:
    (rows,) = shown.named("Every finished run")
    fits = [dict(zip(rows[0], row, strict=True)) for row in rows[1:] if "features" in row]
    assert [(fit["rate"], fit["last loss"]) for fit in fits] == [("–", "–")] * 5


def test_rates_layers_and_sources_are_told(shown: Page) -> None:
    (rates,) = shown.named("Learning rates that were tried")
    assert len(rates) - 1 == len(make_comparison().line_search) == 33
    taken = {row[0]: row[1] for row in rates[1:] if row[3] == "yes"}
    wanted = {p.name: numbers.learning_rate(p.learning_rate) for p in make_comparison().strategies if p.learning_rate}
    assert taken == wanted
    (layers,) = shown.named("Linear probes")
    assert [row[:2] for row in layers[1:]] == [[str(p.depth), f"{p.mean:.3f}"] for p in make_probes()]
    assert make_comparison().warnings[0] in shown.text
    assert "fedcba9876543210" in shown.text


def test_the_dots_say_their_values_and_every_name_is_drawn(source: str) -> None:
    first = source.partition('data-view="seconds"')[2].partition("</svg>")[0]
    for point in make_comparison().strategies:
        assert f'aria-label="{point.name}: {numbers.score(point.mean)} ' in first
        assert f">{point.name}</text>" in first


def test_ids_are_unique_with_several_of_each() -> None:
    other = make_comparison().replace(task="rte")
    made = page([sized(100), make_comparison_chapter(), sized(200), make_comparison_chapter(other)])
    ids = re.findall(r' id="([^"]+)"', made)
    assert len(ids) == len(set(ids))
    assert {"strategies", "strategies-2", "rows", "comparisons"} <= set(ids)
    assert "<title>2 curves and 2 comparisons of 3 tasks and 1 model</title>" in made


def test_comparisons_of_one_task_are_told_apart() -> None:
    made = page([make_comparison_chapter(), make_comparison_chapter()])
    assert "all-MiniLM-L6-v2 (1) on sst2: 12 strategies" in made
    assert "all-MiniLM-L6-v2 (2) on sst2: 12 strategies" in made
    assert "all-MiniLM-L6-v2 (1)" not in page([make_chapter(task="sst2"), make_comparison_chapter()])


@pytest.mark.parametrize("name", matrix(tuple(ODD), is_sample=lambda name: name in ("no full", "all crashed", "alone")))
def test_odd_comparisons_are_shown_everywhere(name: str, tmp_path: Path) -> None:
    made = page([make_comparison_chapter(ODD[name])])
    assert "NaN" not in made
    assert "None" not in Page(made).text
    write_reports([make_comparison_chapter(ODD[name])], ["md", "latex", "csv", "svg"], tmp_path)
    assert "NaN" not in (tmp_path / "report.svg").read_text(encoding="utf-8")


def test_names_from_outside_stay_text() -> None:
    evil = "<script>alert(1)</script>\"'><img src=x>{{ 7 * 7 }}" + "x" * 10_000
    comparison = make_comparison().replace(task=evil, model=evil, metric=evil, warnings=(evil,))
    named = tuple(point.replace(name=f"{evil}{number}") for number, point in enumerate(comparison.strategies))
    read_back = Page(page([make_comparison_chapter(comparison.replace(strategies=named))]))
    assert read_back.tags.count("script") == 1
    assert "img" not in read_back.tags


def test_a_huge_interval_stays_on_the_axis() -> None:
    comparison = make_comparison()
    wild = comparison.strategies[0].replace(ci=(-40.0, 42.0))
    chart = cost_chart(comparison.replace(strategies=(wild, *comparison.strategies[1:])), "seconds")
    assert chart is not None
    alt.LayerChart.from_dict(chart)  # compares it with the schema
    rows = chart["data"]["values"]
    assert all(-1 < row["y"] < row["y2"] < 2 for row in rows if row["kind"].endswith("interval"))


def test_no_rates_no_chart() -> None:
    assert rates_chart(make_comparison().replace(line_search=())) is None
    assert "Learning rates that were tried" not in page(
        [make_comparison_chapter(make_comparison().replace(line_search=()))]
    )


def test_probes_lie_under_a_single_curve_and_its_scores_alone() -> None:
    chapter = make_chapter().replace(probes=make_probes())
    made = page([chapter])
    views = dict(re.findall(r'data-view="(\w+)"[^>]*>(.*?)</svg>', made, re.S))
    assert views["score"].count('aria-label="linear probe of layer ') == 6
    assert views["score"].count('aria-label="linear probe of embeddings: 0.612 ') == 1
    assert all("linear probe of" not in drawn for view, drawn in views.items() if view != "score")
    assert len(Page(made).named("Linear probes")) == 1
    assert "linear probe of" not in page([make_chapter()])
    assert "linear probe of" not in page([chapter, make_chapter(task="other")])
    assert "## Linear probes" in markdown([chapter])


def write_compared(comparison: Comparison, folder: Path) -> tuple[Path, ...]:
    return write_result(compared(comparison)[0], folder, "compare")


def by_training_rows(chapters: list[Chapter]) -> list[Sizes]:
    """The summaries of train sizes in a report."""
    return [chapter.record for chapter in arranged(chapters) if isinstance(chapter.record, Sizes)]


def test_training_rows_need_two_sizes_of_one_model_and_task() -> None:
    assert by_training_rows([sized(100), sized(100)]) == []
    elsewhere = make_chapter(task="other")
    assert by_training_rows([sized(100), elsewhere]) == []
    assert by_training_rows([alone(make_curve())[0], sized(100)]) == []
    (sizes,) = by_training_rows([sized(8000), elsewhere, sized(100), sized(8000)])
    assert [row[0] for row in heat_table(grid_of(sizes), "score").rows] == ["100", "8,000 (1)", "8,000 (2)"]


def test_the_heat_map_holds_the_means() -> None:
    chapters = [sized(8000), sized(768, 0.05)]
    (sizes,) = by_training_rows([*chapters])
    rows = heat_table(grid_of(sizes), "score").rows
    for row, chapter in zip(rows, chapters[::-1], strict=True):
        means = [point.mean for point in (chapter.curve.full, *chapter.curve.points)]
        assert list(row[1:]) == [numbers.score(mean) for mean in means]
    made = page(chapters)
    drawn = made.partition('<section id="rows">')[2].partition("</section>")[0]
    assert 'aria-label="training rows 768, full model: 0.731"' in drawn
    assert 'data-view="train_score"' in drawn
    assert heat_table(grid_of(sizes), "train_score").rows != rows
    assert 'id="rows"' not in page(chapters[:1])


def test_a_depth_that_one_size_lacks_is_a_dash() -> None:
    short = sized(768)
    short = short.replace(curve=short.curve.replace(points=short.curve.points[1:]))
    (sizes,) = by_training_rows([short, sized(8000)])
    assert heat_table(grid_of(sizes), "score").rows[0][2] == "–"
    assert 'id="rows"' in page([short, sized(8000)])


def luminance(colour: tuple[float, ...]) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1])
@pytest.mark.parametrize("shade", SHADES)
def test_numbers_can_be_read_on_every_cell(scheme: int, shade: float) -> None:
    style = resources.files("frostline.report").joinpath("page", "style.css").read_text(encoding="utf-8")
    colours = {}
    for name in ("paper", "ink", "accent"):
        hexes = re.findall(rf"--{name}: #(\w{{6}})", style)[scheme]
        colours[name] = tuple(int(hexes[at : at + 2], 16) for at in (0, 2, 4))
    cell = tuple(shade * a + (1 - shade) * p for a, p in zip(colours["accent"], colours["paper"], strict=True))
    low, high = sorted((luminance(cell), luminance(colours["ink"])))
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_three_files_tell_of_one_comparison(tmp_path: Path) -> None:
    comparison = make_comparison()
    paths = write_compared(comparison, tmp_path / "new")
    assert [path.name for path in paths] == ["compare.json", "compare.md", "compare.svg"]
    assert Comparison.from_json(json.loads(paths[0].read_text(encoding="utf-8"))) == comparison
    assert paths[1].read_text(encoding="utf-8") == markdown(compared(comparison))
    words = set(ElementTree.parse(paths[2]).getroot().itertext())
    assert {"all-MiniLM-L6-v2 on sst2: 12 strategies", *STRATEGIES} <= words
    with pytest.raises(ValueError, match="JSON"):
        write_compared(comparison.replace(chance=float("nan")), tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_markdown_has_a_row_a_strategy() -> None:
    heads, *rows = rendered_table(markdown(compared(make_comparison())))
    assert [row[heads.index("strategy")] for row in rows] == list(STRATEGIES)
    assert [row[heads.index("score")] for row in rows] == [f"{p.mean:.3f}" for p in make_comparison().strategies]


def test_csv_has_one_head_for_both_kinds() -> None:
    curve, comparison = make_curve(), make_comparison()
    made = spreadsheet([*alone(curve), *compared(comparison)])
    rows = list(csv.DictReader(io.StringIO(made)))
    assert made.count("trained_parameters") == 1
    assert [row["strategy"] for row in rows] == ["full", "freeze:3", "freeze:4", "freeze:5", "freeze:6", *STRATEGIES]
    for point, row in zip(comparison.strategies, rows[5:], strict=True):
        assert (float(row["mean"]), int(row["stored_bytes"])) == (point.mean, point.stored_bytes)
        assert row["is_pareto"] == str(point.is_pareto)
        assert row["n_frozen"] == ("full" if point.name == "full" else "")
        assert row["learning_rate"] == ("" if point.learning_rate is None else repr(point.learning_rate))
    assert {(row["stored_bytes"], row["is_pareto"]) for row in rows[:5]} == {("", "")}


def test_csv_takes_no_strategy_for_a_formula() -> None:
    point = make_comparison().strategies[0].replace(name="=1+1")
    (row,) = csv.DictReader(io.StringIO(spreadsheet(compared(make_comparison().replace(strategies=(point,))))))
    assert row["strategy"] == "'=1+1"


def test_latex_has_a_table_of_strategies_after_the_curves() -> None:
    both = latex([*alone(make_curve()), *compared(make_comparison())])
    single = latex(compared(make_comparison()))
    assert (both.count("\\begin{table}"), single.count("\\begin{table}")) == (2, 1)
    assert both.index("nothing frozen") < both.index("lora:8")
    rows = [line for line in single.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + len(STRATEGIES)
    assert len({row.count(" & ") for row in rows}) == 1


def test_every_format_takes_both_kinds(tmp_path: Path) -> None:
    chapters: list[Chapter] = [make_comparison_chapter(), make_chapter()]
    paths = write_reports(chapters, list(FORMATS), tmp_path)
    assert all(path.stat().st_size > 500 for path in paths)
    picture = "".join(ElementTree.parse(tmp_path / "report.svg").getroot().itertext())
    assert picture.index("Training the last 2 of 6 layers") < picture.index("12 strategies")
    written = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert re.findall("^# .*", written, re.M) == [
        "# all-MiniLM-L6-v2 on rotten-tomatoes",
        "# all-MiniLM-L6-v2 on sst2: 12 strategies",
    ]
    (tmp_path / "curve").mkdir()
    write_reports([make_chapter()], ["svg"], tmp_path / "curve")
    assert (tmp_path / "curve" / "report.svg").read_text(encoding="utf-8") == svg(make_chapter().curve)


def test_the_same_comparison_gives_the_same_picture(tmp_path: Path) -> None:
    first, second = (write_compared(make_comparison(), tmp_path / name)[2].read_bytes() for name in "ab")
    assert first == second


def printed(comparison: Comparison, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_chapters(console, compared(comparison))
    return read(console)


def test_on_the_terminal_every_cell_is_the_records_value() -> None:
    scores = table(printed(make_comparison()), "Strategies, score and cost")
    for point, row in zip(make_comparison().strategies, scores, strict=True):
        rate = "–" if point.learning_rate is None else numbers.learning_rate(point.learning_rate)
        wanted = [point.name, numbers.count(point.trained_parameters), numbers.seconds(point.seconds)]
        wanted += [numbers.size(point.peak_bytes), rate, numbers.score(point.mean), numbers.score_interval(point.ci)]
        assert row == [*wanted, *(["yes"] if point.is_pareto else [])]


@pytest.mark.parametrize("name", ODD)
def test_no_line_is_wider_than_the_terminal(name: str) -> None:
    for width in (50, 80):
        assert max(cell_len(line) for line in printed(ODD[name], width).splitlines()) <= width
    assert max(cell_len(line) for line in printed(make_comparison()).splitlines()) <= 80


def test_several_are_told_in_short_curves_first() -> None:
    console = Console(file=io.StringIO(), width=100)
    print_chapters(console, [make_comparison_chapter(n_missing=3), make_chapter()])
    said = read(console)
    assert said.index("Training the last 2 of 6 layers") < said.index("12 strategies")
    assert "Against full" not in said
    assert "3 runs not done yet" in said
    console = Console(file=io.StringIO(), width=100)
    print_chapters(console, [make_comparison_chapter()])
    assert "Against full" in read(console)
