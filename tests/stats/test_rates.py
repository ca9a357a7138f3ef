"""The rules of a race of learning rates."""

from __future__ import annotations

import math

import pytest

from frostline.stats.rates import HIGHEST_RATE, LOWEST_RATE, Standing, next_rate, ranked


def standing(rate: float, score: float, loss: float) -> Standing:
    return Standing(rate=rate, score=score, noise=0.017, loss=loss)


def test_of_scores_within_noise_the_lowest_loss_is_first() -> None:
    close = [(1e-5, 0.523, 0.69), (2e-5, 0.521, 0.62), (3e-5, 0.515, 0.64)]
    assert [one.rate for one in ranked([standing(*one) for one in close])] == [2e-5, 3e-5, 1e-5]


def test_a_score_that_is_clearly_behind_is_behind_whatever_its_loss() -> None:
    found = ranked([standing(1e-5, 0.70, 0.5), standing(2e-5, 0.80, 0.9), standing(3e-5, 0.60, 0.1)])
    assert [one.rate for one in found] == [2e-5, 1e-5, 3e-5]


def test_of_equals_the_lowest_rate_is_first() -> None:
    assert [one.rate for one in ranked([standing(rate, 0.8, 0.5) for rate in (3e-5, 1e-5)])] == [1e-5, 3e-5]


def test_a_rate_that_diverged_is_last_whatever_its_score() -> None:
    found = ranked([standing(1e-2, 0.9, math.inf), standing(1e-5, 0.6, 0.7), standing(2e-5, 0.7, 0.7)])
    assert [one.rate for one in found] == [2e-5, 1e-5, 1e-2]
    assert len(ranked([standing(1e-2, 0.9, math.inf)])) == 1


@pytest.mark.parametrize(
    ("best", "line", "wanted"),
    [
        (2e-5, (2e-5, 5e-5), 1e-4),
        (5e-5, (2e-5, 5e-5), 1e-4),
        (2e-5, (2e-5, HIGHEST_RATE), 1e-5),
        (5e-5, (2e-5, 5e-5, HIGHEST_RATE), None),
        (HIGHEST_RATE, (LOWEST_RATE, HIGHEST_RATE), None),
    ],
)
def test_a_line_whose_best_learned_nothing_goes_up_first(
    best: float, line: tuple[float, ...], wanted: float | None
) -> None:
    assert next_rate(best, line, has_learned=False) == wanted


@pytest.mark.parametrize(
    ("best", "line", "wanted"),
    [
        (2e-4, (2e-5, 5e-5, 1e-4, 2e-4), 5e-4),
        (2e-5, (2e-5, 5e-5, 1e-4, 2e-4), 1e-5),
        (1e-4, (2e-5, 5e-5, 1e-4, 2e-4), None),
        (3e-5, (1e-5, 3e-5), 5e-5),
        (HIGHEST_RATE, (5e-3, HIGHEST_RATE), None),
        (LOWEST_RATE, (LOWEST_RATE, 2e-6), None),
        (1e-3, (1e-3,), 2e-3),
    ],
)
def test_a_line_goes_on_while_the_best_is_at_its_end(
    best: float, line: tuple[float, ...], wanted: float | None
) -> None:
    assert next_rate(best, line) == wanted
