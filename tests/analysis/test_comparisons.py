"""Finished runs → a comparison: the front, what is null, what to beware of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frostline.analysis import Comparison, Replicates, TriedFor, build_comparison, is_on_front
from frostline.errors import FrostlineError
from frostline.records.depth import FULL
from frostline.records.requests import StudyRequest
from frostline.records.results import Probe, RunResult
from frostline.records.specs import Protocol
from synthetic import COST, COUNTS, TASK, make_result, make_spec

SCORES = {"full": (0.9, 0.92, 0.91), "freeze:2": (0.88, 0.9, 0.89), "lora:8": (0.87, 0.91, 0.9)}
SECONDS = {"full": 10.0, "freeze:2": 4.0, "lora:8": 8.0, "features": 1.0}


def make_group(name: str, scores: tuple[float | None, ...], **changes: Any) -> Replicates:
    """The replicates of a strategy; a score that is None is a run that crashed."""
    specs = [make_spec(FULL, seed).replace(strategy=name, **changes) for seed in range(len(scores))]
    results = []
    for spec, score in zip(specs, scores, strict=True):
        if score is not None:
            result = make_result(FULL, spec.seed, score, spec=spec)
            cost = result.cost.replace(seconds=SECONDS.get(name, 5.0))
            results.append(result.replace(cost=cost))
    return Replicates(specs=specs, results=results)


def compared(
    groups: dict[str, Replicates], protocol: Protocol = "tuned", line_search: tuple[TriedFor, ...] = ()
) -> Comparison:
    """The comparison of these runs."""
    return build_comparison(
        request=StudyRequest(model="m", task=TASK, protocol=protocol),
        groups=groups,
        n_trained=dict.fromkeys(groups, 4),
        n_frozen={name: 2 if name == "freeze:2" else None for name in groups},
        line_search=line_search,
        cost=COST,
        runs=COUNTS,
    )


def of_scores(scores: dict[str, tuple[float | None, ...]]) -> Comparison:
    """The comparison of strategies with these scores."""
    return compared({name: make_group(name, values) for name, values in scores.items()})


def test_each_strategy_is_a_point_with_its_costs() -> None:
    found = of_scores(dict(SCORES))
    assert [point.name for point in found.strategies] == list(SCORES)
    lora = found.strategy("lora:8")
    assert lora is not None
    assert lora.scores == SCORES["lora:8"]
    assert lora.seeds == (0, 1, 2)
    assert lora.n_frozen is None
    assert lora.difference == pytest.approx(-0.05 / 3)
    assert lora.trained_parameters is not None
    assert lora.stored_bytes == 4 * lora.trained_parameters
    depth = found.strategy("freeze:2")
    assert depth is not None
    assert depth.n_frozen == 2
    assert depth.ratio == pytest.approx(0.89 / 0.91)


def test_the_front_holds_what_nothing_beats_in_both() -> None:
    found = of_scores(dict(SCORES))
    assert [point.is_pareto for point in found.strategies] == [True, True, True]
    slower = of_scores({**SCORES, "lora:8": (0.8, 0.8, 0.8)})
    assert [point.is_pareto for point in slower.strategies] == [True, True, False], "freeze:2 is better and quicker"


def test_equals_are_both_on_the_front() -> None:
    found = of_scores({"bitfit": (0.8, 0.8), "norms": (0.8, 0.8)})
    assert [point.is_pareto for point in found.strategies] == [True, True]
    assert all(is_on_front(point, found.strategies) for point in found.strategies)


def test_without_full_there_is_nothing_to_compare_with() -> None:
    found = of_scores({"freeze:2": SCORES["freeze:2"], "lora:8": SCORES["lora:8"]})
    for point in found.strategies:
        assert (point.difference, point.difference_ci, point.ratio, point.ratio_ci) == (None, None, None, None)
        assert point.ratio_above_chance is None
    assert any("`full` is not among" in warning for warning in found.warnings)
    json.dumps(found.to_json(), allow_nan=False)


def test_a_fit_has_no_rate() -> None:
    found = compared(
        {"full": make_group("full", SCORES["full"]), "features": make_group("features", (0.8, 0.8), learning_rate=0.0)}
    )
    features = found.strategy("features")
    assert features is not None
    assert features.learning_rate is None


def test_probes_are_means_over_seeds() -> None:
    group = make_group("features", (0.8, 0.82, 0.84), learning_rate=0.0)
    results: list[RunResult] = []
    for result in group.results:
        probes = [
            Probe(depth=depth, pooling="mean", strength=1.0, held_out_score=0.5, score=result.score - depth / 10)
            for depth in (0, 1)
        ]
        results.append(result.replace(probes=tuple(probes)))
    found = compared({"features": Replicates(specs=group.specs, results=results)})
    assert [probe.depth for probe in found.probes] == [0, 1]
    assert found.probes[1].mean == pytest.approx(0.72)
    assert len(found.probes[1].scores) == 3


def test_crashes_are_told_and_left_out() -> None:
    found = of_scores({"full": SCORES["full"], "lora:8": (None, 0.9, 0.9), "bitfit": (None, None, None)})
    bitfit = found.strategy("bitfit")
    assert bitfit is not None
    assert (bitfit.mean, bitfit.stored_bytes, bitfit.is_pareto) == (None, None, False)
    assert any(warning.startswith("lora:8: crashed with seed 0; missing") for warning in found.warnings)
    assert any("bitfit: crashed with seed 0, 1, 2; it has no score" in warning for warning in found.warnings)
    with pytest.raises(FrostlineError, match="every run crashed"):
        of_scores({"bitfit": (None, None)})


def test_under_the_papers_protocol_it_says_what_that_does() -> None:
    tried = tuple(TriedFor(name="full", learning_rate=rate, score=0.9) for rate in (1e-5, 2e-5))
    groups = {name: make_group(name, scores) for name, scores in SCORES.items()}
    found = compared(groups, "paper", tried)
    (said,) = [warning for warning in found.warnings if "trained at" in warning]
    assert said.startswith("freeze:2, lora:8 trained at the full model's rate")
    assert not any("trained at" in warning for warning in compared(groups, "tuned", tried).warnings)
    (given,) = [warning for warning in compared(groups, "tuned").warnings if "trained at" in warning]
    assert "one rate that was given" in given


def test_what_is_null_has_a_reason() -> None:
    at_chance = of_scores({"full": (0.5, 0.5, 0.5), "lora:8": SCORES["lora:8"]})
    assert any("ratio_above_chance is not given" in warning for warning in at_chance.warnings)
    crashed = of_scores({"full": (None, None, None), "lora:8": SCORES["lora:8"]})
    assert any("no run of `full` finished" in warning for warning in crashed.warnings)
    assert not any("not above 0" in warning for warning in crashed.warnings)


def test_a_rate_at_the_end_of_the_line_is_told() -> None:
    group = make_group("lora:8", SCORES["lora:8"], learning_rate=5e-3)
    tried = tuple(TriedFor(name="lora:8", learning_rate=rate, score=0.9) for rate in (1e-3, 5e-3))
    found = compared({"lora:8": group}, "tuned", tried)
    assert any("lora:8: its rate 0.005 is the highest" in warning for warning in found.warnings)


def test_runs_that_differ_in_more_are_refused() -> None:
    groups = {"full": make_group("full", SCORES["full"]), "bitfit": make_group("bitfit", (0.8,), epochs=7)}
    with pytest.raises(FrostlineError, match="more than what trains"):
        compared(groups)


def test_it_is_read_back() -> None:
    found = of_scores(dict(SCORES))
    assert Comparison.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_the_front_says_how_probable_it_is() -> None:
    clear = of_scores({"full": (0.9, 0.91, 0.92), "freeze:2": (0.6, 0.61, 0.62), "lora:8": (0.55, 0.56, 0.57)})
    shares = {point.name: point.p_pareto for point in clear.strategies}
    assert shares["freeze:2"] == 1.0, "nothing is faster"
    assert shares["full"] is not None
    assert shares["lora:8"] is not None
    assert shares["full"] > 0.95
    assert shares["lora:8"] < 0.4
    alike = of_scores({"full": (0.9, 0.91, 0.92), "freeze:2": (0.9, 0.91, 0.92)}).strategy("full")
    assert alike is not None
    assert alike.p_pareto == pytest.approx(0.5, abs=0.05)
    few = of_scores({"full": (0.9, 0.91), "freeze:2": (0.9, 0.91)}).strategy("full")
    assert few is not None
    assert few.p_pareto is None


def test_differences_from_full_pay_for_the_number_of_strategies() -> None:
    found = of_scores(dict(SCORES)).strategy("lora:8")
    alone = of_scores({name: SCORES[name] for name in ("full", "lora:8")}).strategy("lora:8")
    assert found is not None
    assert alone is not None
    widths = [
        one.difference_ci_adjusted[1] - one.difference_ci_adjusted[0]
        for one in (alone, found)
        if one.difference_ci_adjusted
    ]
    assert len(widths) == 2
    assert widths[0] < widths[1]
    assert alone.difference_ci_adjusted == pytest.approx(alone.difference_ci_dev)


def test_scores_that_do_not_vary_have_no_interval_over_seeds() -> None:
    same = of_scores({**SCORES, "features": (0.8, 0.8, 0.8)}).strategy("features")
    assert same is not None
    assert (same.std, same.ci) == (0.0, None)
    assert same.ci_dev is not None
    assert same.ci_dev[0] < 0.8 < same.ci_dev[1], "new dev examples would still move it"
