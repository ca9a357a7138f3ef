"""A run that is paused and goes on ends with the bits of a run that was never paused."""

from __future__ import annotations

import pytest
import torch

from commands import Toy, numbers
from frostline.records.plans import Phase, Plan
from frostline.records.results import EpochRecord, PausedRun, RunResult
from frostline.records.specs import RunSpec
from frostline.testing.models import make_spec
from frostline.training.checkpoints import from_bytes, to_bytes
from frostline.training.loop import Checkpoint
from frostline.training.run import Runner

STEPS_PER_EPOCH = 9


def spec_of(toy: Toy, **changes: object) -> RunSpec:
    """A short run with dropout."""
    return make_spec(toy.model, toy.train, layout="packed", epochs=3).replace(**changes)


def pause(spec: RunSpec, until: int, checkpoint: bytes | None = None) -> PausedRun:
    """A run paused after some steps, by a new runner, as after a kill."""
    paused = Runner().advance(spec, until=until, checkpoint=checkpoint)
    assert isinstance(paused, PausedRun)
    assert paused.n_steps == until
    assert paused.checkpoint
    return paused


def finish(spec: RunSpec, checkpoint: bytes | None) -> RunResult:
    """The rest of a paused run, by a new runner."""
    result = Runner().advance(spec, checkpoint=checkpoint)
    assert isinstance(result, RunResult)
    return result


def with_pauses(spec: RunSpec, *places: int) -> RunResult:
    """A run that is paused at some places."""
    checkpoint = None
    for until in places:
        checkpoint = pause(spec, until, checkpoint).checkpoint
    return finish(spec, checkpoint)


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({}, (4, 13)),
        ({}, (STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH, 26)),
        ({"strategy": "freeze:2", "is_cached": True}, (1, 20)),
        ({"strategy": "freeze:1"}, (5, 5)),
        ({"optimizer": "sgd"}, (14,)),
        ({"weight_decay": 0.1}, (14,)),
        # Three phases of an epoch each: paused in the first, in the second and third, at the end of the second.
        ({"strategy": "gradual"}, (4,)),
        ({"strategy": "gradual"}, (STEPS_PER_EPOCH + 4, 2 * STEPS_PER_EPOCH + 1)),
        ({"strategy": "gradual", "is_cached": True}, (2 * STEPS_PER_EPOCH,)),
    ],
)
def test_paused_and_resumed_is_never_paused(toy: Toy, changes: dict[str, object], places: tuple[int, ...]) -> None:
    spec = spec_of(toy, **changes)
    result = with_pauses(spec, *places)
    assert numbers(result) == numbers(Runner().run(spec))
    assert [epoch.n_steps for epoch in result.epochs] == [STEPS_PER_EPOCH] * 3
    assert [epoch.epoch for epoch in result.epochs] == [1, 2, 3]


def test_a_phase_before_the_checkpoint_does_not_train_again(toy: Toy) -> None:
    spec = spec_of(toy, strategy="gradual")
    seen: list[EpochRecord] = []
    checkpoint = pause(spec, STEPS_PER_EPOCH + 4).checkpoint
    Runner().advance(spec, seen.append, checkpoint=checkpoint)
    assert [record.epoch for record in seen] == [2, 3]


def test_the_score_of_a_pause_at_the_end_of_an_epoch_is_that_of_the_epoch(toy: Toy) -> None:
    spec = spec_of(toy)
    assert pause(spec, STEPS_PER_EPOCH).metrics == Runner().run(spec).epochs[0].metrics


@pytest.mark.parametrize("what", ["weights", "optimizer", "generator", "losses"])
@pytest.mark.parametrize("strategy", ["full", "gradual"])
def test_twin_a_part_that_is_lost_shows(toy: Toy, strategy: str, what: str) -> None:
    spec = spec_of(toy, strategy=strategy)
    kept = from_bytes(pause(spec, STEPS_PER_EPOCH + 4).checkpoint)
    assert kept is not None
    changed = Checkpoint(**(vars(kept) | {what: _changed(kept, what)}))
    assert numbers(finish(spec, to_bytes(changed))) != numbers(Runner().run(spec))


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


def test_a_checkpoint_that_cannot_be_read_or_is_too_far_is_ignored(toy: Toy) -> None:
    spec = spec_of(toy)
    first, far = pause(spec, 4), pause(spec, 13)
    assert far.checkpoint is not None
    assert from_bytes(far.checkpoint, until=4) is None, "it is beyond"
    assert pause(spec, 4, far.checkpoint).metrics == first.metrics
    damaged = far.checkpoint[:-100]
    assert from_bytes(damaged) is None
    assert from_bytes(b"") is None
    assert from_bytes(None) is None
    assert numbers(finish(spec, damaged)) == numbers(Runner().run(spec))


def test_the_checkpoint_is_not_part_of_the_json(toy: Toy) -> None:
    paused = pause(spec_of(toy), 4)
    assert paused.to_json().keys() == {"spec", "n_steps", "metrics", "score", "noise", "loss", "seconds"}
    assert PausedRun.from_json(paused.to_json()) == paused.replace(checkpoint=None)


def test_a_stored_plan_with_epochs_in_its_phases_is_still_read() -> None:
    plan = Plan.one_phase(trained=("a",), n_frozen=1, cached_layers=1)
    old = plan.to_json()
    old["phases"][0]["epochs"] = None
    assert Plan.from_json(old) == plan
    assert "epochs" not in Phase(cached_layers=None, trained=()).to_json()
