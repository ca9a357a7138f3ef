"""`make readme`: the numbers in README.md and docs/report.md come from a stored demo."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.readme import beginning, filled, filled_report_page, printed, with_protocols

from frostline.analysis import CurveCost, RunCounts
from frostline.records.depth import FULL
from report.curves import make_curve

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
REPORT_PAGE = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")


def test_every_place_of_the_readme_is_filled_and_nothing_else_changes() -> None:
    cost = CurveCost(wall_seconds=125.0, prefix_seconds=1.0, train_seconds=2.0, cache_bytes=3)
    curve = make_curve().replace(cost=cost, runs=RunCounts(done=18, reused=0, crashed=0))
    tuned = make_curve().replace(protocol="tuned")
    made = filled(README, curve, tuned, 600.0)
    assert "<!-- answer -->training the last 2 of 6 layers keeps 95.9%" in made
    assert "The demo's 18 runs took 2 min 05 s on two cores" in made
    assert "about 10 min 00 s (from" in made
    assert filled(made, curve, tuned, 600.0) == made
    _check_places(README, made, ("answer", "protocols", "time", "shape", "printed"))


def test_both_protocols_stand_beside_each_other() -> None:
    curve = make_curve()
    rates = {FULL: 5e-5, 3: 1e-4, 4: 2e-4, 5: 1e-3, 6: 1e-2}
    points = tuple(point.replace(learning_rate=rates[point.n_frozen]) for point in curve.points)
    deeper = curve.operating_points[0].replace(n_frozen=5, trained_layers=1)
    tuned = curve.replace(protocol="tuned", points=points, operating_points=(deeper, *curve.operating_points[1:]))
    made = with_protocols(README, curve, tuned)
    _check_places(README, made, ("protocols",))
    paper_row, tuned_row = _place(made, "protocols").strip().splitlines()[2:]
    assert paper_row == (
        "| `paper` | 5e-5 everywhere | 0.781 | the last 2 of 6 layers | 95.9% [92.4, 99.4] | the last 2 of 6 layers |"
    )
    rates_said = "full: 5e-5, 3: 1e-4, 4: 2e-4, 5: 1e-3, 6: 0.01"
    assert tuned_row.startswith(f"| `tuned` | {rates_said} | 0.781 | the last of 6 layers |")


def test_the_readme_has_the_beginning_of_what_the_report_page_has() -> None:
    curve = make_curve()
    whole, first = printed(curve), beginning(printed(curve), curve)
    assert whole.startswith(first)
    assert "Score (accuracy)" in first
    assert "Operating points" in whole.removeprefix(first)
    assert f"```text\n{first}```\n<!-- /printed -->" in filled(README, curve, curve, 1.0)
    made = filled_report_page(REPORT_PAGE, curve)
    assert f"```text\n{whole}```\n<!-- /printed -->" in made
    _check_places(REPORT_PAGE, made, ("printed",))


def test_the_stored_pages_show_one_demo() -> None:
    whole, first = (text.partition("<!-- printed -->\n```text\n")[2] for text in (REPORT_PAGE, README))
    assert whole.startswith(first.partition("```\n<!-- /printed -->")[0])


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(SystemExit, match="<!-- answer -->"):
        filled(README.replace("<!-- answer -->", ""), make_curve(), make_curve(), 1.0)
    with pytest.raises(SystemExit, match="<!-- printed -->"):
        filled_report_page(REPORT_PAGE.replace("<!-- /printed -->", ""), make_curve())


def _place(text: str, name: str) -> str:
    return text.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]


def _check_places(before: str, after: str, places: tuple[str, ...]) -> None:
    """Each place is there once, and everything outside of the places is unchanged."""
    for name in places:
        for text in (before, after):
            assert text.count(f"<!-- {name} -->") == text.count(f"<!-- /{name} -->") == 1
    assert _outside(before, places) == _outside(after, places)


def _outside(text: str, places: tuple[str, ...]) -> str:
    for name in places:
        before, rest = text.split(f"<!-- {name} -->")
        text = before + rest.split(f"<!-- /{name} -->")[1]
    return text
