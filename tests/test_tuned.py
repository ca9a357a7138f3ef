"""Protocol `tuned`: a rate for each depth, chosen on rows held out of train, reported on dev."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commands import Finished, Toy, frostline, runs_in
from frostline import tasks
from frostline.kinds import CLASSIFICATION
from frostline.records.arrays import StoredArray
from frostline.records.depth import FULL
from frostline.records.results import RunResult
from frostline.stats.rates import HIGHEST_RATE
from frostline.studies.planning import race
from frostline.studies.planning.protocols import TUNED_RATES
from frostline.studies.planning.race import RACE_SEEDS, Race, best_rate
from frostline.studies.study import Results
from frostline.testing.models import make_spec
from frostline.training.run import Runner
from losses import losses_of
from synthetic import make_result
from synthetic import make_spec as make_synthetic_spec

RATES = "1e-3,1e-2"
SETTINGS = ("--epochs", "1", "--batch-size", "8", "--seeds", "2", "--frozen", "2-3", "--json", "--workers", "2")


def curve_of(toy: Toy, *more: str) -> tuple[str, ...]:
    """A small curve on the toy task."""
    return ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *SETTINGS, *more)


@pytest.fixture(scope="module")
def tuned(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A curve under it."""
    return frostline(*curve_of(toy, "--protocol", "tuned", "--lrs", RATES), out=tmp_path_factory.mktemp("tuned") / "o")


