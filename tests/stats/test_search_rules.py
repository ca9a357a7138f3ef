"""The logic of `find`, on numbers whose truth is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.records.depth import FULL, Depth, with_full
from frostline.stats import search_rules
from frostline.stats.search_question import Decision, Outcome, Question, Run

DEPTHS = (3, 4, 5, 6)
COSTS = {FULL: 1.0, 3: 0.5, 4: 1 / 3, 5: 1 / 6, 6: 0.01}
STEEP: dict[Depth, float] = {FULL: 0.8, 3: 0.8, 4: 0.78, 5: 0.6, 6: 0.5}
OPENING: list[Run] = [
    (FULL, 0),
    (FULL, 1),
    (FULL, 2),
    (FULL, 3),
    *((5, s) for s in range(3)),
    *((6, s) for s in range(3)),
]
Fails = Callable[[Depth, int], bool]


def ask(**changes: object) -> Question:
    """A question of a model with six layers."""
    given: dict[str, object] = {
        "keep": 0.9,
        "seeds": (0, 1, 2, 3, 4),
        "depths": DEPTHS,
        "n_rows": 900,
        "costs": COSTS,
        "rate_costs": dict.fromkeys(COSTS, 0.0),
        "budget": 100.0,
    }
    return Question(**given | changes)  # type: ignore[arg-type]


def outcome(score: float, *, rows: float = 1e-3, has_failed: bool = False) -> Outcome:
    """A run whose score varies a little over resampled rows."""
    return Outcome(score, score + rows * np.random.default_rng(3).normal(size=200), has_failed)


def searched(
    question: Question,
    means: dict[Depth, float],
    *,
    deviation: float = 1e-3,
    rows: float = 1e-3,
    fails: Fails = lambda _depth, _seed: False,
) -> tuple[Decision, list[list[Run]]]:
    """How a search over scores around these means ends, and what it asked for in each round."""
    rng = np.random.default_rng(0)
    outcomes: dict[Depth, dict[int, Outcome | None]] = {}
    rounds = []
    while isinstance(step := search_rules.next_step(question, outcomes), list):
        assert step, "a round asks for something"
        rounds.append(step)
        for depth, seed in step:
            assert seed not in outcomes.get(depth, {}), "nothing is asked for twice"
            score = 0.5 if fails(depth, seed) else means[depth] + rng.normal(0, deviation)
            outcomes.setdefault(depth, {})[seed] = outcome(score, rows=rows, has_failed=fails(depth, seed))
        assert len(rounds) < 50
    return step, rounds


def test_a_clear_curve_is_decided_at_the_first_look_from_the_deepest_up() -> None:
    decision, rounds = searched(ask(), STEEP)
    assert decision == Decision(n_frozen=4, is_decided=True, because="decided at 95% confidence")
    assert rounds == [OPENING, [(4, 0), (4, 1), (4, 2)]]


def test_a_curve_that_stays_up_needs_the_cheapest_runs_only() -> None:
    decision, rounds = searched(ask(), dict.fromkeys(with_full(DEPTHS), 0.8))
    assert (decision.n_frozen, decision.is_decided) == (6, True)
    assert {depth for step in rounds for depth, _ in step} == {FULL, 5, 6}


def test_where_no_depth_keeps_the_share_the_full_model_is_the_answer() -> None:
    decision, rounds = searched(ask(), {FULL: 0.8, **dict.fromkeys(DEPTHS, 0.6)})
    assert (decision.n_frozen, decision.is_decided) == (FULL, True)
    assert {depth for step in rounds for depth, _ in step} == {FULL, *DEPTHS}


def test_seeds_are_added_where_it_is_open_and_with_them_the_full_models() -> None:
    means: dict[Depth, float] = {**STEEP, 5: 0.9 * 0.8 - 0.022}
    decision, rounds = searched(ask(), means, deviation=1.2e-2, rows=4e-3)
    more = [run for step in rounds for run in step if run[1] > 2 and run != (FULL, 3)]
    assert more == [(FULL, 4), (5, 3), (5, 4)]
    assert (decision.n_frozen, decision.is_decided) == (4, True)


def test_a_depth_on_the_bar_is_given_up_and_the_search_goes_on_to_one_that_is_sure() -> None:
    decision, rounds = searched(ask(), {**STEEP, 5: 0.9 * 0.8 + 1e-6}, deviation=1e-6, rows=1e-2)
    assert not decision.is_decided
    assert decision.because == "too close to the bar for 5 seeds: 5 frozen layers"
    assert {seed for step in rounds for depth, seed in step if depth == 5} == {0, 1, 2}, "more seeds would not help"
    assert 4 in {depth for step in rounds for depth, _ in step}


def test_what_a_look_decided_stays_decided() -> None:
    question, outcomes = ask(), {depth: {s: outcome(mean) for s in range(3)} for depth, mean in STEEP.items()}
    outcomes[FULL][3] = outcome(0.8)
    before = search_rules.verdicts(question, outcomes)
    assert before[5] == "short"
    later = {**outcomes, 5: outcomes[5] | {3: outcome(0.9), 4: outcome(0.9)}, FULL: outcomes[FULL] | {4: outcome(0.8)}}
    assert search_rules.verdicts(question, later) == before, "a look that was sure is not repeated with more seeds"


def test_depths_that_were_not_tried_are_plausible_unless_a_deeper_one_is_kept() -> None:
    question = ask()
    tried = {depth: {s: outcome(STEEP[depth]) for s in range(4)} for depth in (FULL, 5, 6)}
    assert search_rules.plausible(question, tried) == (FULL, 3, 4)
    tried[4] = {s: outcome(STEEP[4]) for s in range(4)}
    assert search_rules.plausible(question, tried) == (4,)


def test_failed_runs_are_replaced_by_unused_seeds() -> None:
    decision, rounds = searched(ask(), STEEP, fails=lambda depth, seed: (depth, seed) in {(FULL, 1), (4, 0)})
    assert (decision.n_frozen, decision.is_decided) == (4, True)
    assert [(FULL, 5)] in rounds
    assert [(4, 5)] in rounds


def test_failed_replacements_end() -> None:
    fails: Fails = lambda depth, seed: depth == 4 and (seed == 0 or seed > 4)  # noqa: E731
    decision, rounds = searched(ask(), STEEP, fails=fails)
    asked = {seed for step in rounds for depth, seed in step if depth == 4}
    assert asked >= {5, 6, 7, 8, 9}
    assert max(asked) == 9, "as many as seeds were asked for"
    assert decision.n_frozen == 4


def test_a_depth_that_mostly_fails_is_judged_over_all_its_runs() -> None:
    decision, rounds = searched(ask(), STEEP, fails=lambda depth, _seed: depth == 4)
    assert (decision.n_frozen, decision.is_decided) == (3, True)
    assert all(seed < 5 for step in rounds for depth, seed in step if depth == 4), "nothing is replaced"


def test_if_half_of_the_full_models_runs_fail_nothing_is_decided() -> None:
    decision, rounds = searched(ask(), STEEP, fails=lambda depth, seed: depth is FULL and seed < 2)
    assert (decision.n_frozen, decision.is_decided, len(rounds)) == (FULL, False, 1)
    assert decision.because == "half or more of the full model's runs learned nothing"
    one, _ = searched(ask(), STEEP, fails=lambda depth, seed: depth is FULL and seed < 1)
    assert one.is_decided, "twin: one of four"


def test_a_budget_ends_the_search_with_the_best_estimate() -> None:
    question = ask(budget=5.0)
    decision, rounds = searched(question, {**STEEP, 5: 0.9 * 0.8 + 0.001}, deviation=5e-4, rows=1e-2)
    assert (decision.n_frozen, decision.is_decided) == (5, False)
    assert decision.because == "the budget of 5 full runs does not pay for the next runs (4 frozen layers)"
    assert question.cost([run for step in rounds for run in step]) <= 5.0


def test_choosing_a_rate_costs_once_for_each_depth() -> None:
    question = ask(rate_costs={FULL: 5.0, 3: 2.0, 4: 1.0, 5: 0.5, 6: 0.1})
    assert question.cost([(4, 0), (4, 1), (5, 0)]) == pytest.approx(2 / 3 + 1 / 6 + 1.0 + 0.5)
    assert question.cost([(4, 0)], [(4, 1), (5, 0)]) == pytest.approx(2 / 3 + 1 / 6 + 1.0 + 0.5)


def test_a_race_that_was_longer_than_foreseen_does_not_undo_a_step() -> None:
    foreseen = dict.fromkeys(COSTS, 1.0)
    first = ask(rate_costs=foreseen, budget=8.0)
    opening = search_rules.next_step(first, {})
    assert isinstance(opening, list)
    longer = ask(rate_costs=foreseen, rate_spent=dict.fromkeys(COSTS, 50.0), budget=8.0)
    assert search_rules.next_step(longer, {}) == opening, "it was decided before the race"
    outcomes: dict[Depth, dict[int, Outcome | None]] = {}
    for depth, seed in opening:
        outcomes.setdefault(depth, {})[seed] = outcome(STEEP[depth])
    after = search_rules.next_step(longer, outcomes)
    assert isinstance(after, Decision)
    assert "budget" in after.because, "what it cost counts for the next step"


def test_a_full_model_without_quality_ends_it() -> None:
    decision, _ = searched(ask(base=0.5), dict.fromkeys(with_full(DEPTHS), 0.499))
    assert (decision.n_frozen, decision.is_decided) == (FULL, False)
    assert decision.because.startswith("the full model did not learn: its mean score is 0.49")


def test_crashed_runs_are_not_asked_for_again() -> None:
    outcomes: dict[Depth, dict[int, Outcome | None]] = {}
    for _ in range(20):
        step = search_rules.next_step(ask(), outcomes)
        if isinstance(step, Decision):
            break
        for depth, seed in step:
            assert seed not in outcomes.get(depth, {})
            outcomes.setdefault(depth, {})[seed] = None if depth == 5 else outcome(STEEP[depth])
    assert isinstance(step, Decision)
    assert not step.is_decided
    assert step.because == "runs crashed: 5 frozen layers"


def test_what_is_likely_next_is_what_would_follow_if_a_new_depth_were_as_good_as_the_full_model() -> None:
    outcomes: dict[Depth, dict[int, Outcome | None]] = {
        FULL: {s: outcome(0.8) for s in range(4)},
        **{depth: {s: outcome(STEEP[depth]) for s in range(3)} for depth in (5, 6)},
    }
    assert search_rules.likely_step(ask(), {}, OPENING) == []
    assert search_rules.likely_step(ask(), outcomes, [(4, 0), (4, 1), (4, 2)]) == [], "it would be the answer"
    outcomes[4] = {0: outcome(0.6)}
    assert search_rules.likely_step(ask(), outcomes, [(4, 1), (4, 2)]) == [(3, 0), (3, 1), (3, 2)]


@given(st.permutations(OPENING))
def test_what_comes_next_does_not_depend_on_who_was_faster(order: list[Run]) -> None:
    outcomes: dict[Depth, dict[int, Outcome | None]] = {}
    for depth, seed in order:
        outcomes.setdefault(depth, {})[seed] = outcome(STEEP[depth] + 0.001 * seed)
    assert search_rules.next_step(ask(), outcomes) == [(4, 0), (4, 1), (4, 2)]


def test_the_errors_of_all_looks_and_depths_add_up() -> None:
    question = ask(confidence=0.9, seeds=tuple(range(10)))
    assert question.looks == (3, 5, 8, 10)
    assert 4 * question.error_short == pytest.approx(0.05)
    assert 4 * len(DEPTHS) * question.error_kept == pytest.approx(0.05)
    assert ask(seeds=tuple(range(4))).looks == (3, 4)


@given(
    means=st.lists(st.floats(0.6, 0.95), min_size=4, max_size=4),
    deviation=st.sampled_from([1e-3, 0.02]),
    start=st.sampled_from(DEPTHS),
)
def test_where_a_search_starts_changes_its_order_and_not_its_decision(
    means: list[float], deviation: float, start: int
) -> None:
    truth: dict[Depth, float] = {FULL: 0.9, **dict(zip(DEPTHS, means, strict=True))}
    scores = {
        (depth, seed): _noisy(mean, deviation, depth, seed) for depth, mean in truth.items() for seed in range(10)
    }
    plain, steps = _replayed(ask(), scores)
    started, other_steps = _replayed(ask(start=start), scores)
    assert (started.n_frozen, started.is_decided) == (plain.n_frozen, plain.is_decided)
    assert {depth for depth, _ in other_steps[0]} == {FULL, start}
    asked_for, others = ({run for step in some for run in step if run[0] is not FULL} for some in (steps, other_steps))
    assert {depth for depth, _ in others} - {depth for depth, _ in asked_for} <= {start}


def _noisy(mean: float, deviation: float, depth: Depth, seed: int) -> Outcome:
    rng = np.random.default_rng([100 if depth is FULL else depth, seed])
    return outcome(mean + deviation * rng.normal())


def _replayed(question: Question, scores: dict[Run, Outcome]) -> tuple[Decision, list[list[Run]]]:
    """A search whose outcomes do not depend on the order in which it asks for them."""
    outcomes: dict[Depth, dict[int, Outcome | None]] = {}
    steps = []
    while isinstance(step := search_rules.next_step(question, outcomes), list):
        steps.append(step)
        for depth, seed in step:
            outcomes.setdefault(depth, {})[seed] = scores[depth, seed]
    return step, steps


def test_a_depth_where_most_runs_learned_nothing_is_never_the_answer() -> None:
    """Chance is high: the bar is 0.561, and depths that give a constant answer reach 0.57."""
    question = ask(chance=0.55)
    means: dict[Depth, float] = {FULL: 0.623, 3: 0.62, 4: 0.615, 5: 0.571, 6: 0.57}
    rng, outcomes = np.random.default_rng(0), dict[Depth, dict[int, Outcome | None]]()
    while isinstance(step := search_rules.next_step(question, outcomes), list):
        for depth, seed in step:
            made = outcome(means[depth] + rng.normal(0, 1e-3), has_failed=depth in (5, 6))
            outcomes.setdefault(depth, {})[seed] = made
    assert (step.n_frozen, step.is_decided) == (4, False)
    assert step.because == "half or more of the runs learned nothing: 5 frozen layers, 6 frozen layers"
    assert search_rules.verdicts(question, outcomes) == {3: "open", 4: "kept", 5: "open", 6: "open"}
    sound = {depth: {seed: outcome(one.score) for seed, one in runs.items() if one} for depth, runs in outcomes.items()}
    assert search_rules.verdicts(question, sound)[6] == "kept", "the same scores of runs that learned something"


def test_a_full_model_that_is_not_above_chance_ends_the_search_on_both_scales() -> None:
    for base in (0.0, 0.85):
        decision, rounds = searched(ask(base=base, chance=0.85), dict.fromkeys(with_full(DEPTHS), 0.84))
        assert (decision.n_frozen, decision.is_decided) == (FULL, False)
        assert decision.because == "the full model did not learn: its mean score is 0.8402, not above 0.85"
        assert len(rounds) == 1


@pytest.mark.parametrize(("seeds", "is_decided"), [((0, 1, 2, 3, 4), True), ((0, 1, 2, 3), False)])
def test_nothing_is_decided_by_fewer_than_four_runs_of_the_full_model(seeds: tuple[int, ...], is_decided: bool) -> None:
    question, outcomes = ask(seeds=seeds), dict[Depth, dict[int, Outcome | None]]()
    while isinstance(step := search_rules.next_step(question, outcomes), list):
        for depth, seed in step:
            crashed = depth is FULL and seed == 0
            outcomes.setdefault(depth, {})[seed] = None if crashed else outcome(STEEP[depth] + 1e-4 * seed)
    assert step.is_decided == is_decided
    assert is_decided or step.because == "runs of the full model crashed"
