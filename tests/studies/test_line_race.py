"""`curve --line-search race`: worse rates stop early; one that reaches the end has the bits of a whole search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from commands import Finished, Toy, frostline, numbers, runs_in
from frostline.cli import main
from frostline.records.depth import FULL
from frostline.records.results import PausedRun, RunResult
from frostline.records.specs import RunSpec
from frostline.studies.planning.line_race import LineRace
from frostline.studies.requests import parse
from frostline.studies.study import Results
from frostline.testing.models import make_spec
from synthetic import make_result

RATES = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
N_STEPS = 60
SETTINGS = ("--epochs", "2", "--batch-size", "8", "--seeds", "1", "--frozen", "3", "--json", "--workers", "2")
CHOICE = "1e-7,1e-4,3e-3"


@pytest.fixture(scope="module")
def race(toy: Toy) -> LineRace:
    base = make_spec(toy.model, toy.train, role="line_search", strategy="full")
    return LineRace(tuple(base.replace(learning_rate=rate) for rate in RATES), N_STEPS)


def paused(spec: RunSpec, n_steps: int, score: float, loss: float = 0.5, noise: float = 0.01) -> PausedRun:
    return PausedRun(spec=spec, n_steps=n_steps, metrics={}, score=score, noise=noise, loss=loss, seconds=1.0)


def wanted(race: LineRace, results: Results) -> list[tuple[float, int | None]]:
    """What is missing: rates, and where their runs pause."""
    return [(one.spec.learning_rate, one.until) for one in race.wanted(results) if not results.has(one)]


def scored(race: LineRace, results: Results, n_steps: int, scores: Mapping[float, float]) -> None:
    for spec in race.specs:
        if spec.learning_rate in scores:
            results.add(paused(spec, n_steps, scores[spec.learning_rate]))


def test_the_better_half_goes_on_twice_and_the_best_whole_run_wins(race: LineRace) -> None:
    results = Results()
    assert wanted(race, results) == [(rate, 10) for rate in RATES]
    scored(race, results, 10, {1e-5: 0.5, 2e-5: 0.9, 3e-5: 0.6, 4e-5: 0.8, 5e-5: 0.7})
    assert wanted(race, results) == [(2e-5, 30), (4e-5, 30), (5e-5, 30)]
    scored(race, results, 30, {2e-5: 0.6, 4e-5: 0.8, 5e-5: 0.7})
    assert wanted(race, results) == [(4e-5, None), (5e-5, None)]
    assert race.rate(results) is None
    for rate, score in ((4e-5, 0.85), (5e-5, 0.95)):
        spec = next(spec for spec in race.specs if spec.learning_rate == rate)
        results.add(make_result(FULL, 0, score, spec=spec))
    assert race.rate(results) == 5e-5, "the best at the end, not the best on the way"
    assert [round(one.share, 2) for one in race.tried(results)] == [0.17, 0.5, 0.17, 1, 1]
    assert [spec.learning_rate for spec in race.ahead(results)] == [4e-5, 5e-5]


@pytest.mark.parametrize(("noise", "kept"), [(0.05, [3e-5, 4e-5, 5e-5]), (0.001, [1e-5, 2e-5, 3e-5])])
def test_the_loss_decides_only_between_scores_that_are_equal_within_noise(
    race: LineRace, noise: float, kept: list[float]
) -> None:
    """The lower the rate, the higher score and loss; the twin has noise that is too small to make scores equal."""
    results = Results()
    for place, spec in enumerate(race.specs):
        results.add(paused(spec, 10, 0.8 - 0.01 * place, loss=0.7 - 0.1 * place, noise=noise))
    assert [rate for rate, _ in wanted(race, results)] == kept


def test_rates_that_crash_or_diverge_are_out_and_the_others_go_on(race: LineRace) -> None:
    results = Results()
    first, second, *others = race.specs
    results.crashed.add(first.key)
    results.add(make_result(FULL, 0, 0.5, spec=second).replace(diverged=True))
    for place, spec in enumerate(others):
        results.add(paused(spec, 10, 0.5 + 0.1 * place))
    assert [rate for rate, _ in wanted(race, results)] == [4e-5, 5e-5]
    assert [one.score for one in race.tried(results)][:2] == [None, 0.5]


def test_if_no_rate_is_left_the_race_is_over(race: LineRace) -> None:
    results = Results(crashed={spec.key for spec in race.specs})
    assert wanted(race, results) == []
    assert race.is_over(results)
    assert race.rate(results) is None


def curve_of(toy: Toy, *more: str) -> tuple[str, ...]:
    return ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *SETTINGS, *more)


@pytest.fixture(scope="module")
def raced(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    out = tmp_path_factory.mktemp("raced") / "out"
    return frostline(*curve_of(toy, "--lrs", CHOICE, "--line-search", "race"), out=out)


def searched_in(finished: Finished) -> dict[float, RunResult]:
    """The whole runs of the line search, by rate."""
    runs = runs_in(finished.out).values()
    return {run.spec.learning_rate: run for run in runs if run.spec.role == "line_search"}


def test_the_command_gives_the_bits_of_a_whole_search_to_the_rates_that_reach_the_end(
    toy: Toy, raced: Finished
) -> None:
    assert raced.code == 0, raced.stderr
    tried = {one["learning_rate"]: one["share"] for one in raced.json["line_search"]}
    assert tried[1e-7] == pytest.approx(1 / 6)
    assert sorted(tried.values())[-1] == 1
    assert raced.json["full"]["learning_rate"] == 3e-3
    searched = searched_in(raced)
    assert searched.keys() == {rate for rate, share in tried.items() if share == 1}
    whole = frostline(*curve_of(toy, "--lrs", CHOICE), out=raced.out.parent / "whole")
    runs = runs_in(whole.out)
    for run in searched.values():
        assert numbers(runs[run.key]) == numbers(run)
    assert "of its steps" in (raced.out / "report.html").read_text()


def test_a_rate_that_diverges_before_its_pause_is_known_when_asked_again(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parse, "MOST_RATE", math.inf)
    command = curve_of(toy, "--lrs", "1e-4,3e-3,1e30", "--line-search", "race")
    first, again = (frostline(*command, out=tmp_path / "out") for _ in range(2))
    assert [result.diverged for result in searched_in(first).values()].count(True) == 1
    assert again.json["runs"]["done"] == 0
    assert again.json["line_search"] == first.json["line_search"]
    assert main(["report", str(tmp_path / "out")]) == 0


def test_asked_again_nothing_is_done_and_a_whole_search_uses_what_reached_the_end(toy: Toy, raced: Finished) -> None:
    again = frostline(*curve_of(toy, "--lrs", CHOICE, "--line-search", "race"), out=raced.out)
    assert again.json["runs"]["done"] == 0
    assert again.json["line_search"] == raced.json["line_search"]
    before = searched_in(raced)
    frostline(*curve_of(toy, "--lrs", CHOICE), out=raced.out)
    after = searched_in(raced)
    assert len(after) == len(CHOICE.split(",")) > len(before)
    assert {rate: run.environment.at for rate, run in after.items() if rate in before} == {
        rate: run.environment.at for rate, run in before.items()
    }, "a run that reached the end is not done again"


@pytest.mark.parametrize(
    ("more", "why"),
    [(("--lr", "1e-3"), "one rate is given"), (("--protocol", "tuned"), "protocol is tuned")],
)
def test_a_race_needs_several_rates_under_the_paper(toy: Toy, raced: Finished, more: tuple[str, ...], why: str) -> None:
    refused = frostline(*curve_of(toy, "--line-search", "race", *more), out=raced.out.parent / "refused")
    assert refused.code == 2
    assert why in refused.stderr


def test_runs_of_any_length_pause_at_whole_steps(race: LineRace) -> None:
    for n_steps in range(1, 20):
        (until,) = {one.until for one in LineRace(race.specs, n_steps).wanted(Results())}
        assert until is not None
        assert 1 <= until <= n_steps
