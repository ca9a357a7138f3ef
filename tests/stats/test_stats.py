from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from frostline import stats
from frostline.errors import UsageError
from frostline.records.depth import FULL, Depth

SCORES = st.lists(st.integers(-1000, 1000).map(lambda n: n / 1000), min_size=3, max_size=8)


@given(SCORES, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_t_interval_agrees_with_scipy(scores: list[float], confidence: float) -> None:
    found = stats.t_interval(scores, confidence=confidence)
    assert found is not None
    error = scipy.stats.sem(scores)
    if len(set(scores)) == 1:
        assert found == (scores[0], scores[0])
    else:
        wanted = scipy.stats.t.interval(confidence, len(scores) - 1, loc=np.mean(scores), scale=error)
        assert found == pytest.approx(wanted, abs=1e-12)


def test_t_interval_by_hand() -> None:
    # Mean 2, std 1, three values: 4.302653 × 1/√3.
    low, high = stats.t_interval([1.0, 2.0, 3.0]) or (0.0, 0.0)
    assert (low, high) == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-6)


@pytest.mark.parametrize("n_seeds", [0, 1, 2])
def test_no_interval_below_three(n_seeds: int) -> None:
    values = [0.5, 0.75][:n_seeds]
    assert stats.t_interval(values) is None
    assert stats.difference_interval(values, values) is None
    assert stats.ratio_interval(values, values) is None
    assert stats.crossed_interval(values, 0.1, 100) is None


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, -0.5])
def test_a_confidence_that_is_no_share_is_refused(confidence: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        stats.t_interval([1.0, 2.0, 3.0], confidence=confidence)


@pytest.mark.parametrize("n_seeds", [3, 5, 10])
def test_t_interval_covers_the_mean_as_often_as_it_says(n_seeds: int) -> None:
    draws = np.random.default_rng(0).normal(0.8, 0.02, size=(2000, n_seeds))
    covered = np.mean([_holds(stats.t_interval(draw), 0.8) for draw in draws])
    assert 0.93 <= covered <= 0.97


def _holds(interval: stats.Interval | None, value: float) -> bool:
    return interval is not None and interval[0] <= value <= interval[1]


def test_a_normal_quantile_instead_of_students_would_not_cover() -> None:
    draws = np.random.default_rng(0).normal(0.8, 0.02, size=(2000, 3))
    half = 1.96 * draws.std(axis=1, ddof=1) / np.sqrt(3)
    assert np.mean(np.abs(draws.mean(axis=1) - 0.8) <= half) < 0.85


@given(SCORES)
def test_mean_and_std(scores: list[float]) -> None:
    assert stats.mean(scores) == pytest.approx(math.fsum(scores) / len(scores), abs=1e-15)
    assert stats.std(scores) == pytest.approx(np.std(scores, ddof=1), abs=1e-12)


def test_equal_values_have_no_rounding() -> None:
    assert np.mean([0.1] * 3) != 0.1
    assert stats.mean([0.1] * 3) == 0.1
    assert stats.std([0.1] * 3) == 0.0
    assert stats.std([0.1]) is None


@given(SCORES)
def test_difference_interval_is_that_of_the_differences(scores: list[float]) -> None:
    others = scores[::-1]
    wanted = stats.t_interval([a - b for a, b in zip(scores, others, strict=True)])
    assert stats.difference_interval(scores, others) == wanted


def test_pairing_narrows_what_seeds_share() -> None:
    full = np.array([0.70, 0.80, 0.90, 0.75, 0.85])
    paired = stats.difference_interval(full - 0.01, full)
    crossed = stats.difference_interval(full - 0.01, full[::-1])
    assert paired == pytest.approx((-0.01, -0.01), abs=1e-12)
    assert crossed is not None
    assert crossed[1] - crossed[0] > 0.1


def test_values_without_partner_are_refused() -> None:
    with pytest.raises(UsageError, match="partner"):
        stats.difference_interval([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(UsageError, match="partner"):
        stats.ratio_interval([1.0, 2.0, 3.0], [1.0])


@given(SCORES.filter(lambda scores: stats.mean(scores) != 0))
def test_the_ratio_of_equal_samples_is_exactly_one(scores: list[float]) -> None:
    assert stats.ratio_interval(scores, list(scores)) == (1.0, 1.0)


@given(SCORES, st.lists(st.integers(500, 900).map(lambda n: n / 1000), min_size=8, max_size=8))
def test_fiellers_bounds_are_where_the_ratio_is_just_rejected(above: list[float], below: list[float]) -> None:
    below = below[: len(above)]
    found = stats.ratio_interval(above, below)
    if found is None or found[1] - found[0] < 1e-6:
        return
    assert found[0] <= stats.mean(above) / stats.mean(below) <= found[1]
    limit = scipy.stats.t.ppf(0.975, len(above) - 1)
    for bound in found:
        rest = np.array(above) - bound * np.array(below)
        assert abs(rest.mean()) == pytest.approx(limit * scipy.stats.sem(rest), rel=1e-6, abs=1e-9)


def test_a_ratio_over_something_that_may_be_zero_has_no_bounds() -> None:
    assert stats.ratio_interval([0.5, 0.6, 0.7], [-0.1, 0.2, 0.1]) is None
    assert stats.ratio_interval([0.5, 0.6, 0.7], [-0.1, 0.1, 0.0]) is None
    assert stats.ratio_interval([0.5, 0.6, 0.7], [0.6, 0.7, 0.8]) is not None


def test_fiellers_interval_covers_the_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    shared = rng.normal(0.0, 0.02, size=(2000, 5))
    above = 0.72 + shared + rng.normal(0.0, 0.03, size=(2000, 5))
    below = 0.80 + shared + rng.normal(0.0, 0.02, size=(2000, 5))
    covered = np.mean([_holds(stats.ratio_interval(a, b), 0.9) for a, b in zip(above, below, strict=True)])
    assert 0.93 <= covered <= 0.97


def _row_variance(values: stats.Floats, rng: np.random.Generator, n_resamples: int = 400) -> float:
    """The variance of the mean of values over resampled rows."""
    means = stats.resampled_scores(lambda rows: [values[rows].mean()], len(values), rng, n_resamples=n_resamples)
    assert means.shape == (1, n_resamples)
    return float(means.var(ddof=1))


def test_row_variance_of_a_mean_is_its_textbook_variance() -> None:
    values = np.random.default_rng(2).normal(size=200)
    found = _row_variance(values, np.random.default_rng(3), n_resamples=2000)
    assert found == pytest.approx(values.var() / 200, rel=0.15)


def test_row_variance_is_the_same_from_the_same_generator() -> None:
    values = np.random.default_rng(2).normal(size=50)

    def once(seed: int) -> float:
        return _row_variance(values, np.random.default_rng(seed))

    assert once(7) == once(7)
    assert once(7) != once(8)


def test_crossed_interval_without_rows_is_students() -> None:
    scores = [0.7, 0.8, 0.75, 0.9]
    assert stats.crossed_interval(scores, 0.0, 100) == pytest.approx(stats.t_interval(scores), abs=1e-12)


def test_crossed_interval_without_seeds_is_that_of_the_rows() -> None:
    low, high = stats.crossed_interval([0.8] * 5, 0.01**2, 100_000, n_resamples=10**7) or (0.0, 0.0)
    assert (low, high) == pytest.approx((0.8 - 0.0196, 0.8 + 0.0196), abs=1e-5)
    assert stats.crossed_interval([0.8] * 5, 0.0, 100) == (0.8, 0.8)
    assert stats.crossed_interval([0.8] * 5, 0.0, 1) is None


def test_crossed_interval_by_welch_and_satterthwaite() -> None:
    scores, rows, n_rows, n_resamples = [0.7, 0.8, 0.75, 0.9], 0.004, 50, 400
    seeds = np.var(scores, ddof=1) / 4
    freedom = (seeds + rows) ** 2 / (seeds**2 / 3 + rows**2 * (1 / (n_rows - 1) + 1 / (n_resamples - 1)))
    half = scipy.stats.t.ppf(0.975, freedom) * math.sqrt(seeds + rows)
    wanted = (np.mean(scores) - half, np.mean(scores) + half)
    assert stats.crossed_interval(scores, rows, n_rows, n_resamples=n_resamples) == pytest.approx(wanted, abs=1e-12)


@given(SCORES, st.floats(0.0, 0.1))
def test_new_rows_never_make_the_mean_more_certain(scores: list[float], variance: float) -> None:
    seeds, both = stats.t_interval(scores), stats.crossed_interval(scores, variance, 50)
    assert seeds is not None
    assert both is not None
    assert both[1] - both[0] >= (seeds[1] - seeds[0]) * (1 - 1e-12)


def test_crossed_interval_covers_new_seeds_and_rows_and_students_does_not() -> None:
    rng = np.random.default_rng(4)
    both, seeds_alone = [], []
    for _ in range(300):
        table = rng.normal(0.0, 0.1, size=(5, 1)) + rng.normal(0.0, 1.0, size=60) + rng.normal(0.0, 0.5, size=(5, 60))
        variance = _row_variance(table.mean(axis=0), rng, n_resamples=100)
        scores = table.mean(axis=1)
        both.append(_holds(stats.crossed_interval(scores, variance, 60, n_resamples=100), 0.0))
        seeds_alone.append(_holds(stats.t_interval(scores), 0.0))
    assert np.mean(both) >= 0.92
    assert np.mean(seeds_alone) < 0.8


def test_reaching_a_bar_forgives_rounding_only() -> None:
    assert 0.9 * 0.8 > 0.72
    assert stats.reaches(0.72, 0.9 * 0.8)
    assert stats.reaches(0.1 * 3, 0.3)
    assert stats.reaches(0.3, 0.1 * 3)
    assert not stats.reaches(0.72 - 1e-9, 0.72)
    assert not stats.is_above(0.1 * 3, 0.3)
    assert stats.is_above(0.3 + 1e-9, 0.3)


def test_operating_depth_is_the_deepest_that_reaches_the_bar() -> None:
    means = {0: 0.80, 2: 0.71, 3: 0.73, 4: 0.5}
    assert stats.operating_depth(means, stats.bar_of(0.9, 0.8)) == 3
    assert stats.operating_depth(means, stats.bar_of(0.9, 0.8, base=0.5)) == 0
    assert stats.operating_depth(means, 0.9) is FULL
    assert stats.operating_depth({}, 0.1) is FULL


def test_a_shallower_cut_that_falls_short_is_named() -> None:
    means = {0: 0.80, 2: 0.71, 3: 0.73, 4: 0.5}
    assert stats.short_depths(means, 0.72) == (2,)
    assert not stats.is_monotone(means, 0.72)
    assert stats.is_monotone(means, 0.70)
    assert stats.is_monotone(means, 0.9)


@given(st.dictionaries(st.integers(0, 12), st.integers(0, 10).map(lambda n: n / 10)), st.integers(0, 10))
def test_operating_depth_by_its_definition(means: dict[int, float], tenths: int) -> None:
    bar = tenths / 10
    reaching = [depth for depth in range(13) if depth in means and means[depth] >= bar - 1e-9]
    assert stats.operating_depth(means, bar) == (max(reaching) if reaching else FULL)
    short = any(means[depth] < bar - 1e-9 for depth in means if reaching and depth < max(reaching))
    assert stats.is_monotone(means, bar) is not short


def _scored(scores: list[float], rows: float = 0.0, seed: int = 0) -> stats.Scored:
    """Scores of seeds; on resampled rows they move by `rows`, all seeds alike."""
    values = np.array(scores)
    moved = rows * np.random.default_rng(seed).normal(size=500)
    return stats.Scored(values, values[None, :] + moved[:, None])


def _probabilities(full: stats.Scored, keep: float = 0.9, **depths: stats.Scored) -> dict[Depth, float]:
    by_depth: dict[Depth, stats.Scored] = {FULL: full, **{int(name[1:]): one for name, one in depths.items()}}
    return stats.depth_distribution(by_depth, keep=keep, rng=np.random.default_rng(0))


def test_a_depth_at_the_bar_is_as_probable_as_not() -> None:
    found = _probabilities(_scored([0.8, 0.81, 0.79, 0.8]), d1=_scored([0.72, 0.73, 0.71, 0.72]))
    assert found[1] == pytest.approx(0.5, abs=0.03)
    assert math.fsum(found.values()) == pytest.approx(1.0)
    assert list(found) == [FULL, 1]


def test_fewer_seeds_and_more_row_noise_make_it_less_sure() -> None:
    full, own = [0.8, 0.81, 0.79, 0.8, 0.8], [0.74, 0.75, 0.73, 0.74, 0.74]
    many = _probabilities(_scored(full), d1=_scored(own))[1]
    few = _probabilities(_scored(full[:3]), d1=_scored(own[:3]))[1]
    noisy = _probabilities(_scored(full, 0.02), d1=_scored(own, 0.02, seed=1))[1]
    assert 0.9 < few < many <= 1.0
    assert noisy < many


def test_rows_that_move_both_models_alike_do_not_matter() -> None:
    full, own = [0.8, 0.81, 0.79], [0.75, 0.76, 0.74]
    alike = _probabilities(_scored(full, 0.02), keep=1.0, d1=_scored(own, 0.02))[FULL]
    apart = _probabilities(_scored(full, 0.02), keep=1.0, d1=_scored(own, 0.02, seed=1))[FULL]
    assert apart < alike


def test_a_full_model_at_the_base_keeps_nothing() -> None:
    flat = _scored([0.5, 0.5, 0.5])
    by_depth: dict[Depth, stats.Scored] = {FULL: flat, 1: flat}
    assert stats.depth_distribution(by_depth, keep=0.9, base=0.5, rng=np.random.default_rng(0)) == {FULL: 1.0}


class TestSeedsToSettle:
    def test_the_table_of_the_definitions(self) -> None:
        """STATS.md: seeds for 80% power against a 90% bar, one depth, unpaired, without row noise."""
        for share, deviation, wanted in ((0.92, 0.012, 11), (0.93, 0.012, 6), (0.95, 0.02, 6)):
            half = deviation * math.sqrt(2)
            scores = [[mean - half / math.sqrt(2), mean + half / math.sqrt(2)] for mean in (share, 1.0)]
            pair = stats.not_paired(_scored(scores[0]), _scored(scores[1]), 1000)
            assert pair is not None
            found = stats.seeds_to_settle(pair, 2, keep=0.9, base=0.0, error=0.025)
            assert found is not None
            assert abs(found - wanted) <= 1

    def test_where_the_rows_do_not_tell_no_number_does(self) -> None:
        pair = stats.not_paired(_scored([0.72, 0.73], 0.05), _scored([0.8, 0.81], 0.05, seed=1), 100)
        assert pair is not None
        assert stats.seeds_to_settle(pair, 2, keep=0.9, base=0.0, error=0.025) is None

    def test_more_seeds_and_rows_tell_more_apart(self) -> None:
        def gap(n_seeds: int, n_rows: int) -> float:
            return stats.told_apart(n_seeds, n_rows, keep=0.9, error=0.0125, score=0.85, deviation=0.012)

        assert gap(3, 800) > gap(5, 800) > gap(5, 8000) > 0


class TestPlausibleDepths:
    def test_what_surely_falls_short_and_what_is_shallower_than_a_sure_one_is_ruled_out(self) -> None:
        assert stats.plausible_depths({3: "kept", 4: "kept", 5: "open", 6: "short"}) == (4, 5)
        assert stats.plausible_depths({3: "open", 4: "short", 5: "kept"}) == (5,)

    def test_where_nothing_is_sure_the_full_model_alone_may_be_the_answer(self) -> None:
        assert stats.plausible_depths({5: "open", 6: "short"}) == (FULL, 5)

    def test_where_all_fall_short_the_full_model_alone_is(self) -> None:
        assert stats.plausible_depths({6: "short"}) == (FULL,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_the_expected_best_of_k_is_the_mean_of_the_best_over_all_draws(values: list[float]) -> None:
    found = stats.expected_best(values)
    assert len(found) == len(values)
    for k in range(1, len(values) + 1):
        best = [max(drawn) for drawn in itertools.combinations(values, k)]
        assert found[k - 1] == pytest.approx(sum(best) / len(best), abs=1e-9)


@pytest.mark.parametrize(("n", "known"), [(3, 0.846), (5, 1.163)])
def test_the_expected_best_of_all_seeds_is_that_of_as_many_new_ones(n: int, known: float) -> None:
    """The largest of n normal values is so many standard deviations above the mean, in tables of order statistics."""
    samples = np.random.default_rng(0).normal(size=(20_000, n))
    found = np.mean([stats.expected_best(sample)[-1] for sample in samples])
    assert found == pytest.approx(known, abs=0.02)


def test_counts_of_resamples_are_those_that_are_drawn_one_by_one() -> None:
    values = np.random.default_rng(1).normal(size=30)
    one_by_one = _row_variance(values, np.random.default_rng(7))
    counts = stats.resampled_counts(30, np.random.default_rng(7))
    assert counts.shape == (400, 30)
    assert np.var(counts @ values / 30, ddof=1) == pytest.approx(one_by_one, rel=1e-5)
