"""What the driver does, and in which order, whatever the study."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Toy, frostline
from forked_commands import QuickForkServer
from frostline.execution import local
from frostline.execution.executor import starts_at_once
from frostline.records.requests import RunOptions
from frostline.records.specs import TaskSpec
from frostline.studies.requests.task_reader import TaskReader

BRIEF = ("--epochs", "1", "--seeds", "1", "--lr", "1e-2", "--frozen", "3")


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What began and ended, in its order: workers' libraries are imported, data is read."""
    events: list[str] = []

    class Noted(QuickForkServer):  # type: ignore[misc] # final, for everybody else
        def begin(self) -> None:
            super().begin()
            events.append("workers start")

        def end(self) -> None:
            assert self._process is not None
            process = self._process
            super().end()
            events.append("workers ended" if process.poll() is not None else "workers left behind")

    class Reader(TaskReader):  # type: ignore[misc]
        def resolve(self, task: TaskSpec) -> TaskSpec:
            if task not in self._resolved:
                events.append("data is read")
            return super().resolve(task)

    monkeypatch.setattr(local, "ForkServer", Noted)
    monkeypatch.setattr("frostline.studies.driver.TaskReader", Reader)
    return events


def test_workers_start_while_the_data_is_read(toy: Toy, tmp_path: Path, happened: list[str]) -> None:
    done = frostline("curve", str(toy.model), str(toy.train), *BRIEF, out=tmp_path / "out")
    assert done.code == 0, done.stderr
    assert happened == ["workers start", "data is read", "workers ended"]


def test_a_mistake_in_the_data_leaves_no_process(toy: Toy, tmp_path: Path, happened: list[str]) -> None:
    data = tmp_path / "odd.csv"
    data.write_text("text,label\nfine,yes\n", encoding="utf-8")
    done = frostline("curve", str(toy.model), str(data), *BRIEF, out=tmp_path / "out")
    assert done.code in (2, 3), done.stderr
    assert happened == ["workers start", "data is read", "workers ended"]


@pytest.mark.parametrize("flag", ["frozen", "workers"])
def test_a_mistake_that_is_seen_without_the_data_starts_nothing(
    flag: str, toy: Toy, tmp_path: Path, happened: list[str]
) -> None:
    done = frostline("curve", str(toy.model), str(toy.train), *BRIEF, f"--{flag}", "9999", out=tmp_path / "out")
    assert done.code == 2, done.stderr
    assert flag in done.stderr
    assert "9999" in done.stderr
    assert happened == []


def test_connecting_to_a_cluster_waits_for_the_data(tmp_path: Path) -> None:
    assert [starts_at_once(RunOptions(out=tmp_path, on=on)) for on in ("local", "ray")] == [True, False]
