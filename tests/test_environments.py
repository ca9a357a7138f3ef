"""Runs of different versions or machines are not mixed in silence: warnings, `--same-environment`, the cache's key."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import frostline as package
from commands import Finished, Toy, after_the_first_run, frostline, run_files, runs_in
from frostline.cli import main
from frostline.errors import UsageError
from frostline.records import environment
from frostline.records.environment import (
    changed_packages,
    check_environments,
    current_environment,
    mixed_environments,
    processor,
    processor_in,
)
from frostline.records.results import Environment, RunResult
from frostline.storage import prefix_cache
from frostline.storage.prefix_cache import Origin
from frostline.storage.runs import Store
from frostline.testing.models import make_model, make_spec, make_task
from frostline.training.run import Runner

OLD = "1.2.3"


def made_with(torch: str = "2.13.0", processor: str = "Xeon", **hardware: str) -> Environment:
    return Environment(
        versions={"python": "3.11.7", "torch": torch},
        hardware={"system": "Linux x86_64", "processor": processor, "cores": "2", **hardware},
        command=(),
        at="2026-11-17T00:00:00Z",
    )


class TestComparing:
    def test_what_differs_is_named_and_counted(self) -> None:
        (said,) = mixed_environments([made_with()] * 12 + [made_with("2.12.1", "EPYC")] * 3)
        assert said.startswith(
            "12 runs were made with torch 2.13.0, 3 with torch 2.12.1; 12 runs were made with processor Xeon, 3 with "
            "processor EPYC: "
        )

    def test_what_moves_no_number_does_not_differ(self) -> None:
        assert mixed_environments([made_with(cores="2", memory="8 GB"), made_with(cores="64", memory="9 GB")]) == []

    def test_another_gpu_differs(self) -> None:
        (said,) = mixed_environments([made_with(device_model="A100"), made_with(device_model="H100")])
        assert said.startswith("1 run was made with GPU A100, 1 with GPU H100: ")

    def test_another_library_for_products_differs(self) -> None:
        (said,) = mixed_environments([made_with(), made_with(), made_with(products="oneDNN")])
        assert said.startswith("2 runs were made with matrix products of torch, 1 with matrix products of oneDNN: ")

    @pytest.mark.parametrize("unknown", ["", "aarch64"])
    def test_what_is_unknown_does_not_differ(self, unknown: str) -> None:
        empty = Environment(versions={}, hardware={}, command=(), at="")
        assert mixed_environments([made_with(), made_with(processor=unknown), empty]) == []
        check_environments([made_with(processor=unknown), empty], made_with())

    def test_runs_from_elsewhere_are_refused(self) -> None:
        check_environments([made_with()], made_with())
        said = "2 stored runs were made with torch 2.12.1, here it is 2.13.0. Use that environment again"
        with pytest.raises(UsageError, match=f"--same-environment: {said}"):
            check_environments([made_with("2.12.1")] * 2, made_with())


class TestThisMachine:
    def test_processor_device_and_threads_are_recorded(self, tmp_path: Path) -> None:
        spec = make_spec(make_model(tmp_path / "m"), make_task(tmp_path / "t.csv"), epochs=1)
        hardware = Runner().run(spec).environment.hardware
        assert hardware["processor"] == processor() != ""
        assert (hardware["device"], hardware.get("device_model"), hardware["threads"]) == ("cpu", None, "1")

    def test_a_processor_without_a_name_has_numbers(self) -> None:
        assert processor_in({"model name": "Xeon", "CPU part": "0x1"}) == "Xeon"
        assert processor_in({"CPU implementer": "0x41", "CPU part": "0xd0c"}) == "ARM 0x41 0xd0c"
        assert processor_in({}) == ""

    def test_the_key_of_cached_states_follows_what_computed_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        known: dict[str, Any] = {
            "model": "m",
            "model_fingerprint": "f",
            "task": "t",
            "split": "train",
            "layout": "padded",
        }

        def key(**more: Any) -> str:
            return Origin(**known, device="cuda", dtype="fp32", **more).key("tokens")

        plain = key()
        assert plain == key(device_model="", threads=1)
        assert len({plain, key(threads=2), key(device_model="A100"), key(products="oneDNN")}) == 4
        monkeypatch.setattr(prefix_cache, "processor", lambda: "another one")
        assert key() != plain


def rewrite(out: Path, seed: int, change: Callable[[RunResult], RunResult]) -> int:
    """Changes the stored runs of a seed; returns how many."""
    store, found = Store(out), [result for result in runs_in(out).values() if result.spec.seed == seed]
    for result in found:
        store.put(change(result), replace=True)
    return len(found)


def in_old_torch(result: RunResult) -> RunResult:
    where = result.environment
    return result.replace(environment=where.replace(versions=where.versions | {"torch": OLD}))


def as_release_0_1(result: RunResult) -> RunResult:
    """Without what that release did not store."""
    hardware = {name: value for name, value in result.environment.hardware.items() if name in ("cores", "memory")}
    return result.replace(environment=result.environment.replace(hardware=hardware))


class TestStoredRuns:
    def test_a_mixed_mean_is_said_in_the_terminal_json_and_the_page(self, toy: Toy, out_copy: Path) -> None:
        rewrite(out_copy, 1, in_old_torch)
        done = frostline(*toy.curve, "--rerun", "never", "--json", out=out_copy)
        here = current_environment("cpu").versions["torch"]
        said = f"8 runs were made with torch {here}, 4 with torch {OLD}"
        assert [line for line in done.json["warnings"] if line.startswith(said)]
        shown = " ".join(frostline(*toy.curve, "--rerun", "never", out=out_copy).stdout.split())
        assert said in shown
        assert said in (out_copy / "report.html").read_text(encoding="utf-8")

    def test_twin_runs_of_one_environment_are_not_warned_about(self, undisturbed: Finished) -> None:
        assert not [line for line in undisturbed.json["warnings"] if "runs were made with" in line]

    def test_same_environment_refuses_before_anything_is_done(
        self, toy: Toy, out_copy: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        n_changed = rewrite(out_copy, 1, in_old_torch)
        before = run_files(out_copy)
        more = ("--seeds", "4", "--same-environment")  # the fourth seed would have to be done
        assert main([*toy.curve, *more, "--out", str(out_copy)]) == 2
        said = capfd.readouterr().err
        assert said.startswith(
            f"frostline: --same-environment: {n_changed} stored runs were made with torch {OLD}, here"
        )
        assert said.count("\n") == 1
        assert run_files(out_copy) == before

    def test_same_environment_refuses_the_rate_of_an_earlier_search(self, toy: Toy, out_copy: Path) -> None:
        for seed in range(3):
            rewrite(out_copy, seed, in_old_torch)
        with pytest.raises(UsageError, match=f"--same-environment: 2 stored runs were made with torch {OLD}"):
            package.train(
                toy.model, toy.train, dev=str(toy.dev), frozen=2, save=out_copy.parent / "saved", out=out_copy,
                lrs=(1e-3, 3e-3), epochs=2, batch_size=16, same_environment=True,
            )  # fmt: skip
        assert not (out_copy.parent / "saved").exists()

    def test_twin_runs_of_this_environment_and_unknown_ones_are_used(self, toy: Toy, out_copy: Path) -> None:
        rewrite(out_copy, 1, as_release_0_1)
        done = frostline(*toy.curve, "--same-environment", "--rerun", "never", "--json", out=out_copy)
        assert done.code == 0
        assert done.json["runs"]["done"] == 0
        assert not [line for line in done.json["warnings"] if "runs were made with" in line]


def install(folder: Path, name: str, version: str) -> None:
    """Another version of a package, as far as the files about it say."""
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_packages_that_change_under_a_process_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec(make_model(tmp_path / "m"), make_task(tmp_path / "t.csv"), epochs=1)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    assert changed_packages() == []
    assert not [line for line in Runner().run(spec).warnings if "packages" in line]
    install(site, "scipy", OLD)
    result = Runner().run(spec)
    before = environment.versions()["scipy"]
    assert f"packages were changed while runs were under way: scipy was {before} and is {OLD}" in result.warnings[-1]
    assert result.environment.versions["scipy"] == before, "what this process began with"
    shutil.rmtree(site)
    assert changed_packages() == []


def test_packages_that_change_in_the_middle_of_a_sweep_are_named(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{site}:{Path(package.__file__).parents[1]}")
    out = tmp_path / "out"
    settings = ("--seeds", "2", "--lr", "1e-3", "--epochs", "1", "--frozen", "2", "--workers", "1", "--json")
    with after_the_first_run(out, lambda: install(site, "scipy", OLD)):
        done = frostline("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *settings, out=out)
    assert done.code == 0
    assert [line for line in done.json["warnings"] if f"and is {OLD}" in line]
    noted = [bool([line for line in result.warnings if f"and is {OLD}" in line]) for result in runs_in(out).values()]
    assert set(noted) == {True, False}, "the runs before it are not concerned"
