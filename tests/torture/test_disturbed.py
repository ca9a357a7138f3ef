"""Samples of the benches in bench/torture: failing calls, power losses, flipped bits, kills, colliding commands.

One file, so that one process imports torch for all of them. Moments and places are drawn again in every run; a failure
says FROSTLINE_TEST_SEED, which draws them again.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.torture import collisions, faults, flips, kills, power, shim
from bench.torture.commands import Case, Commands, Numbers, toy_cases
from bench.torture.replay import Recording

from commands import announced_rng

pytestmark = pytest.mark.skipif(bool(shim.why_not()), reason=shim.why_not())

_KILLS_PER_COMMAND = 10


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How often each kind of fault is tried."""

    faults: dict[str, int]
    losses: dict[str, int]
    flips: int
    kills: int


CASES = [pytest.param("curve-2", marks=pytest.mark.thorough), "train"]
BRIEF = Sizes(faults={"curve-2": 1, "train": 3}, losses={"curve-2": 1, "train": 2}, flips=20, kills=50)
THOROUGH = Sizes(faults={"curve-2": 6, "train": 12}, losses={"curve-2": 4, "train": 8}, flips=100, kills=200)


@pytest.fixture(scope="module")
def sizes(request: pytest.FixtureRequest) -> Sizes:
    return THOROUGH if request.config.getoption("--thorough") else BRIEF


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    folder = tmp_path_factory.mktemp("torture")
    with Commands(tuple(toy_cases(folder).values()), folder) as commands:
        yield commands


@pytest.fixture
def draw() -> random.Random:
    return random.Random(int(announced_rng().integers(2**32)))


@pytest.fixture(scope="module")
def peaceful(commands: Commands) -> dict[str, tuple[Numbers, int]]:
    """Numbers and calls of undisturbed commands."""
    return {name: faults.undisturbed(commands, commands.case(name)) for name in ("curve-2", "train", "depths")}


Recorded = Callable[[str], tuple[Recording, Numbers]]


@pytest.fixture(scope="module")
def recorded(commands: Commands) -> Recorded:
    return functools.cache(lambda name: power.recorded(commands, commands.case(name)))


@pytest.fixture(scope="module")
def stored(commands: Commands) -> flips.Stored:
    return flips.make_stored(commands)[0]


@pytest.mark.parametrize("name", CASES)
def test_a_failing_call_ends_well_and_the_same_command_gives_the_same_numbers(
    name: str, commands: Commands, peaceful: dict[str, tuple[Numbers, int]], sizes: Sizes, draw: random.Random
) -> None:
    wanted, n_calls = peaceful[name]
    tried = draw.sample(faults.injections(commands.case(name), n_calls, 1, draw), sizes.faults[name])
    outcomes = [faults.inject(commands, injection, wanted) for injection in tried]
    assert [str(outcome) for outcome in outcomes if outcome.problems] == []


def test_calls_do_fail(commands: Commands, peaceful: dict[str, tuple[Numbers, int]]) -> None:
    wanted, _ = peaceful["train"]
    injection = faults.Injection(commands.case("train"), 1, "FULL")
    outcome = faults.inject(commands, injection, wanted)
    assert (outcome.how, outcome.problems) == ("exit 2", ())
    assert "No space left on device" in outcome.stderr
    other = Numbers(answer=wanted.answer | {"score": 2.0}, runs=wanted.runs, saved=wanted.saved)
    assert faults.inject(commands, injection, other).problems == ("resumed: OTHER NUMBERS: score of the answer",)


@pytest.mark.parametrize("name", CASES)
def test_a_power_loss_damages_nothing_and_takes_nothing_that_was_reported(name: str, recorded: Recorded) -> None:
    assert set(power.all_flaws(recorded(name)[0])) == set()


@pytest.mark.parametrize("name", CASES)
def test_without_any_one_sync_something_would_be_damaged_or_lost(name: str, recorded: Recorded) -> None:
    assert power.unneeded_syncs(recorded(name)[0]) == []


@pytest.mark.parametrize("name", CASES)
def test_after_a_power_loss_the_same_command_gives_the_same_numbers(
    name: str, commands: Commands, recorded: Recorded, sizes: Sizes, draw: random.Random
) -> None:
    recording, wanted = recorded(name)
    problems = {
        moment: power.lose_power(commands, commands.case(name), recording, wanted, moment, draw)
        for moment in power.moments(recording, sizes.losses[name], draw)
    }
    assert {moment: found for moment, found in problems.items() if found} == {}


@pytest.mark.parametrize("kind", flips.KINDS, ids=lambda kind: kind.name)
def test_a_flipped_bit_is_detected_or_harmless(
    kind: flips.Kind, stored: flips.Stored, sizes: Sizes, draw: random.Random
) -> None:
    contents = {path: kind.read(stored, path) for path in flips.files_of(kind, stored.base)}
    assert contents
    assert all(content is not None for content in contents.values())
    found = [flips.flip(kind, stored, contents, draw) for _ in range(sizes.flips)]
    assert [(how, place) for how, place in found if how not in ("detected", "harmless")] == []


def test_a_reader_that_checks_nothing_is_noticed(stored: flips.Stored, draw: random.Random) -> None:
    careless = flips.Kind("careless", ("out/runs/*",), lambda _, path: path.read_bytes())
    contents = {path: path.read_bytes() for path in flips.files_of(careless, stored.base)}
    assert flips.flip(careless, stored, contents, draw)[0] == "PROBLEM other content"


def test_killed_commands_give_the_same_numbers_when_started_again(
    commands: Commands, peaceful: dict[str, tuple[Numbers, int]], sizes: Sizes, draw: random.Random
) -> None:
    wanted, _ = peaceful["curve-2"]
    for _ in range(sizes.kills // _KILLS_PER_COMMAND):
        victims = draw.choices(kills.VICTIMS, k=_KILLS_PER_COMMAND)
        problems = kills.killed_and_resumed(commands, commands.case("curve-2"), wanted, victims, draw, seconds=2.0)
        assert problems == [], victims


def test_the_process_that_forks_commands_is_never_killed_itself(commands: Commands, tmp_path: Path) -> None:
    refused = Case("refused", ("curve", "no-such-model", "no-such-task"))
    commands.run(refused, tmp_path)
    server = commands.server.pid
    for n_writes in (2, 3):  # the command writes its process id into a pipe; then the server writes its exit code
        commands.shim.kill_in_pipe(n_writes)
        assert commands.run(refused, tmp_path).code == 2
        assert commands.shim.count == 1
        commands.shim.stop()
    commands.run(refused, tmp_path)
    assert commands.server.pid == server


@pytest.mark.parametrize("n_commands", [pytest.param(2, marks=pytest.mark.thorough), 4])
def test_commands_on_one_folder_and_a_cache_that_is_too_small_give_the_same_numbers(
    n_commands: int, commands: Commands, peaceful: dict[str, tuple[Numbers, int]], draw: random.Random
) -> None:
    wanted, _ = peaceful["depths"]
    assert collisions.collide(commands, commands.case("depths"), wanted, n_commands, draw) == []
