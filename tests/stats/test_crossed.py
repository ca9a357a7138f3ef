"""Intervals, margins and verdicts over new seeds and new dev rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from frostline import stats
from frostline.records.depth import FULL
from frostline.stats import CrossedPair, Scored, not_paired, paired_by_seed
from frostline.stats.crossed import SeedPart

N_ROWS = 500
OWN, FULL_SCORES = np.array([0.70, 0.74, 0.71, 0.73]), np.array([0.80, 0.81, 0.78, 0.80])


def scored(scores: stats.Floats, spread: float = 0.0, *, shared: stats.Floats | None = None, seed: int = 0) -> Scored:
    """Scores whose rows vary by `spread`, all seeds alike; `shared` is what both models' rows have in common."""
    moves = np.random.default_rng(seed).normal(0.0, spread, 400) if shared is None else shared
    return Scored(scores, scores[None, :] + moves[:, None])


def pair(spread: float = 0.0) -> CrossedPair:
    made = paired_by_seed(scored(OWN, spread), scored(FULL_SCORES, spread, seed=1), N_ROWS)
    assert made is not None
    return made


def test_without_rows_they_are_the_intervals_over_seeds() -> None:
    alone = pair(0.02).on_these_rows()
    assert alone.difference_interval() == pytest.approx(stats.difference_interval(OWN, FULL_SCORES), abs=1e-12)
    assert alone.ratio_interval() == pytest.approx(stats.ratio_interval(OWN, FULL_SCORES), abs=1e-12)
    base = 0.5
    assert alone.ratio_interval(base=base) == pytest.approx(
        stats.ratio_interval(OWN - base, FULL_SCORES - base), abs=1e-12
    )


def test_rows_make_them_wider_and_rows_that_both_models_share_do_not() -> None:
    alone, rows = pair().on_these_rows(), pair(0.02)
    assert rows.margin((1.0, -1.0), 0.025) > 1.2 * alone.margin((1.0, -1.0), 0.025)
    shared = np.random.default_rng(3).normal(0.0, 0.02, 400)
    both = paired_by_seed(scored(OWN, shared=shared), scored(FULL_SCORES, shared=shared), N_ROWS)
    assert both is not None
    assert both.difference_interval() == pytest.approx(alone.difference_interval(), abs=1e-12)


def test_models_without_a_mistake_are_as_if_one_row_were_wrong() -> None:
    perfect = np.ones(4)
    for n_rows in (20, 500):
        made = not_paired(scored(perfect), scored(perfect), n_rows)
        assert made is not None
        one_wrong = (np.arange(n_rows) > 0).var() / n_rows
        assert np.diag(made.rows) == pytest.approx([one_wrong, one_wrong])
        assert stats.verdict(made, keep=0.9, base=0.0, error=0.01) == ("open" if n_rows == 20 else "kept")


def test_a_model_against_itself_is_no_difference() -> None:
    full = scored(FULL_SCORES, 0.02)
    same = paired_by_seed(full, full, N_ROWS)
    assert same is not None
    assert same.difference_interval() == (0.0, 0.0)
    assert same.ratio_interval() == (1.0, 1.0)


def test_what_belongs_to_one_seed_on_one_row_is_counted_once() -> None:
    rng = np.random.default_rng(5)
    seeds, n_seeds = 0.75 + rng.normal(0.0, 0.01, 4), 4
    own_moves = seeds[None, :] + rng.normal(0.0, 0.02, (400, n_seeds))  # nothing but interaction
    made = not_paired(Scored(seeds, own_moves), scored(FULL_SCORES), N_ROWS)
    assert made is not None
    rows = float(made.rows[0, 0])
    assert made.interaction[0] == pytest.approx(rows, rel=0.2), "of the rows nothing is left without the interaction"


def test_seeds_that_are_not_paired_follow_welch() -> None:
    made = not_paired(scored(OWN), scored(FULL_SCORES[:3]), N_ROWS)
    assert made is not None
    welch = scipy.stats.ttest_ind(OWN, FULL_SCORES[:3], equal_var=False).confidence_interval(0.95)
    assert made.difference_interval() == pytest.approx((welch.low, welch.high), abs=1e-9)


