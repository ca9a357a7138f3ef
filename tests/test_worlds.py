"""The simulations: drawn runs have the truth that their world says, and are scored as real runs are."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from bench import cells, coverage, finding, simulations
from bench.cells import Cell
from bench.simulator import Drawn, Floats, Simulator, Singles, scored_runs
from bench.worlds import KEEP, WORLDS, World

from frostline.analysis.resampling import row_scores
from frostline.kinds import CLASSIFICATION, REGRESSION
from frostline.records.depth import FULL

ROOT = Path(__file__).parent.parent
BY_NAME = {world.name: world for world in WORLDS}
METRICS = ("base", "MRPC, F1", "CoLA, MCC", "STS-B, Pearson")


def small(name: str, n_rows: int = 60) -> World:
    return dataclasses.replace(BY_NAME[name], n_rows=n_rows)


def drawn(world: World, n_seeds: int = 2, seed: int = 5) -> Drawn:
    return Simulator(world).draw(n_seeds, np.random.default_rng(seed))


def test_there_are_forty_worlds_with_names_of_their_own() -> None:
    assert len(BY_NAME) == len(WORLDS) == 40


@pytest.mark.parametrize("name", [*METRICS, "skewed noise", "a race that may lose 1 or 3 points"])
def test_mean_and_noise_of_drawn_runs_are_those_of_the_world(name: str) -> None:
    world = dataclasses.replace(BY_NAME[name], n_rows=4000, n_layers=6)
    simulator, rng = Simulator(world), np.random.default_rng(3)
    curves = [simulator.draw(20, rng) for _ in range(12)]
    scores = [scored_runs(world, curve) for curve in curves]
    gaps = [
        [one[depth].scores.mean() - true for depth, true in curve.truth.items()]
        for curve, one in zip(curves, scores, strict=True)
    ]
    error = np.std(gaps, axis=0, ddof=1) / np.sqrt(len(gaps))
    assert np.all(np.abs(np.mean(gaps, axis=0)) < 4 * error + 1e-3)
    assert np.all(error < 0.01)
    if world.metric in ("accuracy", "pearson"):
        spread = np.mean([one.scores.std(ddof=1) for by_depth in scores for one in by_depth.values()])
        assert 0.011 < spread < 0.0145  # 0.012, and a little from the rows


@pytest.mark.parametrize("name", METRICS)
def test_scores_are_those_of_real_runs(name: str) -> None:
    world = small(name)
    curve = drawn(world)
    scored = scored_runs(world, curve)
    for place, depth in enumerate(curve.truth):
        for seed, answers in enumerate(curve.answers[:, place].T):
            expected = real_scores(world, curve.labels, answers)
            assert np.allclose(scored[depth].resampled[:, seed], expected, atol=1e-5)
    assert not np.allclose(scored[FULL].resampled[:, 0], real_scores(world, curve.labels, curve.answers[:, 0, 1]))


def real_scores(world: World, labels: Singles, answers: Singles) -> Floats:
    """The scores on resampled rows by the code that scores real runs."""
    if world.metric == "pearson":
        return row_scores(REGRESSION, world.metric, labels, [answers[:, None]]).ravel()
    predicted = np.where(answers == 1, labels, 1 - labels).astype(np.int64)
    return row_scores(CLASSIFICATION, world.metric, labels.astype(np.int64), [np.eye(2)[predicted]]).ravel()


def test_failing_runs_are_at_chance_and_not_judged() -> None:
    world = small("20% of runs fail", 2000)
    curve = drawn(world, n_seeds=20)
    runs = scored_runs(world, curve)
    failed = np.concatenate([runs[depth].scores[has] for depth, has in curve.has_failed.items()])
    assert 0.1 < len(failed) / (20 * len(runs)) < 0.3
    assert np.all(np.abs(failed - 0.5) < 0.06)
    judged = coverage.judge_of(world, curve, runs).scored
    assert all(len(judged[depth].scores) == np.sum(~has) for depth, has in curve.has_failed.items())


def test_nothing_is_sure_where_half_of_the_full_runs_failed() -> None:
    world = small("far from the bar", 872)
    curve = drawn(world, n_seeds=4)
    runs = scored_runs(world, curve)
    assert "short" in coverage.judge_of(world, curve, runs).verdicts(KEEP, 0.0).values()
    failed = {**curve.has_failed, FULL: np.array([True, True, False, False])}
    judge = coverage.judge_of(world, dataclasses.replace(curve, has_failed=failed), runs)
    assert set(judge.verdicts(KEEP, 0.0).values()) == {"open"}


def test_intervals_below_two_sound_runs_are_counted_as_null() -> None:
    without, with_failures = (coverage.simulated(Cell(name, 3, 60, 2)) for name in ("base", "20% of full runs fail"))
    assert without.null == 0
    assert 0.01 < with_failures.null < 0.3  # 10% on average: fewer than two of three runs are sound


def test_a_killed_simulation_goes_on_with_the_cells_that_are_missing(tmp_path: Path) -> None:
    file = tmp_path / "found.jsonl"
    asked = argparse.Namespace(world=["flat", "6 layers"], number=2, seed=4, workers=1, json=file)
    whole = cells.run(finding.simulated, asked, [5], finding.Found)
    assert [one.world for one in whole] == asked.world
    first, second = file.read_text(encoding="utf-8").splitlines()
    kept, of_another_seed = (
        first.replace('"n_searches": 2', '"n_searches": 99'),
        second.replace('"seed": 4', '"seed": 5'),
    )
    file.write_text(f"{kept}\n{of_another_seed}\n", encoding="utf-8")
    again = cells.run(finding.simulated, asked, [5], finding.Found)
    assert sorted(one.n_searches for one in again) == [2, 99]
    assert file.read_text(encoding="utf-8").splitlines() == [kept, of_another_seed, second]


def test_a_cell_is_beyond_its_line_by_more_than_two_standard_errors() -> None:
    found = finding.simulated(Cell("flat", 5, 2, 1))
    assert not dataclasses.replace(found, n_searches=2000, wrong=0.059).is_wrong_too_often
    assert dataclasses.replace(found, n_searches=2000, wrong=0.060).is_wrong_too_often
    held = dataclasses.replace(
        coverage.simulated(Cell("flat", 3, 2, 1)), difference=1, ratio=0.931, error=0.005, n_curves=2000
    )
    good = dataclasses.replace(held, above_chance=1, depth=0.93)
    assert not good.holds_too_seldom
    assert dataclasses.replace(good, ratio=0.929).holds_too_seldom
    assert dataclasses.replace(good, depth=0.929).holds_too_seldom
    assert not dataclasses.replace(good, depth=0.85, world="bimodal noise").holds_too_seldom


def test_the_pages_are_filled_with_the_stored_cells(tmp_path: Path) -> None:
    for world in ("flat", "base"):
        cells.keep(tmp_path / "finding.jsonl", cell := Cell(world, 5, 3, 4), finding.simulated(cell))
        for n_seeds in (5, 3):
            cells.keep(tmp_path / "coverage.jsonl", cell := Cell(world, n_seeds, 3, 4), coverage.simulated(cell))
    before = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/find.md")]
    readme, page = simulations.filled(*before, folder=tmp_path)
    assert "2 of 40 simulated worlds, 3 searches each" in readme
    assert "`python -m bench.coverage --curves 3 --seed 4` (2 of 40 simulated worlds):" in page
    assert page.index("| base | 3 |") < page.index("| base | 5 |") < page.index("| flat | 3 |")
    assert simulations.filled(readme, page, folder=tmp_path) == (readme, page)
