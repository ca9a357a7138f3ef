"""Rows of a batch that are computed together are chosen from the machine's memory, once, and reported."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from commands import Toy, frostline, runs_in
from frostline.studies.requests import micro_batches
from frostline.studies.requests.micro_batches import ModelSize, rows_together, step_bytes
from frostline.training import memory

BASE = ModelSize(n_parameters=110_000_000, n_layers=12, width=768, n_pair_heads=12, is_packed=True)
UNDROPPED = dataclasses.replace(BASE, n_pair_heads=0)
LENGTHS = np.array([512] * 16 + [20] * 100, dtype=np.int64)
GB = 2**30


def test_a_batch_of_long_rows_of_a_base_model_takes_gigabytes() -> None:
    weights = 4 * 4 * BASE.n_parameters
    long, short = (step_bytes(UNDROPPED, np.full(16, length)) - weights for length in (512, 32))
    assert long == pytest.approx(16 * short), "without dropout, attention keeps nothing for pairs of tokens"
    assert 7 * GB < long < 10 * GB
    with_pairs = step_bytes(BASE, np.full(16, 512)) - weights
    assert with_pairs == pytest.approx(long * (30 + 3 * 12 * 512 / 768) / 30)
    padded = dataclasses.replace(BASE, is_packed=False)
    assert step_bytes(padded, LENGTHS[10:20]) > step_bytes(BASE, LENGTHS[10:20]), "padding and pairs of tokens"


@pytest.mark.parametrize(("has", "chosen"), [(None, None), (32 * GB, None), (14 * GB, 8), (8 * GB, 4), (1, 1)])
def test_rows_are_halved_until_they_fit(has: int | None, chosen: int | None) -> None:
    assert rows_together(BASE, LENGTHS, 16, has) == chosen


def test_short_rows_and_unknown_models_are_left_alone() -> None:
    assert rows_together(BASE, LENGTHS[16:], 16, 5 * GB) is None
    assert rows_together(ModelSize(1, 1, 0, 1, is_packed=True), LENGTHS, 16, 1) is None


def test_a_limit_of_the_control_group_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
    assert memory.machine_bytes("cpu") is None, "a system that does not say it"
    (tmp_path / "meminfo").write_text("MemTotal:       100 kB\nMemFree:        50 kB\n")
    assert memory.machine_bytes("cpu") == 100 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.machine_bytes("cpu") == 100 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert memory.machine_bytes("cpu") == 5000


def test_it_is_chosen_before_the_runs_reported_and_kept(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (*toy.curve, "--frozen", "2", "--seeds", "1", "--lrs", "1e-3", "--json")
    whole = frostline(*command, out=tmp_path / "whole")
    monkeypatch.setattr(micro_batches, "machine_bytes", lambda _: 200_000)
    chosen = frostline(*command, out=tmp_path / "out")
    assert chosen.code == 0, chosen.stderr
    runs = runs_in(chosen.out)
    (size,) = {run.spec.micro_batch_size for run in runs.values()}
    assert size in (1, 2, 4, 8)
    said = f"batches are computed {size} rows at a time: 16 at once would take about "
    assert any(warning.startswith(said) for warning in chosen.json["warnings"])
    assert not runs_in(whole.out).keys() & runs.keys(), "another spec"
    monkeypatch.undo()
    again = frostline(*command, out=tmp_path / "out")
    assert again.json["runs"] == {"done": 0, "reused": len(runs), "crashed": 0}, "kept, whatever the machine has now"
    asked = frostline(*command, "--micro-batch-size", str(size), out=tmp_path / "out")
    assert asked.json["runs"]["done"] == 0, "the same runs as if the user had asked for it"
