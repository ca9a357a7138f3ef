from __future__ import annotations

import pytest

import synthetic
from frostline.analysis import Curve, DepthShare, Established, Interaction, WithoutFailed
from frostline.records.depth import FULL, Depth
from frostline.report.curve_tables import operating_table, paper_table, summary_table
from frostline.report.wording import axis_words, curve_words
from frostline.report.wording.failure_words import advice
from frostline.report.wording.sizes_words import answer_by_rows, change_with_rows

from .curves import make_curve


def first_scale(curve: Curve, scale: str) -> Curve:
    return curve.replace(operating_points=tuple(p for p in curve.operating_points if p.scale == scale))


def test_the_answer_says_what_is_kept_what_is_saved_and_what_is_established() -> None:
    assert curve_words.answer(make_curve()) == (
        "Training the last 2 of 6 layers keeps 95.9% [92.4, 99.4] of the full score"
        " (accuracy 0.749 against 0.781, chance 0.500) with 16% of the parameters, 13% of the time and"
        " 41% of the memory. At 95% confidence, 90% of the full score is established for training the last 2 of 6"
        " layers; 90% of the full score above chance is established for training the last 3 of 6 layers."
    )


def test_an_estimate_that_is_not_established_is_called_an_estimate() -> None:
    curve = make_curve()
    unsure = curve.operating_points[0].replace(established=Established(n_frozen=3, trained_layers=3))
    said = curve_words.answer(curve.replace(operating_points=(unsure,)))
    assert said.startswith("Best estimate: training the last 2 of 6 layers keeps 95.9%")
    assert said.endswith("90% of the full score is established for training the last 3 of 6 layers.")


def test_where_nothing_is_established_the_answer_says_so() -> None:
    curve = make_curve()
    none = curve.operating_points[0].replace(established=Established(n_frozen=FULL, trained_layers=6))
    said = curve_words.answer(curve.replace(operating_points=(none,)))
    assert said.startswith("Best estimate: ")
    assert said.endswith("At 95% confidence, 90% of the full score is not established for any depth.")


def test_older_results_have_no_verdicts_and_the_interval_over_seeds() -> None:
    curve = make_curve()
    points = tuple(point.replace(difference_ci_dev=None, ratio_ci_dev=None) for point in curve.points)
    asked = curve.operating_points[0].replace(established=None)
    said = curve_words.answer(curve.replace(points=points, operating_points=(asked,)))
    assert said.startswith("Training the last 2 of 6 layers keeps 95.9% [93.6, 98.3] of the full score")
    assert "established" not in said


def test_the_answer_is_of_the_point_and_not_of_its_neighbour() -> None:
    curve = make_curve()
    asked = curve.operating_points[0].replace(n_frozen=3, trained_layers=3, established=None)
    moved = curve.replace(operating_points=(asked,))
    assert curve_words.answer(moved).startswith("Training the last 3 of 6 layers keeps 98.1%")
    assert "0.766 against 0.781" in curve_words.answer(moved)


def test_an_interval_without_bounds_is_not_replaced_by_a_narrower_one() -> None:
    curve = make_curve()
    points = tuple(point.replace(ratio_ci_dev=None) for point in curve.points)
    assert "keeps 95.9% (5 seeds, no interval)" in curve_words.answer(curve.replace(points=points))


def test_above_chance_is_another_scale() -> None:
    said = curve_words.answer(first_scale(make_curve(), "ratio_above_chance"))
    assert said.startswith(
        "Training the last 3 of 6 layers keeps 94.7% [86.7, 102.7] of the full score above chance (accuracy"
    )


@pytest.mark.parametrize(
    ("trained", "words"),
    [
        (0, "the head alone"),
        (1, "the last of 6 layers"),
        (2, "the last 2 of 6 layers"),
        (6, "all 6 layers above frozen embeddings"),
    ],
)
def test_what_trains(trained: int, words: str) -> None:
    assert axis_words.what_trains(trained, 6) == words


def test_no_depth_keeps_it() -> None:
    said = curve_words.answer(make_curve({FULL: (0.9, 0.9, 0.9), 3: (0.7, 0.7, 0.7), 6: (0.6, 0.6, 0.6)}))
    assert said == (
        "No depth tried keeps 90% of the full score; the closest, training the last 3 of 6 layers,"
        " keeps 77.8% [77.8, 77.8] (accuracy 0.700 against 0.900, chance 0.500)."
    )


def test_no_depth_finished() -> None:
    said = curve_words.answer(make_curve({FULL: (0.9, 0.9, 0.9), 3: ()}))
    assert said == "No depth tried keeps 90% of the full score, accuracy 0.900 (chance 0.500)."


