"""`make readme`: the README's numbers come from a stored demo."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.readme import filled

from frostline.analysis import CurveCost, RunCounts
from report.curves import make_curve

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_every_place_of_the_readme_is_filled_and_nothing_else_changes() -> None:
    cost = CurveCost(wall_seconds=125.0, prefix_seconds=1.0, train_seconds=2.0, cache_bytes=3)
    curve = make_curve().replace(cost=cost, runs=RunCounts(done=18, reused=0, crashed=0))
    made = filled(README, curve, 600.0)
    assert "<!-- answer -->training the last 2 of 6 layers keeps 95.9%" in made
    assert "The demo's 18 runs took 2 min 05 s on two cores" in made
    assert "about 10 min 00 s (from" in made
    assert filled(made, curve, 600.0) == made
    places = ("answer", "time", "shape", "printed")
    for name in places:
        for text in (README, made):
            assert text.count(f"<!-- {name} -->") == text.count(f"<!-- /{name} -->") == 1
    outside = [_outside(text, places) for text in (README, made)]
    assert outside[0] == outside[1]


def test_a_readme_without_a_place_is_refused() -> None:
    with pytest.raises(SystemExit, match="<!-- answer -->"):
        filled(README.replace("<!-- answer -->", ""), make_curve(), 1.0)


def _outside(text: str, places: tuple[str, ...]) -> str:
    for name in places:
        before, rest = text.split(f"<!-- {name} -->")
        text = before + rest.split(f"<!-- /{name} -->")[1]
    return text
