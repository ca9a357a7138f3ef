"""The default budget of a search: a race that turns out longer than foreseen does not end the search early."""

from __future__ import annotations

import math

import pytest

from frostline.records.depth import FULL, with_full
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.stats.search_question import Decision
from frostline.studies.planning.depth_search import DepthSearch, ResolvedSearch
from frostline.studies.study import Results
from synthetic import N_LAYERS, TASK, make_result, make_spec

DEPTHS = (0, 1, 2, 3, 4)
RATES = (1e-5, 2e-5)


def search(budget: float | None = None) -> ResolvedSearch:
    """A search with a rate for each depth, whose races begin with two rates."""
    request = StudyRequest(model="toy-model", task=TASK, learning_rates=RATES, protocol="tuned", epochs=3)
    resolved = ResolvedRequest(
        request=request,
        base=make_spec(FULL, 0).replace(epochs=3),
        n_layers=N_LAYERS,
        depths=DEPTHS,
        is_cached=True,
        has_races=True,
        budget=budget,
    )
    return ResolvedSearch(resolved=resolved, chance=0.5, n_rows=200)


def rate_is_everything(spec: RunSpec) -> RunResult:
    """The higher the rate, the better: each race goes on to the highest. Only the full model is good on dev."""
    score = 0.7 + 0.1 * math.log10(spec.learning_rate / 1e-5) if spec.role == "tuning" else 0.6
    return make_result(FULL, 0, 0.9 if spec.strategy == "full" and spec.role == "replicate" else score, spec=spec)


def ended(asked: ResolvedSearch) -> DepthSearch:
    """The search when all that it asks for is done."""
    results = Results()
    while new := [spec for spec in DepthSearch.replayed(asked, results).runs if not results.has_all([spec])]:
        for spec in new:
            results.add(rate_is_everything(spec))
    return DepthSearch.replayed(asked, results)


def test_longer_races_do_not_end_a_search_with_the_default_budget() -> None:
    foreseen, done = DepthSearch(search(), Results()).runs_of_curve, ended(search())
    assert set(done.outcomes) == set(with_full(DEPTHS))
    assert isinstance(done.step, Decision)
    assert done.step.is_decided, done.step.because
    assert foreseen < done.spent <= done.runs_of_curve
    all_runs = [(depth, seed) for depth in with_full(DEPTHS) for seed in range(5)]
    assert done.runs_of_curve == pytest.approx(done.question.cost(all_runs))


def test_twin_the_same_search_with_the_foreseen_budget_ends_early() -> None:
    done = ended(search(DepthSearch(search(), Results()).runs_of_curve))
    assert len(done.outcomes) < len(with_full(DEPTHS))
    assert isinstance(done.step, Decision)
    assert not done.step.is_decided
    assert "does not pay for the next runs" in done.step.because
