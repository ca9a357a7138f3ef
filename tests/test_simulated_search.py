"""The simulation in `bench.finding` and `find` decide alike: both are given the same scores."""

from __future__ import annotations

import numpy as np
import pytest

from frostline.analysis import dev_scores, has_failed
from frostline.records.depth import FULL, Depth
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.results import RunResult
from frostline.stats import search_rules
from frostline.stats.search_question import Decision, Outcome, Run
from frostline.studies.planning.depth_search import DepthSearch, ResolvedSearch
from frostline.studies.study import Results
from synthetic import N_LAYERS, TASK, make_result, make_spec

DEPTHS = (1, 2, 3, 4)
N_SEEDS = 5
RATE = make_spec(FULL, 0).learning_rate


def search() -> ResolvedSearch:
    """A search at one learning rate, on 200 dev rows."""
    request = StudyRequest(model="toy-model", task=TASK, seeds=tuple(range(N_SEEDS)), learning_rates=(RATE,))
    base = make_spec(FULL, 0)
    resolved = ResolvedRequest(request=request, base=base, n_layers=N_LAYERS, depths=DEPTHS, is_cached=True)
    return ResolvedSearch(resolved=resolved, chance=0.5, n_rows=200)


def drawn(seed: int) -> dict[Run, RunResult]:
    """Scores of all runs that a search may ask for; some runs fail."""
    rng = np.random.default_rng(seed)
    means: dict[Depth, float] = {FULL: 0.9, **dict(zip(DEPTHS, rng.uniform(0.6, 0.95, len(DEPTHS)), strict=True))}
    runs = {}
    for depth, mean in means.items():
        for number in range(2 * N_SEEDS):
            score = 0.5 if rng.random() < 0.15 else float(np.clip(mean + rng.normal(0, 0.02), 0, 1))
            runs[depth, number] = make_result(depth, number, round(200 * score) / 200)
    return runs


def simulated(search: ResolvedSearch, runs: dict[Run, RunResult]) -> tuple[Decision, list[Run]]:
    """What `bench.finding` does: the rules are asked, and get the outcomes that they ask for."""
    question = DepthSearch(search, Results()).question
    outcomes: dict[Depth, dict[int, Outcome | None]] = {}
    asked: list[Run] = []
    while isinstance(step := search_rules.next_step(question, outcomes), list):
        asked += step
        for depth, seed in step:
            result = runs[depth, seed]
            outcomes.setdefault(depth, {})[seed] = Outcome(result.score, dev_scores([result])[0], has_failed(result))
    return step, asked


def found(search: ResolvedSearch, runs: dict[Run, RunResult]) -> tuple[Decision | list[Run], list[Run]]:
    """What `find` does: it asks for specs, and gets their results."""
    results, by_key = Results(), {result.key: result for result in runs.values()}
    while new := [spec for spec in DepthSearch.replayed(search, results).runs if not results.has_all([spec])]:
        for spec in new:
            results.add(by_key[spec.key])
    replayed = DepthSearch.replayed(search, results)
    return replayed.step, replayed.asked


@pytest.mark.parametrize("seed", range(25))
def test_both_decide_alike_from_the_same_scores(seed: int) -> None:
    asked = search()
    runs = drawn(seed)
    assert found(asked, runs) == simulated(asked, runs)


def test_twin_other_scores_show() -> None:
    asked = search()
    ends = [simulated(asked, drawn(seed)) for seed in range(25)]
    assert any(found(asked, drawn(seed + 1)) != end for seed, end in enumerate(ends))
    assert {end.is_decided for end, _ in ends} == {True, False}
