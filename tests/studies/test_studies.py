"""The promises of studies, on the runs that release 0.1 stored; and what a search may spend."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from commands import Toy, check_one_line
from frostline.cli import main
from frostline.records.requests import ResolvedRequest
from frostline.storage.runs import Store
from frostline.studies.compare import CompareStudy
from frostline.studies.curve import CurveStudy
from frostline.studies.study import Results, Study
from frostline.testing.studies import check_rounds, check_study

RELEASE = Path(__file__).parent.parent / "data" / "release-0.1"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(Path(shutil.copytree(RELEASE / "out", tmp_path / "out")))


@pytest.mark.parametrize("study", [CurveStudy(), CompareStudy()], ids=lambda study: study.name)
def test_a_study_keeps_its_promises(study: Study[Any, Any, Any], store: Store, rng: np.random.Generator) -> None:
    requests = study.stored(store)
    assert requests
    for resolved in requests:
        check_study(study, resolved, store, rng)


class Forgetful(CurveStudy):  # type: ignore[misc]
    """Wants fewer runs each time it is asked."""

    n_asked = 0

    def next_runs(self, resolved: ResolvedRequest, results: Results) -> Any:
        self.n_asked += 1
        return list(super().next_runs(resolved, results))[self.n_asked % 2 :]


class Jumpy(CurveStudy):  # type: ignore[misc]
    """Drops what it wanted before once something is known."""

    def next_runs(self, resolved: ResolvedRequest, results: Results) -> Any:
        wanted = list(super().next_runs(resolved, results))
        return wanted[len(results.finished) // 2 :]


@pytest.mark.parametrize(("twin", "words"), [(Forgetful(), "the same runs"), (Jumpy(), "stays wanted|same runs")])
def test_twins_that_break_a_promise_are_caught(
    twin: CurveStudy, words: str, store: Store, rng: np.random.Generator
) -> None:
    resolved = next(one for one in CurveStudy().stored(store) if len(one.request.learning_rates) > 1)
    whole = CurveStudy().replay(resolved, store)
    with pytest.raises(AssertionError, match=words):
        check_rounds(cast(Study[Any, ResolvedRequest, Any], twin), resolved, whole, rng)


def find_of(toy: Toy, out: Path, *more: str) -> list[str]:
    return ["find", str(toy.model), str(toy.train), "--dev", str(toy.dev), "--out", str(out), "--epochs", "1", *more]


def test_a_budget_below_the_first_runs_is_refused_with_what_they_cost(
    toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("the budget is 1 full-run equivalents", "use --budget 4.", "first")
    code = main(find_of(toy, tmp_path / "out", "--lr", "1e-3", "--budget", "1", "--dry-run"))
    check_one_line(code, 2, words, capfd)


@pytest.mark.parametrize("few", [("--seeds", "4", "--frozen", "3"), ("--seeds", "6", "--frozen", "3")])
def test_the_default_budget_always_pays_for_the_first_runs(
    few: tuple[str, ...], toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(find_of(toy, tmp_path / "out", "--lr", "1e-3", *few, "--dry-run", "--json")) == 0
    estimate = json.loads(capfd.readouterr().out)
    assert estimate["is_at_most"]
    assert estimate["runs"] == estimate["missing"] == 4 + 3
    assert estimate["minutes"] > 0
