"""Training rows that a seed draws, exact numbers of steps, master seeds, and standardised labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.testing.models import make_model, make_spec, make_task
from frostline.training.prefix import Prefixes
from frostline.training.prepare import Preparer, seed_for
from frostline.training.run import Runner
from losses import losses_of


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RunSpec:
    """A run of a tiny model on 200 rows."""
    folder = tmp_path_factory.mktemp("subsets")
    model, task = make_model(folder / "bert", n_layers=2), make_task(folder / "task.csv", n_rows=200)
    return make_spec(model, task, strategy="freeze:1", is_cached=True, layout="packed", learning_rate=1e-2)


def subset(spec: RunSpec, size: int, seed: int, **changes: object) -> RunSpec:
    task = spec.task.replace(max_train=size)
    return spec.replace(task=task, subset_seed=seed, seed=seed, **changes)


def rows_of(spec: RunSpec) -> set[int]:
    """The row numbers that train."""
    return set(Preparer(Prefixes(0)).prepare(spec).train.row_ids.tolist())


def test_each_seed_draws_its_own_rows_and_a_larger_subset_holds_the_smaller(spec: RunSpec) -> None:
    small, large, other = (rows_of(subset(spec, *one)) for one in ((20, 0), (60, 0), (60, 1)))
    assert (len(small), len(large), len(other)) == (20, 60, 60)
    assert small < large
    assert other != large
    assert rows_of(subset(spec, 60, 0, master_seed=5)) != large


def test_states_cached_for_the_largest_subset_change_no_bit_and_no_key(spec: RunSpec) -> None:
    alone, within = subset(spec, 20, 0), subset(spec, 20, 0, subset_of=60)
    assert alone.key == within.key
    one, other = Runner().run(alone), Runner().run(within)
    assert (one.n_train, other.n_train) == (20, 20)
    assert losses_of(one) == pytest.approx(losses_of(other), abs=1e-6)
    assert one.cost.cache_bytes < other.cost.cache_bytes


def test_a_run_that_draws_no_rows_has_the_key_it_always_had(spec: RunSpec) -> None:
    assert spec.key == spec.replace(subset_seed=None, max_steps=None, master_seed=0).key
    changes = ({"subset_seed": 0}, {"max_steps": 7}, {"master_seed": 1}, {"standardised": True}, {"fit_seed": 0})
    assert len({spec.key, *(spec.replace(**one).key for one in changes)}) == 6


@pytest.mark.parametrize("n_steps", [1, 7, 23, 30])
def test_steps_are_exact_and_the_rate_falls_to_zero_over_them(spec: RunSpec, n_steps: int) -> None:
    result = Runner().run(spec.replace(max_steps=n_steps, batch_size=16))
    assert sum(epoch.n_steps for epoch in result.epochs) == n_steps
    assert len(result.epochs) == -(-n_steps // -(-180 // 16))
    assert result.epochs[-1].learning_rate == 0.0


def test_as_many_steps_as_whole_epochs_give_the_same_bits(spec: RunSpec) -> None:
    whole = spec.replace(epochs=2, batch_size=16)
    plain, counted = Runner().run(whole), Runner().run(whole.replace(max_steps=2 * 12))
    assert plain.n_train == 180
    assert losses_of(plain) == losses_of(counted)
    assert plain.predictions == counted.predictions


def test_passes_between_two_scores_change_no_bit(spec: RunSpec) -> None:
    often, rarely = (spec.replace(batch_size=64, epochs=epochs, passes=n) for epochs, n in ((6, 1), (2, 3)))
    one, other = Runner().run(often), Runner().run(rarely)
    assert [len(one.epochs), len(other.epochs)] == [6, 2]
    assert [epoch.n_steps for epoch in other.epochs] == [9, 9]
    assert one.predictions == other.predictions
    assert often.key != rarely.key
    fewer = Runner().run(rarely.replace(passes=1))
    assert fewer.predictions != other.predictions, "twin: two passes are not six"


def test_a_fit_reads_the_rows_of_its_subset_only(spec: RunSpec) -> None:
    fit = spec.replace(strategy="features:logreg", learning_rate=0.0)
    alone, within = (Runner().run(subset(fit, 20, 0, subset_of=most)) for most in (20, 60))
    assert (alone.n_train, within.n_train) == (20, 20)
    outputs = [one.predictions.outputs.array() for one in (alone, within)]
    assert np.abs(outputs[0] - outputs[1]).max() < 1e-3, "rows in another batch differ in their last bits"
    assert alone.train_score == within.train_score
    larger = Runner().run(subset(fit, 60, 0)).predictions.outputs.array()
    assert np.abs(outputs[0] - larger).max() > 1e-2, "twin: more rows are another fit"


def test_a_master_seed_changes_every_draw_but_not_the_rows(spec: RunSpec) -> None:
    for role in ("replicate", "line_search", "tuning"):
        one = spec.replace(role=role)
        purposes = ("head", "order", "dropout", "rows")
        assert all(seed_for(one, name) != seed_for(one.replace(master_seed=3), name) for name in purposes)
    assert rows_of(spec) == rows_of(spec.replace(master_seed=3))
    held = [_held_out(spec.replace(role="tuning", master_seed=master)) for master in (0, 3)]
    assert held[0] != held[1]


def _held_out(spec: RunSpec) -> set[int]:
    return set(Preparer(Prefixes(0)).prepare(spec).dev.row_ids.tolist())


def priced(folder: Path, **changes: object) -> RunResult:
    """A regression whose labels are in the thousands."""
    model, task = (
        make_model(folder / "bert", initializer_range=0.25),
        make_task(folder / "task.csv", n_rows=400, kind="regression"),
    )
    lines = task.read_text().splitlines()
    cells = [line.rsplit(",", 1) for line in lines[1:]]
    task.write_text("\n".join([lines[0], *(f"{text},{20_000 + 5000 * float(label)}" for text, label in cells)]) + "\n")
    spec = make_spec(model, task, kind="regression", learning_rate=1e-2, epochs=6, batch_size=8)
    return Runner().run(spec.replace(**changes))


def test_standardised_labels_are_learned_and_predictions_are_on_their_scale(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    raw, standardised = priced(tmp_path / "a"), priced(tmp_path / "b", standardised=True)
    labels = standardised.predictions.labels.array()
    outputs = standardised.predictions.outputs.array()[:, 0]
    assert standardised.score > 0.5
    assert abs(outputs.mean() - labels.mean()) < labels.std()
    assert standardised.label_scale is not None
    assert standardised.label_scale[1] == pytest.approx(labels.std(), rel=0.5)
    assert raw.label_scale is None
    raw_error = np.abs(raw.predictions.outputs.array()[:, 0] - raw.predictions.labels.array()).mean()
    assert raw_error > 10 * np.abs(outputs - labels).mean(), "twin: a price in the thousands learns nothing as it is"
