"""`curve --rates-at-depths`: a curve at each learning rate, and what of the answer depends on the rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Finished, Toy, frostline, runs_in

SETTINGS = ("--epochs", "1", "--batch-size", "8", "--seeds", "2", "--frozen", "2-3", "--json", "--workers", "2")


def command(toy: Toy, *more: str) -> tuple[str, ...]:
    return ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *SETTINGS, *more)


@pytest.fixture(scope="module")
def done(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Two rates."""
    asked = command(toy, "--rates-at-depths", "--lrs", "1e-2,1e-3")
    return frostline(*asked, out=tmp_path_factory.mktemp("rates") / "out")


def test_there_is_a_curve_at_each_rate(done: Finished) -> None:
    assert done.code == 0, done.stderr
    assert [one["learning_rate"] for one in done.json["rates"]] == [1e-3, 1e-2]
    runs = runs_in(done.out).values()
    assert len(runs) == 2 * 3 * 2
    assert {result.spec.role for result in runs} == {"replicate"}, "nothing is chosen"
    for one in done.json["rates"]:
        points = (one["curve"]["full"], *one["curve"]["points"])
        assert {point["learning_rate"] for point in points} == {one["learning_rate"]}
        assert one["curve"]["operating_points"][0]["keep"] == 0.9
    page = (done.out / "report.html").read_text()
    assert 'id="rates"' in page
    assert "learning rate 0.001" in page.lower() or "1e-3" in page


def test_a_curve_at_one_of_the_rates_finds_its_runs(toy: Toy, done: Finished) -> None:
    again = frostline(*command(toy, "--lr", "1e-2"), out=done.out)
    assert again.json["runs"] == {"done": 0, "reused": 6, "crashed": 0}


def test_one_rate_is_refused(toy: Toy, tmp_path: Path) -> None:
    refused = frostline(*command(toy, "--rates-at-depths", "--lr", "1e-2"), out=tmp_path / "out")
    assert refused.code == 2
    assert "two learning rates or more" in refused.stderr
