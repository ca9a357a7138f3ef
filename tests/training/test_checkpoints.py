"""A run that is paused and goes on ends with the bits of a run that was never paused."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from commands import Toy, numbers
from families import matrix
from frostline.records.plans import Phase, Plan
from frostline.records.results import EpochRecord, PausedRun, RunResult
from frostline.records.specs import RunSpec
from frostline.storage.sealed import seal_bytes, unseal_bytes
from frostline.testing.models import make_spec
from frostline.training.checkpoints import Checkpoint, from_bytes, to_bytes
from frostline.training.loop import _laid_out_like
from frostline.training.run import Runner

STEPS_PER_EPOCH = 9


def spec_of(toy: Toy, **changes: object) -> RunSpec:
    """A short run with dropout."""
    return make_spec(toy.model, toy.train, layout="packed", epochs=3).replace(**changes)


def pause(spec: RunSpec, until: int, checkpoint: bytes | memoryview | None = None) -> PausedRun:
    """A run paused after some steps, by a new runner, as after a kill."""
    paused = Runner().advance(spec, until=until, checkpoint=checkpoint)
    assert isinstance(paused, PausedRun)
    assert paused.n_steps == until
    assert paused.checkpoint
    return paused


def finish(spec: RunSpec, checkpoint: bytes | memoryview | None) -> RunResult:
    """The rest of a paused run, by a new runner."""
    result = Runner().advance(spec, checkpoint=checkpoint)
    assert isinstance(result, RunResult)
    return result


@functools.cache
def never_paused(spec: RunSpec) -> RunResult:
    """The run in one go, by a new runner; done once, because most tests need the same one."""
    return Runner().run(spec)


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
        pytest.param({"weight_decay": 0.1}, (14,), marks=pytest.mark.thorough),
        # Three phases of an epoch each: paused in the first, in the second and third, at the end of the second.
        pytest.param({"strategy": "gradual"}, (4,), marks=pytest.mark.thorough),
        ({"strategy": "gradual"}, (STEPS_PER_EPOCH + 4, 2 * STEPS_PER_EPOCH + 1)),
        ({"strategy": "gradual", "is_cached": True}, (2 * STEPS_PER_EPOCH,)),
    ],
)
def test_paused_and_resumed_is_never_paused(toy: Toy, changes: dict[str, object], places: tuple[int, ...]) -> None:
    spec = spec_of(toy, **changes)
    result = with_pauses(spec, *places)
    assert numbers(result) == numbers(never_paused(spec))
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
    assert pause(spec, STEPS_PER_EPOCH).metrics == never_paused(spec).epochs[0].metrics


@pytest.mark.parametrize(
    ("strategy", "what"),
    matrix(
        ("full", "gradual"),
        ("weights", "optimizer", "generator", "losses"),
        is_sample=lambda strategy, what: strategy == "full" or what == "optimizer",
    ),
)
def test_twin_a_part_that_is_lost_shows(toy: Toy, strategy: str, what: str) -> None:
    spec = spec_of(toy, strategy=strategy)
    kept = from_bytes(pause(spec, STEPS_PER_EPOCH + 4).checkpoint, spec.key)
    assert kept is not None
    changed = Checkpoint(**(vars(kept) | {what: _changed(kept, what)}))
    assert numbers(finish(spec, to_bytes(changed, spec.key))) != numbers(never_paused(spec))


def _changed(kept: Checkpoint, what: str) -> object:
    if what == "weights":
        return [weight + 1e-3 for weight in kept.weights]
    if what == "generator":
        with torch.random.fork_rng():
            torch.manual_seed(7)
            return torch.get_rng_state()
    if what == "losses":
        return [(loss + 1.0, n_rows) for loss, n_rows in kept.losses]
    return {n: {**state, "exp_avg": state["exp_avg"] * 2} for n, state in kept.optimizer.items()}


def test_a_checkpoint_that_cannot_be_read_or_is_too_far_is_ignored(toy: Toy) -> None:
    spec = spec_of(toy)
    first, far = pause(spec, 4), pause(spec, 13)
    assert far.checkpoint is not None
    assert from_bytes(far.checkpoint, spec.key, until=4) is None, "it is beyond"
    assert pause(spec, 4, far.checkpoint).metrics == first.metrics
    damaged = bytes(far.checkpoint[:-100])
    for content in (damaged, b"", None, b"PK\x03\x04" + damaged, b"\n", b"{}\n", b"[" * 100_000 + b"\n"):
        assert from_bytes(content, spec.key) is None
    assert from_bytes(far.checkpoint, spec.replace(seed=7).key) is None, "it is of another run"
    assert numbers(finish(spec, damaged)) == numbers(never_paused(spec))


def test_one_flipped_bit_does_not_change_the_result(toy: Toy, rng: np.random.Generator) -> None:
    spec = spec_of(toy)
    content = pause(spec, STEPS_PER_EPOCH + 4).checkpoint
    assert content is not None
    for place in [0, 8 * len(content) - 1, *rng.integers(8 * len(content), size=500)]:
        assert from_bytes(flipped(content, int(place)), spec.key) is None
    assert numbers(finish(spec, flipped(content, int(place)))) == numbers(never_paused(spec))


def test_twin_a_flipped_bit_that_no_checksum_notices_shows(toy: Toy) -> None:
    spec = spec_of(toy)
    head, body = unseal_bytes(pause(spec, STEPS_PER_EPOCH + 4).checkpoint or b"")
    n_head = int.from_bytes(body[:8], "little")
    places = json.loads(bytes(body[8 : 8 + n_head]))
    begin = 8 + n_head + places[f"weight.{head['n_weights'] - 1}"]["data_offsets"][0]
    damaged = flipped(body, 8 * (begin + 3))  # in the exponent of a weight of the head
    assert numbers(finish(spec, seal_bytes(head, damaged))) != numbers(never_paused(spec))


def flipped(content: bytes | memoryview, place: int) -> bytes:
    """The content with one bit changed."""
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def test_numbers_of_any_size_survive(toy: Toy) -> None:
    spec = spec_of(toy)
    kept = from_bytes(pause(spec, 4).checkpoint, spec.key)
    assert kept is not None
    losses = [(math.inf, 16), (math.nan, 16), (0.1 + 0.2, 3), (5e-324, 1)]
    weights = [torch.arange(6.0).reshape(2, 3).T, torch.tensor([-0.0, math.nan]), torch.ones(2, dtype=torch.bfloat16)]
    again = from_bytes(to_bytes(Checkpoint(**(vars(kept) | {"losses": losses, "weights": weights})), "key"), "key")
    assert again is not None
    assert repr(again.losses) == repr(losses)
    assert all(
        torch.equal(one.contiguous().view(torch.uint8), other.view(torch.uint8))
        for one, other in zip(weights, again.weights, strict=True)
    )


def test_moments_get_the_strides_of_their_parameter() -> None:
    def trained(restored: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """A parameter that is not contiguous after two steps; its moments are restored between them."""
        parameter = torch.nn.Parameter(torch.arange(15.0).reshape(5, 3).T)
        optimizer = torch.optim.AdamW([parameter], lr=0.1, fused=True)
        for _ in range(2):
            parameter.grad = torch.arange(15.0).reshape(5, 3).T ** 2
            optimizer.step()
            for part, tensor in optimizer.state[parameter].items():
                optimizer.state[parameter][part] = restored(parameter, tensor.contiguous())
        return parameter.detach()

    never_stored = trained(lambda _, tensor: tensor.T.contiguous().T if tensor.ndim else tensor)
    assert torch.equal(trained(_laid_out_like), never_stored)
    assert not torch.equal(trained(lambda _, tensor: tensor), never_stored), "the strides matter"


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