def test_a_null_scale_gives_its_reason() -> None:
    curve = make_curve({FULL: (-0.1, -0.1, -0.1), 3: (0.1, 0.1, 0.1)}, chance=0.0)
    advice = "train longer (--epochs), use a higher learning rate (--lr), or train on more rows"
    failed = "3 of 3 runs learned nothing"
    assert curve_words.answer(curve) == (
        f"The full model did not learn: accuracy −0.100 (chance 0.000), {failed}; {advice}."
    )
    above = first_scale(make_curve({FULL: (0.5, 0.5, 0.5), 3: (0.5, 0.5, 0.5)}), "ratio_above_chance")
    assert curve_words.answer(above) == (
        f"The full model did not learn: accuracy 0.500 (chance 0.500), {failed}; {advice}."
    )
    below = make_curve({FULL: (-0.1, -0.1, -0.1), 3: (0.1, 0.1, 0.1)}, chance=-0.5)
    assert curve_words.answer(below) == (
        f"90% of the full score is undefined: the full model scores accuracy −0.100, not above 0; {advice}."
    )


def test_too_few_seeds_for_an_interval() -> None:
    said = curve_words.answer(make_curve({FULL: (0.78, 0.79), 3: (0.77, 0.76), 6: (0.6, 0.6)}))
    assert "keeps 97.5% (2 seeds, no interval) of the full score" in said


def test_no_full_run_and_nothing_to_compare() -> None:
    assert curve_words.answer(make_curve({FULL: (), 3: (0.7, 0.7)})).startswith("No run of the full model finished")
    alone = "The full model scores accuracy 0.700 (chance 0.500); no depth was compared with it."
    assert curve_words.answer(make_curve({FULL: (0.7, 0.7)})) == alone
    assert curve_words.answer(make_curve(keeps=())).endswith("no depth was compared with it.")


def test_unknown_times_are_left_out() -> None:
    curve = make_curve()
    timeless = curve.replace(full=curve.full.replace(seconds=None, peak_bytes=None))
    assert curve_words.answer(timeless).partition(" At 95%")[0].endswith("with 16% of the parameters.")


def test_the_distribution_names_depths_and_leaves_out_zeros() -> None:
    shares = tuple(DepthShare(n_frozen=n, share=share) for n, share in ((FULL, 0.08), (2, 0.0), (3, 0.92)))
    assert curve_words.distribution(shares) == "full: 8%, 3: 92%"
    assert curve_words.distribution(()) == "–"


def test_the_advice_follows_from_what_the_runs_show() -> None:
    full = make_curve({FULL: (0.5, 0.5, 0.5), 3: (0.5, 0.5, 0.5)}).full
    assert advice(full.replace(train_scores=(0.5, 0.5, 0.5)), 0.5).startswith("train longer")
    assert advice(full.replace(train_scores=(0.99, 0.98, 1.0)), 0.5) == (
        "the training rows are learned (0.990) but not dev: train on more rows"
    )
    assert advice(full.replace(n_diverged=2), 0.5) == "2 of 3 runs diverged: use a lower learning rate (--lr)"


def test_without_failed_runs_the_estimate_may_be_another() -> None:
    curve = make_curve({FULL: (0.8, 0.8, 0.8), 3: (0.79, 0.79, 0.79), 4: (0.78, 0.78, 0.5)})
    other = WithoutFailed(keep=0.9, scale="ratio", n_frozen=4, trained_layers=2)
    said = curve_words.answer(curve.replace(operating_points_without_failed=(other,)))
    assert "Without the 1 run that failed, the estimate is training the last 2 of 6 layers." in said
    assert "Without" not in curve_words.answer(curve)


def test_failed_runs_are_named_in_the_sentence_that_names_their_depth() -> None:
    scores: dict[Depth, tuple[float, ...]] = {FULL: (0.9, 0.9, 0.9), 3: (0.82, 0.82, 0.5), 4: (0.6, 0.6, 0.6)}
    curve = make_curve(scores)
    assert "the closest, training the last 3 of 6 layers (1 of 3 runs failed), keeps 79.3%" in curve_words.answer(curve)
    kept = make_curve(scores, keeps=(0.6,))
    asked = kept.operating_points[0].replace(established=Established(n_frozen=3, trained_layers=3))
    said = curve_words.answer(kept.replace(operating_points=(asked,)))
    assert "is established for training the last 3 of 6 layers (1 of 3 runs failed)." in said
    shallow = asked.replace(n_frozen=3, trained_layers=3)
    assert curve_words.short_answer(kept.replace(operating_points=(shallow,))) == (
        "Training the last 3 of 6 layers keeps 79.3% of the full score (1 of 3 runs failed)"
    )
    assert "failed" not in curve_words.answer(make_curve()) + curve_words.short_answer(make_curve())