@given(n_rows=st.integers(2, 2000), share=st.floats(0.1, 0.9))
def test_a_tenth_is_held_out_fifty_rows_at_least_and_half_at_most(n_rows: int, share: float) -> None:
    labels = (np.arange(n_rows) < share * n_rows).astype(np.int64)
    kept, held = tasks.hold_out(labels, CLASSIFICATION)
    assert sorted([*kept, *held]) == list(range(n_rows))
    assert len(held) == min(max(round(0.1 * n_rows), 50), n_rows // 2)
    assert abs(labels[held].sum() - len(held) * labels.mean()) <= 1, "the classes in their shares"
    assert np.array_equal(tasks.hold_out(labels, CLASSIFICATION)[1], held)


def tuning_run(toy: Toy, file: Path) -> RunResult:
    """A run that chooses a rate, on this file."""
    return Runner().run(make_spec(toy.model, file, layout="packed", role="tuning", strategy="freeze:1", is_cached=True))


def with_other_text(toy: Toy, file: Path, row: int) -> Path:
    """The training file with another text in one row."""
    with toy.train.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    column = next(name for name in rows[0] if name != "label")
    rows[row][column] = rows[row - 1][column] + " " + rows[row - 2][column]
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


def test_what_is_held_out_is_scored_and_does_not_train(toy: Toy, tmp_path: Path) -> None:
    plain = tuning_run(toy, toy.train)
    held = plain.predictions.rows.array()
    data = tasks.load(plain.spec.task)
    kept_rows, held_rows = tasks.hold_out(data.train.labels, CLASSIFICATION)
    assert np.array_equal(held, data.train.ids[held_rows])
    assert (plain.n_train, plain.n_dev) == (len(kept_rows), len(held_rows))
    other = tuning_run(toy, with_other_text(toy, tmp_path / "held.csv", int(held[3])))
    assert losses_of(other) == pytest.approx(losses_of(plain), abs=1e-6)
    assert other.predictions.outputs != plain.predictions.outputs
    kept = int(data.train.ids[kept_rows[3]])
    twin = tuning_run(toy, with_other_text(toy, tmp_path / "kept.csv", kept))
    assert abs(losses_of(twin)[-1] - losses_of(plain)[-1]) > 1e-5


def test_each_depth_has_the_rate_that_was_best_on_held_out_rows(tuned: Finished) -> None:
    assert tuned.code == 0, tuned.stderr
    runs = runs_in(tuned.out).values()
    for point in (tuned.json["full"], *tuned.json["points"]):
        strategy = "full" if point["n_frozen"] is None else f"freeze:{point['n_frozen']}"
        tried = [r for r in runs if r.spec.role == "tuning" and r.spec.strategy == strategy]
        rates = {r.spec.learning_rate for r in tried}
        assert {(r.spec.learning_rate, r.spec.seed) for r in tried} == {(r, s) for r in rates for s in RACE_SEEDS}
        best = next(result for result in tried if result.spec.learning_rate == best_rate(tried))
        assert point["learning_rate"] == best.spec.learning_rate
        assert rates == {1e-3, 1e-2} or best.spec.learning_rate not in (min(rates), max(rates))
        replicates = [r for r in runs if r.spec.role == "replicate" and r.spec.strategy == strategy]
        assert {r.spec.learning_rate for r in replicates} == {best.spec.learning_rate}
        assert {r.n_dev for r in replicates} == {24}, "reported on dev"
        assert {r.n_train for r in replicates} == {72}, "trained on all of train"
        assert {r.n_dev for r in tried} == {36}


def test_no_word_of_a_rate_selected_on_dev(tuned: Finished) -> None:
    assert not any("selected on the dev set" in warning for warning in tuned.json["warnings"])


def test_the_price_of_one_rate_for_all_is_told_where_both_protocols_are_there(toy: Toy, tuned: Finished) -> None:
    paper = frostline(*curve_of(toy, "--lrs", RATES), out=tuned.out)
    assert paper.code == 0, paper.stderr
    rates = {point["n_frozen"]: point["learning_rate"] for point in tuned.json["points"]}
    differ = [depth for depth, rate in rates.items() if rate != paper.json["learning_rate"]]
    told = [warning for warning in paper.json["warnings"] if "a learning rate of their own" in warning]
    assert len(told) == len(differ)
    for depth, line in zip(differ, told, strict=True):
        said = f"{depth} frozen layers: a learning rate of their own, {rates[depth]:g} instead of the full model's"
        assert line.startswith(said)


def test_without_rates_every_depth_begins_with_as_many(toy: Toy, tmp_path: Path) -> None:
    told = frostline(*curve_of(toy, "--protocol", "tuned", "--dry-run"), out=tmp_path / "out")
    assert told.code == 0, told.stderr
    assert told.json["runs"] == 3 * (len(RACE_SEEDS) * len(TUNED_RATES) + 2)


def held_out(rate: float, score: float, sureness: float) -> RunResult:
    """A run that chose a rate: its score on 200 held-out rows, and how sure it was of each answer."""
    spec = make_result(FULL, 0, score).spec.replace(role="tuning", learning_rate=rate)
    result = make_result(FULL, 0, score, spec=spec)
    outputs = StoredArray.of((sureness * result.predictions.outputs.array()).astype(np.float32))
    return result.replace(predictions=result.predictions.replace(outputs=outputs))


def test_of_rates_within_noise_the_lowest_loss_is_taken() -> None:
    """On 200 rows a score of 0.7 has a standard deviation of 0.03."""
    by_sureness = {1e-4: 0.1, 1e-3: 1.0, 5e-3: 0.2}
    close = [held_out(rate, 0.7 + 0.01 * (rate == 1e-4), sureness) for rate, sureness in by_sureness.items()]
    losses = {r.spec.learning_rate: CLASSIFICATION.mean_loss(_labels(r), r.predictions.outputs.array()) for r in close}
    assert best_rate(close) == min(losses, key=lambda rate: losses[rate]) != 1e-4
    far = [held_out(1e-4, 0.9, 0.01), held_out(1e-3, 0.7, 1.0)]
    assert best_rate(far) == 1e-4, "a score that is beyond noise counts before any loss"
    of_line_search = [r.replace(spec=r.spec.replace(role="line_search")) for r in close]
    assert best_rate(of_line_search) == 1e-4, "the paper's way: the best score on dev"


def _race_won(learns_from: float) -> tuple[float, set[float]]:
    """The rate that a race chooses, and those that it tries, where lower rates learn nothing and hardly move."""
    asked = Race(make_synthetic_spec(FULL, 0).replace(epochs=3), (2e-5, 5e-5, 1e-4, 2e-4))
    results = Results()
    while new := [spec for spec in asked.runs(results) if not results.has_all([spec])]:
        for spec in new:
            rate = spec.learning_rate
            learned, idle = (0.75, 0.9), (0.5, 1e3 * rate)
            results.add(held_out(rate, *(learned if rate >= learns_from else idle)).replace(spec=spec))
    chosen = asked.rate(results)
    assert chosen is not None
    return chosen, {one.learning_rate for one in asked.tried(results)}


def test_a_race_goes_up_until_a_rate_learns() -> None:
    chosen, tried = _race_won(learns_from=1e-3)
    assert chosen >= 1e-3
    assert min(tried) == 2e-5, "of rates that are too low, the lowest loses least; it does not pull the line down"
    chosen, tried = _race_won(learns_from=5e-5)
    assert chosen == 5e-5
    assert tried == {2e-5, 5e-5, 1e-4, 2e-4}


def test_twin_by_loss_alone_a_race_goes_down_to_where_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "_standing", race._standing.__wrapped__)  # not those that are known already
    monkeypatch.setattr(race, "have_learned", lambda _: True)
    chosen, tried = _race_won(learns_from=1e-3)
    assert chosen < 1e-5
    assert max(tried) == 2e-4


def test_where_no_rate_learns_the_line_ends() -> None:
    chosen, tried = _race_won(learns_from=1.0)
    assert max(tried) == HIGHEST_RATE
    assert chosen in tried


def _labels(result: RunResult) -> NDArray[Any]:
    return result.predictions.labels.array()
