"""A sample of `bench.fuzz`: mutated files end in one line or do no harm. The bench does ten thousand."""

from __future__ import annotations

import json

import pytest
from bench import fuzz


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> list[fuzz.Target]:
    return fuzz.make_targets(tmp_path_factory.mktemp("fuzz"))


def test_no_mutation_ends_in_a_traceback(targets: list[fuzz.Target]) -> None:
    before = {path: path.read_bytes() for target in targets for path in target.paths}
    counts, faults = fuzz.fuzz(targets, 200, seed=2)
    assert [(fault.target, fault.said) for fault in faults] == []
    assert {name for name, _ in counts} == {target.name for target in targets}
    ends = {how for _, how in counts}
    assert {"exit 0", "exit 2", "exit 3"} <= ends, "some do no harm, and some are refused"
    assert {path: path.read_bytes() for path in before} == before


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
