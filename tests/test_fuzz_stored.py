"""A sample of `bench.fuzz`: mutated files end in one line or do no harm. The bench does ten thousand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import fuzz

from frostline.records.keys import key_of


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> list[fuzz.Target]:
    return fuzz.make_targets(tmp_path_factory.mktemp("fuzz"))


def test_no_mutation_ends_in_a_traceback(targets: list[fuzz.Target]) -> None:
    before = {path: path.read_bytes() for target in targets for path in target.paths}
    counts, faults = fuzz.fuzz(targets, 120, seed=2)
    assert [(fault.target, fault.said) for fault in faults] == []
    assert {name for name, _ in counts} == {target.name for target in targets}
    ends = {how for _, how in counts}
    assert {"exit 0", "exit 2", "exit 3"} <= ends, "some do no harm, and some are refused"
    assert {path: path.read_bytes() for path in before} == before


def resealed(path: Path, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A sealed file with its content changed, and with the right checksum."""
    content = json.loads(path.read_bytes())["content"]
    change(content)
    return json.dumps({"checksum": key_of(content), "content": content}).encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run["epochs"].clear(),
        lambda run: run["epochs"][-1]["metrics"].clear(),
        lambda run: run.update(n_layers=7),
        lambda run: run["plan"].update(n_frozen=2 if run["plan"]["n_frozen"] != 2 else 1),
    ],
    ids=["no epoch", "an epoch without a score", "another model", "another depth"],
)
def test_a_run_with_a_right_checksum_and_a_wrong_content_does_no_harm(
    targets: list[fuzz.Target], change: Callable[[dict[str, Any]], object]
) -> None:
    runs = next(target for target in targets if target.name == "run")
    ends = set()
    for path in runs.paths:
        how, fault = fuzz.outcome(runs, path, resealed(path, change))
        assert fault is None, fault
        ends.add(how)
    assert ends <= {"exit 0", "exit 3"}


def test_a_number_that_is_read_as_infinity_is_refused(targets: list[fuzz.Target]) -> None:
    search = next(target for target in targets if target.name == "search")
    (path,) = search.paths
    content = json.loads(path.read_bytes())
    written = json.dumps(content).replace(json.dumps(content["full"]["mean"]), "1e999")
    assert fuzz.outcome(search, path, written.encode()) == ("exit 3", None)


def test_a_command_that_does_not_check_its_file_is_found(
    targets: list[fuzz.Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = next(target for target in targets if target.name == "manifest")
    (path,) = manifest.paths

    def careless(arguments: list[str]) -> int:
        return 0 if json.loads(path.read_bytes())["max_length"] else 1

    monkeypatch.setattr(fuzz, "frostline", careless)
    counts, faults = fuzz.fuzz([manifest], 50, seed=0)
    assert {how for _, how in counts} >= {"raised", "exit 0"}
    assert 0 < len(faults) < 50