def test_tables_of_operating_points_name_failed_runs_too() -> None:
    curve = make_curve({FULL: (0.8, 0.8, 0.8), 3: (0.8, 0.8, 0.5)}, keeps=(0.8,))
    tables = operating_table(curve), summary_table([curve]), paper_table([curve])
    for table in tables:
        assert any("3 (1 of 3 runs failed)" in row for row in table.rows), table.title
    sound = make_curve()
    for table in (operating_table(sound), summary_table([sound]), paper_table([sound])):
        assert not any("failed" in cell for row in table.rows for cell in row)


def test_train_sizes_name_failed_runs_too() -> None:
    some = make_curve({FULL: (0.8, 0.8, 0.8), 3: (0.8, 0.8, 0.5)}, keeps=(0.8,))
    none = make_curve({FULL: (0.5, 0.5, 0.5), 3: (0.5, 0.5, 0.5)}, keeps=(0.8,))
    assert answer_by_rows([(50, none), (100, some)]).endswith(
        ": undefined (the full model did not learn) with 50 rows, 3 (1 of 3 runs failed) with 100 rows."
    )


def test_the_advice_about_a_depth_that_learned_nothing_follows_from_its_own_runs() -> None:
    curve = make_curve({FULL: (0.623, 0.623), 6: (0.57, 0.57)}, chance=0.57)
    full = curve.full.replace(train_scores=(0.99, 0.99))
    head = curve.points[0].replace(train_scores=(0.57, 0.58))
    said = curve_words.answer(curve.replace(full=full, points=(head,)))
    assert said.endswith("or train longer (--epochs), use a higher learning rate (--lr), or train on more rows.")
    assert "training rows are learned" not in said, "the full model did learn"


@pytest.mark.parametrize(
    ("scores", "is_nothing"),
    [
        ({FULL: (0.8, 0.8), 6: (0.79, 0.79)}, False),
        ({FULL: (0.8, 0.8), 6: (0.7, 0.7)}, False),  # the answer is the full model
        ({FULL: (0.8, 0.8, 0.8), 6: (0.8, 0.8, 0.5)}, False),
        ({FULL: (0.5, 0.5), 6: (0.5, 0.5)}, True),
        ({FULL: (0.8, 0.5), 6: (0.79, 0.79)}, True),  # half of the full model's runs failed
        ({FULL: (0.54, 0.54), 6: (0.5, 0.5)}, True),  # 93% of the full score, and a constant answer
        ({FULL: (), 6: (0.7, 0.7)}, True),
    ],
)
def test_an_answer_recommends_nothing_that_did_not_learn(
    scores: dict[Depth, tuple[float, ...]], is_nothing: bool
) -> None:
    assert curve_words.recommends_nothing(make_curve(scores, keeps=(0.9,))) == is_nothing


def test_failed_runs_of_the_full_model_are_in_the_same_sentence() -> None:
    full, depth = [0.9, 0.91, 0.9, 0.89, 0.5], [0.89, 0.9, 0.9, 0.89, 0.9]
    said = curve_words.answer(synthetic.make_curve(full, {3: depth}))
    assert "(accuracy 0.896 against 0.820, chance 0.500; 1 of 5 runs of the full model failed)" in said


def test_where_failed_runs_pull_every_mean_below_the_bar_the_established_depth_is_named() -> None:
    full, depth = [0.9, 0.91, 0.9, 0.89, 0.9], [0.89, 0.9, 0.9, 0.5, 0.5]
    said = curve_words.answer(synthetic.make_curve(full, {3: depth}))
    assert said.startswith("No depth tried keeps 90% of the full score; the closest, training the last of 4 layers")
    assert "90% of the full score is established for training the last of 4 layers (2 of 5 runs failed)" in said
    assert said.endswith("Without the 2 runs that failed, the estimate is training the last of 4 layers.")


def test_what_would_settle_open_depths_is_said() -> None:
    full, near, open_one = [0.9, 0.91, 0.88, 0.89, 0.9], [0.89, 0.9, 0.9, 0.89, 0.9], [0.8, 0.83, 0.82, 0.8, 0.84]
    curve = synthetic.make_curve(full, {2: near, 3: open_one})
    n_seeds = curve.points[1].seeds_to_settle
    needed = "more dev rows" if n_seeds is None else f"{n_seeds} seeds"
    assert curve_words.seeds_needed(curve) == f" What would settle the open depths with 80% probability: 3: {needed}."
    assert curve_words.seeds_needed(curve.replace(points=curve.points[:1])) == ""


def test_whether_a_loss_depends_on_the_rows_is_said() -> None:
    unsure = Interaction(n_frozen=3, per_doubling=0.002, ci=(-0.01, 0.014))
    sure = Interaction(n_frozen=6, per_doubling=-0.03, ci=(-0.05, -0.01))
    assert change_with_rows([unsure.replace(ci=None)]) == []
    assert change_with_rows([unsure])[0].startswith("It is not established for any depth")
    assert change_with_rows([unsure, sure]) == [
        "With twice as many rows, the difference from the full model changes: 6 frozen −0.030 [−0.050, −0.010]."
    ]