def test_too_few_seeds_or_rows_say_nothing() -> None:
    assert paired_by_seed(scored(OWN[:2]), scored(FULL_SCORES[:2]), N_ROWS) is None
    assert not_paired(scored(OWN[:1]), scored(FULL_SCORES), N_ROWS) is None
    assert not_paired(scored(OWN), scored(FULL_SCORES), 1) is None


def test_no_ratio_of_a_full_model_that_is_not_above_the_base() -> None:
    assert pair().ratio_interval(base=0.9) is None


def test_a_ratio_ends_where_the_difference_reaches_its_margin() -> None:
    """Also where little is left of the rows without the interaction: the end was at 8 times the full score there."""
    seeds = np.array([[2.8e-4, 0.0], [0.0, 2.1e-4]])
    made = CrossedPair(
        means=np.array([0.008, 0.475]),
        seeds=(SeedPart(seeds, 2),),
        rows=np.array([[2.0e-3, 0.0], [0.0, 6.1e-4]]),
        interaction=np.array([2.2e-3, 2.0e-4]),
        row_freedom=36.0,
    )
    found = made.ratio_interval()
    assert found is not None
    for end in found:
        assert abs(0.008 - end * 0.475) == pytest.approx(made.margin((1.0, -end), 0.025), rel=0.05)


@pytest.mark.parametrize(("keep", "said"), [(0.7, "kept"), (0.902, "open"), (0.99, "short")])
def test_a_verdict_is_sure_on_one_side_of_the_bar(keep: float, said: str) -> None:
    assert stats.verdict(pair(0.002), keep=keep, base=0.0, error=0.05) == said


def test_more_confidence_leaves_more_open() -> None:
    assert stats.verdict(pair(), keep=0.86, base=0.0, error=0.05) == "kept"
    assert stats.verdict(pair(), keep=0.86, base=0.0, error=0.0005) == "open"
    assert stats.verdict(None, keep=0.1, base=0.0, error=0.05) == "open"


def test_a_base_moves_the_bar() -> None:
    assert stats.verdict(pair(), keep=0.8, base=0.0, error=0.05) == "kept"
    assert stats.verdict(pair(), keep=0.8, base=0.6, error=0.05) == "short"


def test_better_is_surely_above_the_full_model() -> None:
    better = not_paired(scored(FULL_SCORES + 0.1), scored(FULL_SCORES), N_ROWS)
    assert stats.is_better(better, error=0.01)
    assert not stats.is_better(pair(), error=0.01)
    assert not stats.is_better(None, error=0.01)


def test_the_established_depth_is_the_deepest_sure_one() -> None:
    assert stats.established_depth({3: "kept", 4: "open", 5: "kept", 6: "open"}) == 5
    assert stats.established_depth({3: "open", 4: "short"}) is FULL


def test_over_new_seeds_and_rows_they_cover_what_they_promise_and_seeds_alone_do_not() -> None:
    rng, truth = np.random.default_rng(7), (0.62, 0.70)
    held, held_alone, n_rows, n_seeds = 0, 0, 300, 5
    counts = rng.multinomial(n_rows, [1 / n_rows] * n_rows, size=200) / n_rows
    for _ in range(300):
        models = []
        for level in truth:
            rows = rng.random(n_rows) < level  # rows that this kind of model can answer, whatever the seed
            right = rows[None, :] ^ (rng.random((n_seeds, n_rows)) < 0.05)
            models.append(Scored(right.mean(axis=1), counts @ right.T))
        made = paired_by_seed(models[0], models[1], n_rows)
        alone = stats.difference_interval(models[0].scores, models[1].scores)
        assert made is not None
        assert alone is not None
        wanted = 0.9 * (truth[0] - truth[1])  # one answer in twenty is turned over
        held += made.difference_interval()[0] <= wanted <= made.difference_interval()[1]
        held_alone += alone[0] <= wanted <= alone[1]
    assert held >= 0.92 * 300
    assert held_alone < 0.7 * 300
