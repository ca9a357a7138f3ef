from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from frostline.analysis import Curve, Point
from frostline.records.depth import FULL
from frostline.records.parameters import Census, DepthCount
from frostline.report import numbers
from frostline.report.charts.text import chart_lines
from frostline.report.terminal import print_chapters, print_layers, print_tasks

from .chapters import alone
from .curves import make_curve, verdict_cell

SCORES = st.lists(st.floats(-1, 1), max_size=5)
WILD_CURVES = st.builds(
    lambda full, depths: make_curve({FULL: full, **depths}, n_layers=24, chance=0.0),
    SCORES,
    st.dictionaries(st.integers(0, 24), SCORES, max_size=6),
)


def shown(curve: Curve, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_chapters(console, alone(curve))
    return read(console)


def read(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def table(page: str, title: str) -> list[list[str]]:
    """The cells of the table below a title."""
    lines = page[page.index(title) :].splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("──")) + 1
    rows = lines[start : lines.index("", start)]
    return [re.split(r"\s{2,}", row.strip()) for row in rows]


def score_cells(point: Point) -> list[str]:
    return [
        "full" if point.n_frozen is FULL else str(point.n_frozen),
        str(point.trained_layers),
        numbers.score(point.mean),
        numbers.score_interval(point.ci),
        numbers.score_interval(point.ci_dev),
        numbers.count(point.trained_parameters),
        numbers.seconds(point.seconds),
    ]


def against_cells(point: Point) -> list[str]:
    itself = point.n_frozen is FULL
    return [
        "full" if itself else str(point.n_frozen),
        numbers.difference(point.difference),
        numbers.share(point.ratio),
        "–" if itself else numbers.share_interval(point.ratio_ci_dev),
        numbers.share(point.ratio_above_chance),
        verdict_cell(point),
        str(len(point.seeds)),
        str(point.n_failed),
    ]


CURVES = {
    "demo": make_curve(),
    "one seed": make_curve({FULL: (0.78,), 3: (0.77,), 6: (0.6,)}),
    "two seeds": make_curve({FULL: (0.78, 0.79), 3: (0.77, 0.7), 6: (0.6, 0.5)}),
    "a depth crashed": make_curve({FULL: (0.78, 0.79, 0.77), 3: (), 6: (0.6, 0.5, 0.4)}),
    "full crashed": make_curve({FULL: (), 3: (0.78, 0.79, 0.77)}),
    "nothing": make_curve({FULL: ()}),
    "negative": make_curve({FULL: (-0.02, 0.01, -0.05), 3: (-0.1, -0.02, 0.01)}, chance=0.0),
    "24 layers": make_curve({FULL: (0.88, 0.87, 0.89)} | dict.fromkeys(range(12, 25), (0.8, 0.81, 0.79)), n_layers=24),
}


@pytest.mark.parametrize("name", CURVES)
def test_every_cell_is_the_records_value(name: str) -> None:
    curve = CURVES[name]
    page = shown(curve)
    points = (curve.full, *curve.points)
    assert table(page, "Score (accuracy)") == [score_cells(point) for point in points]
    assert table(page, "Against the full model") == [against_cells(point) for point in points]


def test_a_changed_record_changes_its_cell_alone() -> None:
    curve = make_curve()
    before = table(shown(curve), "Score (accuracy)")
    point = curve.points[1].replace(mean=0.123)
    after = table(shown(curve.replace(points=(curve.points[0], point, *curve.points[2:]))), "Score (accuracy)")
    changed = [(r, c) for r, row in enumerate(after) for c, cell in enumerate(row) if cell != before[r][c]]
    assert changed == [(2, 2)]
    assert after[2][2] == "0.123"


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert max(cell_len(line) for line in shown(CURVES[name], width).splitlines()) <= width


def test_a_big_model_fits_80_columns_unbroken() -> None:
    curve = make_curve()
    big = curve.replace(full=curve.full.replace(trained_parameters=355_359_744, seconds=12_345.0))
    assert table(shown(big), "Score (accuracy)")[0] == score_cells(big.full)


@settings(max_examples=25, deadline=None)
@given(WILD_CURVES)
def test_any_curve_fits_and_loses_no_score(curve: Curve) -> None:
    page = shown(curve)
    assert all(cell_len(line) <= 80 for line in page.splitlines())
    for point in (curve.full, *curve.points):
        assert numbers.score(point.mean) in page


def test_a_narrow_terminal_folds_numbers_and_loses_no_digit() -> None:
    page = shown(make_curve(), 50)
    assert all(cell_len(line) <= 50 for line in page.splitlines())
    assert "…" not in page


def test_the_answer_comes_first_and_the_warnings_are_all_there() -> None:
    page = shown(make_curve().replace(warnings=("mind the [bold]gap[/bold] :smile:", "and \x1b[31mthis")))
    assert page.splitlines()[1].startswith("Training the last 2 of 6 layers keeps 95.9%")
    assert "• mind the [bold]gap[/bold] :smile:" in page
    assert "• and  [31mthis" in page
    assert "\x1b" not in page


def test_operating_points_with_their_distribution() -> None:
    rows = table(shown(make_curve(keeps=(0.9, 0.975)), 100), "Operating points")
    assert rows == [
        ["90%", "the full score", "4", "2", "4", "full, 3–4", "4: 88%, 3: 12%"],
        ["90%", "the full score above chance", "3", "3", "3", "full, 3–4", "3: 88%, 3: 12%"],
        ["97.5%", "the full score", "3", "3", "3", "full, 3–4", "3: 88%, 3: 12%"],
        ["97.5%", "the full score above chance", "full", "6", "full", "full, 3–4", "full: 88%, 3: 12%"],
    ]
    null = make_curve({FULL: (-0.1, -0.1), 3: (0.1, 0.1)}, chance=0.0)
    assert table(shown(null, 100), "Operating points")[0] == ["90%", "the full score", "–", "–", "–", "–", "–"]


def test_names_of_any_kind() -> None:
    for name in ("[red]x[/red]", "m" * 10_000, "a\x1b[2Jb", "👩‍🔬" * 50, "<script>|`"):
        page = shown(make_curve().replace(model=name, task=name, metric=name))
        assert "\x1b" not in page
        assert all(cell_len(line) <= 80 for line in page.splitlines())
    assert "[red]x[/red] on" in shown(make_curve().replace(model="[red]x[/red]"))


def coloured(environment: dict[str, str]) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard", _environ=environment)
    print_chapters(console, alone(make_curve()))
    return read(console)


def test_no_color_is_honoured_and_says_the_same() -> None:
    colour = re.compile(r"\x1b\[(?:\d+;)*3[0-7](?:;\d+)*m")
    assert colour.search(coloured({}))
    plain = coloured({"NO_COLOR": "1"})
    assert not colour.search(plain)
    assert re.sub(r"\x1b\[[\d;]*m", "", plain) == re.sub(r"\x1b\[[\d;]*m", "", coloured({}))


def test_the_chart_puts_marks_where_the_scores_are() -> None:
    curve = make_curve({FULL: (0.9, 1.0, 0.8), 3: (0.6, 0.7, 0.5), 6: (0.5, 0.5, 0.5)})
    curve = curve.replace(full=curve.full.replace(ci=(0.8, 1.0)))
    start, n_columns = 8, 51
    lines = chart_lines(curve, start + n_columns + 9)[1:]
    at = [line.index("●") - start for line in lines[:3]]
    low, high = 0.4, 1.0
    assert at == [round((mean - low) / (high - low) * (n_columns - 1)) for mean in (0.9, 0.6, 0.5)]
    bar = round((0.81 - low) / (high - low) * (n_columns - 1))
    assert [line.index("┊") - start for line in lines[1:3]] == [bar, bar]
    assert lines[0][start + n_columns - 1] == "┤"
    assert "90% of the full score: 0.810" in lines[3]
    assert lines[4].split() == ["0.400", "1.000"]


def test_the_chart_shows_seeds_where_there_is_no_interval() -> None:
    lines = chart_lines(CURVES["two seeds"], 80)[1:]
    assert [line.count("○") for line in lines[:3]] == [2, 2, 2]
    assert not any("├" in line for line in lines)
    assert lines[-1].split() == ["chance", "0.500", "0.790"]


def test_no_chart_without_scores_or_room() -> None:
    assert chart_lines(CURVES["nothing"], 80) == []
    assert chart_lines(CURVES["demo"], 30) == []
    flat = chart_lines(make_curve({FULL: (0.5,), 3: (0.5,)}, keeps=()), 80)[1:]
    assert len(flat) == 3


def test_the_census() -> None:
    depths = (
        DepthCount(n_frozen=0, trained_parameters=85_646_594, share=0.78228),
        DepthCount(n_frozen=12, trained_parameters=592_130, share=0.0054),
    )
    census = Census(
        model="bert-base-uncased",
        n_layers=12,
        embeddings=23_837_184,
        layer=7_087_872,
        layers=85_054_464,
        pooler=590_592,
        total=109_482_240,
        head=1_538,
        full=109_483_778,
        depths=depths,
    )
    console = Console(file=io.StringIO(), width=80)
    print_layers(console, census)
    assert table(read(console), "Parameters") == [
        ["embeddings", "23,837,184"],
        ["one layer", "7,087,872"],
        ["all 12 layers", "85,054,464"],
        ["pooler", "590,592"],
        ["total", "109,482,240"],
        ["task head", "1,538"],
    ]
    assert table(read(console), "What each depth trains") == [
        ["full", "12", "109,483,778", "100.0%"],
        ["0", "12", "85,646,594", "78.2%"],
        ["12", "0", "592,130", "0.5%"],
    ]


def test_the_tasks() -> None:
    console = Console(file=io.StringIO(), width=80)
    print_tasks(console, [("mrpc", "classification", ("f1", "accuracy"), ["sentence1", "sentence2"])])
    assert table(read(console), "Tasks") == [["mrpc", "classification", "f1, accuracy", "sentence1, sentence2"]]
