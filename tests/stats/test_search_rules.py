"""The logic of `find`, on numbers whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from frostline import stats
from frostline.records.depth import FULL, Depth, with_full
from frostline.stats import search_rules
from frostline.stats.search_rules import Decision, Question, Run, Standing

DEPTHS = (3, 4, 5, 6)
COSTS = {FULL: 1.0, 3: 0.5, 4: 1 / 3, 5: 1 / 6, 6: 0.01}


def ask(**changes: object) -> Question:
    """A question of a model with six layers."""
    given: dict[str, object] = {"keep": 0.9, "seeds": (0, 1, 2, 3, 4), "depths": DEPTHS, "costs": COSTS, "budget": 9.0}
    return Question(**given | changes)  # type: ignore[arg-type]


def searched(
    question: Question, means: dict[Depth, float], *, deviation: float = 0.0, noise: float = 1e-6, seed: int = 0
) -> tuple[Decision, list[list[Run]]]:
    """How a search over scores around these means ends, and what it asked for in each round."""
    rng = np.random.default_rng(seed)
    scores: dict[Depth, dict[int, float | None]] = {}
    rounds = []
    while isinstance(step := search_rules.next_step(question, scores, noise), list):
        assert step, "a round asks for something"
        rounds.append(step)
        for depth, number in step:
            assert number not in scores.get(depth, {}), "nothing is asked for twice"
            scores.setdefault(depth, {})[number] = means[depth] + rng.normal(0, deviation)
        assert len(rounds) < 50
    return step, rounds


STEEP: dict[Depth, float] = {FULL: 0.8, 3: 0.8, 4: 0.78, 5: 0.6, 6: 0.5}


def test_a_clear_curve_is_decided_with_two_seeds_from_the_deepest_up() -> None:
    decision, rounds = searched(ask(), STEEP)
    assert decision == Decision(n_frozen=4, is_decided=True, because="decided at 95% confidence")
    opening = [(FULL, 0), (FULL, 1), (5, 0), (5, 1), (6, 0), (6, 1)]
    assert rounds == [opening, [(4, 0), (4, 1)], [(3, 0)]], "the depth beside the answer is looked at once"


def test_a_curve_that_stays_up_needs_the_cheapest_runs_only() -> None:
    decision, rounds = searched(ask(), dict.fromkeys(with_full(DEPTHS), 0.8))
    assert (decision.n_frozen, decision.is_decided) == (6, True)
    assert {depth for step in rounds for depth, _ in step} == {FULL, 5, 6}


def test_where_no_depth_keeps_the_share_the_full_model_is_the_answer() -> None:
    decision, rounds = searched(ask(), {FULL: 0.8, **dict.fromkeys(DEPTHS, 0.6)})
    assert (decision.n_frozen, decision.is_decided) == (FULL, True)
    assert {depth for step in rounds for depth, _ in step} == {FULL, *DEPTHS}


def test_a_dip_beside_the_answer_is_run_and_does_not_change_it() -> None:
    decision, rounds = searched(ask(), {**STEEP, 4: 0.6, 5: 0.79})
    assert decision.n_frozen == 5
    assert (4, 0) in rounds[-1]


def test_seeds_are_added_where_it_is_open_and_with_them_the_full_models() -> None:
    means: dict[Depth, float] = {**STEEP, 5: 0.9 * 0.8 - 0.02}  # two deviations below the bar
    decision, rounds = searched(ask(budget=100.0), means, deviation=0.01, noise=1e-4)
    assert (decision.n_frozen, decision.is_decided) == (4, True)
    more = [step for step in rounds if any(seed > 1 for _, seed in step)]
    assert more[0] == [(FULL, 2), (5, 2)]
    assert all(depth in (FULL, 5) for step in more for depth, _ in step)


def test_a_depth_on_the_bar_is_given_up_before_its_seeds_are_used_up() -> None:
    decision, rounds = searched(ask(budget=100.0), {**STEEP, 5: 0.9 * 0.8 + 1e-6}, deviation=0.0, noise=1e-4)
    assert decision == Decision(
        n_frozen=5, is_decided=False, because="too close to the bar for 5 seeds: 5 frozen layers"
    )
    assert {seed for step in rounds for _, seed in step} == {0, 1}


def test_below_a_depth_that_is_given_up_the_search_goes_on_to_one_that_reaches_the_bar() -> None:
    decision, rounds = searched(ask(budget=100.0), {**STEEP, 5: 0.9 * 0.8 - 1e-6}, deviation=0.0, noise=1e-4)
    assert (decision.n_frozen, decision.is_decided) == (4, False)
    assert (3, 0) in rounds[-1]


@pytest.mark.parametrize(("off", "is_hopeless"), [(0.0, True), (0.01, True), (0.04, False)])
def test_what_is_given_up_is_what_the_seeds_that_are_left_would_not_tell(off: float, is_hopeless: bool) -> None:
    question = ask()
    own, full, prior = [0.72 + off] * 2, [0.8] * 2, 1e-4 * 4
    assert search_rules.is_too_close(question, full, own, prior) == is_hopeless
    assert search_rules.verdict(question, full, own, prior) == "open"
    rng = np.random.default_rng(0)
    told = [_is_told(question, own, full, math.sqrt(prior), rng) for _ in range(300)]
    assert (np.mean(told) < search_rules.MAY_MOVE) == is_hopeless


def _is_told(
    question: Question, own: list[float], full: list[float], deviation: float, rng: np.random.Generator
) -> bool:
    """Whether three more seeds of each would tell, if the means are what they seem."""
    more = [values + list(rng.normal(values[0], deviation, 3)) for values in (full, own)]
    return search_rules.verdict(question, more[0], more[1], deviation**2) != "open"


def test_the_variance_of_all_depths_counts_at_each() -> None:
    calm, rough = [0.78, 0.78], [0.8, 0.8]
    scores: dict[Depth, dict[int, float | None]] = {
        FULL: dict(enumerate(rough)),
        6: {0: 0.5, 1: 0.5},
        5: {0: 0.55, 1: 0.65},
        4: dict(enumerate(calm)),
    }
    assert isinstance(search_rules.next_step(ask(), scores, 1e-8), list), "what varies at 5 may vary at 4"
    scores[5] = {0: 0.6, 1: 0.6}
    assert search_rules.next_step(ask(), scores, 1e-8) == [(3, 0)]


def test_a_budget_ends_the_search_with_the_best_estimate() -> None:
    question = ask(budget=3.0)
    decision, rounds = searched(question, {**STEEP, 5: 0.9 * 0.8 + 0.001}, deviation=0.0005, noise=1e-3)
    assert (decision.n_frozen, decision.is_decided) == (5, False)
    untried = sorted(set(DEPTHS) - {depth for step in rounds for depth, _ in step})
    assert untried, "the budget ended the search before all depths were tried"
    listed = ", ".join(str(depth) for depth in untried)
    assert decision.because == (
        f"the budget of 3 full runs is used up; depths not tried: {listed}; a larger --budget continues the search"
    )
    assert question.cost([run for step in rounds for run in step]) <= 3.0


def test_a_full_model_without_quality_ends_it() -> None:
    decision, _ = searched(ask(base=0.5), dict.fromkeys(with_full(DEPTHS), 0.5))
    assert (decision.n_frozen, decision.is_decided) == (FULL, False)
    assert decision.because == "the full model did not learn: its mean score is 0.5, not above 0.5"


def test_a_share_of_chance_is_not_searched_for_on_the_plain_scale_either() -> None:
    at_chance = dict.fromkeys(with_full(DEPTHS), 0.5)
    assert searched(ask(), at_chance)[0].is_decided, "without knowing chance it would be kept by all"
    decision, rounds = searched(ask(chance=0.5), at_chance)
    assert (decision.n_frozen, decision.is_decided, len(rounds)) == (6, False, 1)


def standing(rate: float, score: float, loss: float) -> Standing:
    return Standing(rate=rate, score=score, noise=0.017, loss=loss)


def test_early_in_a_race_losses_tell_what_scores_do_not() -> None:
    # SST-2, 1,000 rows, after 21 of 126 steps; at the end they scored 0.510, 0.538, 0.772, 0.800, 0.800.
    early = [(1e-5, 0.523, 0.6922), (2e-5, 0.521, 0.6911), (3e-5, 0.515, 0.6899), (4e-5, 0.511, 0.6887)]
    ranked = search_rules.ranked([standing(*one) for one in (*early, (5e-5, 0.511, 0.6873))])
    assert [one.rate for one in ranked] == [5e-5, 4e-5, 3e-5, 2e-5, 1e-5]


def test_a_score_that_is_clearly_behind_is_behind_whatever_its_loss() -> None:
    ranked = search_rules.ranked([standing(1e-5, 0.70, 0.5), standing(2e-5, 0.80, 0.9), standing(3e-5, 0.60, 0.1)])
    assert [one.rate for one in ranked] == [2e-5, 1e-5, 3e-5]


def test_of_equals_the_lowest_rate_is_first() -> None:
    ranked = search_rules.ranked([standing(rate, 0.8, 0.5) for rate in (3e-5, 1e-5, 2e-5)])
    assert [one.rate for one in ranked] == [1e-5, 2e-5, 3e-5]


def test_crashed_runs_are_not_asked_for_again() -> None:
    scores: dict[Depth, dict[int, float | None]] = {}
    for _ in range(20):
        step = search_rules.next_step(ask(budget=100.0), scores, 1e-4)
        if isinstance(step, Decision):
            break
        for depth, seed in step:
            assert seed not in scores.get(depth, {})
            scores.setdefault(depth, {})[seed] = None if depth == 5 else STEEP[depth]
    assert isinstance(step, Decision)
    assert not step.is_decided
    assert step.because == "runs crashed: 5 frozen layers"


def test_what_is_likely_next_is_the_depth_beside_the_one_that_looks_kept() -> None:
    scores: dict[Depth, dict[int, float | None]] = {
        FULL: {0: 0.8, 1: 0.8}, 6: {0: 0.5, 1: 0.5}, 5: {0: 0.6, 1: 0.6}, 4: {0: 0.78, 1: 0.78},
    }  # fmt: skip
    assert search_rules.likely_step(ask(), scores, [(FULL, 2), (4, 2)], 1e-6) == [(3, 0)]
    before = {depth: by_seed for depth, by_seed in scores.items() if depth != 4}
    assert search_rules.likely_step(ask(), before, [(4, 0), (4, 1)], 1e-6) == [(3, 0)], "a depth not tried looks kept"
    assert search_rules.likely_step(ask(), {}, [(FULL, 0), (FULL, 1)], 1e-6) == []
    assert search_rules.likely_step(ask(), {**scores, 3: {0: 0.8}}, [], 1e-6) == [], "there is an end"


@given(st.permutations([(FULL, 0), (FULL, 1), (5, 0), (5, 1), (6, 0), (6, 1)]))
def test_what_comes_next_does_not_depend_on_who_was_faster(order: list[Run]) -> None:
    scores: dict[Depth, dict[int, float | None]] = {}
    for depth, seed in order:
        scores.setdefault(depth, {})[seed] = STEEP[depth] + 0.001 * seed
    assert search_rules.next_step(ask(), scores, 1e-6) == [(4, 0), (4, 1)]


def test_the_error_of_a_look_shares_the_error_of_all() -> None:
    question = ask(confidence=0.9)
    assert question.error_a_look == pytest.approx(0.1 / 4)


def test_a_margin_is_welchs_where_no_prior_is_known() -> None:
    own, full = [0.70, 0.72, 0.69, 0.71], [0.80, 0.82, 0.81]
    margin = stats.moderated_margin([(own, 1.0), (full, 1.0)], prior=0.0, prior_freedom=0.0, error=0.025)
    interval = scipy_stats.ttest_ind(own, full, equal_var=False).confidence_interval(0.95)
    assert margin == pytest.approx((interval.high - interval.low) / 2, rel=1e-9)


def test_a_prior_stands_for_seeds_that_are_not_there() -> None:
    one = stats.moderated_margin([([0.7], 1.0)], prior=1e-4, prior_freedom=4.0, error=0.025)
    assert one == pytest.approx(scipy_stats.t.ppf(0.975, 4) * 0.01)
    assert stats.moderated_margin([([0.7, 0.7], 1.0)], prior=0.0, prior_freedom=4.0, error=0.025) == 0.0
    assert math.isfinite(stats.moderated_margin([([1e-9, 2e-9], 1.0)], prior=0.0, prior_freedom=4.0, error=0.01))
