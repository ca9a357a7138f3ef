from __future__ import annotations

import pytest

from frostline.analysis import Comparison
from frostline.report.wording import comparison_words

from .comparisons import STRATEGIES, Made, make_comparison

FEW: dict[str, Made] = {name: STRATEGIES[name] for name in ("full", "freeze:3", "lora:8", "freeze:6")}


def without_ratios(comparison: Comparison) -> Comparison:
    return comparison.replace(strategies=tuple(p.replace(ratio=None, ratio_ci=None) for p in comparison.strategies))


def test_the_title_counts_what_is_compared() -> None:
    assert comparison_words.title(make_comparison()) == "all-MiniLM-L6-v2 on sst2: 12 strategies"
    assert comparison_words.title(make_comparison({"full": STRATEGIES["full"]})).endswith(": 1 strategy")


def test_the_answer_names_the_best_and_the_quickest_that_is_enough() -> None:
    assert comparison_words.answer(make_comparison(FEW)) == (
        "full scores highest: accuracy 0.832 [0.823, 0.841], chance 0.500. freeze:3 is the fastest that keeps 90% of"
        " the full score: 98.4% [96.5, 100.3] (accuracy 0.819 against 0.832) with 24% of the parameters, 39% of the"
        " time and 73% of the memory."
    )


def test_what_is_quicker_but_falls_short_is_not_named() -> None:
    assert "freeze:6" not in comparison_words.answer(make_comparison(FEW))
    better = FEW | {"freeze:6": ((0.76, 0.76, 0.76), *FEW["freeze:6"][1:])}
    assert "freeze:6 is the fastest that keeps 90%" in comparison_words.answer(make_comparison(better))


def test_the_best_may_be_the_quickest_too() -> None:
    quick: dict[str, Made] = {"full": FEW["full"], "lora:8": ((0.84, 0.84, 0.84), 222_338, 41.3, 331_000_000, 2e-3)}
    said = comparison_words.answer(make_comparison(quick))
    assert said.startswith("lora:8 scores highest: accuracy 0.840")
    assert "It is also the fastest that keeps 90% of the full score: 101.0%" in said


def test_of_equal_scores_the_quicker_is_named() -> None:
    scores = FEW["full"][0]
    same: dict[str, Made] = {"full": FEW["full"], "lora:8": (scores, *FEW["lora:8"][1:])}
    assert comparison_words.answer(make_comparison(same)).startswith("lora:8 scores highest")


@pytest.mark.parametrize(
    ("comparison", "said"),
    [
        (make_comparison({"lora:8": FEW["lora:8"]}), "`full` is not among the strategies."),
        (make_comparison(FEW | {"full": ((), *FEW["full"][1:])}), "No run of `full` finished"),
        (without_ratios(make_comparison(FEW)), "The full model did not learn: accuracy 0.832"),
        (make_comparison({"full": FEW["full"], "freeze:6": FEW["freeze:6"]}), "No faster strategy keeps 90%"),
        (make_comparison({"full": ((), *FEW["full"][1:])}), "No run finished, so there is nothing to compare."),
    ],
)
def test_what_cannot_be_said_is_not(comparison: Comparison, said: str) -> None:
    assert said in comparison_words.answer(comparison)
    assert "None" not in comparison_words.answer(comparison) + comparison_words.short_answer(comparison)


def test_every_cost_has_a_front_of_its_own() -> None:
    comparison = make_comparison()
    fronts = {
        kind: [point.name for point in comparison_words.front(comparison, kind)] for kind in comparison_words.COSTS
    }
    assert fronts["seconds"] == ["features", "freeze:3", "gradual", "lora:8", "full"]
    assert fronts["parameters"] == ["features", "norms", "bitfit", "lora:8", "full"]
    assert fronts["memory"] == ["features", "freeze:3", "lora:8", "full"]


def test_on_a_front_none_beats_another_and_all_else_is_beaten() -> None:
    comparison = make_comparison()
    for kind in comparison_words.COSTS:
        front = comparison_words.front(comparison, kind)
        means = [point.mean or 0.0 for point in front]
        assert means == sorted(set(means)), "who pays more gets more"
        for point in comparison.strategies:
            at_most = [
                p.mean or 0.0
                for p in front
                if (comparison_words.cost_of(p, kind) or 0) <= (comparison_words.cost_of(point, kind) or 0)
            ]
            assert max(at_most) >= (point.mean or 0.0)


def test_how_it_was_run() -> None:
    said = dict(comparison_words.how_run(make_comparison()))
    assert said["protocol"] == "tuned (a learning rate for each strategy, chosen on rows held out of train)"
    assert said["learning rates"] == "5e-5, 1e-4, 1e-3, 2e-3 (the best for each strategy, 33 runs in all)"
    assert said["runs"] == "55 done, 5 reused"
    paper = dict(comparison_words.how_run(make_comparison().replace(protocol="paper")))
    assert "best of 33 in the line search on full" in paper["learning rates"]
    assert dict(comparison_words.how_run(make_comparison().replace(line_search=())))["learning rates"].endswith(
        "(given)"
    )


def test_failed_runs_are_named_with_the_strategy() -> None:
    failing = FEW | {"freeze:3": ((0.83, 0.83, 0.83, 0.83, 0.5), *FEW["freeze:3"][1:])}
    comparison = make_comparison(failing)
    assert "freeze:3 (1 of 5 runs failed) is the fastest that keeps 90%" in comparison_words.answer(comparison)
    assert "; freeze:3 (1 of 5 runs failed) keeps " in comparison_words.short_answer(comparison)
    assert "failed" not in comparison_words.answer(make_comparison(FEW)) + comparison_words.short_answer(
        make_comparison(FEW)
    )
