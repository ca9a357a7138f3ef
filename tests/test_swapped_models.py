"""A model that changes in the middle of a sweep: a link that moves, a branch of the Hub that moves.

The commands, their workers and the models are real. The Hub is its own cache on disk, without a network.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from commands import N_RUNS, Finished, Toy, after_the_first_run, frostline, numbers, runs_in
from frostline.errors import DataError
from frostline.model.identity import Identity
from frostline.model.load import describe
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.storage.prefix_cache import Cache, default_folder
from frostline.testing.models import make_model, make_spec, make_task
from frostline.training.prepare import load_stack
from frostline.training.run import Runner

NAME = "org/tiny"
COMMITS = ("a" * 40, "b" * 40)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy model with other weights."""
    return make_model(tmp_path_factory.mktemp("other") / "tiny-bert", n_layers=3, initializer_range=0.25, seed=1)


@pytest.fixture
def latest(toy: Toy, tmp_path: Path) -> Path:
    """A link to the toy model."""
    link = tmp_path / "latest"
    link.symlink_to(toy.model)
    return link


def point(link: Path, target: Path) -> None:
    """Makes a link point elsewhere, in one step."""
    new = link.with_name("new")
    new.symlink_to(target)
    new.replace(link)


def curve_of(toy: Toy, model: str, out: Path, *more: str) -> Finished:
    _, _, *rest = toy.curve
    return frostline("curve", model, *rest, "--workers", "1", "--json", *more, out=out)


def assert_numbers_of(found: dict[str, RunResult], undisturbed: Finished) -> None:
    wanted = runs_in(undisturbed.out)
    assert {key: numbers(result) for key, result in found.items()} == {key: numbers(wanted[key]) for key in found}


def test_a_link_that_moves_is_refused_by_name_and_nothing_wrong_is_kept(
    toy: Toy, other: Path, latest: Path, undisturbed: Finished, tmp_path: Path
) -> None:
    Cache(default_folder()).remove(None)  # all states are computed again
    out = tmp_path / "out"
    with after_the_first_run(out, lambda: point(latest, other)):
        done = curve_of(toy, str(latest), out)
    assert done.code == 5, done.stderr
    assert f"the model {latest} changed since this run was planned" in done.stderr
    found = runs_in(out)
    assert 1 <= len(found) < N_RUNS
    assert_numbers_of(found, undisturbed)

    again = curve_of(toy, str(latest), out)
    assert again.code == 2
    assert f"the model {latest} changed since the first run in --out" in again.stderr

    point(latest, toy.model)
    assert curve_of(toy, str(latest), out).code == 0
    found = runs_in(out)
    assert len(found) == N_RUNS
    assert_numbers_of(found, undisturbed)


@pytest.fixture
def cached(toy: Toy, latest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    """A run from prefix states, which are not in the cache yet."""
    monkeypatch.setenv("FROSTLINE_CACHE", str(tmp_path / "cache"))
    return make_spec(latest, toy.train, strategy="freeze:2", is_cached=True)


def outputs(result: RunResult) -> np.ndarray:
    return result.predictions.outputs.array()


def test_every_load_of_a_run_is_checked(toy: Toy, other: Path, latest: Path, cached: RunSpec) -> None:
    runner = Runner()
    whole = cached.replace(strategy="full", is_cached=False)
    prepared = runner.preparer.prepare(whole)
    point(latest, other)
    refused = rf"the model {latest} changed since this run was planned"
    with pytest.raises(DataError, match=refused):
        load_stack(whole, prepared)
    for spec in (whole, cached):
        with pytest.raises(DataError, match=refused):
            runner.train(spec)
    assert runner.prefixes.cache.entries() == []
    with pytest.raises(DataError, match=refused):
        Runner().run(whole)
    point(latest, toy.model)
    assert np.array_equal(outputs(runner.run(cached)), outputs(Runner().run(cached)))


def test_twin_without_the_check_another_model_is_stored_and_cached_under_the_key(
    toy: Toy, other: Path, latest: Path, cached: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner()
    runner.preparer.prepare(cached.replace(strategy="full", is_cached=False))
    point(latest, other)
    with monkeypatch.context() as patch:
        patch.setattr(Identity, "check_model", lambda *_: None)
        wrong = runner.run(cached)
    point(latest, toy.model)
    assert wrong.key == cached.key
    poisoned = Runner().run(cached)
    shutil.rmtree(os.environ["FROSTLINE_CACHE"])
    right = Runner().run(cached)
    assert not np.array_equal(outputs(wrong), outputs(right))
    assert not np.array_equal(outputs(poisoned), outputs(right)), "read from the other model's states"


@pytest.fixture
def hub(toy: Toy, other: Path) -> Iterator[Callable[[int], None]]:
    """A model on the Hub with two commits; the function moves its branch."""
    folder = Path(os.environ["HF_HOME"]) / "hub" / f"models--{NAME.replace('/', '--')}"
    for commit, model in zip(COMMITS, (toy.model, other), strict=True):
        shutil.copytree(model, folder / "snapshots" / commit)
    (folder / "refs").mkdir()

    def move(number: int) -> None:
        (folder / "refs" / "new").write_text(COMMITS[number])
        (folder / "refs" / "new").replace(folder / "refs" / "main")

    move(0)
    yield move
    shutil.rmtree(folder)


def test_a_branch_that_moves_does_not_matter_to_a_sweep(
    toy: Toy, hub: Callable[[int], None], undisturbed: Finished, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with after_the_first_run(out, lambda: hub(1)):
        done = curve_of(toy, NAME, out)
    assert done.code == 0, done.stderr
    found = runs_in(out)
    assert len(found) == N_RUNS
    assert_numbers_of(found, undisturbed)
    assert {result.spec.model_revision for result in found.values()} == {COMMITS[0]}

    again = curve_of(toy, NAME, out)
    assert again.code == 2
    assert f"the model {NAME} changed since the first run in --out" in again.stderr


def test_twin_without_its_commit_a_run_would_load_the_other_model(hub: Callable[[int], None], tmp_path: Path) -> None:
    pretrained = describe(NAME)
    assert pretrained.revision == COMMITS[0]
    task = make_task(tmp_path / "reviews.csv")
    spec = make_spec(Path(NAME), task, model_revision=pretrained.revision)
    hub(1)
    assert describe(NAME).fingerprint != pretrained.fingerprint
    Runner().run(spec)
    with pytest.raises(DataError, match=f"the model {NAME} changed since this run was planned"):
        Runner().run(spec.replace(model_revision=None))
