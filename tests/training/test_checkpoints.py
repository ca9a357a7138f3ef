"""A run that is left and goes on ends with the bits of one that was never left."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from commands import Toy, numbers
from frostline.records.results import Leg, Paused, RunResult
from frostline.records.specs import RunSpec
from frostline.testing.models import make_spec
from frostline.training.checkpoints import start_of, write_checkpoint
from frostline.training.loop import Checkpoint
from frostline.training.run import Runner

STEPS_AN_EPOCH = 9


def spec_of(toy: Toy, **changes: object) -> RunSpec:
    """A short run with dropout."""
    return make_spec(toy.model, toy.train, layout="packed", epochs=3).replace(**changes)


def in_legs(spec: RunSpec, checkpoint: Path, *places: int) -> RunResult:
    """A run that is left at some places; each leg by a process's own first runner, as after a kill."""
    for until in places:
        left = Runner().run_leg(spec, Leg(checkpoint=str(checkpoint), until=until))
        assert isinstance(left, Paused)
        assert left.n_steps == until
    result = Runner().run_leg(spec, Leg(checkpoint=str(checkpoint)))
    assert isinstance(result, RunResult)
    return result


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({}, (4, 13)),
        ({}, (STEPS_AN_EPOCH, 2 * STEPS_AN_EPOCH, 26)),
        ({"strategy": "freeze:2", "is_cached": True}, (1, 20)),
        ({"strategy": "freeze:1"}, (5, 5)),
        ({"optimizer": "sgd"}, (14,)),
        ({"weight_decay": 0.1}, (14,)),
    ],
)
def test_left_and_continued_is_never_left(
    toy: Toy, tmp_path: Path, changes: dict[str, object], places: tuple[int, ...]
) -> None:
    spec = spec_of(toy, **changes)
    whole = Runner().run(spec)
    result = in_legs(spec, tmp_path / "left.pt", *places)
    assert numbers(result) == numbers(whole)
    assert [epoch.n_steps for epoch in result.epochs] == [STEPS_AN_EPOCH] * 3


def test_what_a_run_has_come_to_at_an_epochs_end_is_that_epochs_score(toy: Toy, tmp_path: Path) -> None:
    spec = spec_of(toy)
    left = Runner().run_leg(spec, Leg(checkpoint=str(tmp_path / "left.pt"), until=STEPS_AN_EPOCH))
    assert isinstance(left, Paused)
    assert left.metrics == Runner().run(spec).epochs[0].metrics


@pytest.mark.parametrize("what", ["weights", "optimizer", "generator", "losses"])
def test_twin_whatever_is_lost_shows(toy: Toy, tmp_path: Path, what: str) -> None:
    spec, path = spec_of(toy), tmp_path / "left.pt"
    leg = Leg(checkpoint=str(path), until=4)
    Runner().run_leg(spec, leg)
    kept = start_of(leg)
    assert kept is not None
    changed = vars(kept) | {what: _changed(kept, what)}
    write_checkpoint(Checkpoint(**changed), path)
    result = Runner().run_leg(spec, Leg(checkpoint=str(path)))
    assert isinstance(result, RunResult)
    assert numbers(result) != numbers(Runner().run(spec))


def _changed(kept: Checkpoint, what: str) -> object:
    if what == "weights":
        return [weight + 1e-3 for weight in kept.weights]
    if what == "generator":
        with torch.random.fork_rng():
            torch.manual_seed(7)
            return torch.get_rng_state()
    if what == "losses":
        return [(loss + 1.0, n_rows) for loss, n_rows in kept.losses]
    states = kept.optimizer["state"].items()
    return kept.optimizer | {"state": {n: {**state, "exp_avg": state["exp_avg"] * 2} for n, state in states}}


def test_a_checkpoint_that_cannot_be_read_or_is_too_far_begins_anew(toy: Toy, tmp_path: Path) -> None:
    spec, path = spec_of(toy), tmp_path / "left.pt"
    far, near = Leg(checkpoint=str(path), until=13), Leg(checkpoint=str(path), until=4)
    first = Runner().run_leg(spec, near)
    Runner().run_leg(spec, far)
    assert start_of(near) is None, "it is beyond"
    again = Runner().run_leg(spec, near)
    assert isinstance(first, Paused)
    assert isinstance(again, Paused)
    assert again.metrics == first.metrics
    path.write_bytes(path.read_bytes()[:-100])
    assert start_of(near) is None
    assert numbers(in_legs(spec, path, 13)) == numbers(Runner().run(spec))
